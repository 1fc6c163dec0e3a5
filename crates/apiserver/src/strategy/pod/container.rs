//! Validation of containers.

use super::resources;
use crate::field::{Error, Path};
use crate::names;
use crate::strategy::checks::{Errors, invalid_all, list, number, one_of, part, port, required_name, text};
use serde_json::Value;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Maximum length of a port name.
const PORT_NAME_MAX: usize = 15;

/// Volumes and claims that containers may refer to.
pub(super) struct Known<'a> {
    pub(super) volumes: &'a [&'a str],
    pub(super) claims: &'a [&'a str],
}

/// Validates the containers of a pod; `names` are those seen so far.
pub(super) fn validate_all<'a>(
    containers: &'a [Value],
    path: &Path<'_>,
    known: &Known<'_>,
    names: &mut Vec<&'a str>,
) -> Errors {
    let mut errors = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        errors.extend(validate(container, &path, known));
        let name = text(container, "name");
        if names.contains(&name) {
            errors.push(Error::duplicate(&path.field("name"), name));
        } else if !name.is_empty() {
            names.push(name);
        }
        for handler in ["postStart", "preStop"] {
            if let Some(own) = part(container, "lifecycle").get(handler) {
                let lifecycle = path.field("lifecycle");
                validate_handler(&mut errors, own, &lifecycle.field(handler));
            }
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if let Some(probe_value) = container.get(probe) {
                errors.extend(validate_probe(probe_value, &path.field(probe), probe));
            }
        }
    }
    errors
}

fn validate(container: &Value, path: &Path<'_>, known: &Known<'_>) -> Errors {
    let mut errors = Vec::new();
    required_name(&mut errors, container, path, "name", names::dns_label);
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(Error::required(&path.field("image"), ""));
    }
    let policies = ["FallbackToLogsOnError", "File"];
    one_of(&mut errors, container, path, "terminationMessagePolicy", &policies);
    validate_ports(&mut errors, list(container, "ports"), &path.field("ports"));
    validate_variables(&mut errors, list(container, "env"), &path.field("env"));
    validate_sources(&mut errors, list(container, "envFrom"), &path.field("envFrom"));
    validate_mounts(&mut errors, list(container, "volumeMounts"), &path.field("volumeMounts"), known);
    one_of(&mut errors, container, path, "imagePullPolicy", &PULL_POLICIES);
    let own = part(container, "resources");
    errors.extend(resources::validate(own, &path.field("resources"), known.claims));
    let context = path.field("securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = number(part(container, "securityContext"), field).filter(|id| *id < 0) {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(Error::invalid(&context.field(field), id, detail));
        }
    }
    errors
}

fn validate_ports(errors: &mut Errors, ports: &[Value], path: &Path<'_>) {
    let mut names = Vec::new();
    for (index, own) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(own, "name");
        if !name.is_empty() {
            let faults = port_name_faults(name);
            if faults.is_empty() && names.contains(&name) {
                errors.push(Error::duplicate(&path.field("name"), name));
            }
            invalid_all(errors, &path.field("name"), name, faults);
            names.push(name);
        }
        match number(own, "containerPort").unwrap_or(0) {
            0 => errors.push(Error::required(&path.field("containerPort"), "")),
            number => port(errors, &path.field("containerPort"), number),
        }
        if let Some(number) = number(own, "hostPort").filter(|number| *number != 0) {
            port(errors, &path.field("hostPort"), number);
        }
        one_of(errors, own, &path, "protocol", &PROTOCOLS);
    }
}

/// Validates a port name.
pub(in crate::strategy) fn port_name_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > PORT_NAME_MAX {
        faults.push(format!("must be no more than {PORT_NAME_MAX} characters"));
    }
    let letter = |byte: u8| byte.is_ascii_lowercase();
    if !name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit() || byte == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(letter) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

fn validate_variables(errors: &mut Errors, variables: &[Value], path: &Path<'_>) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        let name = text(variable, "name");
        let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
        if name.is_empty() {
            errors.push(Error::required(&path.field("name"), ""));
        } else if !printable {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(Error::invalid(&path.field("name"), name, detail));
        }
        let Some(source) = variable.get("valueFrom").and_then(Value::as_object) else { continue };
        let path = path.field("valueFrom");
        if !text(variable, "value").is_empty() {
            errors.push(Error::invalid(&path, "", "may not be specified when `value` is not empty"));
        }
        if source.len() > 1 {
            errors.push(Error::invalid(&path, "", "may not have more than one field specified at a time"));
        }
        for (kind, reference) in source {
            let path = path.field(kind);
            let required: &[&str] = match kind.as_str() {
                "configMapKeyRef" | "secretKeyRef" => &["key"],
                "fieldRef" => &["fieldPath"],
                "resourceFieldRef" => &["resource"],
                _ => &[],
            };
            for field in required.iter().filter(|field| text(reference, field).is_empty()) {
                errors.push(Error::required(&path.field(field), ""));
            }
        }
    }
}

/// Validates `envFrom`.
fn validate_sources(errors: &mut Errors, sources: &[Value], path: &Path<'_>) {
    for (index, source) in sources.iter().enumerate() {
        let path = path.index(index);
        let mut given = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(kind) else { continue };
            given += 1;
            required_name(errors, reference, &path.field(kind), "name", names::subdomain);
        }
        match given {
            0 => {
                let detail = "must specify one of: `configMapRef` or `secretRef`";
                errors.push(Error::invalid(&path, "", detail));
            }
            1 => {}
            _ => {
                let detail = "may not have more than one field specified at a time";
                errors.push(Error::invalid(&path, "", detail));
            }
        }
    }
}

/// Image names of a pod have no surrounding whitespace; templates are not checked, since their pods are.
pub(super) fn validate_images(containers: &[Value], path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let image = text(container, "image");
        if image.trim() != image {
            let path = path.index(index);
            let detail = "must not have leading or trailing whitespace";
            errors.push(Error::invalid(&path.field("image"), image, detail));
        }
    }
    errors
}

/// Host ports must be unique; with `hostNetwork`, all container ports are host ports.
pub(super) fn validate_host_ports(spec: &Value, path: &Path<'_>) -> Errors {
    let (mut taken, mut errors, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let path = path.field("containers");
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let path = path.index(index);
        let path = path.field("ports");
        for (index, own) in list(container, "ports").iter().enumerate() {
            let Some(port) = number(own, "hostPort").filter(|port| *port != 0) else { continue };
            let path = path.index(index);
            let path = path.field("hostPort");
            let key = format!("{}/{}/{port}", text(own, "protocol"), text(own, "hostIP"));
            if taken.contains(&key) {
                errors.push(Error::duplicate(&path, key.as_str()));
            }
            taken.push(key);
            if on_host && number(own, "containerPort") != Some(port) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                moved.push(Error::invalid(&path, port, detail));
            }
        }
    }
    errors.extend(moved);
    errors
}

fn validate_mounts(errors: &mut Errors, mounts: &[Value], path: &Path<'_>, known: &Known<'_>) {
    let mut paths = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(Error::required(&path.field("name"), ""));
        }
        if target.is_empty() {
            errors.push(Error::required(&path.field("mountPath"), ""));
        }
        if !known.volumes.contains(&name) {
            errors.push(Error::not_found(&path.field("name"), name));
        }
        if !target.is_empty() && paths.contains(&target) {
            errors.push(Error::invalid(&path.field("mountPath"), target, "must be unique"));
        }
        paths.push(target);
    }
}

fn validate_probe(probe: &Value, path: &Path<'_>, kind: &str) -> Errors {
    let mut errors = Vec::new();
    validate_handler(&mut errors, probe, path);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        if let Some(number) = number(probe, field).filter(|number| *number < 0) {
            errors.push(Error::invalid(&path.field(field), number, "must be greater than or equal to 0"));
        }
    }
    if kind != "readinessProbe"
        && let Some(number) = number(probe, "successThreshold").filter(|number| *number != 1)
    {
        errors.push(Error::invalid(&path.field("successThreshold"), number, "must be 1"));
    }
    errors
}

/// Validates a handler: exactly one of `exec`, `httpGet`, `tcpSocket` and `grpc`.
fn validate_handler(errors: &mut Errors, owner: &Value, path: &Path<'_>) {
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
    let mut given = handlers.iter().filter_map(|kind| Some((*kind, owner.get(*kind)?)));
    let Some((kind, handler)) = given.next() else {
        errors.push(Error::required(path, "must specify a handler type"));
        return;
    };
    for (kind, _) in given {
        errors.push(Error::forbidden(&path.field(kind), "may not specify more than 1 handler type"));
    }
    let path = path.field(kind);
    match kind {
        "exec" if list(handler, "command").is_empty() => {
            errors.push(Error::required(&path.field("command"), ""));
        }
        "httpGet" | "tcpSocket" | "grpc" => match handler.get("port") {
            Some(Value::String(name)) => {
                invalid_all(errors, &path.field("port"), name, port_name_faults(name));
            }
            given => {
                let given = given.and_then(Value::as_i64).unwrap_or(0);
                port(errors, &path.field("port"), given);
            }
        },
        _ => {}
    }
}
