//! Pod groups: priority, trees, topology, backoff.

use super::*;
use crate::object::Kind;

fn group(json: &str) -> PodGroup {
    serde_json::from_str(json).unwrap()
}

fn read(json: &str) -> (GroupInput, Vec<String>) {
    let mut classes = BTreeMap::new();
    for (name, value) in [("low", 50), ("high", 100)] {
        let class: PriorityClass =
            serde_json::from_str(&format!(r#"{{"metadata":{{"name":"{name}"}},"value":{value}}}"#)).unwrap();
        classes.insert(Key::new("", name), Arc::new(class));
    }
    let mut topologies = BTreeMap::new();
    let levels = r#"{"metadata":{"name":"t"},"spec":{"levels":[{"nodeLabel":"example.com/rack","alias":"rack"},{"nodeLabel":"host"}]}}"#;
    topologies.insert(Key::new("", "t"), Arc::new(serde_json::from_str::<Topology>(levels).unwrap()));
    let settings = Settings::default();
    let context = TranslationContext { classes: &classes, topologies: &topologies, settings: &settings };
    let group = group(json);
    let key = crate::object::Stored::key(&group);
    let mut report = Report::on(Kind::PodGroup, &key);
    let input = translate(&group, context, &mut report);
    (input, report.into_findings().into_iter().map(|f| f.field).collect())
}

#[test]
fn priority_decides_preemptibility_unless_it_is_set() {
    let of = |spec: &str| {
        let input = read(&format!(r#"{{"metadata":{{"name":"g","namespace":"ns"}},"spec":{spec}}}"#)).0;
        (input.priority, input.preemptible)
    };
    assert_eq!(of(r#"{"priorityClassName":"low"}"#), (50, true));
    assert_eq!(of(r#"{"priorityClassName":"high"}"#), (100, false));
    assert_eq!(of(r#"{"priorityClassName":"high","preemptibility":"preemptible"}"#), (100, true));
    assert_eq!(of(r#"{"priorityClassName":"missing"}"#), (50, true));
    assert_eq!(of("{}"), (50, true));
}

#[test]
fn default_class_applies_to_unknown_names() {
    let mut classes = BTreeMap::new();
    let class: PriorityClass =
        serde_json::from_str(r#"{"metadata":{"name":"d"},"value":7,"globalDefault":true}"#).unwrap();
    classes.insert(Key::new("", "d"), Arc::new(class));
    assert_eq!((priority("x", &classes), priority("", &classes)), (7, 7));
}

#[test]
fn invalid_tree_makes_the_group_invalid() {
    let fault = |subs: &str| {
        let (input, fields) =
            read(&format!(r#"{{"metadata":{{"name":"g"}},"spec":{{"minMember":3,"subGroups":{subs}}}}}"#));
        assert_eq!(fields.contains(&"spec.subGroups".to_owned()), input.invalid_reason.is_some());
        input.invalid_reason
    };
    assert_eq!(fault(r#"[{"name":"a","minMember":1},{"name":"b","parent":"A","minMember":1}]"#), None);
    assert!(fault(r#"[{"name":"a"},{"name":"a"}]"#).unwrap().contains("`a` exists twice"));
    assert!(fault(r#"[{"name":"a","parent":"b"}]"#).unwrap().contains("`b` of sub-group `a` does not exist"));
    assert!(fault(r#"[{"name":"a","parent":"b"},{"name":"b","parent":"a"}]"#).unwrap().contains("cycle"));
    assert!(fault(r#"[{"name":"a","parent":"a"}]"#).unwrap().contains("cycle"));
    assert!(
        fault(r#"[{"name":"A","minMember":1},{"name":"b","parent":"A"}]"#).is_some(),
        "parents are lower-cased"
    );
    let chain = |levels: usize| {
        let of = |level: usize| match level.checked_sub(1) {
            Some(parent) => format!(r#"{{"name":"s{level}","parent":"s{parent}"}}"#),
            None => r#"{"name":"s0"}"#.to_owned(),
        };
        let sub_groups: Vec<String> = (0..levels).map(of).collect();
        fault(&format!("[{}]", sub_groups.join(",")))
    };
    assert_eq!(chain(64), None);
    assert!(chain(65).unwrap().contains("`s64` is on a level below the 64th"));
}

#[test]
fn topology_levels_may_be_aliases() {
    let (input, fields) = read(
        r#"{"metadata":{"name":"g"},"spec":{"topologyConstraint":{"topology":"t","requiredTopologyLevel":"rack","preferredTopologyLevel":"hall"},
            "subGroups":[{"name":"s","minMember":1,"topologyConstraint":{"requiredTopologyLevel":"rack"}},
                         {"name":"u","minMember":-1,"topologyConstraint":{"topology":"other","preferredTopologyLevel":"rack"}}]}}"#,
    );
    let root = input.topology.unwrap();
    assert_eq!(
        (root.required.as_deref(), root.preferred.as_deref()),
        (Some("example.com/rack"), Some("hall"))
    );
    assert_eq!(input.sub_groups[0].topology, None, "without a topology there is no constraint");
    assert_eq!(input.sub_groups[1].topology.as_ref().unwrap().preferred.as_deref(), Some("rack"));
    assert_eq!(input.sub_groups[1].min_member, Some(0));
    assert_eq!(fields, ["spec.topologyConstraint.preferredTopologyLevel", "spec.subGroups[u].minMember"]);
}

#[test]
fn timings_are_parsed() {
    let (input, fields) = read(
        r#"{"metadata":{"name":"g","creationTimestamp":"2025-01-01T00:00:00.000005Z","annotations":{
             "kai.scheduler/last-start-timestamp":"2025-01-01T00:00:01Z","kai.scheduler/stale-podgroup-timestamp":"never"}},
            "spec":{"preemptionDelay":"-5s","stalenessGracePeriod":"-1s","markUnschedulable":false,"schedulingBackoff":1}}"#,
    );
    assert_eq!(input.created, Timestamp(1_735_689_600_000_005));
    assert_eq!(input.last_start, Some(Timestamp(1_735_689_601_000_000)));
    assert_eq!((input.stale_since, input.preemption_delay), (None, None));
    assert_eq!(input.staleness_grace, Some(Span::from_secs(-1)));
    assert!(!input.mark_unschedulable && input.single_attempt);
    assert_eq!(fields, ["metadata.annotations[kai.scheduler/stale-podgroup-timestamp]"]);
}

#[test]
fn group_backs_off_in_the_pool_of_its_last_failure() {
    let seen = |spec: &str, conditions: &str, labels: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"g","labels":{labels}}},"spec":{spec},"status":{{"schedulingConditions":{conditions}}}}}"#
        );
        let settings = Settings { node_pool_key: "pool".to_owned(), ..Settings::default() };
        is_selected(&group(&json), &settings)
    };
    let failed_here =
        r#"[{"nodePool":"other","transitionID":"2"},{"nodePool":"default","transitionID":"10"}]"#;
    let failed_elsewhere =
        r#"[{"nodePool":"default","transitionID":"2"},{"nodePool":"other","transitionID":"10"}]"#;
    assert!(seen("{}", failed_here, "{}"));
    assert!(seen(r#"{"schedulingBackoff":-1}"#, failed_here, "{}"));
    assert!(!seen(r#"{"schedulingBackoff":1}"#, failed_here, "{}"));
    assert!(seen(r#"{"schedulingBackoff":1}"#, failed_elsewhere, "{}"));
    assert!(seen(r#"{"schedulingBackoff":1}"#, "null", "{}"));
    assert!(!seen("{}", "[]", r#"{"pool":"x"}"#));
}
