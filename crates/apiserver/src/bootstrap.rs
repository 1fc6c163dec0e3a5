//! Creates the objects that every cluster has.

use crate::registry::Resource;
use crate::server::Core;
use crate::{object, strategy};
use serde_json::{Value, json};

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the missing ones.
pub(crate) fn run(core: &Core) {
    let namespaces = core.builtin("", "namespaces");
    for name in NAMESPACES {
        ensure(
            core,
            &namespaces,
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}),
        );
    }
    let accounts = core.builtin("", "serviceaccounts");
    for namespace in NAMESPACES {
        let metadata = json!({"name": "default", "namespace": namespace});
        ensure(core, &accounts, json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata}));
    }
    let service = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    });
    ensure(core, &core.builtin("", "services"), service);
    create_rbac(core);
    let classes = core.builtin("scheduling.k8s.io", "priorityclasses");
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        ensure(core, &classes, class);
    }
}

/// The `cluster-admin` role and its binding.
fn create_rbac(core: &Core) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let metadata = json!({
        "name": "cluster-admin",
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    let role = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata,
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ],
    });
    ensure(core, &core.builtin(GROUP, "clusterroles"), role);
    let binding = json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "system:masters"}],
    });
    ensure(core, &core.builtin(GROUP, "clusterrolebindings"), binding);
}

fn ensure(core: &Core, resource: &Resource, mut object: Value) {
    let key = resource.key(object::namespace(&object), object::name(&object));
    if core.store.get(resource.table, &key).is_some() {
        return;
    }
    object::set_meta(&mut object, "uid", Some(Value::from(core.ids.uid())));
    object::set_meta(&mut object, "creationTimestamp", Some(Value::from(core.clock.time())));
    strategy::prepare_create(core, resource, &mut object);
    // No other client writes at startup; if the create conflicts, the object exists.
    let _ = core.store.create(resource.table, &key, &mut object);
}
