//! The page of workloads: settings, kinds, and examples.

use super::{Case, FOLDER, cases};
use anyhow::{Context as _, Result};
use kai_podgrouper::table::{DEFAULT, TABLE};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

const INTRODUCTION: &str = "\
# Workloads

<!-- Generated from crates/podgrouper/src/table.rs and tests/grouper by `UPDATE=1 cargo test -p kai-testkit`; do not edit. -->

Users do not write PodGroups: the pod grouper follows the owners of a pod to the topmost one and derives the group from it.
`kai group` shows the PodGroups of a manifest before it is submitted, without a cluster:

```console
$ kai group tests/grouper/pytorchjob/master-and-workers/manifest.yaml
  POD GROUP       QUEUE    PRIORITY   MINIMUM     PODS
─────────────────────────────────────────────────────────────
  pg-bert-<uid>   vision   train      4 pods      master: 1
                                      master: 1   worker: 3
                                      worker: 3
```

`-o yaml` and `--json` print them whole. Pods and owners of a cluster are grouped as they are:
`kubectl get pods,jobs,jobsets -o yaml | kai group -`.

The pods of these kinds are not known from a manifest alone, since more than the workload decides about them:
UNEXPANDED. `kai group` needs one of their pods with its owners beside the workload,
as `pods.yaml` beside the examples below has them.

## Settings

On the workload, or on its pods where the workload sets nothing:

| setting | where |
| --- | --- |
| queue | label `kai.scheduler/queue`; without it `default-queue` |
| priority | label `priorityClassName`, or `priorityClassName` of the pods; the PriorityClass must exist |
| preemptibility | label `kai.scheduler/preemptibility`: `preemptible` or `non-preemptible`; without it the priority decides |
| minimum | by kind, see below; Jobs and JobSets: annotation `kai.scheduler/batch-min-member` |
| topology | annotations `kai.scheduler/topology` and `kai.scheduler/topology-required-placement` or `…-preferred-placement`, on the workload |
| topology of a part | the same annotations on the Job template of a JobSet and on the pod templates of a RayCluster |
| segments | annotations `kai.scheduler/segment-size` and `kai.scheduler/segment-topology-required-placement` or `…-preferred-placement`, on the worker template of a PyTorchJob or a LeaderWorkerSet |
| preemption delay | annotation `kai.scheduler/preemption-delay`, such as `5m` |
| staleness grace period | annotation `kai.scheduler/staleness-grace-period` |
| maximum run time | annotation `kai.scheduler/max-runtime`, such as `8h`, with `…-action` and `…-grace-period` |
| no grouping | annotation `kai.scheduler/skip-podgrouper: \"true\"` |

A pod that cannot be grouped waits, and an event `PodGrouperWarning` on it says what to change or which right to grant.
A malformed label or annotation of these settings that does not prevent grouping has no effect, and the same event on the workload says so.
A pod whose `spec.schedulingGroup` names a PodGroup of `scheduling.k8s.io` (Kubernetes 1.36) is grouped by that one, with its `minCount`.
The node label in its `spec.schedulingConstraints.topology` becomes a required level of the Topology that has this label: of the one in
annotation `kai.scheduler/topology`, else of the first by name. Without such a Topology the pod waits.

An edit of a workload reaches its PodGroup at once: the pod grouper watches the metadata of the kinds that own pods, and reads a workload
again when its labels, annotations, owners or spec have changed. Kinds whose rule reads the status (those of `ray.io`, and kinds that a Karta
describes), and kinds that a role lets the pod grouper `get` and not `watch`, are read at intervals: within 10 seconds, and within a minute
if they have not changed for long; with more than 1,200 such workloads it takes longer, as 20 are read a second.

## Kinds

The examples are manifests with the pods that their controllers create and the PodGroups that follow.

| kind | group and versions | the gang | examples |
| --- | --- | --- | --- |
";

/// Cases that the page shows in full.
const SHOWN: [&str; 6] = [
    "job/gang",
    "jobset/any-order",
    "leaderworkerset/two-groups",
    "pytorchjob/elastic",
    "mpijob/v2beta1",
    "raycluster/two-worker-groups",
];

/// The text of the page.
pub fn page(root: &Path) -> Result<String> {
    let cases = cases(root)?;
    let mut rows: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for entry in TABLE {
        let versions = rows.entry((entry.kind, entry.group, entry.rule.text)).or_default();
        versions.push(entry.version.unwrap_or("any version"));
    }
    let unexpanded = unexpanded(&cases)?;
    let mut page = INTRODUCTION.replace("UNEXPANDED", &unexpanded.join(", "));
    for ((kind, group, text), versions) in rows {
        let shown = if group.is_empty() { "core" } else { group };
        let examples = examples(&cases, &folder(group, kind));
        writeln!(page, "| {kind} | `{shown}`, {} | {text} | {examples} |", versions.join(", "))?;
    }
    let unknown = examples(&cases, "unknown");
    writeln!(page, "| any other | – | as its Karta says, else {} | {unknown} |", DEFAULT.text)?;
    page.push_str("\n## Examples\n");
    for name in SHOWN {
        let case = cases.iter().find(|case| case.name == name);
        let case = case.with_context(|| format!("the page shows `{name}`, which does not exist"))?;
        write!(
            page,
            "\n### {name}\n\n```yaml\n{}```\n\nbecomes\n\n```yaml\n{}```\n",
            case.manifest,
            case.groups.trim_start_matches("---\n")
        )?;
    }
    Ok(page)
}

/// The kinds whose pods `kai group` does not know from their manifests.
fn unexpanded(cases: &[Case]) -> Result<Vec<String>> {
    let mut kinds = BTreeSet::new();
    for case in cases {
        let objects = case.objects()?;
        for index in super::group(&objects).without_pods {
            let kind = objects.get(index).and_then(|object| object["kind"].as_str());
            kinds.insert(format!("`{}`", kind.unwrap_or_default()));
        }
    }
    Ok(kinds.into_iter().collect())
}

/// The folder of a kind.
fn folder(group: &str, kind: &str) -> String {
    match (group, kind) {
        ("serving.knative.dev", "Service") => "knative".to_owned(),
        (_, kind) => kind.to_lowercase(),
    }
}

fn examples(cases: &[Case], kind: &str) -> String {
    let of_kind = cases.iter().filter_map(|case| {
        let (folder, name) = case.name.split_once('/')?;
        (folder == kind).then(|| format!("[{name}](../{FOLDER}/{folder}/{name}/manifest.yaml)"))
    });
    of_kind.collect::<Vec<_>>().join(", ")
}
