//! Translates pods: requests, lifecycle phase, and the node and devices of an in-flight bind request.

use super::spec::Recent;
use super::{affinity, gpu, numa, selector};
use crate::finding::Report;
use crate::object::{BindRequest, Pod, key_of};
use crate::settings::Settings;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use kai_api::well_known::{annotation, label, label_value};
use kai_engine::input::{
    DeviceId, Key, NumaAmount, PodClaim, PodInput, PodPhase, PodVolume, TaskPriority, Utility,
};
use kai_units::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The objects that the translation of a pod depends on.
#[derive(Clone, Copy, Debug)]
pub struct TranslationContext<'a> {
    /// Its bind request in effect.
    pub bind: Option<&'a BindRequest>,
    /// Time of its assumed eviction.
    pub evicted: Option<Timestamp>,
    /// Namespaces, for affinity terms that select them.
    pub namespaces: &'a affinity::Namespaces,
    pub settings: &'a Settings,
}

/// Returns `None` for failed pods, which affect no decision.
pub fn translate(pod: &Pod, context: TranslationContext<'_>, report: &mut Report<'_>) -> Option<PodInput> {
    translate_next(pod, context, &mut Recent::default(), report)
}

/// Translates a pod after others with the same context; `recent` shares equal specifications.
pub fn translate_next<'a>(
    pod: &'a Pod,
    context: TranslationContext<'_>,
    recent: &mut Recent<'a>,
    report: &mut Report<'_>,
) -> Option<PodInput> {
    let phase = phase(pod, context.bind.is_some(), context.evicted);
    let (key, uid) = (key_of(&pod.metadata), pod.metadata.uid.to_text());
    let named = |name: Option<&str>| name.filter(|n| !n.is_empty()).map(str::to_owned);
    let ours = pod.spec.scheduler_name == context.settings.scheduler_name.as_str();
    let group = if ours { pod.group_name() } else { pod.named_group().map(Cow::Borrowed) };
    let group = group.map(Cow::into_owned);
    let sub_group = named(pod.metadata.label(label::SUBGROUP));
    match phase {
        PodPhase::Failed => return None,
        // A succeeded pod only counts for its gang.
        PodPhase::Succeeded => {
            return Some(PodInput { key, uid, group, sub_group, phase, ..PodInput::default() });
        }
        PodPhase::Pending
        | PodPhase::Gated
        | PodPhase::Waiting
        | PodPhase::Binding
        | PodPhase::Bound
        | PodPhase::Running
        | PodPhase::Releasing(_)
        | PodPhase::ReleasingUnstarted
        | PodPhase::Unknown => {}
    }
    let app = pod.metadata.label(label::APP);
    let utility = match app {
        Some(app) if app == context.settings.reservation_app => Some(Utility::Reservation),
        Some(label_value::SCALING_POD) => Some(Utility::Scaling),
        Some(_) | None => None,
    };
    let bind = context.bind.map(|b| &b.spec);
    let node = pod.spec.node_name.some().or(bind.map(|b| b.selected_node.as_str()));
    let received_type = bind.map(|b| b.received_resource_type.as_str()).filter(|w| !w.is_empty());
    let spec = recent.spec(pod, context, report);
    // A pod whose request cannot be determined must not be placed: it is treated like a gated pod.
    let phase = if phase == PodPhase::Pending && report.has_errors() { PodPhase::Gated } else { phase };
    Some(PodInput {
        key,
        uid,
        group,
        sub_group,
        phase,
        node: node.map(str::to_owned),
        created: pod.metadata.creation_timestamp.map(|t| t.0).unwrap_or_default(),
        labels: selector::labels(&pod.metadata.labels),
        ours,
        utility,
        task_priority: task_priority(pod),
        kubeflow_leader: matches!(pod.metadata.label(label::KUBEFLOW_JOB_ROLE), Some("master" | "launcher")),
        ray_head: pod.metadata.label(label::RAY_NODE_TYPE) == Some("head"),
        nominated_node: pod.status.nominated_node_name.some().map(str::to_owned),
        gpu_groups: gpu_groups(pod, context.bind, report),
        drained_gpus: context.bind.map(drained_gpus).unwrap_or_default(),
        received: gpu::received(
            received_type
                .or_else(|| pod.metadata.annotation(annotation::RECEIVED_RESOURCE_TYPE))
                .unwrap_or_default(),
        ),
        numa_placement: numa_placement(pod, context.bind, report),
        claims: claims(pod, context.bind),
        extended_devices: extended_devices(context.bind),
        volumes: volumes(pod),
        config_maps: required_config_maps(pod),
        spec,
    })
}

/// The group of a pod of this scheduler, which its annotation names or which is implied; it may not exist.
pub fn group_of(pod: &Pod) -> Option<Key> {
    pod.group_name().map(|name| Key::new(&*pod.metadata.namespace, name))
}

/// The group that the pod's annotation names.
pub fn named_group(pod: &Pod) -> Option<Key> {
    pod.named_group().map(|name| Key::new(&*pod.metadata.namespace, name))
}

/// The lifecycle phase of a pod.
pub fn phase(pod: &Pod, binding: bool, evicted: Option<Timestamp>) -> PodPhase {
    let terminating = pod.metadata.deletion_timestamp.map(|t| t.0).or(evicted);
    match (&*pod.status.phase, terminating) {
        ("Running", Some(since)) => PodPhase::Releasing(since),
        ("Running", None) => PodPhase::Running,
        ("Pending" | "", Some(_)) => PodPhase::ReleasingUnstarted,
        ("Pending" | "", None) if !pod.spec.node_name.is_empty() => PodPhase::Bound,
        ("Pending" | "", None) if binding => PodPhase::Binding,
        ("Pending" | "", None) if !pod.spec.scheduling_gates.is_empty() => PodPhase::Gated,
        ("Pending" | "", None) => PodPhase::Pending,
        ("Succeeded", _) => PodPhase::Succeeded,
        ("Failed", _) => PodPhase::Failed,
        _ => PodPhase::Unknown,
    }
}

/// Whether a bind request has failed for good.
pub fn bind_failed(bind: &BindRequest) -> bool {
    let Some(status) = &bind.status else { return false };
    let attempts = status.failed_attempts.unwrap_or(0);
    status.phase == kai_api::BindRequestStatus::FAILED
        && bind.spec.backoff_limit.is_none_or(|limit| attempts >= limit)
}

/// Config maps that must exist: mounted ones, then those of environment variables. Those that the binder creates for GPU
/// sharing are exempt.
pub fn required_config_maps(pod: &Pod) -> Vec<String> {
    let spec = &pod.spec;
    let containers = || spec.containers.iter().chain(&spec.init_containers).chain(&spec.ephemeral_containers);
    let is_mounted = |name: &str| containers().flat_map(|c| &c.volume_mounts).any(|m| m.name == name);
    let mut names: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut need = |reference: &crate::object::pod::ConfigMapRef| {
        let name = &*reference.name;
        let exempt = pod.metadata.annotation(annotation::SHARED_GPU_CONFIG_MAP).filter(|p| !p.is_empty());
        let made = exempt.is_some_and(|prefix| name.starts_with(prefix));
        if !reference.optional && !made && seen.insert(name.to_owned()) {
            names.push(name.to_owned());
        }
    };
    for volume in pod.spec.volumes.iter().filter(|v| is_mounted(&v.name)) {
        if let Some(map) = &volume.config_map {
            need(map);
        }
        let sources = volume.projected.iter().flat_map(|p| &p.sources);
        sources.filter_map(|s| s.config_map.as_ref()).for_each(&mut need);
    }
    for container in containers() {
        let variables =
            container.env.iter().filter_map(|e| e.value_from.as_ref()?.config_map_key_ref.as_ref());
        variables
            .chain(container.env_from.iter().filter_map(|e| e.config_map_ref.as_ref()))
            .for_each(&mut need);
    }
    names
}

fn task_priority(pod: &Pod) -> TaskPriority {
    match pod.metadata.label(label::TASK_PRIORITY) {
        None => TaskPriority::Absent,
        Some(text) => text.parse().map_or(TaskPriority::Invalid, TaskPriority::Value),
    }
}

fn gpu_groups(pod: &Pod, bind: Option<&BindRequest>, report: &mut Report<'_>) -> Vec<String> {
    let chosen = bind.map(|b| &b.spec.selected_gpu_groups).filter(|groups| !groups.is_empty());
    let mut groups = chosen.cloned().unwrap_or_else(|| gpu::groups_from_labels(pod));
    let named = groups.len();
    let mut seen = BTreeSet::new();
    groups.retain(|group| seen.insert(group.clone()));
    if groups.len() < named {
        report.warn(
            "spec.selectedGPUGroups of its bind request",
            "a shared GPU is listed twice and counts once",
            "delete the pod and its bind request so that it is placed again",
        );
    }
    groups
}

/// The GPU groups of a bind request of which the binder says that their reservation is lost.
pub fn drained_gpus(bind: &BindRequest) -> Vec<String> {
    let drained = bind.status.iter().flat_map(kai_api::BindRequestStatus::drained_gpu_groups);
    let selected = |group: &&str| bind.spec.selected_gpu_groups.iter().any(|known| known == group);
    drained.filter(selected).map(str::to_owned).collect()
}

fn numa_placement(pod: &Pod, bind: Option<&BindRequest>, report: &mut Report<'_>) -> Vec<NumaAmount> {
    let annotated = |name: &'static str| pod.metadata.annotation(name).map(|text| (name, text));
    let predicted = bind.map(|b| &b.spec.predicted_numa_zones).filter(|zones| !zones.is_empty());
    let read = |(name, text): (&str, &str), report: &mut Report<'_>| {
        numa::placement_from_json(text, &format!("metadata.annotations[{name}]"), report)
    };
    if let Some(observed) = annotated(annotation::NUMA_OBSERVED) {
        read(observed, report)
    } else if let Some(zones) = predicted {
        numa::placement_from_bind(zones)
    } else if let Some(predicted) = annotated(annotation::NUMA_PREDICTED) {
        read(predicted, report)
    } else {
        Vec::new()
    }
}

/// The name of the ResourceClaim of a pod's claim; `None` while it has not been created.
pub fn claim_object<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let claim = pod.spec.resource_claims.iter().find(|claim| claim.name == name)?;
    if claim.resource_claim_template_name.is_empty() {
        return claim.resource_claim_name.some();
    }
    let made = pod.status.resource_claim_statuses.iter().find(|made| made.name == name)?;
    made.resource_claim_name.some()
}

fn claims(pod: &Pod, bind: Option<&BindRequest>) -> Vec<PodClaim> {
    if pod.spec.resource_claims.is_empty() {
        return Vec::new();
    }
    let allocations = bind.map(|b| b.spec.resource_claim_allocations.as_slice()).unwrap_or_default();
    let chosen: BTreeMap<&str, &AllocationResult> =
        allocations.iter().filter_map(|a| Some((a.name.as_str(), a.allocation.as_ref()?))).collect();
    let statuses = pod.status.resource_claim_statuses.iter();
    let made: BTreeMap<&str, &str> =
        statuses.filter_map(|s| Some((&*s.name, s.resource_claim_name.some()?))).collect();
    let claims = pod.spec.resource_claims.iter().map(|claim| {
        let from_template = !claim.resource_claim_template_name.is_empty();
        let own = claim.resource_claim_name.some();
        let object = if from_template { made.get(&*claim.name).copied() } else { own };
        PodClaim {
            name: claim.name.to_string(),
            claim: object.map(str::to_owned),
            from_template,
            chosen: chosen.get(&*claim.name).map(|a| allocated_devices(a)).unwrap_or_default(),
        }
    });
    claims.collect()
}

fn extended_devices(bind: Option<&BindRequest>) -> Vec<DeviceId> {
    let chosen = bind.and_then(|b| b.spec.extended_resource_claim_allocation.as_ref()?.allocation.as_ref());
    chosen.map(allocated_devices).unwrap_or_default()
}

fn allocated_devices(allocation: &AllocationResult) -> Vec<DeviceId> {
    let results = allocation.devices.as_ref().and_then(|d| d.results.as_deref()).unwrap_or_default();
    let device = |r: &DeviceRequestAllocationResult| DeviceId {
        driver: r.driver.clone(),
        pool: r.pool.clone(),
        device: r.device.clone(),
    };
    results.iter().map(device).collect()
}

fn volumes(pod: &Pod) -> Vec<PodVolume> {
    pod.spec
        .volumes
        .iter()
        .filter_map(|volume| {
            if let Some(claim) = &volume.persistent_volume_claim {
                return Some(PodVolume { claim: claim.claim_name.to_string() });
            }
            // Kubernetes names the claim of an ephemeral volume after the pod and the volume.
            let made = volume.ephemeral.map(|_| format!("{}-{}", pod.metadata.name, volume.name));
            made.map(|claim| PodVolume { claim })
        })
        .collect()
}

pub fn pod_of(bind: &BindRequest) -> Key {
    Key::new(bind.metadata.namespace.as_deref().unwrap_or_default(), bind.spec.pod_name.as_str())
}

/// Whether a bind request was created for an earlier pod of the same name.
pub fn is_for_another(bind: &BindRequest, pod: &Pod) -> bool {
    let owners = bind.metadata.owner_references.as_deref().unwrap_or_default();
    let mut pods = owners.iter().filter(|owner| owner.kind == "Pod").peekable();
    pods.peek().is_some()
        && !pod.metadata.uid.is_empty()
        && pods.all(|owner| pod.metadata.uid != owner.uid.as_str())
}

#[cfg(test)]
mod tests;
