//! What is invalid in the objects of a pod group, and what would be valid.

use kai_cache::Store;
use kai_cache::finding::{Finding, Severity};
use kai_cache::object::Kind;
use kai_engine::Cluster;
use kai_engine::cluster::group::Group;
use kai_engine::input::Key;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A problem of the pod group or of some of its pods.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct FindingView {
    pub kind: &'static str,
    /// The object that has it; the first of several.
    pub object: String,
    /// How many further pods have the same.
    pub further: u32,
    /// The path of the field, such as `metadata.annotations[gpu-fraction]`.
    pub field: String,
    pub problem: String,
    pub hint: String,
    /// The object is not scheduled.
    pub prevents: bool,
}

impl FindingView {
    fn new(finding: &Finding) -> Self {
        Self {
            kind: finding.kind.name(),
            object: finding.key.to_string(),
            further: 0,
            field: finding.field.clone(),
            problem: finding.problem.clone(),
            hint: finding.hint.clone(),
            prevents: finding.severity == Severity::Error,
        }
    }

    /// Which field of which object, and the problem.
    pub fn text(&self) -> String {
        let further = match self.further {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!("{} of {} `{}`{further}: {}", field(&self.field), self.kind, self.object, self.problem)
    }
}

/// `annotation `gpu-fraction``, or the path of another field.
fn field(path: &str) -> String {
    let key_in = |map: &str| path.strip_prefix(map)?.strip_prefix('[')?.strip_suffix(']');
    if let Some(key) = key_in("metadata.annotations") {
        return format!("annotation `{key}`");
    }
    key_in("metadata.labels").map_or_else(|| format!("`{path}`"), |key| format!("label `{key}`"))
}

/// The findings on a group and its pods; those that prevent the placement come first. The same problem of several pods is
/// listed once.
pub(crate) fn of_group(store: &Store, cluster: &Cluster, key: &Key, group: &Group) -> Vec<FindingView> {
    let object = store.objects().pod_groups.get(key);
    let has_pods = !group.pods.is_empty();
    let mut all: Vec<FindingView> = if object.is_some_and(|object| store.lacks_reference(object)) {
        let findings = store.group_findings(&BTreeSet::from([key.clone()]), |_| has_pods);
        findings.iter().map(FindingView::new).collect()
    } else {
        store.findings_on(Kind::PodGroup, key).iter().map(FindingView::new).collect()
    };
    let mut of_pods: BTreeMap<(&str, &str), FindingView> = BTreeMap::new();
    let pods = group.pods.iter().map(|pod| cluster.pod_key(*pod));
    for pod in pods {
        for finding in store.findings_on(Kind::Pod, &pod) {
            let same = of_pods.entry((finding.field.as_str(), finding.problem.as_str()));
            same.and_modify(|of| {
                of.further += 1;
                let name = pod.to_string();
                if crate::natural_order(&name, &of.object).is_lt() {
                    of.object = name;
                }
            })
            .or_insert_with(|| FindingView::new(finding));
        }
    }
    all.extend(of_pods.into_values());
    all.sort_by_key(|finding| !finding.prevents);
    all
}

/// Whether a pod without scheduling gates is held back because its request cannot be read.
pub(crate) fn is_invalid(store: &Store, pod: &Key) -> bool {
    let is_error = |finding: &Finding| finding.severity == Severity::Error;
    store.findings_on(Kind::Pod, pod).iter().any(is_error)
        && store.objects().pods.get(pod).is_some_and(|pod| pod.spec.scheduling_gates.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_as_users_write_them() {
        assert_eq!(field("metadata.annotations[gpu-fraction]"), "annotation `gpu-fraction`");
        assert_eq!(field("metadata.labels[kai.scheduler/queue]"), "label `kai.scheduler/queue`");
        assert_eq!(field("spec.minMember"), "`spec.minMember`");
    }
}
