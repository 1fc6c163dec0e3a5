//! `OpenAPI` v3 documents, one for each group version; `kubectl explain` and client-side validation read them. The v2
//! document has no definitions.

mod paths;
mod schemas;

use super::respond;
use crate::registry::{Catalog, Resource};
use crate::server::Core;
use crate::status_error::StatusError;
use axum::body::Body;
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Request, Response};
use rustc_hash::FxHasher;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

/// The document at a path; `None` for other paths.
pub(super) fn respond(core: &Core, request: &Request<Body>) -> Option<Result<Response<Body>, StatusError>> {
    if request.uri().path() == "/openapi/v2" {
        return Some(Ok(version_2(request.headers())));
    }
    let rest = request.uri().path().strip_prefix("/openapi/v3")?.trim_matches('/');
    let catalog = core.catalog();
    if rest.is_empty() {
        return Some(Ok(respond::text(200, index(&catalog).to_string())));
    }
    let (group, version) = match rest.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["version"] => return Some(Ok(respond::json(200, version_document().to_string()))),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return Some(Ok(respond::not_found_page())),
    };
    let Some(resources) = catalog.group(&group).and_then(|found| found.versions.get(version.as_str())) else {
        return Some(Ok(respond::not_found_page()));
    };
    let tag = format!("\"{}\"", hash(resources));
    if request.headers().get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Some(Ok(respond::text(304, Body::empty())));
    }
    let mut response = respond::json(200, document(resources).to_string());
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Some(Ok(response))
}

/// The `OpenAPI` v2 document, without definitions: clients read those of v3, and look here only for kinds that v3 does
/// not have. Without a document they would stop with a misleading message instead of naming the missing kind.
fn version_2(headers: &HeaderMap) -> Response<Body> {
    const TITLE: &str = "Kubernetes";
    let version = super::health::GIT_VERSION;
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if !accepted.contains("proto-openapi.spec.v2") {
        let info = json!({"title": TITLE, "version": version});
        let document = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
        return respond::json(200, document.to_string());
    }
    // openapi.v2.Document: 1 is `swagger`, 2 is `info` with 1, the title, and 2, the version.
    let mut info = Vec::new();
    protobuf_field(&mut info, 1, TITLE.as_bytes());
    protobuf_field(&mut info, 2, version.as_bytes());
    let mut document = Vec::new();
    protobuf_field(&mut document, 1, b"2.0");
    protobuf_field(&mut document, 2, &info);
    respond::with(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", document)
}

/// Appends a field of bytes, shorter than 128, as all of [`version_2`] are.
fn protobuf_field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    const LENGTH_DELIMITED: u8 = 2;
    debug_assert!(bytes.len() < 128, "the length takes one byte");
    message.extend([number << 3 | LENGTH_DELIMITED, bytes.len() as u8]);
    message.extend(bytes);
}

/// The document of `/version`.
fn version_document() -> Value {
    let response = json!({"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}});
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": super::health::GIT_VERSION},
        "paths": {"/version/": {"get": {"operationId": "getCodeVersion", "responses": response}}},
    })
}

fn root_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The index of all documents.
fn index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    let version = format!("/openapi/v3/version?hash={:016X}", 0);
    paths.insert("version".to_owned(), json!({"serverRelativeURL": version}));
    for (name, group) in catalog.groups() {
        for (version, resources) in &group.versions {
            let root = root_of(name, version);
            let url = format!("/openapi/v3/{root}?hash={}", hash(resources));
            paths.insert(root, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Changes with the document: built-in schemas are constant, custom ones change with their definitions.
fn hash(resources: &BTreeMap<Box<str>, Arc<Resource>>) -> String {
    let mut hasher = FxHasher::default();
    for resource in resources.values() {
        hasher.write(resource.api_version.as_bytes());
        hasher.write(resource.kind.as_bytes());
        hasher.write(resource.plural.as_bytes());
        if let Some(custom) = resource.custom() {
            hasher.write(custom.open_api.to_string().as_bytes());
            hasher.write_usize(resource.subresources.len());
        }
    }
    format!("{:016X}", hasher.finish())
}

fn document(resources: &BTreeMap<Box<str>, Arc<Resource>>) -> Value {
    let mut all_paths = Map::new();
    let mut names = Vec::new();
    let mut own = Map::new();
    for resource in resources.values() {
        let name = schemas::name_of(resource);
        paths::add(resource, &name, &mut all_paths);
        schemas::add_own(resource, &name, &mut own);
        names.push(name);
    }
    schemas::add_referenced(&mut own);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": super::health::GIT_VERSION},
        "paths": all_paths,
        "components": {
            "schemas": own,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication",
            }},
        },
    })
}
