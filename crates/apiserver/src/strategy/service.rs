//! The strategy of Services: allocation of cluster IPs and node ports, and validation.

use super::checks::{Errors, invalid_all, list, number, one_of, part, port, text};
use super::pod::port_name_faults;
use crate::field::{Error, Path};
use crate::object;
use crate::selector::Field;
use crate::server::Core;
use crate::store::{ListRange, Record};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Default of `--service-node-port-range`.
const NODE_PORTS: (u16, u16) = (30_000, 32_767);
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Allocates cluster IPs and node ports.
pub(super) fn prepare_create(core: &Core, service: &mut Value) {
    let kind = object::str_at(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        return;
    }
    let selects =
        part(part(service, "spec"), "selector").as_object().is_some_and(|labels| !labels.is_empty());
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let address = text(&json!(&*spec), "clusterIP").to_owned();
    let address = if address.is_empty() { allocate_cluster_ip(core) } else { address };
    let (families, policy) = if address == "None" && !selects {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!(policy));
    allocate_node_ports(core, &kind, spec);
}

/// Allocates a free address of 10.96.0.0/12.
fn allocate_cluster_ip(core: &Core) -> String {
    let services = core.builtin("", "services");
    let field = Field::Plain("spec.clusterIP".to_owned());
    loop {
        let [a, b, c] = core.ids.draw();
        let address = format!("10.{}.{b}.{c}", 96 + a % 16);
        // The record caches the field, so that each service is decoded at most once.
        let taken = |record: &Record| record.has_field(&field, &address, || record.value());
        let wanted = ListRange { limit: Some(1), ..ListRange::default() };
        let page = core.store.list(services.table, &wanted, taken);
        if c != 0 && c != 255 && page.is_ok_and(|page| page.records.is_empty()) {
            return address;
        }
    }
}

fn allocate_node_ports(core: &Core, kind: &str, spec: &mut Map<String, Value>) {
    if !matches!(kind, "NodePort" | "LoadBalancer") {
        return;
    }
    let mut used = AllocatedPorts::of(core);
    let wanted = kind == "NodePort" || spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut).filter(|_| wanted) {
        port.entry("nodePort").or_insert_with(|| json!(used.allocate(core)));
    }
    let local = spec.get("externalTrafficPolicy").and_then(Value::as_str) == Some("Local");
    if kind == "LoadBalancer" && local {
        spec.entry("healthCheckNodePort").or_insert_with(|| json!(used.allocate(core)));
    }
}

/// Allocated node ports.
struct AllocatedPorts(BTreeSet<i64>);

impl AllocatedPorts {
    fn of(core: &Core) -> Self {
        let mut used = BTreeSet::new();
        let services = core.builtin("", "services");
        let page = core.store.list(services.table, &ListRange::default(), |_| true);
        for record in page.map(|page| page.records).unwrap_or_default() {
            let service = record.value();
            let spec = part(&service, "spec");
            used.extend(number(spec, "healthCheckNodePort"));
            used.extend(list(spec, "ports").iter().filter_map(|port| number(port, "nodePort")));
        }
        Self(used)
    }

    fn allocate(&mut self, core: &Core) -> i64 {
        let (first, last) = NODE_PORTS;
        let span = last - first + 1;
        let start = u16::from_be_bytes(core.ids.draw()) % span;
        let free = (0..span).map(|step| i64::from(first + (start + step) % span));
        let port = free.into_iter().find(|port| !self.0.contains(port)).unwrap_or(i64::from(first));
        self.0.insert(port);
        port
    }
}

/// Keeps allocated addresses and ports that the new version omits.
pub(super) fn prepare_update(core: &Core, old: &Value, new: &mut Value) {
    let was = part(old, "spec").clone();
    let kind = object::str_at(new, "/spec/type").to_owned();
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    drop_fields_of_other_types(&was, &kind, spec);
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        if let Some(value) = was.get(field) {
            spec.entry(field).or_insert_with(|| value.clone());
        }
    }
    let changed = spec.get("clusterIP") != was.get("clusterIP");
    if changed && spec.get("clusterIPs") == was.get("clusterIPs") {
        let address = spec.get("clusterIP").cloned().unwrap_or_default();
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
    if !was.get("clusterIP").is_some_and(Value::is_string) {
        prepare_create(core, new);
        return;
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let same =
            |known: &&Value| ["port", "protocol"].iter().all(|field| known.get(*field) == port.get(*field));
        let known = list(&was, "ports").iter().find(same).and_then(|known| known.get("nodePort")).cloned();
        if let Some(known) = known.filter(|_| matches!(&*kind, "NodePort" | "LoadBalancer")) {
            port.entry("nodePort").or_insert(known);
        }
    }
    allocate_node_ports(core, &kind, spec);
}

/// Clears the fields that only the previous type uses, unless the client changes them.
fn drop_fields_of_other_types(was: &Value, kind: &str, spec: &mut Map<String, Value>) {
    let before = text(was, "type");
    if before == kind {
        return;
    }
    let outward = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let mut gone: Vec<&str> = Vec::new();
    if outward(before) && !outward(kind) {
        gone.push("externalTrafficPolicy");
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            if list(was, "ports").iter().any(|known| known.get("nodePort") == port.get("nodePort")) {
                port.remove("nodePort");
            }
        }
    }
    if before == "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    if kind == "ExternalName" {
        gone.push("internalTrafficPolicy");
    }
    for field in gone {
        if spec.get(field) == was.get(field) {
            spec.remove(field);
        }
    }
}

/// Warnings about fields without effect.
pub(super) fn warnings(service: &Value) -> Vec<String> {
    let spec = part(service, "spec");
    let mut warnings = Vec::new();
    if !text(spec, "externalName").is_empty() && text(spec, "type") != "ExternalName" {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    warnings
}

pub(super) fn validate(service: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(service, "spec");
    let ports = list(spec, "ports");
    let headless = text(spec, "clusterIP") == "None";
    let kind = text(spec, "type");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(Error::required(&path.field("ports"), ""));
    }
    let at = path.field("ports");
    for (index, own) in ports.iter().enumerate() {
        validate_port(&mut errors, own, &at.index(index), ports.len() > 1);
        let name = text(own, "name");
        if !name.is_empty() && ports[..index].iter().any(|other| text(other, "name") == name) {
            let at = at.index(index);
            errors.push(Error::duplicate(&at.field("name"), name));
        }
    }
    super::checks::labels(&mut errors, part(spec, "selector"), &path.field("selector"));
    one_of(&mut errors, spec, &path, "sessionAffinity", &["ClientIP", "None"]);
    one_of(&mut errors, spec, &path, "type", &TYPES);
    for (index, own) in ports.iter().enumerate() {
        let key = |port: &Value| (number(port, "port"), text(port, "protocol").to_owned());
        if ports[..index].iter().any(|other| key(other) == key(own)) {
            let (port, protocol) = key(own);
            // kube-apiserver prints the Go field names of the duplicate key here.
            let detail = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port.unwrap_or(0)
            );
            let mut error = Error::duplicate(&at.index(index), "");
            (error.value, error.detail) = (None, detail);
            errors.push(error);
        }
    }
    if kind == "ExternalName" && text(spec, "externalName").is_empty() {
        errors.push(Error::required(&path.field("externalName"), ""));
    }
    errors
}

fn validate_port(errors: &mut Errors, own: &Value, path: &Path<'_>, named: bool) {
    let name = text(own, "name");
    if name.is_empty() && named {
        errors.push(Error::required(&path.field("name"), ""));
    } else if !name.is_empty() {
        invalid_all(errors, &path.field("name"), name, crate::names::dns_label(name));
    }
    port(errors, &path.field("port"), number(own, "port").unwrap_or(0));
    one_of(errors, own, path, "protocol", &["SCTP", "TCP", "UDP"]);
    let (first, last) = NODE_PORTS;
    if let Some(port) = number(own, "nodePort").filter(|port| !(first.into()..=last.into()).contains(port)) {
        let detail =
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        errors.push(Error::invalid(&path.field("nodePort"), port, detail));
    }
    let target = path.field("targetPort");
    match own.get("targetPort") {
        Some(Value::String(name)) => invalid_all(errors, &target, name, port_name_faults(name)),
        Some(number) => port(errors, &target, number.as_i64().unwrap_or(0)),
        None => {}
    }
}

/// Cluster IPs are immutable.
pub(super) fn validate_change(old: &Value, new: &Value) -> Errors {
    let path = Path::of("spec");
    let (was, is) = (part(old, "spec"), part(new, "spec"));
    let address = text(was, "clusterIP");
    if address.is_empty() || address == text(is, "clusterIP") || text(is, "type") == "ExternalName" {
        return Vec::new();
    }
    if address == "None" && text(is, "ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        let families = path.field("ipFamilies");
        return vec![
            Error::invalid(&path.field("ipFamilyPolicy"), "RequireDualStack", detail),
            Error::invalid(&families.index(1), "IPv6", "not configured on this cluster"),
        ];
    }
    let addresses = path.field("clusterIPs");
    let value = part(is, "clusterIPs").clone();
    vec![Error::invalid(&addresses.index(0), value, "may not change once set")]
}
