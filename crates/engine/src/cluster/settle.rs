//! Derives everything that depends on more than one object, for what changed.
//!
//! Cost: in what changed. Nodes coming or going renumbers the nodes; a change of the queue tree, or of the smallest
//! GPU memory, goes over all groups.

use super::group::{Counted, Group, PodSet};
use super::pod::{Place, PodState, Status};
use super::{Cluster, Figures, tree};
use crate::ids::{GroupIdx, NodeIdx, PodIdx, QueueIdx};
use crate::input::{TaintEffect, Utility};
use crate::order;
use crate::plugin::PodOrder;
use crate::policy::Policy;
use crate::resource::{self, WHOLE_GPU};
use crate::share::sum;
use kai_units::{Span, Timestamp};
use std::ops::Bound::{Excluded, Included};

impl Cluster {
    /// Makes the cluster ready for a cycle at a moment.
    pub(crate) fn settle(&mut self, policy: &Policy, now: Timestamp) {
        self.note_stuck(now + Span(-policy.params.stuck_threshold.0));
        self.note_pod_order(policy);
        self.settle_devices();
        self.settle_nodes();
        if self.dirty.queues {
            self.settle_queues();
        }
        if self.dirty.all_groups {
            self.dirty.groups = self.groups.indices().collect();
        }
        let mut groups = std::mem::take(&mut self.dirty.groups);
        groups.sort_unstable();
        groups.dedup();
        for &group in &groups {
            self.settle_group(group, policy);
        }
        self.settle_ledgers(policy);
        for &group in &groups {
            self.count_group(group);
        }
        self.dirty.all_groups = false;
        self.dirty.queues = false;
    }

    /// Pods that became stuck, or are no longer, since the last cycle.
    fn note_stuck(&mut self, stuck_before: Timestamp) {
        let (from, to) = if stuck_before >= self.stuck_before {
            (self.stuck_before, stuck_before)
        } else {
            (stuck_before, self.stuck_before)
        };
        self.stuck_before = stuck_before;
        let first = PodIdx::first();
        let changed = self.leaving.range((Included((from, first)), Excluded((to, first))));
        for &(_, pod) in changed {
            self.dirty.groups.extend(self.pods[pod].group);
            self.dirty.ledgers.extend(self.pods[pod].told_node);
        }
    }

    fn note_pod_order(&mut self, policy: &Policy) {
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
        // A user's order may read anything, so that it is applied afresh each time.
        if order != self.pod_order || order.contains(&"custom") {
            self.dirty.all_groups = true;
            self.pod_order = order;
        }
    }

    fn settle_devices(&mut self) {
        if !self.dirty.devices {
            return;
        }
        self.dirty.devices = false;
        self.devices.settle(&mut self.names);
        for &pod in &self.with_claims {
            let p = &mut self.pods[pod];
            let claims = p.extra.as_ref().map_or(&[][..], |e| &e.claims);
            let gpus = self.devices.demand(p.namespace, p.uid, claims, &self.names) * WHOLE_GPU;
            self.dirty.groups.extend(p.group);
            self.dirty.ledgers.extend(p.told_node);
            p.claim_gpus = gpus;
        }
        for node in self.nodes.indices() {
            let gpus = self.devices.gpus_on(self.nodes[node].name) * WHOLE_GPU;
            let n = &mut self.nodes[node];
            let expected = n.described.get(resource::GPU) + gpus;
            if n.present && n.allocatable.get(resource::GPU) != expected {
                self.dirty.described.push(node);
                self.dirty.ledgers.push(node);
            }
        }
    }

    fn settle_nodes(&mut self) {
        if self.dirty.described.is_empty() {
            return;
        }
        for node in std::mem::take(&mut self.dirty.described) {
            let gpus = self.devices.gpus_on(self.nodes[node].name) * WHOLE_GPU;
            let n = &mut self.nodes[node];
            n.allocatable = n.described.clone();
            n.allocatable.add(resource::GPU, gpus);
            n.has_dra_gpus = gpus > 0;
            self.index.forget_node(node);
        }
        if std::mem::take(&mut self.dirty.node_set) {
            self.nodes_by_rank = self.nodes.enumerated().filter(|(_, n)| n.present).map(|(i, _)| i).collect();
            let mut order = std::mem::take(&mut self.nodes_by_rank);
            order.sort_by(|a, b| self.text(self.nodes[*a].name).cmp(self.text(self.nodes[*b].name)));
            for (rank, &node) in order.iter().enumerate() {
                self.nodes[node].rank = rank as u32;
            }
            self.nodes_by_rank = order;
            // Pods that were told to be on a node that came or went count differently in their groups.
            self.dirty.all_groups = true;
        }
        let figures = self.figure();
        self.dirty.all_groups |= figures.gpu_memory_min != self.figures.gpu_memory_min;
        self.figures = figures;
        if std::mem::take(&mut self.dirty.topologies) {
            self.topologies.rebuild(&self.nodes, &self.nodes_by_rank, &self.names);
        }
    }

    fn figure(&self) -> Figures {
        let mut figures = Figures::default();
        for &node in &self.nodes_by_rank {
            let n = &self.nodes[node];
            figures.largest.max_with(&n.allocatable);
            figures.soft_taints |= n.taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule);
            figures.numa_zones = figures.numa_zones.max(n.described_numa.as_ref().map_or(0, |z| z.zones.len()));
            let mib = n.gpu_memory.mib;
            if mib > 100 {
                figures.gpu_memory_min = Some(figures.gpu_memory_min.map_or(mib, |m| m.min(mib)));
                figures.gpu_memory_max = Some(figures.gpu_memory_max.map_or(mib, |m| m.max(mib)));
            }
        }
        figures
    }

    /// Parents, children, completeness and ranks of queues.
    fn settle_queues(&mut self) {
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
            // A chain that does not end within as many steps as there are queues is a circle.
            while let Some(q) = at.filter(|q| self.queues[*q].present && steps <= all.len()) {
                at = self.queues[q].told_parent;
                steps += 1;
            }
            self.queues[queue].connected = at.is_none();
        }
        let mut by_name: Vec<QueueIdx> =
            all.iter().copied().filter(|q| self.queues[*q].present && self.queues[*q].connected).collect();
        by_name.sort_by(|a, b| self.text(self.queues[*a].name).cmp(self.text(self.queues[*b].name)));
        for (rank, &queue) in by_name.iter().enumerate() {
            let parent = self.queues[queue].told_parent;
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
        for group in self.groups.iter_mut() {
            group.counted = Counted::default();
        }
        self.dirty.all_groups = true;
    }

    /// The state that a pod's object gives it.
    fn told_state(&self, pod: PodIdx) -> PodState {
        let p = &self.pods[pod];
        let status = Status::of_phase(p.phase, self.stuck_before);
        let node = p.told_node.filter(|n| self.nodes[*n].present && status.holds_node());
        let numa = node.and_then(|n| {
            let records = &p.extra.as_ref()?.numa;
            self.nodes[n].described_numa.as_ref()?.placement(records, &self.dims, &self.names).map(Box::new)
        });
        let place = node.map(|node| Place { node, gpu_groups: p.told_groups.clone(), numa });
        PodState { status, place, leaving: None, is_virtual: false }
    }

    /// Membership, order and counts of a group's pods.
    fn settle_group(&mut self, index: GroupIdx, policy: &Policy) {
        let default = self.names.intern(tree::DEFAULT_POD_SET);
        let queue = self.queue_by_name.get(&self.groups[index].queue_name).copied();
        let queue = queue.filter(|q| self.queues[*q].present && self.queues[*q].connected);
        let mut group = std::mem::replace(&mut self.groups[index], hollow(&self.groups[index]));
        group.queue = queue.filter(|_| group.present);
        group.invalid = 0;
        for member in group.members.iter_mut() {
            if let Some(set) = member.pod_set_mut() {
                *set = PodSet::new(set.min);
            }
        }
        for &pod in &group.pods {
            let state = self.told_state(pod);
            let label = self.pods[pod].sub_group;
            let member = tree::pod_set_of(&group, label, default);
            let set = member.and_then(|m| group.members[m].pod_set_mut());
            match set {
                Some(set) => {
                    set.pods.push(pod);
                    set.counts[state.status as usize] += 1;
                }
                None => group.invalid += 1,
            }
            self.pods[pod].member = member;
            self.pods[pod].state = state;
        }
        for member in group.members.iter_mut() {
            if let Some(set) = member.pod_set_mut() {
                set.pods.sort_by(|a, b| order::pods::compare(self, &policy.registry, *a, *b));
                for (position, &pod) in set.pods.iter().enumerate() {
                    self.pods[pod].position = position as u32;
                }
            }
        }
        group.stamp += 1;
        self.groups[index] = group;
    }

    /// Puts the group's pods into the ledgers of its queue and that queue's ancestors.
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
                into.request = sum(&into.request, &self.asked(pod, self.figures.gpu_memory_min));
            }
            _ => {}
        }
    }

    fn add_counted(&mut self, counted: &Counted, sign: i64) {
        let mut at = counted.queue;
        while let Some(queue) = at {
            let q = &mut self.queues[queue];
            for r in 0..3 {
                q.ledger.allocated[r] += sign * counted.allocated[r];
                q.ledger.allocated_np[r] += sign * counted.allocated_np[r];
                q.ledger.request[r] += sign * counted.request[r];
            }
            at = q.parent;
        }
    }

    /// Ledgers of nodes whose pods or description changed.
    fn settle_ledgers(&mut self, policy: &Policy) {
        if std::mem::take(&mut self.dirty.terms) {
            self.terms.clear_counts();
            self.dirty.ledgers = self.nodes.indices().collect();
            for pod in self.pods.iter_mut() {
                pod.in_terms = false;
            }
        }
        let mut nodes = std::mem::take(&mut self.dirty.ledgers);
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            self.rebuild_ledger(node, policy);
        }
    }

    fn rebuild_ledger(&mut self, index: NodeIdx, policy: &Policy) {
        let mut pods = self.nodes[index].pods.clone();
        // Reservation pods first, then by name: the outcome must not depend on the order of arrival.
        pods.sort_by(|a, b| {
            let key = |p: &PodIdx| {
                let pod = &self.pods[*p];
                (pod.utility != Some(Utility::Reservation), self.text(pod.namespace), self.text(pod.name))
            };
            key(a).cmp(&key(b))
        });
        let mut node = std::mem::replace(&mut self.nodes[index], hollow_node(&self.nodes[index]));
        node.reset_ledger();
        let mut foreign = [0; 3];
        let books = policy.registry.builtin.numa.as_ref().is_none_or(|n| n.reconstruct);
        if let (false, Some(numa)) = (books, node.ledger.numa.as_mut()) {
            numa.open(crate::numa::ZoneBooks::FromReport);
        }
        self.nodes[index].present = node.present;
        for &pod in &pods {
            self.unplace_terms(pod);
            let state = self.told_state(pod);
            self.pods[pod].state = state;
            let p = &self.pods[pod];
            let Some(place) = p.state.place.as_ref().filter(|_| node.present) else { continue };
            node.add(&self.load(pod, &place.gpu_groups), p.state.status);
            if let (true, Some(numa), Some(held)) = (books, node.ledger.numa.as_mut(), &place.numa) {
                if p.state.status.is_active_allocated() {
                    numa.charge(held);
                }
            }
            if !p.ours && p.utility.is_none() && p.state.status.is_active_used() {
                let request = &self.shapes[p.shape].request;
                let gpus = request.get(resource::GPU) + p.claim_gpus;
                foreign = sum(&foreign, &[request.get(resource::CPU), request.get(resource::MEMORY), gpus]);
            }
        }
        let offers = [
            node.allocatable.get(resource::CPU),
            node.allocatable.get(resource::MEMORY),
            node.allocatable.get(resource::GPU) + self.dims.mig_quota(&node.allocatable),
        ];
        node.offers = crate::share::difference(&offers, &foreign);
        node.version = self.fresh_version();
        self.nodes[index] = node;
        self.touched.push(index);
        for pod in pods {
            self.place_terms(pod);
        }
    }

    /// Counts a pod in the affinity terms at its node.
    fn place_terms(&mut self, pod: PodIdx) {
        let p = &mut self.pods[pod];
        if let Some(place) = &p.state.place {
            p.in_terms = true;
            let labels = &self.nodes[place.node].labels;
            self.terms.place(p.label_set, &self.shapes[p.shape].terms, labels);
        }
    }

    /// Takes a pod out of the affinity terms.
    pub(super) fn unplace_terms(&mut self, pod: PodIdx) {
        let p = &mut self.pods[pod];
        if !std::mem::take(&mut p.in_terms) {
            return;
        }
        if let Some(node) = p.told_node {
            let labels = &self.nodes[node].labels;
            self.terms.unplace(p.label_set, &self.shapes[p.shape].terms, labels);
        }
    }

    /// What the cluster has to share: ready nodes, less other schedulers' pods.
    pub fn total(&self, restrict_nodes: bool) -> [i64; 3] {
        let mut total = [0; 3];
        for &node in &self.nodes_by_rank {
            let n = &self.nodes[node];
            if n.is_ready() {
                let mut offers = n.offers;
                if restrict_nodes && !n.gpu_worker {
                    offers[2] = 0;
                }
                total = sum(&total, &offers);
            }
        }
        total
    }
}
