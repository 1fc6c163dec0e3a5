//! Rules for gangs: of pod groups, and of workloads as the pod grouper would group them.

use super::finding::{Finding, Level};
use super::workloads::{templates, whole_gpus};
use crate::documents::Document;
use kai_admission::podgroup;
use kai_api::pod_group::SubGroup;
use kai_api::well_known::annotation;
use kai_object as object;
use kai_podgrouper::Options;
use kai_podgrouper::offline::{self, PlannedGroup};
use serde_json::Value;
use std::collections::BTreeMap;

/// Capacity of the nodes of a node pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pool {
    pub(super) gpus: i64,
    pub(super) pods: i64,
}

/// Levels of subgroups that are looked at; the API server stores more, but no grouper makes them.
const DEPTH_MAX: usize = 16;

pub(super) fn check(documents: &[Document], pools: &BTreeMap<String, Pool>, findings: &mut Vec<Finding>) {
    for document in documents.iter().filter(|document| document.kind() == "PodGroup") {
        // One that cannot be decoded has a finding of its own.
        let Ok(group) = podgroup::decode(&document.object) else { continue };
        let of_group = fewest_pods(group.spec.min_member, group.spec.min_sub_group, &group.spec.sub_groups);
        let pods = documents.iter().filter(|other| is_member(other, document));
        let gpus = pods.map(|pod| whole_gpus(&pod.object)).min().unwrap_or_default();
        fits(document, of_group, gpus, pools, findings);
    }
    let objects: Vec<Value> = documents.iter().map(|document| document.object.clone()).collect();
    let report = offline::group(&objects, &Options::default());
    for problem in &report.problems {
        let Some(document) = documents.get(problem.object) else { continue };
        // The owners of an exported pod need not be among the files.
        let is_owned = document.object.pointer("/metadata/ownerReferences/0").is_some();
        if !is_owned && !report.without_pods.contains(&problem.object) {
            let message = format!("it cannot be grouped: {}", problem.text);
            findings.push(document.finding(Level::Error, "workload-not-grouped", message));
        }
    }
    for group in &report.groups {
        if let Some(document) = documents.get(group.object) {
            planned(document, group, pools, findings);
        }
    }
}

fn is_member(pod: &Document, group: &Document) -> bool {
    let named = object::meta(&pod.object, "annotations").and_then(|all| all.get(annotation::POD_GROUP));
    pod.kind() == "Pod"
        && pod.namespace() == group.namespace()
        && named.and_then(Value::as_str) == Some(group.name())
}

/// A group that a workload would get.
fn planned(
    document: &Document,
    group: &PlannedGroup,
    pools: &BTreeMap<String, Pool>,
    findings: &mut Vec<Finding>,
) {
    let desired = &group.desired;
    for ignored in &desired.ignored {
        findings.push(document.finding(Level::Warning, "setting-without-effect", ignored.clone()));
    }
    let required = fewest_pods(Some(desired.min_member), desired.min_sub_group, &desired.sub_groups);
    let pods = group.pods().into_values().fold(0, i64::saturating_add_unsigned);
    if required > pods {
        let message = format!(
            "{required} pods must run at once, but there are only {pods}, so none will run; hint: lower the minimum, or raise \
             the number of pods"
        );
        findings.push(document.finding(Level::Warning, "gang-never-complete", message));
    }
    if document.kind() == "JobSet" {
        dependencies(document, desired.min_sub_group.unwrap_or_default(), findings);
    }
    let gpus = templates(document).iter().map(whole_gpus).min().unwrap_or_default();
    fits(document, required, gpus, pools, findings);
}

/// A JobSet whose jobs wait for each other, while its gang waits for all of them.
fn dependencies(document: &Document, required: i32, findings: &mut Vec<Finding>) {
    let jobs = document.object.pointer("/spec/replicatedJobs").and_then(Value::as_array);
    let waits = |job: &&Value| {
        job.get("dependsOn").and_then(Value::as_array).is_some_and(|others| !others.is_empty())
    };
    let waiting: Vec<&str> =
        jobs.into_iter().flatten().filter(waits).map(|job| object::str_at(job, "/name")).collect();
    let at_once = jobs.map_or(0, Vec::len) - waiting.len();
    if waiting.is_empty() || usize::try_from(required).is_ok_and(|required| required <= at_once) {
        return;
    }
    let message = format!(
        "{required} replicated jobs must run at once, but `{}` are created only after others (`dependsOn`), so none will run; \
         hint: add annotation `{}: \"{at_once}\"` to the JobSet",
        waiting.join("`, `"),
        annotation::BATCH_MIN_MEMBER
    );
    findings.push(document.finding(Level::Warning, "gang-never-complete", message));
}

/// A gang that requires more than any node pool has.
fn fits(
    document: &Document,
    required: i64,
    gpus: i64,
    pools: &BTreeMap<String, Pool>,
    findings: &mut Vec<Finding>,
) {
    let holds = |pool: &Pool| required <= pool.pods && required.saturating_mul(gpus) <= pool.gpus;
    if pools.is_empty() || required == 0 || pools.values().any(holds) {
        return;
    }
    let message = format!(
        "{required} pods of at least {gpus} GPUs must run at once, which no node pool can hold; hint: lower the minimum, or \
         add nodes"
    );
    findings.push(document.finding(Level::Warning, "gang-larger-than-every-node-pool", message));
}

/// The fewest pods with which a group may run.
fn fewest_pods(min_member: Option<i32>, min_sub_group: Option<i32>, sub_groups: &[SubGroup]) -> i64 {
    let mut tree: BTreeMap<&str, Vec<&SubGroup>> = BTreeMap::new();
    for sub_group in sub_groups {
        tree.entry(sub_group.parent.as_deref().unwrap_or_default()).or_default().push(sub_group);
    }
    let of_sub_groups = smallest(min_sub_group, "", &tree, DEPTH_MAX);
    let of_group = if min_sub_group.is_none() { min_member.unwrap_or_default() } else { 0 };
    of_sub_groups.max(i64::from(of_group)).max(0)
}

/// The pods of as many subgroups of a parent as it requires, the smallest ones; of all where it does not say.
fn smallest(count: Option<i32>, parent: &str, tree: &BTreeMap<&str, Vec<&SubGroup>>, depth: usize) -> i64 {
    let children = tree.get(parent).map(Vec::as_slice).unwrap_or_default();
    let of_child = |child: &&SubGroup| {
        if depth == 0 || !tree.contains_key(child.name.as_str()) {
            return i64::from(child.min_member.unwrap_or_default()).max(0);
        }
        smallest(child.min_sub_group, &child.name, tree, depth - 1)
    };
    let mut pods: Vec<i64> = children.iter().map(of_child).collect();
    pods.sort_unstable();
    let count = count.map_or(pods.len(), |count| usize::try_from(count).unwrap_or_default());
    pods.into_iter().take(count).fold(0, i64::saturating_add)
}
