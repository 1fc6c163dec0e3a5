//! Applies deltas of all objects but pods.

use super::group::{Counted, Group};
use super::node::{Node, NodeLedger};
use super::queue::Queue;
use super::{Changes, Cluster, tree};
use crate::class::Taint;
use crate::delta::Delta;
use crate::dra::Devices;
use crate::ids::{GroupIdx, IndexVec, NodeIdx, QueueIdx, Sym};
use crate::input::{GpuMemory, GroupInput, Labels, MigStrategy, NodeInput, QueueInput};
use crate::intern::Interner;
use crate::numa::NumaNode;
use crate::resource::{Amounts, is_mig};
use crate::share::Ledger;
use kai_units::Timestamp;
use smallvec::SmallVec;

impl Cluster {
    /// Applies one change and records what must be refreshed.
    pub(crate) fn apply(&mut self, delta: Delta, changes: &mut Changes) {
        match delta {
            Delta::Node(input) => self.set_node(*input, changes),
            Delta::NodeGone(name) => self.remove_node(&name, changes),
            Delta::Pod(input) => self.set_pod(*input, changes),
            Delta::PodGone(key) => self.remove_pod(&key, changes),
            Delta::Group(input) => self.set_group(&input, changes),
            Delta::GroupGone(key) => self.remove_group(&key.namespace, &key.name, changes),
            Delta::Queue(input) => self.set_queue(&input, changes),
            Delta::QueueGone(name) => self.remove_queue(&name, changes),
            Delta::Topology(input) => {
                self.topologies.set(&input, &mut self.names);
                changes.topologies = true;
            }
            Delta::TopologyGone(name) => {
                self.topologies.remove(&name, &self.names);
                changes.topologies = true;
            }
            Delta::ConfigMap(key) => {
                let key = (self.names.intern(&key.namespace), self.names.intern(&key.name));
                self.config_maps.insert(key);
            }
            Delta::ConfigMapGone(key) => {
                let key = (self.names.intern(&key.namespace), self.names.intern(&key.name));
                self.config_maps.remove(&key);
            }
            Delta::VolumeClaim(input) => self.storage.set_claim(&input, &mut self.names),
            Delta::VolumeClaimGone(key) => self.storage.remove_claim(&key, &mut self.names),
            Delta::Volume(input) => self.storage.set_volume(&input, &mut self.names),
            Delta::VolumeGone(name) => self.storage.remove_volume(&name, &mut self.names),
            Delta::StorageClass(input) => self.storage.set_class(&input, &mut self.names),
            Delta::StorageClassGone(name) => self.storage.remove_class(&name, &mut self.names),
            Delta::Capacity(input) => self.storage.set_capacity(&input, &mut self.names),
            Delta::CapacityGone(key) => self.storage.remove_capacity(&key, &mut self.names),
            Delta::Slice(slice) => {
                self.change_devices(changes, |devices, names| devices.set_slice(slice, names));
            }
            Delta::SliceGone(name) => self.change_devices(changes, |devices, _| devices.remove_slice(&name)),
            Delta::DeviceClass(class) => {
                self.change_devices(changes, |devices, names| devices.set_class(&class, names));
            }
            Delta::DeviceClassGone(name) => {
                self.change_devices(changes, |devices, names| devices.remove_class(&name, names));
            }
            Delta::Claim(claim) => self.change_devices(changes, |devices, names| {
                devices.set_claim(&claim, names);
            }),
            Delta::ClaimGone(key) => {
                self.change_devices(changes, |devices, names| devices.remove_claim(&key, names));
            }
            Delta::Budget(input) => {
                self.budgets.insert(input.key.clone(), input);
            }
            Delta::BudgetGone(key) => {
                self.budgets.remove(&key);
            }
        }
    }

    fn change_devices(&mut self, changes: &mut Changes, change: impl FnOnce(&mut Devices, &mut Interner)) {
        change(&mut self.devices, &mut self.names);
        changes.devices = true;
    }

    pub(super) fn labels(&mut self, labels: &Labels) -> SmallVec<[(Sym, Sym); 8]> {
        let mut list: SmallVec<_> =
            labels.iter().map(|(k, v)| (self.names.intern(k), self.names.intern(v))).collect();
        list.sort_unstable();
        list
    }

    /// The slot of a node name, created on first use.
    pub(super) fn node_slot(&mut self, name: &str) -> NodeIdx {
        let sym = self.names.intern(name);
        if let Some(&node) = self.node_by_name.get(&sym) {
            return node;
        }
        let node = self.nodes.push(absent_node(sym));
        self.node_by_name.insert(sym, node);
        node
    }

    fn set_node(&mut self, input: NodeInput, changes: &mut Changes) {
        let index = self.node_slot(&input.name);
        let described = self.dims.offer(&input.allocatable, &mut self.names);
        let has_mig = input.allocatable.iter().any(|(name, amount)| is_mig(name) && *amount > 0);
        let labels: Box<[_]> = self.labels(&input.labels).as_slice().into();
        let taints = input
            .taints
            .iter()
            .map(|t| Taint {
                key: self.names.intern(&t.key),
                value: self.names.intern(&t.value),
                effect: t.effect,
            })
            .collect();
        let attach_limits =
            input.attach_limits.iter().map(|l| (self.names.intern(&l.driver), l.most)).collect();
        let numa = input.numa.as_ref().and_then(|n| NumaNode::build(n, &mut self.dims, &mut self.names));
        let node = &mut self.nodes[index];
        changes.node_set |= !node.present;
        let relabelled = !node.present || node.labels != labels;
        changes.topologies |= relabelled;
        changes.terms |= relabelled && !node.pods.is_empty();
        node.present = true;
        node.labels = labels;
        node.taints = taints;
        node.unschedulable = input.unschedulable;
        node.bad_conditions = input.bad_conditions.into_boxed_slice();
        node.allocatable = described.clone();
        node.described = described;
        let gpu_memory = GpuMemory { mib: input.gpu_memory.mib.max(1), ..input.gpu_memory };
        if std::mem::replace(&mut node.gpu_memory, gpu_memory) != gpu_memory {
            // The queue charge of fractional GPU requests depends on the GPU memory.
            changes.groups.extend(node.pods.iter().filter_map(|pod| self.pods[*pod].group));
        }
        node.gpu_count = input.gpu_count;
        node.mig_strategy = input.mig_strategy;
        node.is_mig = input.mig_enabled.unwrap_or(has_mig);
        node.gpu_worker = input.gpu_worker;
        node.cpu_worker = input.cpu_worker;
        node.attach_limits = attach_limits;
        node.described_numa = numa.map(Box::new);
        changes.described.push(index);
        changes.ledgers.push(index);
    }

    fn remove_node(&mut self, name: &str, changes: &mut Changes) {
        let index = self.node_slot(name);
        let node = &mut self.nodes[index];
        if !node.present {
            return;
        }
        let pods = std::mem::take(&mut node.pods);
        changes.terms |= !pods.is_empty();
        *node = Node { pods, version: node.version, ..absent_node(node.name) };
        changes.node_set = true;
        changes.topologies = true;
        changes.described.push(index);
        changes.ledgers.push(index);
    }

    /// The slot of a group key, created on first use.
    pub(super) fn group_slot(&mut self, namespace: Sym, name: &str) -> GroupIdx {
        let key = (namespace, self.names.intern(name));
        *self
            .group_by_key
            .entry(key)
            .or_insert_with(|| self.groups.push(absent_group(key.0, key.1, self.fixed.empty)))
    }

    fn set_group(&mut self, input: &GroupInput, changes: &mut Changes) {
        let namespace = self.names.intern(&input.key.namespace);
        let index = self.group_slot(namespace, &input.key.name);
        let (members, invalid_reason) = tree::build(input, self.fixed, &mut self.names);
        let uid = self.names.intern(&input.uid);
        let queue_name = self.names.intern(&input.queue);
        let group = &mut self.groups[index];
        group.present = true;
        group.uid = uid;
        group.queue_name = queue_name;
        group.priority = input.priority;
        group.declared_preemptible = input.preemptible;
        group.created = input.created;
        group.last_start = input.last_start;
        group.last_eviction = input.last_eviction;
        group.stale_since = input.stale_since;
        group.staleness_grace = input.staleness_grace;
        group.preemption_delay = input.preemption_delay;
        group.mark_unschedulable = input.mark_unschedulable;
        group.invalid_reason = invalid_reason;
        group.backoff = input.backoff.clone().map(Box::new);
        group.time_limit = input.time_limit;
        group.limit_warned = input.limit_warned;
        group.ended = input.ended;
        group.members = members;
        changes.groups.push(index);
    }

    fn remove_group(&mut self, namespace: &str, name: &str, changes: &mut Changes) {
        let namespace = self.names.intern(namespace);
        let index = self.group_slot(namespace, name);
        let group = &mut self.groups[index];
        let nothing = group.queue_name;
        let (pods, counted) = (std::mem::take(&mut group.pods), group.counted);
        *group = Group { pods, counted, ..absent_group(group.namespace, group.name, nothing) };
        changes.groups.push(index);
    }

    /// The slot of a queue name, created on first use.
    pub(super) fn queue_slot(&mut self, name: &str) -> QueueIdx {
        let sym = self.names.intern(name);
        if let Some(&queue) = self.queue_by_name.get(&sym) {
            return queue;
        }
        let queue = self.queues.push(absent_queue(sym));
        self.queue_by_name.insert(sym, queue);
        queue
    }

    fn set_queue(&mut self, input: &QueueInput, changes: &mut Changes) {
        let index = self.queue_slot(&input.name);
        let parent = input.parent.as_deref().filter(|p| !p.is_empty()).map(|p| self.queue_slot(p));
        let display = self.names.intern(input.display_name.as_deref().unwrap_or(&input.name));
        let queue = &mut self.queues[index];
        let held = &queue.ledger;
        let (allocated, allocated_np, request) = (held.allocated, held.allocated_np, held.request);
        queue.ledger = Ledger { allocated, allocated_np, request, ..Ledger::new(input, queue.ledger.rank) };
        // Bounds, weights and usage are read when shares are divided; nothing is derived from them before.
        changes.queues |= !queue.present
            || queue.declared_parent != parent
            || queue.created != input.created
            || queue.time_limit != input.time_limit;
        queue.present = true;
        queue.declared_parent = parent;
        queue.display = display;
        queue.created = input.created;
        queue.preempt_min_runtime = input.preempt_min_runtime;
        queue.reclaim_min_runtime = input.reclaim_min_runtime;
        queue.time_limit = input.time_limit;
    }

    fn remove_queue(&mut self, name: &str, changes: &mut Changes) {
        let index = self.queue_slot(name);
        self.queues[index] = absent_queue(self.queues[index].name);
        changes.queues = true;
    }
}

fn absent_node(name: Sym) -> Node {
    Node {
        present: false,
        name,
        rank: u32::MAX,
        labels: Box::default(),
        taints: Box::default(),
        unschedulable: false,
        bad_conditions: Box::default(),
        allocatable: Amounts::zero(),
        gpu_memory: GpuMemory::default(),
        gpu_count: None,
        mig_strategy: MigStrategy::None,
        is_mig: false,
        has_dra_gpus: false,
        gpu_worker: false,
        cpu_worker: false,
        attach_limits: Box::default(),
        pods: Vec::new(),
        ledger: NodeLedger::default(),
        version: 0,
        described_version: 0,
        offers: [0; 3],
        described: Amounts::zero(),
        described_numa: None,
    }
}

fn absent_group(namespace: Sym, name: Sym, nothing: Sym) -> Group {
    Group {
        present: false,
        namespace,
        name,
        uid: nothing,
        queue_name: nothing,
        queue: None,
        priority: 0,
        declared_preemptible: false,
        preemptible: false,
        exceeds_time_limit: false,
        created: Timestamp::default(),
        last_start: None,
        last_eviction: None,
        stale_since: None,
        staleness_grace: None,
        preemption_delay: None,
        mark_unschedulable: true,
        invalid_reason: None,
        backoff: None,
        time_limit: None,
        limit_warned: None,
        ended: None,
        members: IndexVec::new(),
        pods: Vec::new(),
        invalid: 0,
        stamp: 0,
        counted: Counted::default(),
    }
}

fn absent_queue(name: Sym) -> Queue {
    Queue {
        present: false,
        name,
        display: name,
        rank: u32::MAX,
        declared_parent: None,
        parent: None,
        children: Vec::new(),
        connected: false,
        created: Timestamp::default(),
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
        time_limit: None,
        ledger: Ledger::default(),
        version: 0,
    }
}
