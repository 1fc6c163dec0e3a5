//! The rows of services and what stands around them, and of access rules and webhooks.

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

pub(super) fn endpoints(object: &Cells<'_>) -> Vec<Value> {
    let mut list = Vec::new();
    for subset in object.list("/subsets") {
        let part = |field: &str| subset[field].as_array().cloned().unwrap_or_default();
        let ips: Vec<String> = part("addresses").iter().map(|one| printed(&one["ip"])).collect();
        let ports = part("ports");
        if ports.is_empty() {
            list.extend(ips.iter().cloned());
        }
        for port in ports {
            let port = port["port"].as_i64().unwrap_or_default();
            list.extend(
                ips.iter().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    let none = if object.list("/subsets").is_empty() { "<none>" } else { "" };
    vec![json!(object.name()), json!(first_of(&list, 3, none)), json!(object.age())]
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

pub(super) fn ingress(object: &Cells<'_>) -> Vec<Value> {
    let rules = object.list("/spec/rules");
    let hosts: Vec<_> =
        rules.iter().filter_map(|rule| rule["host"].as_str()).filter(|host| !host.is_empty()).collect();
    let shown = hosts[..hosts.len().min(3)].join(",");
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => shown,
        _ => format!("{shown} + {} more...", rules.len() - 3),
    };
    vec![
        json!(object.name()),
        json!(object.get("/spec/ingressClassName").and_then(Value::as_str).unwrap_or("<none>")),
        json!(hosts),
        json!(load_balancer(object)),
        json!(if object.list("/spec/tls").is_empty() { "80" } else { "80, 443" }),
        json!(object.age()),
    ]
}

pub(super) fn ingress_class(object: &Cells<'_>) -> Vec<Value> {
    let default = object.object.pointer("/metadata/annotations/ingressclass.kubernetes.io~1is-default-class");
    let suffix = if default.is_some_and(|value| value == "true") { " (default)" } else { "" };
    let parameters = object.get("/spec/parameters").map_or_else(
        || "<none>".to_owned(),
        |parameters| {
            let group = parameters["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
            format!("{}{group}/{}", printed(&parameters["kind"]), printed(&parameters["name"]))
        },
    );
    vec![
        json!(format!("{}{suffix}", object.name())),
        json!(object.text("/spec/controller")),
        json!(parameters),
        json!(object.age()),
    ]
}

pub(super) fn network_policy(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.selector("/spec/podSelector")), json!(object.age())]
}

pub(super) fn ip_address(object: &Cells<'_>) -> Vec<Value> {
    let text = |field: &str| object.text(&format!("/spec/parentRef/{field}"));
    let parent = if object.get("/spec/parentRef").is_some() {
        let group = if text("group").is_empty() { String::new() } else { format!(".{}", text("group")) };
        let resource = format!("{}{group}", text("resource")).to_lowercase();
        let parts: Vec<_> = [resource.as_str(), text("namespace"), text("name")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        parts.join("/")
    } else {
        "<none>".to_owned()
    };
    vec![json!(object.name()), json!(parent), json!(object.age())]
}

pub(super) fn service_cidr(object: &Cells<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.joined("/spec/cidrs", ",")), json!(object.age())]
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

pub(super) fn admission_policy(object: &Cells<'_>) -> Vec<Value> {
    let count = object.count("/spec/validations") + object.count("/spec/mutations");
    let kind = match object.get("/spec/paramKind") {
        Some(kind) => format!("{}/{}", printed(&kind["apiVersion"]), printed(&kind["kind"])),
        None => "<unset>".to_owned(),
    };
    vec![json!(object.name()), json!(count), json!(kind), json!(object.age())]
}

pub(super) fn admission_policy_binding(object: &Cells<'_>) -> Vec<Value> {
    let parameters = match object.get("/spec/paramRef") {
        Some(reference) => match (reference["namespace"].as_str(), reference["name"].as_str()) {
            (Some(namespace), Some(name)) if !namespace.is_empty() => format!("{namespace}/{name}"),
            (_, Some(name)) => format!("*/{name}"),
            (_, None) => "*/*".to_owned(),
        },
        None => "<unset>".to_owned(),
    };
    vec![json!(object.name()), json!(object.text("/spec/policyName")), json!(parameters), json!(object.age())]
}

pub(super) fn api_service(object: &Cells<'_>) -> Vec<Value> {
    let service = match object.get("/spec/service") {
        Some(service) => format!("{}/{}", printed(&service["namespace"]), printed(&service["name"])),
        None => "Local".to_owned(),
    };
    let available = match object.condition("Available") {
        None => "Unknown".to_owned(),
        Some(condition) => match (condition["status"].as_str(), condition["reason"].as_str()) {
            (Some("True"), _) => "True".to_owned(),
            (status, Some(reason)) if !reason.is_empty() => {
                format!("{} ({reason})", status.unwrap_or_default())
            }
            (status, _) => status.unwrap_or_default().to_owned(),
        },
    };
    vec![json!(object.name()), json!(service), json!(available), json!(object.age())]
}

pub(super) fn signing_request(object: &Cells<'_>) -> Vec<Value> {
    let has = |kind: &str| object.condition(kind).is_some();
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !object.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = object.get("/spec/expirationSeconds").and_then(Value::as_i64);
    vec![
        json!(object.name()),
        json!(object.age()),
        json!(object.text_or("/spec/signerName", "<none>")),
        json!(object.text("/spec/username")),
        json!(duration.map_or_else(|| "<none>".to_owned(), super::age::human)),
        json!(status),
    ]
}
