//! All components in one process, and the way from separate processes to it and back.

use crate::{arguments, facts, find, get};
use kai_operator::plan::{Change, plan};
use kai_operator::status::{Observed, conditions};
use kai_operator::{Desired, Facts, ObjectKey, read};
use serde_json::{Value, json};
use std::fmt::Write as _;

const NAMESPACE: &str = "kai-scheduler";
/// A process of its own in both topologies.
const OTHER: &str = "node-scale-adjuster";
const SEPARATE: [&str; 6] = [
    "admission",
    "binder",
    "kai-scheduler-default",
    "pod-grouper",
    "podgroup-controller",
    "queue-controller",
];

fn desired(topology: &str, config: &Value, shards: &[(&str, Value)], facts: &Facts) -> Desired {
    let annotations = json!({"kai.scheduler/process-topology": topology});
    let config = json!({
        "metadata": {"name": "kai-config", "uid": "c", "annotations": annotations}, "spec": config,
    });
    let shards: Vec<_> = shards
        .iter()
        .map(|(name, spec)| {
            read::shard(&json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
        })
        .collect();
    kai_operator::desired(Some(&read::config(&config).unwrap()), &shards, facts)
}

fn combined(config: &Value, shards: &[(&str, Value)]) -> Desired {
    desired("combined", config, shards, &facts())
}

fn default_shard() -> [(&'static str, Value); 1] {
    [("default", json!({}))]
}

fn deployments(desired: &Desired) -> Vec<&str> {
    let mut names: Vec<&str> = desired
        .objects()
        .filter(|object| kai_object::kind(object) == "Deployment")
        .map(kai_object::name)
        .filter(|name| *name != OTHER)
        .collect();
    names.sort_unstable();
    names
}

/// What the operator and the Deployment controller do, step by step.
struct Cluster {
    facts: Facts,
    config: Value,
    shards: Vec<(&'static str, Value)>,
}

impl Cluster {
    fn new() -> Self {
        Self { facts: facts(), config: json!({}), shards: default_shard().to_vec() }
    }

    /// Reconciles once; returns the names of the Deployments that exist then.
    fn reconcile(&mut self, topology: &str) -> Vec<String> {
        let desired = desired(topology, &self.config, &self.shards, &self.facts);
        for change in plan(&desired, "kai-config", &self.facts) {
            match change {
                Change::Create(object) => drop(self.facts.objects.insert(ObjectKey::of(&object), object)),
                Change::Apply { merged, .. } => {
                    drop(self.facts.objects.insert(ObjectKey::of(&merged), merged));
                }
                Change::Replace(key) | Change::Delete(key) => drop(self.facts.objects.remove(&key)),
            }
        }
        assert!(self.has("Deployment", OTHER));
        let names = self.facts.objects.keys().filter(|key| key.kind == "Deployment" && key.name != OTHER);
        names.map(|key| key.name.clone()).collect()
    }

    /// Starts the pods of all Deployments; those that are named do not become available.
    fn start(&mut self, unavailable: &[&str]) {
        let names: Vec<String> = self
            .facts
            .objects
            .keys()
            .filter(|key| key.kind == "Deployment")
            .map(|key| key.name.clone())
            .collect();
        for name in names {
            let key = ObjectKey::new("Deployment", NAMESPACE, &name);
            let deployment = self.facts.objects.get_mut(&key).unwrap();
            let available = if unavailable.contains(&name.as_str()) { "False" } else { "True" };
            deployment["status"] = json!({
                "updatedReplicas": deployment["spec"]["replicas"],
                "conditions": [{"type": "Available", "status": available}],
            });
            let pod = json!({
                "kind": "Pod", "metadata": {"name": format!("{name}-x"), "namespace": NAMESPACE, "labels": {"app": name}},
                "status": {"phase": "Running"},
            });
            self.facts.objects.insert(ObjectKey::of(&pod), pod);
        }
    }

    /// Ends the pods whose Deployment is gone.
    fn end(&mut self) {
        let keys: Vec<ObjectKey> =
            self.facts.objects.keys().filter(|key| key.kind == "Deployment").cloned().collect();
        self.facts.objects.retain(|key, _| {
            key.kind != "Pod" || keys.iter().any(|owner| key.name == format!("{}-x", owner.name))
        });
    }

    fn condition(&self, topology: &str, type_: &str) -> (bool, String) {
        let desired = desired(topology, &self.config, &self.shards, &self.facts);
        let conditions = conditions(&Observed {
            generation: 1,
            operands: &desired.config,
            objects: &self.facts.objects,
            kept: Vec::new(),
            failures: &[],
            external_prometheus: None,
        });
        let found = conditions.into_iter().find(|condition| condition.type_ == type_).unwrap();
        (found.status, found.message)
    }

    fn shard_is_ready(&self, topology: &str) -> bool {
        let desired = desired(topology, &self.config, &self.shards, &self.facts);
        let conditions = conditions(&Observed {
            generation: 1,
            operands: std::slice::from_ref(&desired.shards[0].1),
            objects: &self.facts.objects,
            kept: Vec::new(),
            failures: &[],
            external_prometheus: None,
        });
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status)
    }

    fn serves(&self, service: &str) -> String {
        let service = &self.facts.objects[&ObjectKey::new("Service", NAMESPACE, service)];
        kai_object::str_at(service, "/spec/selector/app").to_owned()
    }

    fn has(&self, kind: &str, name: &str) -> bool {
        self.facts.objects.contains_key(&ObjectKey::new(kind, NAMESPACE, name))
    }
}

#[test]
fn combined_installation() {
    let desired = combined(&json!({}), &default_shard());
    let mut text = String::new();
    for object in desired.objects() {
        writeln!(text, "--- {}\n{object:#}", ObjectKey::of(object)).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn unknown_topology_is_an_error_and_changes_nothing() {
    let desired = desired("both", &json!({}), &default_shard(), &facts());
    assert_eq!(deployments(&desired), SEPARATE);
    let error = desired.config.iter().find_map(|operand| operand.error.as_deref()).unwrap();
    assert!(error.contains("kai.scheduler/process-topology") && error.contains("`both`"), "{error}");

    let mut cluster = Cluster::new();
    cluster.reconcile("combined");
    assert_eq!(cluster.reconcile("both"), ["kai-all"], "what is deployed stays");
}

#[test]
fn every_shard_has_a_section_with_the_lease_and_ports_of_its_own() {
    let shards = [
        ("default", json!({})),
        ("b", json!({"partitionLabelValue": "b", "args": {"v": "5", "schedule-period": "2s"}})),
        ("twin", json!({"partitionLabelValue": "b"})),
        ("broken", json!({"partitionLabelValue": "c", "queueDepthPerAction": {"nope": 1}})),
    ];
    let desired = combined(&json!({}), &shards);
    let args = arguments(&desired, "Deployment", "kai-all");
    let of = |prefix: &str| -> Vec<&str> { args.iter().filter_map(|arg| arg.strip_prefix(prefix)).collect() };
    assert_eq!(args.iter().filter(|arg| *arg == "scheduler").count(), 2, "{args:?}");
    assert_eq!(of("--scheduler-conf-map="), ["kai-scheduler-default", "kai-scheduler-b"]);
    assert_eq!(of("--partition-label-value="), ["", "b"]);
    assert_eq!(of("--plugin-server-port="), ["8081", "8082"]);
    assert!(args.contains(&"--schedule-period=2s".to_owned()) && of("--v=").is_empty(), "{args:?}");
    let (_, b) = &desired.shards[1];
    assert!(b.notices.iter().any(|notice| notice.contains("--v has no effect")), "{:?}", b.notices);
    for (name, why) in [("twin", "already schedules node pool"), ("broken", "spec.queueDepthPerAction")] {
        let (_, operand) = desired.shards.iter().find(|(shard, _)| shard == name).unwrap();
        assert!(operand.error.as_deref().unwrap().contains(why), "{operand:?}");
    }
}

/// The section of a shard whose settings have become invalid stays, as its Deployment would.
#[test]
fn shard_keeps_its_section_while_its_settings_are_invalid() {
    let mut cluster = Cluster::new();
    cluster.reconcile("combined");
    cluster.start(&[]);
    cluster.shards[0].1 = json!({"args": {"qps": "7"}, "queueDepthPerAction": {"nope": 1}});
    let desired = desired("combined", &json!({}), &cluster.shards, &cluster.facts);
    let args = arguments(&desired, "Deployment", "kai-all");
    assert!(args.contains(&"--scheduler-conf-map=kai-scheduler-default".to_owned()), "{args:?}");
    assert_eq!(plan(&desired, "kai-config", &cluster.facts), []);
}

/// Its Deployment goes on, until the process would run its scheduler.
#[test]
fn shard_that_cannot_be_deployed_keeps_the_installation_separate() {
    let mut cluster = Cluster::new();
    cluster.reconcile("separate");
    cluster.start(&[]);
    cluster.shards[0].1 = json!({"queueDepthPerAction": {"nope": 1}});
    cluster.reconcile("combined");
    cluster.end();
    for _ in 0..2 {
        let names = cluster.reconcile("combined");
        assert_eq!(names, SEPARATE, "also the binder stays");
    }
    let (_, message) = cluster.condition("combined", "Deployed");
    assert!(message.contains("it starts when `kai-scheduler-default` can be deployed"), "{message}");
}

/// The check of arguments sees each component and shard alone, before one process is made of them.
#[test]
fn arguments_that_a_scheduler_refuses_concern_its_shard_only() {
    let config = json!({
        "metadata": {"name": "kai-config", "uid": "c", "annotations": {"kai.scheduler/process-topology": "combined"}},
    });
    let shard = |name: &str, pool: &str| {
        let spec = json!({"partitionLabelValue": pool});
        read::shard(&json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
    };
    let shards = [shard("a", "a"), shard("b", "b")];
    let config = read::config(&config).unwrap();
    let desired = kai_operator::desired_checked(Some(&config), &shards, &facts(), |separate| {
        let (_, b) = &mut separate.shards[1];
        b.objects.clear();
        b.error = Some("spec.args: refused".to_owned());
    });
    let args = arguments(&desired, "Deployment", "kai-all");
    assert!(args.contains(&"--partition-label-value=a".to_owned()), "{args:?}");
    assert!(!args.contains(&"--partition-label-value=b".to_owned()), "{args:?}");
}

#[test]
fn settings_of_the_pods_are_those_of_the_scheduler() {
    let config = json!({
        "scheduler": {"replicas": 2, "service": {
            "image": {"repository": "mirror", "tag": "v2"}, "resources": {"limits": {"memory": "2Gi"}},
            "podDisruptionBudget": {"enabled": true},
        }},
        "binder": {"replicas": 3, "service": {"image": {"name": "own-binder"}}},
    });
    let desired = combined(&config, &default_shard());
    let spec = &get(&desired, "Deployment", "kai-all")["spec"];
    assert_eq!(spec["replicas"], 2);
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "mirror/kai-all:v2");
    assert_eq!(container["resources"]["limits"]["memory"], "2Gi");
    assert!(find(&desired, "PodDisruptionBudget", "kai-all").is_some());
    let slice = get(&desired, "EndpointSlice", "kai-scheduler-default-leader");
    assert_eq!(slice["ports"][0]["port"], 8080);
    let notices: Vec<&String> = desired.config.iter().flat_map(|operand| &operand.notices).collect();
    let expected = "spec.binder.replicas, spec.binder.service.image.name has no effect";
    assert!(notices.iter().any(|notice| notice.contains(expected)), "{notices:?}");
}

#[test]
fn components_that_are_disabled_do_not_run_in_the_process() {
    let off = json!({"service": {"enabled": false}});
    let config = json!({"binder": off, "admission": off});
    let args = arguments(&combined(&config, &[]), "Deployment", "kai-all");
    let components = "--components=pod-grouper,podgroup-controller,queue-controller";
    assert!(args.contains(&components.to_owned()), "{args:?}");
    let all = json!({
        "binder": off, "admission": off, "podGrouper": off, "podGroupController": off, "queueController": off,
    });
    assert_eq!(deployments(&combined(&all, &[])), [""; 0]);
}

#[test]
fn two_webhooks_on_one_port_are_an_error_that_names_both() {
    let config = json!({"queueController": {"controllerService": {"webhook": {"targetPort": 9443}}}});
    let desired = combined(&config, &default_shard());
    let operand = desired.config.iter().find(|operand| operand.name == "Combined").unwrap();
    let waiting = operand.waiting.as_deref().unwrap();
    assert!(waiting.contains("queue-controller and admission") && waiting.contains("9443"), "{waiting}");
}

#[test]
fn installation_passes_to_one_process_without_two_binders_or_a_webhook_that_is_not_served() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.reconcile("separate"), SEPARATE);
    cluster.start(&[]);
    assert!(cluster.condition("separate", "Ready").0);

    // The binder ends first; everything else goes on.
    let without_binder: Vec<&str> = SEPARATE.into_iter().filter(|name| *name != "binder").collect();
    for _ in 0..2 {
        assert_eq!(cluster.reconcile("combined"), without_binder);
    }
    assert!(cluster.has("ServiceAccount", "binder"), "its pod still uses it");
    let (ready, message) = cluster.condition("combined", "Deployed");
    assert!(
        !ready && message.contains("Combined: it starts when these pods have ended: binder-x"),
        "{message}"
    );
    cluster.end();
    let both: Vec<&str> = ["admission", "kai-all"].into_iter().chain(without_binder[1..].to_vec()).collect();
    assert_eq!(cluster.reconcile("combined"), both);
    cluster.start(&["kai-all"]);
    assert_eq!(cluster.reconcile("combined"), both, "the new process is not available yet");
    assert_eq!(cluster.serves("admission"), "admission");
    assert!(!cluster.condition("combined", "Ready").0);

    cluster.start(&[]);
    assert_eq!(cluster.reconcile("combined"), ["kai-all"]);
    for service in ["admission", "queue-controller", "podgroup-controller", "kai-scheduler-default"] {
        assert_eq!(cluster.serves(service), "kai-all", "{service}");
    }
    assert!(cluster.has("ServiceAccount", "scheduler"), "its pod gives its lease back");
    cluster.end();
    cluster.reconcile("combined");
    for account in ["admission", "binder", "scheduler", "pod-grouper", "queue-controller"] {
        assert!(!cluster.has("ServiceAccount", account), "{account}");
    }
    assert!(cluster.condition("combined", "Ready").0, "{}", cluster.condition("combined", "Available").1);
    assert!(cluster.shard_is_ready("combined"));
    let before = cluster.facts.objects.clone();
    cluster.reconcile("combined");
    assert_eq!(cluster.facts.objects, before, "nothing more is written");
}

/// A process that becomes unavailable while the pods of its predecessors end is not taken back.
#[test]
fn process_that_was_deployed_stays_when_it_becomes_unavailable() {
    let mut cluster = Cluster::new();
    cluster.reconcile("separate");
    cluster.start(&[]);
    cluster.reconcile("combined");
    cluster.end();
    cluster.reconcile("combined");
    cluster.start(&[]);
    assert_eq!(cluster.reconcile("combined"), ["kai-all"]);
    cluster.start(&["kai-all"]);
    for _ in 0..2 {
        assert_eq!(cluster.reconcile("combined"), ["kai-all"]);
        cluster.end();
    }
}

#[test]
fn installation_passes_back_to_separate_processes() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.reconcile("combined"), ["kai-all"]);
    cluster.start(&[]);
    let both = [
        "admission",
        "kai-all",
        "kai-scheduler-default",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
    ];
    assert_eq!(cluster.reconcile("separate"), both);
    cluster.start(&["queue-controller"]);
    assert_eq!(cluster.reconcile("separate"), both, "one of the components is not available yet");
    assert_eq!(cluster.serves("queue-controller"), "kai-all");
    let (ready, message) = cluster.condition("separate", "Deployed");
    assert!(!ready && message.contains("`kai-all` stays until queue-controller are available"), "{message}");

    cluster.start(&[]);
    let without_binder: Vec<&str> = both.into_iter().filter(|name| *name != "kai-all").collect();
    for _ in 0..2 {
        assert_eq!(cluster.reconcile("separate"), without_binder);
    }
    assert_eq!(cluster.serves("queue-controller"), "queue-controller");
    assert!(cluster.has("ServiceAccount", "kai-all"), "its pod still uses it");
    cluster.end();
    assert_eq!(cluster.reconcile("separate"), SEPARATE);
    assert!(!cluster.has("ServiceAccount", "kai-all") && !cluster.has("Service", "kai-all"));
    cluster.start(&[]);
    assert!(cluster.condition("separate", "Ready").0);
}

#[test]
fn scheduler_that_takes_no_lease_ends_before_the_process_starts() {
    let mut cluster = Cluster::new();
    cluster.reconcile("separate");
    let key = ObjectKey::new("Deployment", NAMESPACE, "kai-scheduler-default");
    let of_kai = cluster.facts.objects.get_mut(&key).unwrap();
    of_kai["spec"]["strategy"] = json!({"type": "Recreate"});
    of_kai["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--v=3"]);
    cluster.start(&[]);
    for _ in 0..2 {
        let names = cluster.reconcile("combined");
        assert!(!names.iter().any(|name| name == "kai-all" || name == &key.name), "{names:?}");
    }
    cluster.end();
    assert!(cluster.reconcile("combined").contains(&"kai-all".to_owned()));
}

#[test]
fn shard_says_that_the_process_does_not_run_its_scheduler() {
    let mut cluster = Cluster::new();
    cluster.shards.clear();
    cluster.reconcile("combined");
    cluster.start(&[]);
    cluster.shards = default_shard().to_vec();
    assert!(!cluster.shard_is_ready("combined"));
    cluster.reconcile("combined");
    cluster.start(&[]);
    assert!(cluster.shard_is_ready("combined"));
    cluster.start(&["kai-all"]);
    assert!(!cluster.shard_is_ready("combined"), "the pods that run it are not available");
}

/// What the operator refuses while a shard cannot be read.
#[test]
fn process_stays_as_it_is_while_a_shard_cannot_be_read() {
    let mut cluster = Cluster::new();
    cluster.reconcile("combined");
    let mut desired = desired("combined", &json!({}), &[], &cluster.facts);
    desired.withhold_combined("shard `default` cannot be read");
    assert_eq!(plan(&desired, "kai-config", &cluster.facts), []);
}
