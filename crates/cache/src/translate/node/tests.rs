//! Nodes: visibility, conditions, GPU facts.

use super::*;
use crate::object::Kind;
use kai_engine::input::{Key, NumaPolicy, NumaScope};

fn node(json: &str) -> Node {
    serde_json::from_str(json).unwrap()
}

fn labelled(labels: &str) -> Node {
    node(&format!(r#"{{"metadata":{{"name":"n","labels":{labels}}}}}"#))
}

fn read(node: &Node) -> (NodeInput, Vec<String>) {
    let key = Key::new("", "n");
    let mut report = Report::on(Kind::Node, &key);
    let input = translate(node, None, None, &Settings::default(), &mut report);
    (input, report.into_findings().into_iter().map(|f| f.field).collect())
}

#[test]
fn unhealthy_conditions_are_recognised() {
    let conditions = |json: &str| bad_conditions(&node(&format!(r#"{{"status":{{"conditions":{json}}}}}"#)));
    assert_eq!(conditions("[]"), []);
    assert_eq!(conditions("null"), []);
    assert_eq!(conditions(r#"[{"type":"Ready","status":"True"},{"type":"Custom","status":"True"}]"#), []);
    assert_eq!(conditions(r#"[{"type":"Ready","status":"Unknown"}]"#), [NodeCondition::NotReady]);
    assert_eq!(
        conditions(
            r#"[{"type":"PIDPressure","status":"True"},{"type":"MemoryPressure","status":"Unknown"}]"#
        ),
        [NodeCondition::MemoryPressure, NodeCondition::PidPressure]
    );
}

#[test]
fn gpu_memory_is_floored_and_bytes_are_recognised() {
    let memory =
        |text: &str| read(&labelled(&format!(r#"{{"nvidia.com/gpu.memory":"{text}"}}"#))).0.gpu_memory;
    assert_eq!(memory("16384"), GpuMemory { mib: 16_300, known: true });
    assert_eq!(memory("85520809984"), GpuMemory { mib: 81_500, known: true });
    assert_eq!(memory("much"), GpuMemory::default());
    assert_eq!(memory("50"), GpuMemory::default());
    assert_eq!(read(&labelled("{}")).0.gpu_memory, GpuMemory { mib: 100, known: false });
}

#[test]
fn node_with_very_many_resources_offers_a_part_of_them() {
    let many: Vec<String> = (0..3_000).map(|number| format!(r#""example.com/r{number}":"1""#)).collect();
    let offering =
        |more: &str| node(&format!(r#"{{"status":{{"allocatable":{{"memory":"1Gi","cpu":"4"{more}}}}}}}"#));
    let (input, fields) = read(&offering(&format!(",{}", many.join(","))));
    let names: Vec<&str> = input.allocatable.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), 258);
    assert!(names.contains(&"cpu") && names.contains(&"memory"), "{names:?}");
    assert_eq!(fields, ["status.allocatable"]);
    let (input, fields) = read(&offering(""));
    assert_eq!((input.allocatable.len(), fields.len()), (2, 0));
}

#[test]
fn invalid_labels_and_taints_are_reported() {
    let invalid = node(
        r#"{"metadata":{"name":"n","labels":{"nvidia.com/gpu.count":"many","nvidia.com/mig.strategy":"wild",
           "node-role.kubernetes.io/mig-enabled":"True"}},
           "spec":{"unschedulable":true,"taints":[{"key":"a","effect":"Never"},{"key":"b","effect":"NoExecute"}]}}"#,
    );
    let (input, fields) = read(&invalid);
    assert_eq!(
        (input.gpu_count, input.mig_strategy, input.mig_enabled),
        (None, MigStrategy::None, Some(true))
    );
    assert_eq!(input.taints.len(), 1);
    assert!(input.unschedulable);
    assert_eq!(
        fields,
        ["spec.taints", "metadata.labels[nvidia.com/gpu.count]", "metadata.labels[nvidia.com/mig.strategy]"]
    );
}

#[test]
fn worker_labels_restrict_nodes_only_when_enabled() {
    let plain = labelled("{}");
    let worker = labelled(r#"{"node-role.kubernetes.io/gpu-worker":""}"#);
    let mut settings = Settings::default();
    assert!(is_selected(&plain, &settings) && is_selected(&worker, &settings));
    settings.restrict_nodes = true;
    assert!(!is_selected(&plain, &settings) && is_selected(&worker, &settings));
    let pooled = labelled(r#"{"kai.scheduler/node-pool":"a","node-role.kubernetes.io/cpu-worker":"x"}"#);
    assert!(!is_selected(&pooled, &settings));
    settings.node_pool_value = "a".to_owned();
    assert!(is_selected(&pooled, &settings) && !is_selected(&worker, &settings));
}

#[test]
fn zones_are_ordered_by_their_number() {
    let zones: NodeResourceTopology = serde_json::from_str(
        r#"{"metadata":{"name":"n"},"topologyPolicies":["RestrictedPodLevel"],
            "zones":[{"name":"node-10","type":"Node","resources":[{"name":"cpu","allocatable":"8","available":"4"}]},
                     {"name":"node-2","type":"Node"},{"name":"socket-0","type":"Socket"}]}"#,
    )
    .unwrap();
    let drivers: CsiNode = serde_json::from_str(
        r#"{"spec":{"drivers":[{"name":"d","allocatable":{"count":5}},{"name":"e","allocatable":null}]}}"#,
    )
    .unwrap();
    let key = Key::new("", "n");
    let mut report = Report::on(Kind::Node, &key);
    let input = translate(&labelled("{}"), Some(&zones), Some(&drivers), &Settings::default(), &mut report);
    let numa = input.numa.unwrap();
    assert_eq!((numa.policy, numa.scope), (NumaPolicy::Restricted, NumaScope::Pod));
    assert_eq!(numa.zones.iter().map(|z| z.name.as_str()).collect::<Vec<_>>(), ["node-2", "node-10"]);
    assert_eq!(numa.zones[1].available, [("cpu".to_owned(), 4000)]);
    assert_eq!(input.attach_limits, [NodeDriverLimit { driver: "d".to_owned(), most: 5 }]);
    assert_eq!(report.into_findings(), []);
}
