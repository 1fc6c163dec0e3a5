//! The rows of Services, `EndpointSlice`s, role bindings and webhook configurations.

use super::cells::{Cells, first_of, printed};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn service(object: &Cells<'_>) -> Vec<Value> {
    let ports: Vec<_> = object.list("/spec/ports").iter().map(service_port).collect();
    vec![
        json!(object.name()),
        json!(object.text("/spec/type")),
        json!(object.text_or("/spec/clusterIPs/0", "<none>")),
        json!(external_ip(object)),
        json!(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }),
        json!(object.age()),
        json!(object.labels("/spec/selector")),
    ]
}

fn service_port(port: &Value) -> String {
    let number = |field: &str| port[field].as_i64().unwrap_or_default();
    let protocol = port["protocol"].as_str().unwrap_or_default();
    match number("nodePort") {
        0 => format!("{}/{protocol}", number("port")),
        node => format!("{}:{node}/{protocol}", number("port")),
    }
}

fn external_ip(object: &Cells<'_>) -> String {
    let own = object.joined("/spec/externalIPs", ",");
    match object.text("/spec/type") {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => {
            let parts: Vec<_> =
                [load_balancer(object), own].into_iter().filter(|part| !part.is_empty()).collect();
            if parts.is_empty() { "<pending>".to_owned() } else { parts.join(",") }
        }
        "ExternalName" => object.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn load_balancer(object: &Cells<'_>) -> String {
    let address = |one: &Value| {
        let text = |field: &str| one[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text("ip").or_else(|| text("hostname"))
    };
    let addresses: BTreeSet<_> =
        object.list("/status/loadBalancer/ingress").iter().filter_map(address).collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn endpoint_slice(object: &Cells<'_>) -> Vec<Value> {
    let port = |port: &Value| match (&port["port"], &port["name"]) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    };
    let ports: Vec<_> = object.list("/ports").iter().map(port).collect();
    let addresses = |endpoint: &Value| endpoint["addresses"].as_array().cloned().unwrap_or_default();
    let addresses: Vec<_> =
        object.list("/endpoints").iter().flat_map(addresses).map(|one| printed(&one)).collect();
    vec![
        json!(object.name()),
        json!(object.text("/addressType")),
        json!(first_of(&ports, 3, "<unset>")),
        json!(first_of(&addresses, 3, "<unset>")),
        json!(object.age()),
    ]
}

pub(super) fn role_binding(object: &Cells<'_>) -> Vec<Value> {
    let role = format!("{}/{}", object.text("/roleRef/kind"), object.text("/roleRef/name"));
    let subjects = |kind: &str| {
        let own = object.list("/subjects").iter().filter(|subject| subject["kind"] == kind);
        let names = own.map(|subject| match (kind, subject["namespace"].as_str().unwrap_or_default()) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", printed(&subject["name"]))
            }
            _ => printed(&subject["name"]),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        json!(object.name()),
        json!(role),
        json!(object.age()),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) fn webhooks(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.count("/webhooks")), json!(object.age())]
}
