//! What a user submitted: the kind and name of the workload that a pod group belongs to, and types as users write them.

use kai_cache::object::PodGroup;
use kai_engine::input::Key;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// Types that users abbreviate, as kubectl knows them.
const SHORT_NAMES: [(&str, &str); 9] = [
    ("po", "pod"),
    ("pg", "podgroup"),
    ("deploy", "deployment"),
    ("sts", "statefulset"),
    ("rs", "replicaset"),
    ("ds", "daemonset"),
    ("cj", "cronjob"),
    ("no", "node"),
    ("lws", "leaderworkerset"),
];

/// A workload as a user names it: `Job/hello`, or `PodGroup/train` where nothing owns the pod group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Workload {
    pub kind: String,
    pub name: String,
}

impl Workload {
    pub fn of(group: &PodGroup) -> Self {
        let owners = group.metadata.owner_references.as_deref().unwrap_or_default();
        let (kind, name) = match owners.first() {
            Some(owner) => (owner.kind.clone(), owner.name.clone()),
            None => ("PodGroup".to_owned(), group.metadata.name.clone().unwrap_or_default()),
        };
        Self { kind, name }
    }

    /// A pod group that nothing owns.
    pub(crate) fn group(key: &Key) -> Self {
        Self { kind: "PodGroup".to_owned(), name: key.name.clone() }
    }

    /// Nothing owns the pod group: its name is that of the workload.
    pub fn is_pod_group(&self) -> bool {
        self.kind == "PodGroup"
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether a type as a user writes it (`job`, `jobs`, `job.batch`, `deploy`, `PyTorchJob`) is this kind.
pub fn is_type_of(typed: &str, kind: &str) -> bool {
    let typed = typed.split('.').next().unwrap_or(typed).to_lowercase();
    let kind = kind.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    typed == kind || typed == plural || SHORT_NAMES.contains(&(typed.as_str(), kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_accepted_as_kubectl_accepts_them() {
        for (typed, kind) in [
            ("job", "Job"),
            ("jobs", "Job"),
            ("Jobs.batch", "Job"),
            ("jobs.v1.batch", "Job"),
            ("po", "Pod"),
            ("deploy", "Deployment"),
            ("pytorchjob", "PyTorchJob"),
            ("podgroups.scheduling.run.ai", "PodGroup"),
            ("topologies", "Topology"),
            ("ingresses", "Ingress"),
        ] {
            assert!(is_type_of(typed, kind), "{typed}");
        }
        for (typed, kind) in [("job", "CronJob"), ("", "Job"), ("jobss", "Job"), ("po", "PodGroup")] {
            assert!(!is_type_of(typed, kind), "{typed}");
        }
    }
}
