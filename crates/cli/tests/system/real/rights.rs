//! The rights in `deploy/rbac`: installed as they are, enough for everything, and none of them in vain.

use super::plane::{NAMESPACE, RESERVATION};
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::kind::{Kind, SERVICE_ACCOUNT, kind};
use serde_json::Value;
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
type Right = (String, String, String);

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

/// Every right that is granted.
fn granted() -> BTreeSet<Right> {
    let objects = objects();
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(|made| object::kind(made).ends_with("Binding")) {
        let account = object::str_at(binding, "/subjects/0/name");
        let role = objects.iter().find(|made| {
            object::kind(made) == object::str_at(binding, "/roleRef/kind")
                && object::name(made) == object::str_at(binding, "/roleRef/name")
                && object::namespace(made) == object::namespace(binding)
        });
        let strings = |rule: &Value, field: &str| -> Vec<String> {
            let values = rule[field].as_array().cloned().unwrap_or_default();
            values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in role.expect("the role is there")["rules"].as_array().into_iter().flatten() {
            for group in strings(rule, "apiGroups") {
                for resource in strings(rule, "resources") {
                    for verb in strings(rule, "verbs") {
                        rights.insert((account.to_owned(), named(&resource, &group), verb));
                    }
                }
            }
        }
    }
    rights
}

fn named(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// What a request needed; nothing where nobody of ours asked for an object.
fn needed(request: &Value) -> Option<Right> {
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

/// Rights that the scenarios do not need: for races, rollbacks, what is said twice, and settings that they do not have.
const ELSEWHERE: [(&str, &str, &str); 14] = [
    // A request whose pod has gone, and what is undone when a binding fails late.
    ("binder", "bindrequests.scheduling.run.ai", "delete"),
    ("binder", "configmaps", "delete"),
    // A map or a group that somebody else made meanwhile, and a group whose workload changed.
    ("binder", "configmaps", "get"),
    ("binder", "configmaps", "patch"),
    ("pod-grouper", "podgroups.scheduling.run.ai", "get"),
    ("pod-grouper", "podgroups.scheduling.run.ai", "patch"),
    // An event that is counted up.
    ("binder", "events", "patch"),
    ("pod-grouper", "events", "patch"),
    ("scheduler", "events", "patch"),
    // GPUs that are asked for as a resource and served as devices.
    ("binder", "resourceclaims.resource.k8s.io", "create"),
    ("binder", "resourceclaims.resource.k8s.io", "delete"),
    ("binder", "resourceclaims.resource.k8s.io", "list"),
    // The server asks for it besides the right to the status, and logs no request.
    ("binder", "resourceclaims/binding.resource.k8s.io", "patch"),
    // `--update-pod-eviction-condition`.
    ("scheduler", "pods", "delete"),
];

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
    let elsewhere =
        ELSEWHERE.map(|(account, resource, verb)| (account.to_owned(), resource.to_owned(), verb.to_owned()));
    let used: BTreeSet<Right> = used.into_iter().chain(elsewhere).collect();
    let unused: BTreeSet<Right> = granted().difference(&used).cloned().collect();
    assert_eq!(unused, BTreeSet::new(), "nothing needs these rights");
}
