//! A client of the embedded API server for which `resource.k8s.io` is served in one older version only.

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kai_components::{COMPONENTS, ComponentOptions, SchedulerHandle};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_sim::Cluster;
use serde_json::{Map, Value, json};

const GROUP: &str = "/apis/resource.k8s.io";

/// Runs all components with such clients.
pub(crate) fn join(cluster: &mut Cluster, version: &'static str) -> SchedulerHandle {
    let (clock, scheduler) = (cluster.clock(), SchedulerHandle::default());
    for spec in COMPONENTS {
        let scheduler = scheduler.clone();
        cluster.run(spec.name, move |client| {
            let process = Process::start(Api::new(older(client, version), spec.name), clock, spec.name);
            let (options, plugins) = (ComponentOptions::simulated(), PluginSet::builtin());
            spec.component.run(process, options, plugins, scheduler.clone())
        });
    }
    scheduler
}

fn older(client: kube::Client, version: &'static str) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let client = client.clone();
        async move { forward(&client, version, request).await }
    });
    kube::Client::new(service, "default")
}

async fn forward(
    client: &kube::Client,
    version: &str,
    request: Request<kube::client::Body>,
) -> kube::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.to_string();
    let Some(rest) = path.strip_prefix(GROUP) else {
        return Ok(client.send(Request::from_parts(parts, body)).await?.map(Body::new));
    };
    if rest.is_empty() {
        let group =
            json!({"kind": "APIGroup", "name": "resource.k8s.io", "versions": [{"version": version}]});
        return Ok(Response::new(Body::from(group.to_string())));
    }
    // A version that is not served; the server has none of this name either.
    let rest = rest
        .strip_prefix(&format!("/{version}/"))
        .map_or_else(|| format!("/none{rest}"), |rest| format!("/v1/{rest}"));
    parts.uri = format!("{GROUP}{rest}").parse().expect("a valid path");
    let body = to_bytes(Body::new(body), usize::MAX).await.expect("the body is in memory");
    let request = Request::from_parts(parts, body.to_vec());
    if rest.contains("watch=true") {
        let version = version.to_owned();
        let lines = client.request_stream(request).await?.lines();
        let events = lines.map_ok(move |line| convert(&line, &version) + "\n");
        return Ok(Response::new(Body::from_stream(events)));
    }
    let text = client.request_text(request).await?;
    Ok(Response::new(Body::from(convert(&text, version))))
}

/// An object, a list or a watch event as the older version has it.
fn convert(text: &str, version: &str) -> String {
    let mut value: Value = serde_json::from_str(text).expect("the server sends JSON");
    if version == "v1beta1" {
        if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
            items.iter_mut().for_each(to_v1beta1);
        }
        if let Some(object) = value.get_mut("object") {
            to_v1beta1(object);
        }
        to_v1beta1(&mut value);
    }
    value.to_string().replace("\"resource.k8s.io/v1\"", &format!("\"resource.k8s.io/{version}\""))
}

fn to_v1beta1(object: &mut Value) {
    let devices = object.pointer_mut("/spec/devices");
    match devices {
        // A slice.
        Some(Value::Array(devices)) => {
            for device in devices.iter_mut().filter_map(Value::as_object_mut) {
                let mut basic = std::mem::take(device);
                device.extend(basic.remove("name").map(|name| ("name".to_owned(), name)));
                device.insert("basic".to_owned(), Value::Object(basic));
            }
        }
        // A claim.
        Some(claim) => {
            let requests = claim.get_mut("requests").and_then(Value::as_array_mut);
            for request in requests.into_iter().flatten().filter_map(Value::as_object_mut) {
                let exact: Option<Map<String, Value>> =
                    request.remove("exactly").and_then(|exact| serde_json::from_value(exact).ok());
                request.extend(exact.into_iter().flatten());
            }
        }
        None => {}
    }
}
