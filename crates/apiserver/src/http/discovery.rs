//! Discovery of groups, versions and resources, aggregated and unaggregated.

use super::negotiate::Accept;
use super::respond;
use crate::registry::{Catalog, Group, Resource, Subresource};
use crate::server::Core;
use crate::status_error::StatusError;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// The discovery document at a path; `None` for other paths.
pub(super) fn respond(
    core: &Core,
    path: &str,
    accept: &Accept,
) -> Option<Result<Response<Body>, StatusError>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let catalog = core.catalog();
    match segments.as_slice() {
        [""] => Some(plain(accept, &root(&catalog))),
        ["api" | "apis"] => Some(roots(&catalog, segments[0], accept)),
        ["api", version] => Some(named(&catalog, "", version, accept)),
        ["apis", group] => Some(match catalog.group(group) {
            Some(found) => plain(accept, &group_of(group, found)),
            None => Ok(respond::not_found_page()),
        }),
        ["apis", group, version] => Some(named(&catalog, group, version, accept)),
        _ => None,
    }
}

fn plain(accept: &Accept, value: &Value) -> Result<Response<Body>, StatusError> {
    Ok(respond::value_as(200, value, accept.plain()?))
}

fn root(catalog: &Catalog) -> Value {
    let first = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"];
    let mut paths: Vec<String> = first.map(str::to_owned).to_vec();
    for (name, group) in catalog.groups().filter(|(name, _)| !name.is_empty()) {
        paths.push(format!("/apis/{name}"));
        paths.extend(group.versions.keys().map(|version| format!("/apis/{name}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    paths.sort_unstable();
    json!({"paths": paths})
}

fn roots(catalog: &Catalog, root: &str, accept: &Accept) -> Result<Response<Body>, StatusError> {
    let wanted = |name: &str| name.is_empty() == (root == "api");
    if let Some(version) = accept.aggregated_discovery() {
        let items: Vec<Value> = catalog
            .groups()
            .filter(|(name, _)| wanted(name))
            .map(|(name, group)| aggregated_group(name, group))
            .collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        let mut response = respond::value_as(200, &list, crate::request_body::Format::Json);
        let media_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        if let Ok(media_type) = HeaderValue::from_str(&media_type) {
            response.headers_mut().insert(http::header::CONTENT_TYPE, media_type);
        }
        response.headers_mut().insert(http::header::VARY, HeaderValue::from_static("Accept"));
        return Ok(response);
    }
    let body = if root == "api" {
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        })
    } else {
        let groups: Vec<Value> = catalog
            .groups()
            .filter(|(name, _)| wanted(name))
            .map(|(name, group)| group_without_kind(name, group))
            .collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    };
    plain(accept, &body)
}

fn group_without_kind(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .keys()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": &**version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn group_of(name: &str, group: &Group) -> Value {
    let mut value = group_without_kind(name, group);
    value["kind"] = Value::from("APIGroup");
    value["apiVersion"] = Value::from("v1");
    value
}

fn named(
    catalog: &Catalog,
    group: &str,
    version: &str,
    accept: &Accept,
) -> Result<Response<Body>, StatusError> {
    let Some(found) = catalog.group(group) else { return Ok(respond::not_found_page()) };
    let Some(resources) = found.versions.get(version) else {
        let builtin = found.versions.values().flatten().any(|(_, resource)| resource.custom().is_none());
        return if builtin { Err(StatusError::unknown_path()) } else { Ok(respond::not_found_page()) };
    };
    let list: Vec<Value> = resources.values().flat_map(legacy_entries).collect();
    let group_version = crate::registry::api_version(group, version);
    let mut body = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        body["apiVersion"] = Value::from("v1");
    }
    plain(accept, &body)
}

fn legacy_entries(resource: &Arc<Resource>) -> Vec<Value> {
    let mut entry = json!({
        "name": &*resource.plural,
        "singularName": &*resource.singular,
        "namespaced": resource.namespaced,
        "kind": &*resource.kind,
        "verbs": legacy_verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if let Some(hash) = storage_version_hash(resource) {
        entry["storageVersionHash"] = Value::from(hash);
    }
    let mut entries = vec![entry];
    entries.extend(resource.subresources.iter().map(|subresource| legacy_part(resource, *subresource)));
    entries
}

/// The verbs in the order in which kube-apiserver and apiextensions-apiserver list them.
fn legacy_verbs(resource: &Resource) -> &'static [&'static str] {
    match resource.custom() {
        Some(_) => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        None => resource.verbs.names(),
    }
}

/// `storageVersionHash`: a hash of the storage version.
fn storage_version_hash(resource: &Resource) -> Option<String> {
    if !resource.verbs.allow("list") {
        return None;
    }
    let kept = &*resource.storage_api_version;
    let (group, version) = kept.rsplit_once('/').unwrap_or(("", kept));
    // kube-apiserver stores these in an older version.
    let older = &*resource.kind == "CustomResourceDefinition";
    let version = if older && resource.custom().is_none() { "v1beta1" } else { version };
    let text = format!("{group}/{version}/{}", resource.kind);
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(STANDARD.encode(&suite.common.hash_provider.hash(text.as_bytes()).as_ref()[..8]))
}

fn legacy_part(resource: &Resource, subresource: Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name()),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": &*resource.kind,
        "verbs": subresource.verbs(),
    });
    if let Some((group, version, kind)) = subresource.own_kind() {
        entry["kind"] = Value::from(kind);
        if !group.is_empty() {
            entry["group"] = Value::from(group);
            entry["version"] = Value::from(version);
        }
    }
    entry
}

fn aggregated_group(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, resources)| {
            let resources: Vec<Value> =
                resources.values().map(|resource| aggregated_resource(resource)).collect();
            json!({"version": &**version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": &*resource.plural,
        "responseKind": kind("", "", &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular,
        "verbs": resource.verbs.names(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let parts: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let response = match subresource.own_kind() {
                Some((group, version, name)) => kind(group, version, name),
                None => kind("", "", &resource.kind),
            };
            json!({"subresource": subresource.name(), "responseKind": response, "verbs": subresource.verbs()})
        })
        .collect();
    if !parts.is_empty() {
        entry["subresources"] = Value::from(parts);
    }
    entry
}
