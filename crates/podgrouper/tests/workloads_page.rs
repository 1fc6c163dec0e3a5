//! `docs/workloads.md` equals what the table of kinds says. `UPDATE=1` writes it.

use kai_podgrouper::table::{DEFAULT, TABLE};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# Workloads

<!-- Generated from crates/podgrouper/src/table.rs by `UPDATE=1 cargo test -p kai-podgrouper`; do not edit. -->

Users do not write PodGroups: the pod grouper follows the owners of a pod to the topmost one and derives the group from it.

## Settings

On the workload, or on its pods where the workload sets nothing:

| setting | where |
| --- | --- |
| queue | label `kai.scheduler/queue`; without it `default-queue` |
| priority | label `priorityClassName`, or `priorityClassName` of the pods; the PriorityClass must exist |
| preemptibility | label `kai.scheduler/preemptibility`: `preemptible` or `non-preemptible`; without it the priority decides |
| topology | annotations `kai.scheduler/topology` and `kai.scheduler/topology-required-placement` or `…-preferred-placement`, on the workload |
| preemption delay | annotation `kai.scheduler/preemption-delay`, such as `5m` |
| staleness grace period | annotation `kai.scheduler/staleness-grace-period` |
| no grouping | annotation `kai.scheduler/skip-podgrouper: \"true\"` |

A pod that cannot be grouped waits, and an event `PodGrouperWarning` on it says what to change or which right to grant.
A pod whose `spec.schedulingGroup` names a PodGroup of `scheduling.k8s.io` (Kubernetes 1.36) is grouped by that one, with its `minCount`.

## Kinds

| kind | group and versions | the gang |
| --- | --- | --- |
";

#[test]
fn page_of_workloads_equals_the_table() {
    let mut rows: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for entry in TABLE {
        let versions = rows.entry((entry.kind, entry.group, entry.rule.text)).or_default();
        versions.push(entry.version.unwrap_or("any version"));
    }
    let mut page = INTRODUCTION.to_owned();
    for ((kind, group, text), versions) in rows {
        let group = if group.is_empty() { "core" } else { group };
        writeln!(page, "| {kind} | `{group}`, {} | {text} |", versions.join(", ")).unwrap();
    }
    let default = format!("| any other | – | as its Karta says, else {} |\n", DEFAULT.text);
    page.push_str(&default);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        page,
        "run UPDATE=1 cargo test -p kai-podgrouper"
    );
}
