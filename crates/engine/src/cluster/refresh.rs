//! Recomputes values that depend on more than one object, for what changed.
//!
//! Cost: proportional to the changes. Added or removed nodes renumber all nodes; a change of the shape of the queue tree, or
//! of the smallest GPU memory, recomputes all groups.

use super::group::{Counted, PodSet};
use super::pod::{Place, PodState, Status};
use super::{Changes, Cluster, Figures, LedgerLog, load_of, tree};
use crate::ids::{GroupIdx, Idx, NodeIdx, PodIdx, QueueIdx};
use crate::input::{TaintEffect, Utility};
use crate::numa::ZoneAccounting;
use crate::order;
use crate::plugin::PodOrder;
use crate::policy::Policy;
use crate::resource::{self, QueueResource};
use crate::share::{QueueAmounts, RESOURCES, difference, sum};
use crate::terms::{Placed, Presence};
use kai_units::{Span, Timestamp};
use std::ops::Bound::{Excluded, Included};

/// Larger than the memory of any GPU, in MiB.
const GPU_MEMORY_MOST: i64 = 1 << 30;

impl Cluster {
    /// Brings derived values up to date for a cycle. Returns the groups that were derived again.
    pub(crate) fn refresh(
        &mut self,
        changes: &mut Changes,
        policy: &Policy,
        now: Timestamp,
    ) -> Vec<GroupIdx> {
        changes.ledger_log.trim(4 * self.nodes.len() + 1024);
        self.epoch = self.fresh_version();
        self.refreshed_at = now;
        self.note_stuck(now + Span(-policy.params.stuck_threshold.0), changes);
        self.note_pod_order(policy, changes);
        self.refresh_devices(changes);
        self.refresh_nodes(changes);
        // After the nodes: domains depend on node ranks and labels. A topology can change while no node does.
        if std::mem::take(&mut changes.topologies) {
            self.topologies.rebuild(&self.nodes, &self.nodes_by_rank, &self.names);
        }
        if changes.queues {
            self.refresh_queues(changes);
        }
        self.note_time_limits(now, changes);
        if changes.all_groups {
            changes.groups = self.groups.indices().collect();
        }
        let mut groups = std::mem::take(&mut changes.groups);
        groups.sort_unstable();
        groups.dedup();
        for &group in &groups {
            self.refresh_group(group, policy);
            self.count_group(group);
        }
        self.refresh_ledgers(policy, changes);
        self.refresh_storage(policy.params.csi_storage);
        changes.all_groups = false;
        changes.queues = false;
        groups
    }

    /// Marks pods that became stuck, or are no longer stuck, since the last cycle.
    fn note_stuck(&mut self, stuck_before: Timestamp, changes: &mut Changes) {
        let (from, to) = if stuck_before >= self.stuck_before {
            (self.stuck_before, stuck_before)
        } else {
            (stuck_before, self.stuck_before)
        };
        self.stuck_before = stuck_before;
        let first = PodIdx::new(0);
        let changed = self.terminating.range((Included((from, first)), Excluded((to, first))));
        for &(_, pod) in changed {
            changes.groups.extend(self.pods[pod].group);
            changes.ledgers.extend(self.pods[pod].observed_node);
        }
    }

    fn note_pod_order(&mut self, policy: &Policy, changes: &mut Changes) {
        let order: Vec<&'static str> = policy
            .registry
            .pod_order
            .iter()
            .map(|o| match o {
                PodOrder::Kubeflow => "kubeflow",
                PodOrder::Ray => "ray",
                PodOrder::TaskPriority => "taskorder",
                PodOrder::Custom(_) => "custom",
            })
            .collect();
        // A custom order may read anything: it is applied anew in every cycle.
        if order != self.pod_order || order.contains(&"custom") {
            changes.all_groups = true;
            self.pod_order = order;
        }
    }

    fn refresh_nodes(&mut self, changes: &mut Changes) {
        if changes.described.is_empty() {
            return;
        }
        let described = std::mem::take(&mut changes.described);
        for &node in &described {
            self.attach_devices(node);
            self.nodes[node].described_version = self.fresh_version();
        }
        if std::mem::take(&mut changes.node_set) {
            self.nodes_by_rank = self.nodes.enumerated().filter(|(_, n)| n.present).map(|(i, _)| i).collect();
            let mut order = std::mem::take(&mut self.nodes_by_rank);
            order.sort_by(|a, b| self.text(self.nodes[*a].name).cmp(self.text(self.nodes[*b].name)));
            for (rank, &node) in order.iter().enumerate() {
                self.nodes[node].rank = rank as u32;
            }
            self.nodes_by_rank = order;
            // The status of pods on added or removed nodes changes, and with it their groups' counts.
            let pods = described.iter().flat_map(|node| &self.nodes[*node].pods);
            changes.groups.extend(pods.filter_map(|pod| self.pods[*pod].group));
        }
        let figures = self.figure();
        changes.all_groups |= figures.gpu_memory_min != self.figures.gpu_memory_min;
        self.figures = figures;
    }

    fn figure(&self) -> Figures {
        let mut figures = Figures { gpu_memory_least: GPU_MEMORY_MOST, ..Figures::default() };
        for &node in &self.nodes_by_rank {
            let n = &self.nodes[node];
            figures.largest.max_with(&n.allocatable);
            figures.soft_taints |= n.taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule);
            figures.numa_zones =
                figures.numa_zones.max(n.described_numa.as_ref().map_or(0, |z| z.zones.len()));
            let mib = n.gpu_memory.mib;
            figures.gpu_memory_least = figures.gpu_memory_least.min(mib);
            if mib > 100 {
                figures.gpu_memory_min = Some(figures.gpu_memory_min.map_or(mib, |m| m.min(mib)));
                figures.gpu_memory_max = Some(figures.gpu_memory_max.map_or(mib, |m| m.max(mib)));
            }
        }
        figures
    }

    /// Parents, children, connectivity and ranks of queues.
    fn refresh_queues(&mut self, changes: &mut Changes) {
        let all: Vec<QueueIdx> = self.queues.indices().collect();
        for &queue in &all {
            let q = &mut self.queues[queue];
            q.children.clear();
            q.parent = None;
            q.connected = false;
            (q.ledger.allocated, q.ledger.allocated_np, q.ledger.request) = ([0; 3], [0; 3], [0; 3]);
        }
        for &queue in &all {
            let mut at = Some(queue);
            let mut steps = 0;
            // A chain longer than the number of queues is a cycle.
            while let Some(q) = at.filter(|q| self.queues[*q].present && steps <= all.len()) {
                at = self.queues[q].declared_parent;
                steps += 1;
            }
            self.queues[queue].connected = at.is_none();
        }
        let mut by_name: Vec<QueueIdx> =
            all.iter().copied().filter(|q| self.queues[*q].present && self.queues[*q].connected).collect();
        by_name.sort_by(|a, b| self.text(self.queues[*a].name).cmp(self.text(self.queues[*b].name)));
        for (rank, &queue) in by_name.iter().enumerate() {
            let parent = self.queues[queue].declared_parent;
            self.queues[queue].rank = rank as u32;
            self.queues[queue].parent = parent;
            if let Some(parent) = parent {
                self.queues[parent].children.push(queue);
            }
        }
        let mut by_age = by_name.clone();
        by_age.sort_by_key(|q| (self.queues[*q].created, self.queues[*q].rank));
        for (rank, &queue) in by_age.iter().enumerate() {
            self.queues[queue].ledger.rank = rank as u32;
        }
        self.queues_by_rank = by_name;
        for group in &mut self.groups {
            group.counted = Counted::default();
        }
        changes.all_groups = true;
    }

    /// The state that follows from a pod's object.
    fn observed_state(&self, pod: PodIdx) -> PodState {
        let p = &self.pods[pod];
        let status = Status::of_phase(p.phase, self.stuck_before);
        let status = if p.orphaned && status.holds_node() { Status::Releasing } else { status };
        let in_backoff = || p.group.is_some_and(|group| self.groups[group].is_excluded_from_placement());
        let status = if status == Status::Pending && in_backoff() { Status::InBackoff } else { status };
        let node = p.observed_node.filter(|n| self.nodes[*n].present && status.holds_node());
        let numa = node.and_then(|n| {
            let records = &p.extra.as_ref()?.numa;
            self.nodes[n].described_numa.as_ref()?.placement(records, &self.dims, &self.names).map(Box::new)
        });
        let place =
            node.map(|node| Place { node, gpu_groups: p.observed_gpu_groups.clone(), numa, devices: None });
        PodState { status, place, releasing: None, is_virtual: false }
    }

    /// Assigns a group's pods to pod sets, sorts and counts them.
    fn refresh_group(&mut self, index: GroupIdx, policy: &Policy) {
        let default = self.fixed.default_set;
        let group = &mut self.groups[index];
        let queue = self.queue_by_name.get(&group.queue_name).copied();
        group.queue = queue.filter(|q| group.present && self.queues[*q].present && self.queues[*q].connected);
        let mut members = std::mem::take(&mut group.members);
        let pods = std::mem::take(&mut group.pods);
        let mut invalid = 0;
        for member in &mut members {
            if let Some(set) = member.pod_set_mut() {
                // Keeps the allocation of the list.
                set.pods.clear();
                *set = PodSet { pods: std::mem::take(&mut set.pods), ..PodSet::new(set.min) };
            }
        }
        for &pod in &pods {
            let state = self.observed_state(pod);
            let member = tree::pod_set_of(&members, self.pods[pod].sub_group, default);
            match member.and_then(|m| members[m].pod_set_mut()) {
                Some(set) => {
                    set.pods.push(pod);
                    set.counts[state.status as usize] += 1;
                }
                None => invalid += 1,
            }
            self.pods[pod].member = member;
            self.pods[pod].state = state;
        }
        for member in &mut members {
            let Some(set) = member.pod_set_mut() else { continue };
            set.pods.sort_by(|a, b| order::pods::compare(self, &policy.registry, *a, *b));
            for (position, &pod) in set.pods.iter().enumerate() {
                self.pods[pod].position = position as u32;
            }
        }
        let stamp = self.fresh_version();
        let group = &mut self.groups[index];
        (group.members, group.pods, group.invalid, group.stamp) = (members, pods, invalid, stamp);
        self.refresh_time_limit(index);
        let group = &self.groups[index];
        let unplaced = [Status::Pending, Status::Gated, Status::InBackoff, Status::Pipelined];
        if group.present && (invalid > 0 || unplaced.iter().any(|status| group.count(*status) > 0)) {
            self.pending.insert(index);
        } else {
            self.pending.remove(&index);
        }
        if group.present && (group.stale_since.is_some() || group.is_stale()) {
            self.stale.insert(index);
        } else {
            self.stale.remove(&index);
        }
    }

    /// Charges the group's pods to its queue and that queue's ancestors.
    fn count_group(&mut self, index: GroupIdx) {
        let old = self.groups[index].counted;
        let group = &self.groups[index];
        let mut new = Counted { queue: group.queue, ..Counted::default() };
        if group.present && group.queue.is_some() {
            for (_, set) in group.pod_sets() {
                for &pod in &set.pods {
                    self.count_pod(pod, group.preemptible, &mut new);
                }
            }
        }
        self.add_counted(&old, -1);
        self.add_counted(&new, 1);
        self.groups[index].counted = new;
    }

    fn count_pod(&self, pod: PodIdx, preemptible: bool, into: &mut Counted) {
        let state = &self.pods[pod].state;
        match (&state.place, state.status) {
            (Some(place), status) if status.is_allocated() => {
                let held = self.accepted(pod, place);
                into.allocated = sum(&into.allocated, &held);
                into.request = sum(&into.request, &held);
                if !preemptible {
                    into.allocated_np = sum(&into.allocated_np, &held);
                }
            }
            (_, Status::Pending) => {
                into.request = sum(&into.request, &self.queue_request(pod, self.figures.gpu_memory_min));
            }
            _ => {}
        }
    }

    fn add_counted(&mut self, counted: &Counted, sign: i64) {
        let mut at = counted.queue;
        while let Some(queue) = at {
            let q = &mut self.queues[queue];
            for r in RESOURCES {
                q.ledger.allocated[r] += sign * counted.allocated[r];
                q.ledger.allocated_np[r] += sign * counted.allocated_np[r];
                q.ledger.request[r] += sign * counted.request[r];
            }
            at = q.parent;
        }
    }

    /// Rebuilds the ledgers of nodes whose pods or description changed.
    fn refresh_ledgers(&mut self, policy: &Policy, changes: &mut Changes) {
        if std::mem::take(&mut changes.terms) {
            // Labels of a node with pods changed: its pods can no longer be subtracted from the counters one by one.
            self.terms.recount(std::iter::empty());
            changes.ledgers = self.nodes.indices().collect();
            for pod in &mut self.pods {
                pod.in_terms = None;
            }
        }
        let mut nodes = std::mem::take(&mut changes.ledgers);
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            self.rebuild_ledger(node, policy, &mut changes.ledger_log);
        }
        if self.terms.has_uncounted() {
            let (pods, shapes, nodes) = (&self.pods, &self.shapes, &self.nodes);
            let placed = pods.iter().filter(|p| p.present).filter_map(|p| {
                let (node, presence) = p.in_terms?;
                let (terms, node_labels) = (&shapes[p.shape].terms, &*nodes[node].labels);
                Some(Placed { label_set: p.label_set, terms, node, node_labels, presence })
            });
            self.terms.count_new(placed);
        }
    }

    fn rebuild_ledger(&mut self, index: NodeIdx, policy: &Policy, log: &mut LedgerLog) {
        let mut pods = self.nodes[index].pods.clone();
        // Reservation pods first, then by name: the outcome must not depend on arrival order.
        pods.sort_by(|a, b| {
            let key = |p: &PodIdx| {
                let pod = &self.pods[*p];
                (pod.utility != Some(Utility::Reservation), self.text(pod.namespace), self.text(pod.name))
            };
            key(a).cmp(&key(b))
        });
        for &pod in &pods {
            self.unplace_terms(pod);
            self.pods[pod].orphaned = self.is_orphaned(pod, &pods);
            self.pods[pod].state = self.observed_state(pod);
        }
        let reconstruct = policy.registry.builtin.numa.as_ref().is_none_or(|n| n.reconstruct);
        let version = self.fresh_version();
        let (node, all, shapes, devices) = (&mut self.nodes[index], &self.pods, &self.shapes, &self.devices);
        node.reset_ledger();
        let mut foreign = [0; 3];
        let mut zones = Vec::new();
        for &pod in &pods {
            let p = &all[pod];
            let Some(place) = &p.state.place else { continue };
            node.add(&load_of(p, shapes, devices, &place.gpu_groups), p.state.status);
            for &group in p.extra.iter().flat_map(|extra| &extra.drained_gpus) {
                if place.gpu_groups.contains(&group) {
                    node.ledger.gpus.entry(group).drained = true;
                }
            }
            if p.state.status.is_active_allocated() {
                zones.extend(place.numa.as_deref());
            }
            if !p.ours && p.utility.is_none() && p.state.status.is_active_used() {
                let shape = &shapes[p.shape];
                let gpus = shape.quota_on(node.gpu_memory.mib) + p.claim_gpus;
                let request = [shape.request.get(resource::CPU), shape.request.get(resource::MEMORY), gpus];
                foreign = sum(&foreign, &request);
            }
        }
        if let Some(numa) = &mut node.ledger.numa {
            let books = if reconstruct { ZoneAccounting::FromPods } else { ZoneAccounting::FromReport };
            numa.open_accounting(books, zones);
        }
        let offers = [
            node.allocatable.get(resource::CPU),
            node.allocatable.get(resource::MEMORY),
            node.allocatable.get(resource::GPU) + self.dims.mig_quota(&node.allocatable),
        ];
        node.offers = difference(&offers, &foreign);
        node.version = version;
        log.push(index);
        for pod in pods {
            self.place_terms(pod);
        }
    }

    /// Whether a reservation pod is orphaned: it names its GPU group, and no pod on its node shares that GPU. The label of the
    /// group alone does not count, as any pod may have it.
    fn is_orphaned(&self, pod: PodIdx, on_node: &[PodIdx]) -> bool {
        let p = &self.pods[pod];
        let shares = |other: &PodIdx| {
            let other = &self.pods[*other];
            other.utility != Some(Utility::Reservation)
                && self.shapes[other.shape].is_shared()
                && other.observed_gpu_groups.iter().any(|group| p.observed_gpu_groups.contains(group))
        };
        p.utility == Some(Utility::Reservation)
            && !p.observed_gpu_groups.is_empty()
            && !on_node.iter().any(shares)
    }

    /// Counts a pod in the affinity terms at its node.
    fn place_terms(&mut self, pod: PodIdx) {
        let p = &mut self.pods[pod];
        if let Some(place) = &p.state.place {
            let presence = presence_of(p.state.status);
            p.in_terms = Some((place.node, presence));
            let (terms, node_labels) = (&self.shapes[p.shape].terms, &*self.nodes[place.node].labels);
            self.terms.place(&Placed {
                label_set: p.label_set,
                terms,
                node: place.node,
                node_labels,
                presence,
            });
        }
    }

    /// Takes a pod out of the affinity terms.
    pub(super) fn unplace_terms(&mut self, pod: PodIdx) {
        let p = &mut self.pods[pod];
        if let Some((node, presence)) = p.in_terms.take() {
            let (terms, node_labels) = (&self.shapes[p.shape].terms, &*self.nodes[node].labels);
            self.terms.unplace(&Placed { label_set: p.label_set, terms, node, node_labels, presence });
        }
    }

    /// The resources to divide among queues: ready nodes, less pods of other schedulers.
    pub fn total(&self, restrict_nodes: bool) -> QueueAmounts {
        let mut total = [0; 3];
        for &node in &self.nodes_by_rank {
            let n = &self.nodes[node];
            if n.is_ready() {
                let mut offers = n.offers;
                if restrict_nodes && !n.gpu_worker {
                    offers[QueueResource::Gpu] = 0;
                }
                total = sum(&total, &offers);
            }
        }
        total
    }
}

/// Presence of a pod for affinity, spread and storage.
pub(crate) fn presence_of(status: Status) -> Presence {
    match status {
        Status::Releasing | Status::Stuck => Presence::Releasing,
        Status::Pending
        | Status::Gated
        | Status::Allocated
        | Status::Pipelined
        | Status::Binding
        | Status::Bound
        | Status::Running
        | Status::Succeeded
        | Status::Failed
        | Status::Unknown
        | Status::InBackoff => Presence::Active,
    }
}
