//! Pods whose group needs no object: what the scheduler forms of the pod alone is what would be created.
//!
//! The scheduler decides by [`implicit_group::is_candidate`] and does not read owners. Where an owner, a rule of the user's own
//! or the configured defaults give the group something else, it is created, and the scheduler uses it from then on.

use crate::cluster::ClusterView;
use crate::objects::{MetaExt, PodSummary};
use crate::options::Options;
use crate::workload::Desired;
use kai_api::implicit_group::{self, LabelKeys, Owners, PodFacts};
use kai_api::pod_group::TopologyConstraint;
use kai_api::well_known::annotation;

/// Whether the group of a pod is not created: the mode is on in its node pool, and nothing would be lost.
pub(crate) fn needs_no_object(
    options: &Options,
    view: &dyn ClusterView,
    pod: &PodSummary,
    desired: &Desired,
) -> bool {
    let keys = LabelKeys { queue: &options.queue_label_key, node_pool: &options.node_pool_label_key };
    !options.implicit_groups.is_empty()
        && options.implicit_groups.have(pod, keys)
        && implicit_group::is_candidate(pod, keys)
        && is_formed_from_the_pod(view, pod, desired, keys)
}

fn is_formed_from_the_pod(
    view: &dyn ClusterView,
    pod: &PodSummary,
    desired: &Desired,
    keys: LabelKeys<'_>,
) -> bool {
    let formed = implicit_group::spec(pod, keys, |class| view.priority_class_exists(class));
    desired.name == implicit_group::group_name(pod)
        && desired.queue == formed.queue
        && desired.priority_class == formed.priority_class_name
        && desired.preemptibility == formed.preemptibility
        && Some(desired.min_member) == formed.min_member
        && desired.min_sub_group.is_none()
        && desired.sub_groups.is_empty()
        && desired.sub_group.is_none()
        && desired.topology == TopologyConstraint::default()
        && desired.preemption_delay.is_none()
        && desired.staleness_grace_period.is_none()
        && !desired.annotations.contains_key(annotation::MAX_RUNTIME)
        && (keys.node_pool.is_empty()
            || desired.labels.get(keys.node_pool).map(String::as_str) == PodFacts::label(pod, keys.node_pool))
}

impl PodFacts for PodSummary {
    fn name(&self) -> &str {
        self.metadata.name_str()
    }

    fn uid(&self) -> &str {
        self.metadata.uid_str()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotation(key)
    }

    fn owners(&self) -> Owners<'_> {
        match self.metadata.owners() {
            [] => Owners::None,
            [owner] => Owners::One { api_version: &owner.api_version, kind: &owner.kind, name: &owner.name },
            _ => Owners::Several,
        }
    }

    fn priority_class(&self) -> &str {
        self.spec.priority_class_name.as_deref().unwrap_or_default()
    }

    fn has_claims(&self) -> bool {
        !self.spec.resource_claims.is_empty()
    }

    fn has_scheduling_group(&self) -> bool {
        self.spec.scheduling_group.is_some()
    }

    fn has_ended(&self) -> bool {
        self.status.phase.as_deref().is_some_and(kai_object::is_terminal_phase)
    }
}
