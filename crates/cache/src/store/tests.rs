//! Which inputs a change affects; incremental updates equal a full build.

use super::*;
use kai_engine::input::{PodInput, PodPhase};
use proptest::prelude::*;
use serde_json::json;

fn object(kind: Kind, value: serde_json::Value) -> Object {
    macro_rules! read {
        ($($kind:ident)*) => {
            match kind {
                $(Kind::$kind => serde_json::from_value::<crate::object::$kind>(value).unwrap().into(),)*
            }
        };
    }
    read! {
        Pod Node Queue PodGroup BindRequest PriorityClass ConfigMap PersistentVolume PersistentVolumeClaim
        CsiStorageCapacity StorageClass CsiDriver ResourceClaim ResourceSlice DeviceClass Topology
        NodeResourceTopology PodDisruptionBudget CsiNode Namespace
    }
}

fn drained(store: &mut Store) -> Vec<Delta> {
    let mut deltas = Vec::new();
    store.drain(|delta| deltas.push(delta));
    deltas
}

fn cluster(objects: &[(Kind, serde_json::Value)]) -> Store {
    let mut store = Store::new(Settings::default());
    for (kind, value) in objects {
        store.apply(object(*kind, value.clone()));
    }
    store
}

fn pod_of(store: &mut Store) -> PodInput {
    let deltas = drained(store);
    let pod = deltas.into_iter().rev().find_map(|d| if let Delta::Pod(pod) = d { Some(*pod) } else { None });
    pod.expect("the pod was translated again")
}

#[test]
fn priority_class_change_updates_its_groups() {
    let group = |name: &str, class: &str| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": "q", "priorityClassName": class}});
    let mut store = cluster(&[(Kind::PodGroup, group("a", "high")), (Kind::PodGroup, group("b", "low"))]);
    assert_eq!(drained(&mut store).len(), 2);
    store.apply(object(Kind::PriorityClass, json!({"metadata": {"name": "high"}, "value": 100})));
    let deltas = drained(&mut store);
    assert!(matches!(&deltas[..], [Delta::Group(group)] if group.key.name == "a" && group.priority == 100));
    store.apply(object(
        Kind::PriorityClass,
        json!({"metadata": {"name": "d"}, "value": 7, "globalDefault": true}),
    ));
    let deltas = drained(&mut store);
    assert!(matches!(&deltas[..], [Delta::Group(group)] if group.key.name == "b" && group.priority == 7));
}

#[test]
fn claim_is_being_released_once_no_consumer_is_left() {
    let pod = |name: &str, uid: &str, more: serde_json::Value| {
        let mut pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": uid}, "status": {"phase": "Running"}});
        for (field, value) in more.as_object().into_iter().flatten() {
            for (inner, value) in value.as_object().into_iter().flatten() {
                pod[field][inner] = value.clone();
            }
        }
        pod
    };
    let consumer = |name: &str| json!({"resource": "pods", "name": name, "uid": format!("uid-{name}")});
    let claim = |consumers: &[serde_json::Value]| {
        json!({
            "metadata": {"name": "claim", "namespace": "ns"}, "status": {"reservedFor": consumers},
        })
    };
    let both = claim(&[consumer("a"), consumer("b")]);
    let mut store = cluster(&[
        (Kind::ResourceClaim, both.clone()),
        (Kind::Pod, pod("a", "uid-a", json!({}))),
        (Kind::Pod, pod("b", "uid-b", json!({}))),
    ]);
    let releasing = |store: &mut Store| {
        let deltas = drained(store);
        deltas
            .into_iter()
            .find_map(|delta| if let Delta::Claim(claim) = delta { Some(claim.releasing) } else { None })
    };
    assert_eq!(releasing(&mut store), Some(false));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    store.apply(object(Kind::Pod, pod("a", "uid-a", deleted)));
    assert_eq!(releasing(&mut store), Some(false), "the other one runs");
    let key = Key::new("ns", "b");
    store.assume_eviction(key.clone(), Eviction { uid: "uid-b".to_owned(), since: Timestamp::default() });
    assert_eq!(releasing(&mut store), Some(true), "an eviction is assumed");
    store.forget_eviction(&key);
    assert_eq!(releasing(&mut store), Some(false));
    store.apply(object(Kind::Pod, pod("b", "uid-b", json!({"status": {"phase": "Succeeded"}}))));
    assert_eq!(releasing(&mut store), Some(true), "it has ended");
    store.delete(Kind::Pod, &key);
    assert_eq!(releasing(&mut store), Some(true), "it is gone");
    store.apply(object(Kind::Pod, pod("b", "another", json!({}))));
    assert_eq!(releasing(&mut store), Some(true), "its successor has not reserved the claim");
    let other = json!({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"});
    store.apply(object(Kind::ResourceClaim, claim(&[consumer("a"), other])));
    assert_eq!(releasing(&mut store), Some(false), "another object uses it");
    store.apply(object(Kind::ResourceClaim, claim(&[])));
    assert_eq!(releasing(&mut store), Some(false));
    store.delete(Kind::Pod, &Key::new("ns", "a"));
    assert_eq!(releasing(&mut store), None, "no claim is reserved for it");
}

#[test]
fn bind_request_counts_while_its_node_is_selected() {
    let mut store = cluster(&[
        (
            Kind::Pod,
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "1"}, "status": {"phase": "Pending"}}),
        ),
        (
            Kind::BindRequest,
            json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"podName": "p", "selectedNode": "n"}}),
        ),
    ]);
    assert_eq!(pod_of(&mut store).phase, PodPhase::Pending);
    assert_eq!(store.obsolete_bind_requests(), [Key::new("ns", "p")]);
    store.apply(object(Kind::Node, json!({"metadata": {"name": "n"}})));
    assert_eq!(pod_of(&mut store).phase, PodPhase::Binding);
    assert_eq!(store.obsolete_bind_requests(), []);
    let other_pool = json!({"metadata": {"name": "n", "labels": {"kai.scheduler/node-pool": "x"}}});
    store.apply(object(Kind::Node, other_pool));
    assert_eq!(pod_of(&mut store).phase, PodPhase::Pending);
}

#[test]
fn bind_request_of_an_earlier_pod_does_not_count() {
    let bind = json!({"metadata": {"name": "p", "namespace": "ns", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "old"}]}, "spec": {"podName": "p", "selectedNode": "n"}});
    let mut store = cluster(&[
        (Kind::Node, json!({"metadata": {"name": "n"}})),
        (Kind::Pod, json!({"metadata": {"name": "p", "namespace": "ns", "uid": "new"}})),
        (Kind::BindRequest, bind),
    ]);
    assert_eq!(pod_of(&mut store).phase, PodPhase::Pending);
    assert_eq!(store.obsolete_bind_requests(), [Key::new("ns", "p")]);
}

#[test]
fn failed_bind_request_is_obsolete_in_its_own_pool_only() {
    let mut store = Store::new(Settings { node_pool_value: "red".to_owned(), ..Settings::default() });
    let failed = |name: &str, labels: serde_json::Value| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"podName": name, "selectedNode": "n"}, "status": {"phase": "Failed"},
        })
    };
    store.apply(object(Kind::BindRequest, failed("ours", json!({"kai.scheduler/node-pool": "red"}))));
    store.apply(object(Kind::BindRequest, failed("theirs", json!({"kai.scheduler/node-pool": "blue"}))));
    store.apply(object(Kind::BindRequest, failed("unknown", json!({}))));
    assert_eq!(store.obsolete_bind_requests(), [Key::new("ns", "ours")]);
    // A request without the label belongs to the pool of its pod's group.
    let group =
        json!({"metadata": {"name": "g", "namespace": "ns", "labels": {"kai.scheduler/node-pool": "red"}}});
    store.apply(object(Kind::PodGroup, group));
    let pod =
        json!({"metadata": {"name": "unknown", "namespace": "ns", "annotations": {"pod-group-name": "g"}}});
    store.apply(object(Kind::Pod, pod));
    assert_eq!(store.obsolete_bind_requests(), [Key::new("ns", "ours"), Key::new("ns", "unknown")]);
}

#[test]
fn assumed_eviction_ends_with_the_deletion_timestamp() {
    let pod = |deleted: bool| {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "1"}, "spec": {"nodeName": "n"},
                             "status": {"phase": "Running"}});
        if deleted {
            pod["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:30Z".into();
        }
        pod
    };
    let mut store = cluster(&[(Kind::Pod, pod(false))]);
    assert_eq!(pod_of(&mut store).phase, PodPhase::Running);
    let key = Key::new("ns", "p");
    store.assume_eviction(key.clone(), Eviction { uid: "another".to_owned(), since: Timestamp(5) });
    assert!(store.evictions().is_empty());
    store.assume_eviction(key, Eviction { uid: "1".to_owned(), since: Timestamp(5) });
    assert_eq!(pod_of(&mut store).phase, PodPhase::Releasing(Timestamp(5)));
    store.apply(object(Kind::Pod, pod(true)));
    assert_eq!(pod_of(&mut store).phase, PodPhase::Releasing(Timestamp(1_735_689_630_000_000)));
    assert!(store.evictions().is_empty());
}

#[test]
fn unchanged_and_unselected_objects_emit_no_deltas() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "status": {"phase": "Running"}});
    let failed = json!({"metadata": {"name": "p", "namespace": "ns"}, "status": {"phase": "Failed"}});
    let mut store = cluster(&[(Kind::Pod, pod.clone())]);
    assert_eq!(drained(&mut store).len(), 1);
    let mut again = pod.clone();
    again["status"]["podIP"] = "10.0.0.1".into();
    store.apply(object(Kind::Pod, again));
    assert_eq!(drained(&mut store), []);
    store.apply(object(Kind::Pod, failed));
    assert_eq!(drained(&mut store), [Delta::PodGone(Key::new("ns", "p"))]);
    store.delete(Kind::Pod, &Key::new("ns", "p"));
    assert_eq!(drained(&mut store), []);
}

#[test]
fn relist_deletes_missing_objects() {
    let node = |name: &str| (Kind::Node, json!({"metadata": {"name": name}}));
    let mut store = cluster(&[node("a"), node("b")]);
    drained(&mut store);
    store.reset(Kind::Node, vec![object(Kind::Node, node("b").1), object(Kind::Node, node("c").1)]);
    let deltas = drained(&mut store);
    assert!(matches!(&deltas[..], [Delta::NodeGone(a), Delta::Node(c)] if a == "a" && c.name == "c"));
}

#[test]
fn device_selectors_are_evaluated_again_when_slices_change() {
    let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}});
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "allNodes": true, "devices": [{"name": "x"}]}});
    let mut store = cluster(&[(Kind::DeviceClass, class)]);
    drained(&mut store);
    store.apply(object(Kind::ResourceSlice, slice));
    let deltas = drained(&mut store);
    assert!(matches!(&deltas[..], [Delta::Slice(_), Delta::DeviceClass(class)] if class.accepts.len() == 1));
}

#[test]
fn flat_hierarchy_has_one_parent() {
    let settings = Settings { full_hierarchy_fairness: false, ..Settings::default() };
    let mut store = Store::new(settings);
    for (name, parent) in [("top", ""), ("leaf", "top"), ("default", "top")] {
        store
            .apply(object(Kind::Queue, json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}})));
    }
    let queues: Vec<(String, Option<String>)> = drained(&mut store)
        .into_iter()
        .filter_map(|d| if let Delta::Queue(queue) = d { Some((queue.name, queue.parent)) } else { None })
        .collect();
    assert_eq!(queues, [("default".to_owned(), None), ("leaf".to_owned(), Some("default".to_owned()))]);
}

#[test]
fn only_queues_of_a_cycle_are_reported_as_their_own_ancestor() {
    let queue = |name: &str, parent: &str| {
        (Kind::Queue, json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}}))
    };
    let mut store = cluster(&[
        queue("below", "a"),
        queue("a", "b"),
        queue("b", "c"),
        queue("c", "a"),
        queue("self", "self"),
        queue("top", ""),
        queue("leaf", "top"),
    ]);
    drained(&mut store);
    let names: Vec<String> = store.findings().into_iter().map(|f| f.key.name).collect();
    assert_eq!(names, ["a", "b", "c", "self"]);
}

#[test]
fn groups_of_ignored_queues_have_a_finding() {
    let queue = |name: &str, parent: &str| {
        (Kind::Queue, json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}}))
    };
    let group = |queue: &str| {
        (Kind::PodGroup, json!({"metadata": {"name": queue, "namespace": "ns"}, "spec": {"queue": queue}}))
    };
    let mut store = cluster(&[
        queue("a", "b"),
        queue("b", "a"),
        queue("below", "a"),
        queue("orphan", "gone"),
        queue("top", ""),
        queue("leaf", "top"),
        group("a"),
        group("below"),
        group("orphan"),
        group("leaf"),
    ]);
    drained(&mut store);
    let groups: Vec<String> = store
        .findings()
        .into_iter()
        .filter(|f| f.kind == Kind::PodGroup && f.problem.contains("is ignored"))
        .map(|f| f.key.name)
        .collect();
    assert_eq!(groups, ["a", "below", "orphan"]);
}

#[test]
fn pods_on_missing_nodes_and_gpus_on_two_nodes_have_findings() {
    let pod = |name: &str, node: &str| {
        (
            Kind::Pod,
            json!({"metadata": {"name": name, "namespace": "ns", "annotations": {"pod-group-name": "g"},
                "labels": {"runai-gpu-group": "shared"}},
                "spec": {"nodeName": node}, "status": {"phase": "Running"}}),
        )
    };
    let mut store = cluster(&[
        (Kind::Queue, json!({"metadata": {"name": "q"}})),
        (Kind::PodGroup, json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q"}})),
        (Kind::Node, json!({"metadata": {"name": "n"}})),
        pod("a", "n"),
        pod("b", "ghost"),
    ]);
    drained(&mut store);
    let found: Vec<String> = store.findings().iter().map(ToString::to_string).collect();
    assert!(
        found.iter().any(|f| f.starts_with("Pod `ns/b`, `spec.nodeName`: the node `ghost` does not exist")),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .any(|f| f.starts_with("Pod `ns/b`, `metadata.labels`: another pod has the shared GPU `shared`")),
        "{found:#?}"
    );
}

#[test]
fn references_to_missing_objects_have_findings() {
    let mut store = cluster(&[
        (Kind::Queue, json!({"metadata": {"name": "a"}, "spec": {"parentQueue": "b"}})),
        (Kind::Queue, json!({"metadata": {"name": "b"}, "spec": {"parentQueue": "a"}})),
        (Kind::Queue, json!({"metadata": {"name": "c"}, "spec": {"parentQueue": "gone"}})),
        (
            Kind::PodGroup,
            json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "missing", "priorityClassName": "x",
            "topologyConstraint": {"topology": "t"}, "subGroups": [{"name": "s", "parent": "u"}]}}),
        ),
        (
            Kind::Pod,
            json!({"metadata": {"name": "p", "namespace": "other", "annotations": {"pod-group-name": "g"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1e400"}}}]}}),
        ),
        (
            Kind::ResourceClaim,
            json!({"metadata": {"name": "k", "namespace": "ns"}, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "none"}}]}}}),
        ),
    ]);
    drained(&mut store);
    let found: Vec<String> = store.findings().iter().map(ToString::to_string).collect();
    let expected = [
        "Pod `other/p`, `metadata.annotations[pod-group-name]`",
        "Pod `other/p`, `spec.containers.resources.requests.cpu`: `1e400`",
        "Queue `a`, `spec.parentQueue`: the queue is its own ancestor",
        "Queue `b`, `spec.parentQueue`: the queue is its own ancestor",
        "Queue `c`, `spec.parentQueue`: the parent queue `gone`",
        "PodGroup `ns/g`, `spec.priorityClassName`",
        "PodGroup `ns/g`, `spec.queue`: the queue `missing`",
        "PodGroup `ns/g`, `spec.subGroups`: the parent `u` of sub-group `s` does not exist",
        "PodGroup `ns/g`, `spec.topologyConstraint.topology`",
        "ResourceClaim `ns/k`, `spec.devices.requests[r].deviceClassName`",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected) && found.contains("; hint: "), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

/// One change of a small cluster: a kind, one of two names, and one of three forms; form 3 deletes.
type Step = (usize, usize, usize);

const KINDS: [Kind; 12] = [
    Kind::Pod,
    Kind::Node,
    Kind::Queue,
    Kind::PodGroup,
    Kind::BindRequest,
    Kind::PriorityClass,
    Kind::Topology,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::ResourceClaim,
    Kind::Namespace,
    Kind::NodeResourceTopology,
];

fn key_of(kind: Kind, name: usize) -> Key {
    let namespaced = matches!(kind, Kind::Pod | Kind::PodGroup | Kind::BindRequest | Kind::ResourceClaim);
    Key::new(if namespaced { "ns" } else { "" }, ["a", "b"][name])
}

fn form(kind: Kind, name: usize, form: usize) -> Object {
    let key = key_of(kind, name);
    let other = ["b", "a"][name];
    let pick = |words: [&str; 3]| words[form].to_owned();
    let labels = [json!({}), json!({"team": "x"}), json!({"kai.scheduler/node-pool": "far"})][form].clone();
    let meta = json!({"name": key.name, "namespace": key.namespace, "uid": "u", "labels": labels});
    let cel = [
        json!([]),
        json!([{"cel": {"expression": "device.driver == 'd'"}}]),
        json!([{"cel": {"expression": "bad("}}]),
    ];
    let value = match kind {
        Kind::Pod => json!({"metadata": meta, "status": {"phase": pick(["Pending", "Running", "Failed"])},
            "spec": {"nodeName": pick(["", "a", "b"]), "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": "z", "namespaceSelector": {"matchLabels": {"team": "x"}}}]}}}}),
        Kind::PodGroup => {
            json!({"metadata": meta, "spec": {"queue": "a", "priorityClassName": pick(["a", "b", "c"]),
            "topologyConstraint": {"topology": other, "requiredTopologyLevel": "rack"}}})
        }
        Kind::BindRequest => {
            json!({"metadata": meta, "spec": {"podName": pick(["a", "b", "a"]), "selectedNode": other},
            "status": {"phase": pick(["", "Failed", "Pending"])}})
        }
        Kind::PriorityClass => json!({"metadata": meta, "value": form, "globalDefault": form == 1}),
        Kind::Topology => {
            json!({"metadata": meta, "spec": {"levels": [{"nodeLabel": pick(["x", "y", "rack"]), "alias": "rack"}]}})
        }
        Kind::ResourceSlice => {
            json!({"metadata": meta, "spec": {"driver": pick(["d", "e", "d"]), "pool": {"name": key.name},
            "allNodes": true, "devices": [{"name": "one"}]}})
        }
        Kind::DeviceClass => json!({"metadata": meta, "spec": {"selectors": cel[form]}}),
        Kind::ResourceClaim => json!({"metadata": meta, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "a", "selectors": cel[form]}}]}},
            "status": {"reservedFor": [{"resource": "pods", "name": other, "uid": "u"}]}}),
        Kind::NodeResourceTopology => {
            json!({"metadata": meta, "zones": [{"name": format!("node-{form}"), "type": "Node"}]})
        }
        Kind::Queue => json!({"metadata": meta, "spec": {"parentQueue": pick(["", other, "c"])}}),
        Kind::Node
        | Kind::Namespace
        | Kind::ConfigMap
        | Kind::PersistentVolume
        | Kind::PersistentVolumeClaim
        | Kind::CsiStorageCapacity
        | Kind::StorageClass
        | Kind::CsiDriver
        | Kind::CsiNode
        | Kind::PodDisruptionBudget => json!({"metadata": meta}),
    };
    object(kind, value)
}

/// The inputs that exist after a sequence of deltas.
fn existing(deltas: Vec<Delta>, into: &mut BTreeMap<String, Delta>) {
    for delta in deltas {
        let (name, gone) = match &delta {
            Delta::Node(node) => (format!("node {}", node.name), false),
            Delta::NodeGone(name) => (format!("node {name}"), true),
            Delta::Pod(pod) => (format!("pod {}", pod.key), false),
            Delta::PodGone(key) => (format!("pod {key}"), true),
            Delta::Group(group) => (format!("group {}", group.key), false),
            Delta::GroupGone(key) => (format!("group {key}"), true),
            Delta::Queue(queue) => (format!("queue {}", queue.name), false),
            Delta::QueueGone(name) => (format!("queue {name}"), true),
            Delta::Topology(topology) => (format!("topology {}", topology.name), false),
            Delta::TopologyGone(name) => (format!("topology {name}"), true),
            Delta::Slice(slice) => (format!("slice {}", slice.name), false),
            Delta::SliceGone(name) => (format!("slice {name}"), true),
            Delta::DeviceClass(class) => (format!("class {}", class.name), false),
            Delta::DeviceClassGone(name) => (format!("class {name}"), true),
            Delta::Claim(claim) => (format!("claim {}", claim.key), false),
            Delta::ClaimGone(key) => (format!("claim {key}"), true),
            Delta::ConfigMap(_)
            | Delta::ConfigMapGone(_)
            | Delta::VolumeClaim(_)
            | Delta::VolumeClaimGone(_)
            | Delta::Volume(_)
            | Delta::VolumeGone(_)
            | Delta::StorageClass(_)
            | Delta::StorageClassGone(_)
            | Delta::Capacity(_)
            | Delta::CapacityGone(_)
            | Delta::Budget(_)
            | Delta::BudgetGone(_) => panic!("no such kind in this test: {delta:?}"),
        };
        if gone {
            into.remove(&name);
        } else {
            into.insert(name, delta);
        }
    }
}

proptest! {
    #[test]
    fn incremental_updates_equal_a_full_build(
        steps in proptest::collection::vec((0..KINDS.len(), 0..2usize, 0..4usize), 1..40),
        drains in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let steps: Vec<Step> = steps;
        let mut store = Store::new(Settings::default());
        let mut incremental = BTreeMap::new();
        for ((kind, name, form_of), drain) in steps.iter().zip(drains) {
            let kind = KINDS[*kind];
            if *form_of == 3 {
                store.delete(kind, &key_of(kind, *name));
            } else {
                store.apply(form(kind, *name, *form_of));
            }
            if drain {
                existing(drained(&mut store), &mut incremental);
            }
        }
        existing(drained(&mut store), &mut incremental);
        let mut fresh = Store::of(Settings::default(), store.objects().clone());
        let mut at_once = BTreeMap::new();
        existing(drained(&mut fresh), &mut at_once);
        prop_assert_eq!(&incremental, &at_once);
        prop_assert_eq!(store.findings(), fresh.findings());
        prop_assert_eq!(store.obsolete_bind_requests(), fresh.obsolete_bind_requests());
    }
}
