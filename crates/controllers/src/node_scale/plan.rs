//! Decides which scaling pods there should be.
//!
//! Input: [`Observed`]. Output: the scaling pods to delete, and those to create.
//! Requests that can share a GPU share a scaling pod: pods are assigned to scaling pods first fit, in the order of their
//! creation, so that a new pod changes no earlier assignment. A scaling pod requests what its pods request together,
//! since pods that share a GPU run on one node.
//! Invariant: a pod group gets scaling pods for all its pending pods or for none.
//! Not here: the cool-down between a deletion and the next creation (see [`node_scale`](super)).

use super::observed::{Demand, Group, Observed, PendingPod, PendingState, ScalingPod};
use kai_api::share::Portion;
use kai_runtime::Key;
use kai_units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A whole GPU; portions are hundredths, as in KAI.
const WHOLE: u32 = 100;
/// GPUs of one pod beyond which no node can help.
const GPUS_MAX: u32 = 1_024;

/// Settings of the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The portion of a GPU that a request for GPU memory counts as: the memory of future GPUs is unknown.
    pub memory_ratio: f64,
    /// Scaling pods at the same time; pods of one namespace cause at most half of them.
    pub scaling_pods_max: usize,
    /// A scaling pod combines pods up to these requests, so that it fits on one node.
    pub cpu_milli_max: i64,
    pub memory_max: i64,
    /// Whether devices that pods claim (DRA) count.
    pub with_claims: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_ratio: 0.1,
            scaling_pods_max: 500,
            cpu_milli_max: 32_000,
            memory_max: 128 << 30,
            with_claims: true,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub delete: Vec<Deletion>,
    pub create: Vec<Creation>,
    /// Scaling pods whose condition `PodScheduled` is not written yet.
    pub mark: Vec<Key>,
    /// Pod groups, and pods without a group, that get no scaling pod now, and why.
    pub held_back: Vec<(Key, HeldBack)>,
}

/// A scaling pod that is not needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub pod: Key,
    pub uid: String,
    pub reason: &'static str,
}

/// A scaling pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The pod that it is named after, and whose placement constraints it has.
    pub source: Key,
    pub source_uid: String,
    pub gpus: u32,
    pub cpu_milli: i64,
    pub memory: i64,
    /// How many pods it stands for.
    pub pods: usize,
}

/// Why a group gets no scaling pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Not all of its pods are reported as unschedulable.
    Incomplete,
    /// The limit or quota of its queue.
    Queue(String),
    /// A request of one of its pods is invalid, or its claims are not known.
    UnknownRequest,
    /// There are too many scaling pods.
    Limit,
}

/// A pod that needs GPUs which autoscalers do not see.
struct Item<'a> {
    key: &'a Key,
    pod: &'a PendingPod,
    /// Hundredths of each GPU.
    portion: u32,
    devices: u32,
}

/// A scaling pod and the pods assigned to it.
#[derive(Clone)]
struct Bin<'a> {
    placement: &'a str,
    source: &'a Key,
    /// Hundredths left of each GPU.
    free: Vec<u32>,
    cpu_left: i64,
    memory_left: i64,
    /// Requests of the assigned pods.
    cpu: i64,
    memory: i64,
    pods: usize,
    is_new: bool,
}

/// The pods of a group, or a pod without a group.
struct Unit<'a> {
    key: &'a Key,
    created: Timestamp,
    items: Vec<Item<'a>>,
}

pub fn plan(observed: &Observed, limits: &Limits) -> Plan {
    let mut plan = Plan::default();
    let binding: BTreeSet<&Key> = observed.binding.values().flatten().collect();
    let mut units = units(observed, &binding, limits, &mut plan.held_back);
    units.sort_by(|a, b| (a.created, a.key).cmp(&(b.created, b.key)));
    let eligible: BTreeMap<&Key, &Item<'_>> =
        units.iter().flat_map(|unit| &unit.items).map(|item| (item.key, item)).collect();
    let mut existing: BTreeMap<&Key, Bin<'_>> = BTreeMap::new();
    let mut sources = BTreeSet::new();
    for (key, scaling) in &observed.scaling {
        match keep(observed, &binding, scaling, &eligible, &mut sources) {
            Ok(source) => {
                existing.extend(source.map(|item| (item.key, Bin::existing(scaling, item))));
                if !scaling.has_condition && !scaling.is_deleting {
                    plan.mark.push(key.clone());
                }
            }
            Err(_) if scaling.is_deleting => {}
            Err(reason) => {
                plan.delete.push(Deletion { pod: key.clone(), uid: scaling.uid.clone(), reason });
            }
        }
    }
    // In the order in which they were created, so that every pod is assigned to the same one again.
    let in_order = units.iter().flat_map(|unit| &unit.items);
    let mut bins: Vec<Bin<'_>> = in_order.filter_map(|item| existing.remove(item.key)).collect();
    for unit in &units {
        let unassigned: Vec<_> = unit.items.iter().filter(|item| !sources.contains(item.key)).collect();
        // Copies nothing for a pod that fits beside others.
        if let [item] = unassigned.as_slice()
            && bins.iter_mut().any(|bin| bin.add(item))
        {
            continue;
        }
        let mut attempt = bins.clone();
        for item in unassigned {
            assign(&mut attempt, item, limits);
        }
        if is_within_limit(&attempt, bins.len(), limits) {
            bins = attempt;
        } else {
            plan.held_back.push((unit.key.clone(), HeldBack::Limit));
        }
    }
    let created = bins.iter().filter(|bin| bin.is_new).filter_map(|bin| {
        let uid = observed.pods.get(bin.source)?.uid.clone();
        Some(bin.creation(uid))
    });
    plan.create.extend(created);
    plan
}

/// Whether a scaling pod is needed; its source where that is eligible. The error is the reason of its deletion.
fn keep<'a, 'i>(
    observed: &Observed,
    binding: &BTreeSet<&Key>,
    scaling: &ScalingPod,
    eligible: &BTreeMap<&'a Key, &'i Item<'a>>,
    sources: &mut BTreeSet<&'a Key>,
) -> Result<Option<&'i Item<'a>>, &'static str> {
    if scaling.is_terminal {
        return Err("its node has arrived");
    }
    let Some(source) = &scaling.source else { return Err("it names no pod") };
    let Some(pod) = observed.pods.get(source) else { return Err("its pod is bound or gone") };
    if scaling.source_uid.as_ref().is_some_and(|uid| *uid != pod.uid) {
        return Err("its pod is bound or gone");
    }
    if binding.contains(source) {
        return Err("its pod is being bound");
    }
    match pod.state {
        // The scheduler has not reported on it since; the pod may still be unschedulable.
        PendingState::Unreported => Ok(None),
        PendingState::Inactive | PendingState::Other => Err("its pod is no longer unschedulable"),
        PendingState::Unschedulable => {
            let Some((key, item)) = eligible.get_key_value(source) else {
                return Err("a new node would not help its pod");
            };
            if sources.insert(key) { Ok(Some(item)) } else { Err("its pod has another one") }
        }
    }
}

/// The groups with requests that autoscalers do not see, without those that a new node would not help.
fn units<'a>(
    observed: &'a Observed,
    binding: &BTreeSet<&Key>,
    limits: &Limits,
    held_back: &mut Vec<(Key, HeldBack)>,
) -> Vec<Unit<'a>> {
    let mut by_group: BTreeMap<(bool, &Key), Vec<(&Key, &PendingPod)>> = BTreeMap::new();
    for (key, pod) in &observed.pods {
        let exists = |group: &&Key| observed.groups.as_ref().is_some_and(|all| all.contains_key(*group));
        let group = pod.group.as_ref().filter(|group| pod.names_group || exists(group));
        let unit = group.map_or((false, key), |group| (true, group));
        by_group.entry(unit).or_default().push((key, pod));
    }
    let mut units = Vec::new();
    for ((is_group, key), pods) in by_group {
        let group = match &observed.groups {
            Some(groups) if is_group => groups.get(key).map_or(PodGroupOf::Missing, PodGroupOf::Known),
            Some(_) | None => PodGroupOf::Unread,
        };
        match unit(observed, binding, limits, key, group, &pods) {
            Ok(unit) => units.extend(unit),
            Err(reason) => held_back.push((key.clone(), reason)),
        }
    }
    units
}

/// What is known of the pod group of some pods.
#[derive(Clone, Copy)]
enum PodGroupOf<'a> {
    Known(&'a Group),
    /// It does not exist.
    Missing,
    /// The pod has none, or groups cannot be listed.
    Unread,
}

fn unit<'a>(
    observed: &Observed,
    binding: &BTreeSet<&Key>,
    limits: &Limits,
    key: &'a Key,
    group: PodGroupOf<'_>,
    pods: &[(&'a Key, &'a PendingPod)],
) -> Result<Option<Unit<'a>>, HeldBack> {
    let (placed, waiting): (Vec<_>, Vec<_>) = pods.iter().partition(|(key, _)| binding.contains(key));
    let active: Vec<_> = waiting.into_iter().filter(|(_, pod)| pod.state != PendingState::Inactive).collect();
    let mut items = Vec::new();
    for (key, pod) in &active {
        items.extend(item(observed, limits, key, pod)?);
    }
    let Some(created) = items.iter().map(|item| item.pod.created).min() else { return Ok(None) };
    if active.iter().any(|(_, pod)| pod.state != PendingState::Unschedulable) {
        return Err(HeldBack::Incomplete);
    }
    match group {
        PodGroupOf::Known(Group { blocked: Some(reason), .. }) => {
            return Err(HeldBack::Queue(reason.clone()));
        }
        PodGroupOf::Known(group) if !group.is_allocated && placed.len() + active.len() < group.min_member => {
            return Err(HeldBack::Incomplete);
        }
        PodGroupOf::Missing => return Err(HeldBack::Incomplete),
        PodGroupOf::Known(_) | PodGroupOf::Unread => {}
    }
    items.sort_by(|a, b| (a.pod.created, a.key).cmp(&(b.pod.created, b.key)));
    Ok(Some(Unit { key, created, items }))
}

/// The request of a pod; none where autoscalers see all of it.
fn item<'a>(
    observed: &Observed,
    limits: &Limits,
    key: &'a Key,
    pod: &'a PendingPod,
) -> Result<Option<Item<'a>>, HeldBack> {
    let (portion, devices) = match &pod.demand {
        Demand::Visible => return Ok(None),
        Demand::Claims(_) if !limits.with_claims => return Ok(None),
        Demand::Unknown | Demand::Claims(None) => return Err(HeldBack::UnknownRequest),
        Demand::Share { portion: Portion::Fraction(part), devices } => (hundredths(*part), *devices),
        Demand::Share { portion: Portion::Memory(_), devices } => (hundredths(limits.memory_ratio), *devices),
        Demand::Claims(Some(claims)) => {
            let mut devices = 0_u32;
            for claim in claims {
                let known = observed.claims.get(claim).ok_or(HeldBack::UnknownRequest)?;
                devices = devices.saturating_add(*known);
            }
            (WHOLE, devices)
        }
    };
    match devices {
        0 => Ok(None),
        1..=GPUS_MAX => Ok(Some(Item { key, pod, portion, devices })),
        _ => Err(HeldBack::UnknownRequest),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=100 before")]
fn hundredths(part: f64) -> u32 {
    (part * f64::from(WHOLE)).round().clamp(1.0, f64::from(WHOLE)) as u32
}

fn assign<'a>(bins: &mut Vec<Bin<'a>>, item: &Item<'a>, limits: &Limits) {
    if !bins.iter_mut().any(|bin| bin.add(item)) {
        bins.push(Bin::new(item, limits));
    }
}

fn is_within_limit(attempt: &[Bin<'_>], before: usize, limits: &Limits) -> bool {
    let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    for bin in attempt {
        *of_namespace.entry(&bin.source.namespace).or_default() += 1;
    }
    let added = attempt.iter().skip(before).map(|bin| &*bin.source.namespace);
    let most = added.filter_map(|namespace| of_namespace.get(namespace)).max().copied().unwrap_or(0);
    let is_more = attempt.len() > before;
    !is_more || attempt.len() <= limits.scaling_pods_max && most <= limits.scaling_pods_max.div_ceil(2)
}

impl<'a> Bin<'a> {
    fn of(item: &Item<'a>, gpus: u32) -> Self {
        Self {
            placement: &item.pod.placement,
            source: item.key,
            free: vec![WHOLE; gpus.clamp(1, GPUS_MAX) as usize],
            cpu_left: 0,
            memory_left: 0,
            cpu: 0,
            memory: 0,
            pods: 0,
            is_new: false,
        }
    }

    fn existing(scaling: &ScalingPod, item: &Item<'a>) -> Self {
        let mut bin = Self::of(item, scaling.gpus);
        (bin.cpu_left, bin.memory_left) = (scaling.cpu_milli, scaling.memory);
        bin.take(item);
        bin
    }

    fn new(item: &Item<'a>, limits: &Limits) -> Self {
        let mut bin = Self { is_new: true, ..Self::of(item, item.devices) };
        (bin.cpu_left, bin.memory_left) = (limits.cpu_milli_max, limits.memory_max);
        bin.take(item);
        bin
    }

    /// Assigns a pod if it fits beside the others.
    fn add(&mut self, item: &Item<'a>) -> bool {
        let fitting = self.free.iter().filter(|free| **free >= item.portion).count();
        let fits = self.placement == item.pod.placement
            && fitting >= item.devices as usize
            && item.pod.cpu_milli <= self.cpu_left
            && item.pod.memory <= self.memory_left;
        if fits {
            self.take(item);
        }
        fits
    }

    fn take(&mut self, item: &Item<'a>) {
        let fitting = self.free.iter_mut().filter(|free| **free >= item.portion);
        for free in fitting.take(item.devices as usize) {
            *free -= item.portion;
        }
        self.cpu_left = self.cpu_left.saturating_sub(item.pod.cpu_milli);
        self.memory_left = self.memory_left.saturating_sub(item.pod.memory);
        self.cpu = self.cpu.saturating_add(item.pod.cpu_milli);
        self.memory = self.memory.saturating_add(item.pod.memory);
        self.pods += 1;
    }

    fn creation(&self, source_uid: String) -> Creation {
        Creation {
            source: self.source.clone(),
            source_uid,
            gpus: u32::try_from(self.free.len()).unwrap_or(GPUS_MAX),
            cpu_milli: self.cpu,
            memory: self.memory,
            pods: self.pods,
        }
    }
}

#[cfg(test)]
mod tests;
