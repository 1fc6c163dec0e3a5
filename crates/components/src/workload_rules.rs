//! The rights of the pod grouper on workloads, from its table of kinds.

use crate::spec::Rule;
use kai_podgrouper::table::{FURTHER, TABLE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Read access to every kind that may own pods or that a rule of the pod grouper reads, one rule for each API group.
pub fn workload_rules() -> &'static [Rule] {
    &RULES
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut resources: BTreeMap<(&'static str, bool), BTreeSet<&'static str>> = BTreeMap::new();
    // Pods have a rule of their own.
    for entry in TABLE.iter().filter(|entry| !entry.group.is_empty()) {
        resources.entry((entry.group, false)).or_default().insert(entry.plural);
    }
    for further in FURTHER {
        resources.entry((further.group, further.is_listed)).or_default().insert(further.plural);
    }
    let rule = |((api_group, is_listed), resources): ((&'static str, bool), BTreeSet<&'static str>)| Rule {
        api_group,
        reason: reason(is_listed, &resources),
        resources: resources.into_iter().collect::<Vec<_>>().leak(),
        verbs: if is_listed { &["list"] } else { &["get", "list", "watch"] },
        resource_names: &[],
    };
    resources.into_iter().map(rule).collect()
});

fn reason(is_listed: bool, resources: &BTreeSet<&str>) -> &'static str {
    match (is_listed, resources.contains("topologies")) {
        (true, true) => "topologies that workloads name",
        (true, false) => "definitions of workload kinds",
        (false, _) => "owners of pods",
    }
}

/// Whether a right of the pod grouper is read only for kinds that a plain Kubernetes cluster does not serve.
pub fn is_third_party(group: &str, resource: &str) -> bool {
    let is_built_in = ["apps", "batch"].contains(&group);
    !is_built_in && RULES.iter().any(|rule| rule.api_group == group && rule.resources.contains(&resource))
}
