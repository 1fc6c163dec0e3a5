//! Applies deltas of pods: assigns slots and shapes, links pods to groups, nodes, volumes and claims.

use super::changes::LastLabels;
use super::pod::{GpuGroups, Pod, PodExtra, PodState, Status};
use super::shape;
use super::{Changes, Cluster};
use crate::dra::ExtendedRequest;
use crate::ids::{Idx, LabelSetIdx, PodIdx, ShapeIdx, Sym};
use crate::input::{Key, Labels, PodInput, PodPhase, SharedSpec};
use crate::terms::selector::Query;
use smallvec::SmallVec;

impl Cluster {
    pub(super) fn set_pod(&mut self, input: PodInput, changes: &mut Changes) {
        let (namespace, name) = (self.names.intern(&input.key.namespace), self.names.intern(&input.key.name));
        let group = input.group.as_deref().map(|g| self.group_slot(namespace, g));
        let node = input.node.as_deref().filter(|n| !n.is_empty()).map(|n| self.node_slot(n));
        let label_set = self.label_set_slot(namespace, input.labels, changes);
        let shape = self.shape_slot(input.spec, changes);
        let observed_gpu_groups: GpuGroups = {
            let mut groups: SmallVec<[&String; 1]> = input.gpu_groups.iter().collect();
            groups.sort();
            groups.dedup();
            groups.into_iter().map(|g| self.names.intern(g)).collect()
        };
        let is_plain = input.volumes.is_empty()
            && input.config_maps.is_empty()
            && input.numa_placement.is_empty()
            && input.claims.is_empty()
            && input.extended_devices.is_empty()
            && input.drained_gpus.is_empty();
        let extra = (!is_plain).then(|| {
            Box::new(PodExtra {
                volumes: input.volumes.iter().map(|v| self.names.intern(&v.claim)).collect(),
                config_maps: input.config_maps.iter().map(|c| self.names.intern(c)).collect(),
                drained_gpus: input.drained_gpus.iter().map(|g| self.names.intern(g)).collect(),
                numa: input.numa_placement,
                claims: input.claims,
                extended_devices: input.extended_devices,
            })
        });
        let pod = Pod {
            present: true,
            namespace,
            name,
            uid: self.names.intern(&input.uid),
            group,
            group_slot: 0,
            in_terms: None,
            sub_group: input.sub_group.as_deref().filter(|s| !s.is_empty()).map(|s| self.names.intern(s)),
            member: None,
            position: 0,
            shape,
            label_set,
            phase: input.phase,
            created: input.created,
            ours: input.ours,
            utility: input.utility,
            orphaned: false,
            task_priority: input.task_priority,
            kubeflow_leader: input.kubeflow_leader,
            ray_head: input.ray_head,
            nominated: input.nominated_node.as_deref().map(|n| self.names.intern(n)),
            received: input.received,
            observed_node: node,
            observed_gpu_groups,
            extra,
            claim_gpus: 0,
            state: PodState::unplaced(Status::Pending),
        };
        let known = self.pod_by_key.get(&(namespace, name)).copied();
        if let Some(index) = known {
            self.detach_pod(index, changes);
        }
        let index = match known.or_else(|| self.free_pods.pop()) {
            Some(index) => {
                self.pods[index] = pod;
                index
            }
            None => self.pods.push(pod),
        };
        self.pod_by_key.insert((namespace, name), index);
        self.attach_pod(index, changes);
    }

    pub(super) fn remove_pod(&mut self, key: &Key, changes: &mut Changes) {
        let (Some(namespace), Some(name)) = (self.names.find(&key.namespace), self.names.find(&key.name))
        else {
            return;
        };
        if let Some(index) = self.pod_by_key.remove(&(namespace, name)) {
            self.detach_pod(index, changes);
            self.pods[index].present = false;
            self.pods[index].extra = None;
            self.free_pods.push(index);
        }
    }

    fn attach_pod(&mut self, index: PodIdx, changes: &mut Changes) {
        let pod = &mut self.pods[index];
        if let Some(group) = pod.group {
            pod.group_slot = self.groups[group].pods.len() as u32;
            self.groups[group].pods.push(index);
            changes.groups.push(group);
        }
        if let Some(node) = pod.observed_node {
            self.nodes[node].pods.push(index);
            changes.ledgers.push(node);
        }
        if let PodPhase::Releasing(since) = pod.phase {
            self.terminating.insert((since, index));
        }
        if pod.extra.as_ref().is_some_and(|e| !e.volumes.is_empty()) {
            self.with_volumes.insert(index);
        }
        if pod.extra.as_ref().is_some_and(|e| !e.claims.is_empty() || !e.extended_devices.is_empty()) {
            let claims = pod.extra.as_ref().map_or(&[][..], |e| &e.claims);
            let extended = pod.extra.as_ref().map_or(&[][..], |e| &e.extended_devices);
            self.devices.set_pod((pod.uid, pod.namespace), claims, extended, &mut self.names);
            self.with_claims.insert(index);
            changes.devices = true;
        }
    }

    fn detach_pod(&mut self, index: PodIdx, changes: &mut Changes) {
        self.unplace_terms(index);
        let (group, slot) = (self.pods[index].group, self.pods[index].group_slot as usize);
        if let Some(group) = group {
            let pods = &mut self.groups[group].pods;
            pods.swap_remove(slot);
            if let Some(&moved) = pods.get(slot) {
                self.pods[moved].group_slot = slot as u32;
            }
            changes.groups.push(group);
        }
        let pod = &self.pods[index];
        if let Some(node) = pod.observed_node {
            self.nodes[node].pods.retain(|p| *p != index);
            changes.ledgers.push(node);
        }
        if let PodPhase::Releasing(since) = pod.phase {
            self.terminating.remove(&(since, index));
        }
        self.with_volumes.remove(&index);
        if self.with_claims.remove(&index) {
            self.devices.remove_pod(pod.uid, &self.names);
            changes.devices = true;
        }
    }

    /// Whether every term and every disruption budget selects both label sets of a pod or neither.
    pub(crate) fn selects_alike(&mut self, pod: &Key, before: &Labels, after: &Labels) -> bool {
        if before == after {
            return true;
        }
        let namespace = self.names.intern(&pod.namespace);
        let [before, after] = [before, after].map(|labels| {
            let symbols = self.labels(labels);
            self.terms.label_set(namespace, &symbols)
        });
        let first = Key::new(pod.namespace.as_str(), "");
        let budgets = self.budgets.range(first..).take_while(|(key, _)| key.namespace == pod.namespace);
        let names = &mut self.names;
        let queries: Vec<Query> = budgets.map(|(_, b)| Query::of_labels(&b.selector, names)).collect();
        let selects = |query: &Query, set| query.matches_labels(self.terms.labels(set));
        self.terms.matches_alike(before, after)
            && queries.iter().all(|query| selects(query, before) == selects(query, after))
    }

    fn label_set_slot(&mut self, namespace: Sym, labels: Labels, changes: &mut Changes) -> LabelSetIdx {
        if let Some(last) = &changes.last_labels
            && last.namespace == namespace
            && last.labels == labels
        {
            return last.set;
        }
        let symbols = self.labels(&labels);
        let set = self.terms.label_set(namespace, &symbols);
        changes.last_labels = Some(LastLabels { namespace, labels, set });
        set
    }

    fn shape_slot(&mut self, spec: SharedSpec, changes: &mut Changes) -> ShapeIdx {
        if let Some(last) = changes.last_shape
            && self.shapes[last].spec.is_same(&spec)
        {
            return last;
        }
        let shape = match self.shape_by_spec.get(&spec) {
            Some(&shape) => shape,
            None => self.add_shape(spec),
        };
        changes.last_shape = Some(shape);
        shape
    }

    fn add_shape(&mut self, spec: SharedSpec) -> ShapeIdx {
        let class = self.classes.resolve(&spec, &mut self.names);
        let terms = self.terms.resolve(&spec, &mut self.names);
        let index = ShapeIdx::new(self.shapes.len());
        self.shape_by_spec.insert(spec.clone(), index);
        let mut shape = shape::resolve(spec, class, terms, &mut self.dims, &mut self.names);
        let (containers, inventory) = (&shape.spec.containers, &self.devices.inventory);
        shape.extended = ExtendedRequest::build(containers, inventory, &mut self.dims, &mut self.names);
        self.shapes.push(shape)
    }
}
