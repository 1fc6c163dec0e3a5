//! The rights in `deploy/rbac`: installed as they are, enough for everything, and none of them in vain.

use super::plane::{NAMESPACE, RESERVATION};
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{Key, Kind, SERVICE_ACCOUNT, kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const RBAC: &str = "rbac.authorization.k8s.io";
const KINDS: [Kind; 5] = [
    SERVICE_ACCOUNT,
    kind(RBAC, "v1", "ClusterRole", "clusterroles", false),
    kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", false),
    kind(RBAC, "v1", "Role", "roles", true),
    kind(RBAC, "v1", "RoleBinding", "rolebindings", true),
];

/// Who may do what with what: service account, resource with its group, verb.
pub(super) type Right = (String, String, String);

/// A role, who has it, and its rules taken apart: group, resource, verb.
pub(super) struct Role {
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) account: String,
    pub(super) rules: BTreeSet<(String, String, String)>,
}

impl Role {
    /// The rights that it gives.
    pub(super) fn rights(&self) -> impl Iterator<Item = Right> {
        let right = |(group, resource, verb): &(String, String, String)| {
            (self.account.clone(), named(resource, group), verb.clone())
        };
        self.rules.iter().map(right)
    }

    /// Brings the role to these rules.
    pub(super) async fn set(&self, api: &Api, rules: &BTreeSet<(String, String, String)>) {
        let written: Vec<Value> = rules
            .iter()
            .map(|(group, resource, verb)| {
                json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
            })
            .collect();
        api.merge(&self.kind, &self.key, Part::Main, &json!({"rules": written})).await.unwrap();
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

/// Makes them.
pub(super) async fn install(api: &Api) {
    let kinds = KINDS;
    for made in objects() {
        let kind = kinds.iter().find(|kind| *kind.kind == *object::kind(&made)).expect("the kind is known");
        api.ensure(kind, object::namespace(&made), &made).await.unwrap();
    }
}

/// Every role that is granted.
pub(super) fn roles() -> Vec<Role> {
    let objects = objects();
    let strings = |rule: &Value, field: &str| -> Vec<String> {
        let values = rule[field].as_array().cloned().unwrap_or_default();
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let bindings = objects.iter().filter(|made| object::kind(made).ends_with("Binding"));
    let of = |binding: &Value| {
        let role = objects.iter().find(|made| {
            object::kind(made) == object::str_at(binding, "/roleRef/kind")
                && object::name(made) == object::str_at(binding, "/roleRef/name")
                && object::namespace(made) == object::namespace(binding)
        });
        let role = role.expect("the role is there");
        let mut rules = BTreeSet::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in strings(rule, "apiGroups") {
                for resource in strings(rule, "resources") {
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
        let account = object::str_at(binding, "/subjects/0/name").to_owned();
        Role { kind, key: Key::of(role), account, rules }
    };
    bindings.map(of).collect()
}

/// Every right that is granted.
fn granted() -> BTreeSet<Right> {
    roles().iter().flat_map(|role| role.rights().collect::<Vec<_>>()).collect()
}

pub(super) fn named(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// What a request needed; nothing where nobody of ours asked for an object.
pub(super) fn needed(request: &Value) -> Option<Right> {
    let user = object::str_at(request, "/user/username");
    let accounts = [NAMESPACE, RESERVATION].map(|namespace| format!("system:serviceaccount:{namespace}:"));
    let account = accounts.iter().find_map(|prefix| user.strip_prefix(prefix))?;
    let reference = request.get("objectRef")?;
    let mut resource = object::str_at(reference, "/resource").to_owned();
    let part = object::str_at(reference, "/subresource");
    if !part.is_empty() {
        resource = format!("{resource}/{part}");
    }
    let verb = object::str_at(request, "/verb").to_owned();
    Some((account.to_owned(), named(&resource, object::str_at(reference, "/apiGroup")), verb))
}

/// The right that shows in no request: the server asks for it besides the right to the status of a claim.
const UNSEEN: (&str, &str, &str) = ("binder", "resourceclaims/binding.resource.k8s.io", "patch");

/// Holds the rights to what was asked for: nothing was refused, and nothing is granted that nobody needed.
pub(super) fn check(requests: &[Value]) {
    let decision = |request: &Value| {
        let annotations = request.get("annotations").cloned().unwrap_or_default();
        annotations["authorization.k8s.io/decision"].as_str().unwrap_or_default().to_owned()
    };
    let asked = |wanted: &str| -> BTreeSet<Right> {
        let decided = requests.iter().filter(|request| decision(request) == wanted);
        decided.filter_map(needed).collect()
    };
    assert_eq!(asked("forbid"), BTreeSet::new(), "these rights are missing");
    let used = asked("allow");
    let unseen = (UNSEEN.0.to_owned(), UNSEEN.1.to_owned(), UNSEEN.2.to_owned());
    let used: BTreeSet<Right> = used.into_iter().chain([unseen]).collect();
    let unused: BTreeSet<Right> = granted().difference(&used).cloned().collect();
    assert_eq!(unused, BTreeSet::new(), "nothing needs these rights");
}
