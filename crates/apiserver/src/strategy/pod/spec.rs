//! Validation of pod specs, for Pods and pod templates.

use super::container::{self, Known};
use super::{affinity, volume};
use crate::field::{Error, Path};
use crate::names;
use crate::object;
use crate::strategy::checks::{Errors, invalid_all, labels, list, number, one_of, part, required_name, text};
use serde_json::Value;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const DEADLINE_MAX: i64 = i32::MAX as i64;

pub(in crate::strategy) fn validate_template(template: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let metadata = path.field("metadata");
    labels(&mut errors, part(part(template, "metadata"), "labels"), &metadata.field("labels"));
    let annotations = part(part(template, "metadata"), "annotations");
    for key in annotations.as_object().into_iter().flatten().map(|(key, _)| key) {
        let faults = names::label_key(&key.to_lowercase());
        invalid_all(&mut errors, &metadata.field("annotations"), key, faults);
    }
    errors.extend(validate_spec(part(template, "spec"), &path.field("spec")));
    errors
}

pub(in crate::strategy) fn validate(pod: &Value) -> Errors {
    let path = Path::of("spec");
    let spec = part(pod, "spec");
    let mut errors = validate_spec(spec, &path);
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(Error::forbidden(&path.field("nodeName"), detail));
    }
    for field in ["containers", "initContainers"] {
        errors.extend(container::validate_images(list(spec, field), &path.field(field)));
    }
    // The claim of an ephemeral volume has the names of both.
    let (pod, volumes) = (object::name(pod), path.field("volumes"));
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let name = text(volume, "name");
        let claim = format!("{pod}-{name}");
        let faults = names::subdomain(&claim);
        if !pod.is_empty() && volume.get("ephemeral").is_some() && !faults.is_empty() {
            let details = faults.into_iter().map(|fault| format!("PVC name \"{claim}\": {fault}")).collect();
            let path = volumes.index(index);
            invalid_all(&mut errors, &path.field("name"), name, details);
        }
    }
    errors
}

fn validate_spec(spec: &Value, path: &Path<'_>) -> Errors {
    let (volumes, mut errors) = volume::validate(list(spec, "volumes"), &path.field("volumes"));
    let claims: Vec<&str> = {
        let mut names: Vec<_> =
            list(spec, "resourceClaims").iter().map(|claim| text(claim, "name")).collect();
        names.dedup();
        names
    };
    errors.extend(validate_claims(list(spec, "resourceClaims"), &path.field("resourceClaims")));
    let known = Known { volumes: &volumes, claims: &claims };
    let mut names = Vec::new();
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(Error::required(&path.field("containers"), ""));
    }
    errors.extend(container::validate_all(containers, &path.field("containers"), &known, &mut names));
    let init = list(spec, "initContainers");
    errors.extend(container::validate_all(init, &path.field("initContainers"), &known, &mut names));
    let debug = list(spec, "ephemeralContainers");
    errors.extend(container::validate_all(debug, &path.field("ephemeralContainers"), &known, &mut names));
    errors.extend(container::validate_host_ports(spec, path));
    one_of(&mut errors, spec, path, "restartPolicy", &RESTART_POLICIES);
    one_of(&mut errors, spec, path, "dnsPolicy", &DNS_POLICIES);
    labels(&mut errors, part(spec, "nodeSelector"), &path.field("nodeSelector"));
    errors.extend(affinity::validate(part(spec, "affinity"), &path.field("affinity")));
    errors.extend(validate_gates(list(spec, "schedulingGates"), &path.field("schedulingGates")));
    let spread = list(spec, "topologySpreadConstraints");
    errors.extend(affinity::validate_spread(spread, &path.field("topologySpreadConstraints")));
    validate_names(&mut errors, spec, path);
    let tolerations = list(spec, "tolerations");
    errors.extend(affinity::validate_tolerations(tolerations, &path.field("tolerations")));
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        invalid_all(&mut errors, &path.field("priorityClassName"), class, names::subdomain(class));
    }
    one_of(&mut errors, spec, path, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    errors
}

fn validate_names(errors: &mut Errors, spec: &Value, path: &Path<'_>) {
    for field in ["serviceAccountName", "nodeName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_all(errors, &path.field(field), name, names::subdomain(name));
        }
    }
    if let Some(seconds) = number(spec, "activeDeadlineSeconds")
        && !(1..=DEADLINE_MAX).contains(&seconds)
    {
        let detail = format!("must be between 1 and {DEADLINE_MAX}, inclusive");
        errors.push(Error::invalid(&path.field("activeDeadlineSeconds"), seconds, detail));
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_all(errors, &path.field(field), name, names::dns_label(name));
        }
    }
}

fn validate_gates(gates: &[Value], path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.index(index);
        let name = text(gate, "name");
        invalid_all(&mut errors, &path.field("name"), name, names::label_key(name));
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path.field("name"), name));
        }
        seen.push(name);
    }
    errors
}

fn validate_claims(claims: &[Value], path: &Path<'_>) -> Errors {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        required_name(&mut errors, claim, &path, "name", names::dns_label);
        let name = text(claim, "name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path.field("name"), name));
        }
        seen.push(name);
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = sources.iter().filter(|field| claim.get(**field).is_some()).count();
        // kube-apiserver prints the Go field names here.
        let shown = |field: &str| claim.get(field).cloned().unwrap_or(Value::Null);
        let value = format!(
            "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
            shown("name"),
            shown(sources[0]),
            shown(sources[1])
        );
        let detail = match given {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => continue,
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        errors.push(Error::invalid_unshown(&path, format!("{value}: {detail}")));
    }
    errors
}

/// Warnings about a valid pod spec.
pub(in crate::strategy) fn warnings(spec: &Value, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spread = path.field("topologySpreadConstraints");
    for (index, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        if constraint.get("labelSelector").is_none() {
            let at = spread.index(index);
            let at = at.field("labelSelector");
            warnings.push(format!("{at}: a null labelSelector results in matching no pod"));
        }
    }
    for field in ["initContainers", "containers"] {
        let path = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            let mut names: Vec<&str> = Vec::new();
            let path = path.index(index);
            let path = path.field("env");
            for (index, variable) in list(container, "env").iter().enumerate() {
                let name = text(variable, "name");
                if names.contains(&name) {
                    let at = path.index(index);
                    warnings.push(format!(
                        "{at}: hides previous definition of \"{name}\", which may be dropped when using apply"
                    ));
                }
                names.push(name);
            }
        }
    }
    warnings
}
