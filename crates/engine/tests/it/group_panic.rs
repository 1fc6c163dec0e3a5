//! A panic while planning a group excludes only that group.

use kai_engine::ids::{NodeIdx, PodIdx};
use kai_engine::plugin::{Args, BindAnnotations, Plugin, PluginSet, Registry};
use kai_engine::policy::{Config, Params, PluginConfig, Policy};
use kai_engine::verdict::Verdict;
use kai_engine::{Cluster, ClusterState, Cycle, Decision, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_units::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotations that panic for the second pod of a group, when the first has been committed.
struct Panicking;

impl Plugin for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }
    fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
        to.bind_annotations.push(Arc::new(Self));
    }
}

impl BindAnnotations for Panicking {
    fn annotations(&self, cluster: &Cluster, pod: PodIdx, _: NodeIdx) -> BTreeMap<String, String> {
        let name = cluster.pod_key(pod).name;
        assert!(name != "bad-1", "no annotations for `{name}`");
        BTreeMap::new()
    }
}

const TEXT: &str = "\
nodes    n1  gpu=8
queues   team quota=8
groups   bad   queue=team min=2 pods=2x{gpu=1}
         good  queue=team min=2 pods=2x{gpu=1}
";

fn cycle(cluster: &mut ClusterState) -> Outcome {
    let mut config = Config { actions: vec!["allocate".into()], ..Config::default() };
    config.plugins.push(PluginConfig { name: "panicking".into(), ..PluginConfig::default() });
    let policy =
        Policy::resolve(&config, &Params::default(), &PluginSet::builtin().with(Arc::new(Panicking)));
    plan(cluster, &policy, Cycle { now: Timestamp(1_000_000_000_000_000), seed: 1 })
}

#[test]
fn panic_quarantines_only_its_group() {
    let mut cluster = Scenario::parse(TEXT).unwrap().cluster.build();
    let first = cycle(&mut cluster);
    let bound: Vec<&str> = first
        .decisions
        .iter()
        .map(|d| match d {
            Decision::Bind(bind) => bind.pod.name.as_str(),
            Decision::Pipeline { pod, .. } | Decision::Evict { pod, .. } => pod.name.as_str(),
        })
        .collect();
    assert_eq!(bound, ["good-0", "good-1"]);
    let verdict = first.verdicts.iter().find(|v| v.group.name == "bad").unwrap();
    assert_eq!(
        verdict.leading,
        Verdict::Quarantined("plugin `panicking` panicked: no annotations for `bad-1`".into())
    );
    // The failed attempt is rolled back completely.
    assert_eq!(cycle(&mut cluster), first);
}
