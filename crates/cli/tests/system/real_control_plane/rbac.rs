//! The roles in `deploy/rbac`: no request of a component is forbidden, and no granted permission is unused.

use super::control_plane::{NAMESPACE, RESERVATION};
use kai_components::name;
use kai_components::workload_rules::is_third_party;
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Key, ROLE, ROLE_BINDING, ResourceKind, SERVICE_ACCOUNT,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const KINDS: [ResourceKind; 5] = [SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING];

/// Service account, resource with its group, verb.
pub(super) type Permission = (String, String, String);

/// A role, its service account, and its rules as (group, resource, verb).
pub(super) struct Role {
    pub(super) kind: ResourceKind,
    pub(super) key: Key,
    /// The namespace of the binding; empty where it binds in all of them.
    pub(super) bound_in: String,
    pub(super) account: String,
    pub(super) rules: BTreeSet<(String, String, String)>,
}

impl Role {
    pub(super) fn permissions(&self) -> impl Iterator<Item = Permission> {
        let permission = |(group, resource, verb): &(String, String, String)| {
            (self.account.clone(), named(resource, group), verb.clone())
        };
        self.rules.iter().map(permission)
    }

    /// Replaces the rules of the role in the API server.
    pub(super) async fn set(&self, api: &Api, rules: &BTreeSet<(String, String, String)>) {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(group, resource, verb)| {
                json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
            })
            .collect();
        api.patch_dynamic(&self.kind, &self.key, Part::Main, &json!({"rules": rules})).await.unwrap();
    }
}

/// All objects of `deploy/rbac`.
fn objects() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts.flat_map(|text| serde_saphyr::from_multiple::<Value>(&text).unwrap()).collect()
}

pub(super) async fn install(api: &Api) {
    let kinds = KINDS;
    for made in objects() {
        let kind = kinds.iter().find(|kind| *kind.kind == *object::kind(&made)).expect("the kind is known");
        api.ensure_dynamic(kind, object::namespace(&made), &made).await.unwrap();
    }
}

/// The scenarios start the components themselves; no operator deploys them. The nodes have no kubelet with a socket.
/// `autoscaling` starts the node scale adjuster on a control plane of its own.
/// The components run as processes of their own, not in `kai all`.
pub(super) const NOT_STARTED: [&str; 4] =
    ["kai-operator", "node-scale-adjuster", "numa-placement-exporter", name::COMBINED];

/// Every role that is bound to a service account of a component of the scenarios.
pub(super) fn roles() -> Vec<Role> {
    all_roles().into_iter().filter(|role| !NOT_STARTED.contains(&role.account.as_str())).collect()
}

/// Every role that is bound to a service account of a component.
pub(super) fn all_roles() -> Vec<Role> {
    let objects = objects();
    let strings = |rule: &Value, field: &str| -> Vec<String> {
        let values = rule[field].as_array().cloned().unwrap_or_default();
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let bindings = objects.iter().filter(|made| object::kind(made).ends_with("Binding"));
    let of = |binding: &Value| {
        let role = objects.iter().find(|made| {
            let kind = object::str_at(binding, "/roleRef/kind");
            object::kind(made) == kind
                && object::name(made) == object::str_at(binding, "/roleRef/name")
                && (*CLUSTER_ROLE.kind == *kind || object::namespace(made) == object::namespace(binding))
        });
        let role = role.expect("the bound role exists");
        let account = object::str_at(binding, "/subjects/0/name").to_owned();
        let mut rules = BTreeSet::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in strings(rule, "apiGroups") {
                // A plain cluster serves no third-party workloads, so the pod grouper cannot use rights on them.
                let served =
                    |resource: &String| account != name::POD_GROUPER || !is_third_party(&group, resource);
                for resource in strings(rule, "resources").into_iter().filter(served) {
                    rules.extend(
                        strings(rule, "verbs")
                            .into_iter()
                            .map(|verb| (group.clone(), resource.clone(), verb)),
                    );
                }
            }
        }
        let kind =
            KINDS.into_iter().find(|kind| *kind.kind == *object::kind(role)).expect("the kind is known");
        let bound_in = object::namespace(binding).to_owned();
        Role { kind, key: kai_runtime::key_of(role), bound_in, account, rules }
    };
    bindings.map(of).collect()
}

fn granted() -> BTreeSet<Permission> {
    roles().iter().flat_map(|role| role.permissions().collect::<Vec<_>>()).collect()
}

pub(super) fn named(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The permission that a request of a component needs; `None` for other clients and non-resource requests.
pub(super) fn needed(request: &Value) -> Option<Permission> {
    let user = object::str_at(request, "/user/username");
    let accounts = [NAMESPACE, RESERVATION].map(|namespace| format!("system:serviceaccount:{namespace}:"));
    let account = accounts.iter().find_map(|prefix| user.strip_prefix(prefix))?;
    let reference = request.get("objectRef")?;
    let mut resource = object::str_at(reference, "/resource").to_owned();
    let subresource = object::str_at(reference, "/subresource");
    if !subresource.is_empty() {
        resource = format!("{resource}/{subresource}");
    }
    let verb = object::str_at(request, "/verb").to_owned();
    Some((account.to_owned(), named(&resource, object::str_at(reference, "/apiGroup")), verb))
}

/// Not in the audit log: the API server checks it in addition to the permission on the status of a claim.
const NOT_AUDITED: (&str, &str, &str) = ("binder", "resourceclaims/binding.resource.k8s.io", "patch");

/// Owners of kinds that a role lets the pod grouper `get` alone are read at intervals.
fn is_optional((account, _, verb): &Permission) -> bool {
    account == name::POD_GROUPER && verb == "list"
}

/// Compares the granted permissions with the requests: none was forbidden, and each permission was used.
pub(super) fn check(requests: &[Value]) {
    let mut forbidden = with_decision(requests, "forbid");
    forbidden.retain(|permission| !is_optional(permission));
    assert_eq!(forbidden, BTreeSet::new(), "these permissions are missing");
    let used = with_decision(requests, "allow");
    let not_audited = (NOT_AUDITED.0.to_owned(), NOT_AUDITED.1.to_owned(), NOT_AUDITED.2.to_owned());
    let used: BTreeSet<Permission> = used.into_iter().chain([not_audited]).collect();
    let unused: BTreeSet<Permission> = granted().difference(&used).cloned().collect();
    assert_eq!(unused, BTreeSet::new(), "these permissions are not used");
}

/// The permissions that requests needed about which the API server decided so: `allow` or `forbid`.
pub(super) fn with_decision(requests: &[Value], wanted: &str) -> BTreeSet<Permission> {
    let decision = |request: &Value| {
        let annotations = request.get("annotations").cloned().unwrap_or_default();
        annotations["authorization.k8s.io/decision"].as_str().unwrap_or_default().to_owned()
    };
    requests.iter().filter(|request| decision(request) == wanted).filter_map(needed).collect()
}
