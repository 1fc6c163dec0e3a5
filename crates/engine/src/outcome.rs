//! The result of a cycle: decisions that name node, GPU group, devices and victims, verdicts, and queue reports.

use crate::carry_over::CarryOver;
use crate::input::{
    ClaimAllocation, ClaimDevice, ClaimInput, ClaimRequest, Key, NumaAmount, Received, RequestAlternative,
    RequestMode, TimeLimit,
};
use crate::resource::PerResource;
use crate::verdict::GroupVerdict;
use kai_units::Timestamp;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// One cycle's input besides the cluster and the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The time of the cycle.
    pub now: Timestamp,
    /// Seeds the ids of new GPU groups.
    pub seed: u64,
}

/// The result of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Decisions in the order they were made.
    pub decisions: Vec<Decision>,
    /// One per group with pending pods, by (namespace, name).
    pub verdicts: Vec<GroupVerdict>,
    /// Queue shares when the cycle began, by name.
    pub queues: Vec<QueueReport>,
    /// Cluster totals that the shares divide (cpu, memory, gpu).
    pub total: PerResource<i64>,
    /// State for the next cycle; the caller stores it with [`crate::Cluster::carry_over`].
    pub carry_over: CarryOver,
    /// Groups that started.
    pub started: Vec<Key>,
    /// Groups whose stale-since timestamp changed: the new timestamp, or none.
    pub staleness: Vec<(Key, Option<Timestamp>)>,
    /// Groups that time limits concern in this cycle.
    pub time_limits: TimeLimitNotices,
    /// Hash of everything above.
    pub hash: u64,
    /// Panics of plugins, by plugin in the configured order.
    pub plugin_failures: Vec<PluginFailure>,
}

/// Groups that are close to, at or beyond their maximum run time, each by (namespace, name).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimeLimitNotices {
    /// Groups whose users have to be warned now; the caller records the time as [`GroupInput::limit_warned`].
    ///
    /// [`GroupInput::limit_warned`]: crate::input::GroupInput::limit_warned
    pub warn: Vec<LimitNotice>,
    /// Groups that are preemptible because of a limit, in every cycle while they run.
    pub exceeded: Vec<LimitNotice>,
    /// Groups that end now; the caller records the time as [`GroupInput::ended`], and the next cycle evicts them.
    ///
    /// [`GroupInput::ended`]: crate::input::GroupInput::ended
    pub end: Vec<LimitNotice>,
}

impl TimeLimitNotices {
    /// No group is concerned.
    pub fn is_empty(&self) -> bool {
        self.warn.is_empty() && self.exceeded.is_empty() && self.end.is_empty()
    }
}

/// A group and one of its time limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitNotice {
    /// The group.
    pub group: Key,
    /// The queue that has the limit; `None` for the group's own.
    pub queue: Option<String>,
    /// The limit.
    pub limit: TimeLimit,
    /// When the group reaches it.
    pub reached: Timestamp,
}

/// A plugin whose callback panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFailure {
    /// The plugin.
    pub plugin: String,
    /// What happened, with the name of the plugin.
    pub message: String,
}

/// Why pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Consolidation: the pods are moved so that a group fits.
    Consolidation,
    /// Reclaim: a queue within its fair share reclaims from one above its own.
    Reclaim,
    /// Preemption by a group of higher priority in the same queue.
    Preempt,
    /// Stale gang: it runs below its minimum.
    Stale,
}

impl Cause {
    /// The action's name in the configuration.
    pub fn action(self) -> &'static str {
        match self {
            Self::Consolidation => "consolidation",
            Self::Reclaim => "reclaim",
            Self::Preempt => "preempt",
            Self::Stale => "stalegangeviction",
        }
    }
}

/// The name of evictions at the end of a maximum run time; no action of the configuration has it.
pub const TIME_LIMIT: &str = "timelimit";

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Bind a pod to a node.
    Bind(Box<Bind>),
    /// Pipeline a pod to resources that are being released.
    Pipeline {
        /// The pod.
        pod: Key,
        /// Its node.
        node: String,
        /// Shared GPUs.
        gpu_groups: Vec<String>,
        /// The deciding action.
        action: &'static str,
        /// The pod is evicted from another node and moved.
        moved: bool,
    },
    /// Delete a pod.
    Evict {
        /// The pod.
        pod: Key,
        /// Its unique id.
        uid: String,
        /// Its group.
        group: Option<Key>,
        /// Size of the eviction batch.
        gang_size: u32,
        /// The group for which it is evicted.
        preemptor: Option<Key>,
        /// The deciding action.
        action: &'static str,
        /// The rule that allowed it, with its numbers.
        why: Box<EvictionReason>,
    },
}

impl Decision {
    /// The pod of the decision.
    pub fn pod(&self) -> &Key {
        match self {
            Self::Bind(bind) => &bind.pod,
            Self::Pipeline { pod, .. } | Self::Evict { pod, .. } => pod,
        }
    }
}

/// The rule that allowed an eviction (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EvictionReason {
    /// The pod is moved.
    Moved {
        /// The node it moves to.
        node: String,
    },
    /// Its queue exceeded its allocatable share of some resource.
    AboveShare {
        /// The queues below the lowest common ancestor of reclaimer and victim.
        reclaimer: QueueChange,
        /// The victim's queue.
        victim: QueueChange,
    },
    /// Its queue exceeded its quota, and the reclaimer's queue stays within its own.
    AboveQuota {
        /// The queues below the lowest common ancestor of reclaimer and victim.
        reclaimer: QueueChange,
        /// The victim's queue.
        victim: QueueChange,
    },
    /// The preemptor has a higher priority.
    Priority {
        /// Priority of the preemptor.
        preemptor: i32,
        /// Priority of the victim.
        victim: i32,
    },
    /// The gang ran below its minimum for too long.
    Stale {
        /// Since when, in microseconds since the epoch.
        since: i64,
    },
    /// The group ran for its maximum run time and ends.
    TimeLimit {
        /// When it reached the limit, in microseconds since the epoch.
        ended: i64,
    },
    /// The action of a plugin evicted it.
    Custom {
        /// Why.
        message: String,
    },
}

/// A queue before and after a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueChange {
    /// The queue.
    pub queue: String,
    /// Guaranteed; `None` is unlimited.
    pub quota: PerResource<Option<i64>>,
    /// Fair share.
    pub fair_share: PerResource<i64>,
    /// Allocated before.
    pub before: PerResource<i64>,
    /// Allocated after.
    pub after: PerResource<i64>,
}

/// A binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The pod.
    pub pod: Key,
    /// Its unique id.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// The deciding action.
    pub action: &'static str,
    /// Shared GPUs, one per device.
    pub gpu_groups: Vec<String>,
    /// What kind of GPU it receives.
    pub received: Option<Received>,
    /// Number of devices.
    pub gpu_count: u32,
    /// Hundredths of each device.
    pub gpu_hundredths: u32,
    /// Devices per claim name of the pod.
    pub claims: Vec<(String, Vec<ClaimDevice>)>,
    /// Devices for extended resources backed by a device class.
    pub extended: Option<Box<ExtendedClaim>>,
    /// NUMA zones predicted.
    pub numa: Vec<NumaAmount>,
    /// Annotations of the BindRequest.
    pub annotations: Annotations,
}

/// Annotations that plugins add to a BindRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(pub BTreeMap<String, String>);

impl Hash for Annotations {
    /// Without annotations nothing is hashed: the hash of an outcome does not depend on whether plugins exist.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        if !self.0.is_empty() {
            self.0.hash(hasher);
        }
    }
}

impl Bind {
    /// The claim that the binder creates for extended resources backed by devices, if any.
    pub fn extended_claim(&self) -> Option<ClaimInput> {
        let extended = self.extended.as_ref()?;
        let request = |(name, class, count): &(String, String, u32)| ClaimRequest {
            name: name.clone(),
            alternatives: vec![RequestAlternative {
                class: class.clone(),
                mode: RequestMode::Exactly(u64::from(*count)),
                ..RequestAlternative::default()
            }],
        };
        Some(ClaimInput {
            key: extended_claim_key(&self.pod),
            uid: format!("claim-{}-extended", self.uid),
            owner_pod: Some(self.uid.clone()),
            synthetic: true,
            requests: extended.requests.iter().map(request).collect(),
            allocation: Some(ClaimAllocation { devices: extended.devices.clone(), node_terms: Vec::new() }),
            reserved_for: vec![self.uid.clone()],
            ..ClaimInput::default()
        })
    }
}

/// Name of the claim that the binder creates for a pod's extended resources.
pub fn extended_claim_key(pod: &Key) -> Key {
    Key::new(pod.namespace.as_str(), format!("{}-extended", pod.name))
}

/// Devices allocated for extended resources of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtendedClaim {
    /// The devices with their request names.
    pub devices: Vec<ClaimDevice>,
    /// Container, resource and request names.
    pub mappings: Vec<(String, String, String)>,
    /// Request name, device class and count.
    pub requests: Vec<(String, String, u32)>,
}

/// Shares of one queue (cpu in millicores, memory in bytes, GPUs in millionths).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueReport {
    /// Queue name.
    pub name: String,
    /// Parent name.
    pub parent: Option<String>,
    /// Guaranteed; `None` is unlimited.
    pub quota: PerResource<Option<i64>>,
    /// Ceiling; `None` is unlimited.
    pub limit: PerResource<Option<i64>>,
    /// Allocated at the start of the cycle.
    pub allocated: PerResource<i64>,
    /// Allocated to non-preemptible groups.
    pub allocated_non_preemptible: PerResource<i64>,
    /// Allocated at the end of the cycle.
    pub allocated_after: PerResource<i64>,
    /// Allocated plus pending.
    pub requested: PerResource<i64>,
    /// Fair share.
    pub fair_share: PerResource<i64>,
}
