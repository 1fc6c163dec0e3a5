//! Translates volumes, volume claims, storage classes, storage capacity and disruption budgets.

use super::amount::read_amount;
use super::selector;
use crate::finding::Report;
use crate::object::storage::TopologySelectorTerm;
use crate::object::value::{Amount, Resources};
use crate::object::{
    CsiDriver, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget,
    StorageClass, key_of,
};
use kai_engine::input::{
    BudgetInput, CapacityInput, ClaimPhase, Key, NodeTerm, Requirement, RequirementOp, StorageClassInput,
    VolumeClaimInput, VolumeInput,
};

/// Annotation with the storage class, from before the field existed.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation with the node that was selected for a claim.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Labels of a volume that its node must match.
const ZONE_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

pub fn claim(claim: &PersistentVolumeClaim, report: &mut Report<'_>) -> VolumeClaimInput {
    let meta = &claim.metadata;
    let class = meta.annotation(OLD_CLASS).or(claim.spec.storage_class_name.as_deref()).unwrap_or_default();
    VolumeClaimInput {
        key: key_of(meta),
        phase: match &*claim.status.phase {
            "Bound" => ClaimPhase::Bound,
            "Lost" => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        },
        class: class.to_owned(),
        bytes: bytes(&claim.spec.resources.requests, "spec.resources.requests", report),
        volume: claim.spec.volume_name.some().map(str::to_owned),
        owner_pod: meta.only_owner_pod().map(str::to_owned),
        deleting: meta.deletion_timestamp.is_some(),
        selected_node: meta.annotation(SELECTED_NODE).filter(|n| !n.is_empty()).map(str::to_owned),
    }
}

pub fn volume(volume: &PersistentVolume, report: &mut Report<'_>) -> VolumeInput {
    let meta = &volume.metadata;
    let class = meta.annotation(OLD_CLASS).unwrap_or(&volume.spec.storage_class_name);
    let required = volume.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
    VolumeInput {
        name: meta.name.to_string(),
        class: class.to_owned(),
        bytes: bytes(&volume.spec.capacity, "spec.capacity", report),
        claim: volume.spec.claim_ref.as_ref().map(|c| Key::new(&*c.namespace, &*c.name)),
        available: volume.status.phase == "Available",
        node_terms: required
            .map(|r| selector::node_terms(r, "spec.nodeAffinity", report))
            .unwrap_or_default(),
        zones: ZONE_LABELS
            .iter()
            .filter_map(|label| {
                // Zones of a regional volume are joined by two underscores.
                let values = meta.label(label)?.split("__").map(str::to_owned).collect();
                Some(((*label).to_owned(), values))
            })
            .collect(),
        driver: volume.spec.csi.as_ref().map(|csi| csi.driver.to_string()),
    }
}

pub fn class(class: &StorageClass, driver: Option<&CsiDriver>) -> StorageClassInput {
    StorageClassInput {
        name: class.metadata.name.to_string(),
        provisioner: class.provisioner.to_string(),
        wait_for_consumer: class.volume_binding_mode == "WaitForFirstConsumer",
        tracks_capacity: driver.is_some_and(|d| d.spec.storage_capacity),
        no_provisioner: class.provisioner == NO_PROVISIONER,
        allowed: class.allowed_topologies.iter().map(allowed_term).collect(),
    }
}

pub fn capacity(capacity: &CsiStorageCapacity, report: &mut Report<'_>) -> CapacityInput {
    let free = capacity.capacity.as_ref();
    CapacityInput {
        key: key_of(&capacity.metadata),
        class: capacity.storage_class_name.to_string(),
        bytes: free.and_then(|free| read_amount("storage", free, "capacity", report)).unwrap_or(0),
        nodes: capacity
            .node_topology
            .as_ref()
            .map(|nodes| selector::label_selector(Some(nodes), "nodeTopology", report)),
    }
}

pub fn budget(budget: &PodDisruptionBudget, report: &mut Report<'_>) -> BudgetInput {
    BudgetInput {
        key: key_of(&budget.metadata),
        selector: selector::label_selector(budget.spec.selector.as_ref(), "spec.selector", report),
        disruptions_allowed: budget.status.disruptions_allowed,
    }
}

fn allowed_term(term: &TopologySelectorTerm) -> NodeTerm {
    if term.match_label_expressions.is_empty() {
        return selector::never();
    }
    let labels = term
        .match_label_expressions
        .iter()
        .map(|test| Requirement {
            key: test.key.to_string(),
            op: RequirementOp::In(test.values.iter().map(ToString::to_string).collect()),
        })
        .collect();
    NodeTerm { labels, names: vec![] }
}

fn bytes(resources: &Resources, field: &str, report: &mut Report<'_>) -> i64 {
    let storage: Option<&Amount> = resources.get("storage");
    storage.and_then(|amount| read_amount("storage", amount, field, report)).unwrap_or(0)
}
