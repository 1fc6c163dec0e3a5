//! Translates stored objects to deltas.

use super::Store;
use crate::finding::{Finding, Report};
use crate::object::{BindRequest, Kind, Pod, PodGroup, ResourceClaim};
use crate::thread::start_with;
use crate::translate::spec::Recent;
use crate::translate::{affinity, device, group, node, pod, queue, storage};
use kai_engine::Delta;
use kai_engine::input::{ClaimInput, GroupInput, Key, PodInput};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// So many objects of a kind are translated on a thread of their own.
const MANY_OBJECTS: usize = 2_000;
/// Inputs that are handed over at once, and batches that wait.
const BATCH: usize = 256;
const BATCHES: usize = 8;

impl Store {
    /// Emits the inputs of all objects.
    pub(super) fn derive_everything(&mut self, sink: &mut impl FnMut(Delta)) {
        self.findings.clear();
        self.hidden.clear();
        if !self.settings.full_hierarchy_fairness {
            sink(Delta::Queue(Box::new(queue::flat_parent())));
        }
        for kind in super::DERIVED {
            // Pods and groups are many: they are iterated instead of looked up by key.
            let derived = if kind == Kind::Pod {
                let mut recent = Recent::default();
                let input = |key, pod, report: &mut Report<'_>| self.pod_input(key, pod, &mut recent, report);
                derive_each(kind, &self.objects.pods, input, sink)
            } else if kind == Kind::PodGroup {
                let input = |key, group, report: &mut Report<'_>| self.group_input(key, group, report);
                derive_each(kind, &self.objects.pod_groups, input, sink)
            } else {
                self.derive_by_key(kind, sink);
                continue;
            };
            self.new_findings.extend(derived.findings.iter().map(|(id, _)| id.clone()));
            self.findings.extend(derived.findings);
            self.hidden.extend(derived.hidden);
        }
    }

    fn derive_by_key(&mut self, kind: Kind, sink: &mut impl FnMut(Delta)) {
        for key in self.objects.keys(kind) {
            match self.derive(kind, &key) {
                Some(delta) => sink(delta),
                None => {
                    self.hidden.insert((kind, key));
                }
            }
        }
    }

    /// Emits the delta of one object: an input or a deletion.
    pub(super) fn derive_one(&mut self, kind: Kind, key: &Key, sink: &mut impl FnMut(Delta)) {
        let item = (kind, key.clone());
        self.findings.remove(&item);
        if let Some(delta) = self.derive(kind, key) {
            self.hidden.remove(&item);
            sink(delta);
            return;
        }
        let was_hidden = self.hidden.remove(&item);
        if self.is_stored(kind, key) {
            self.hidden.insert(item);
        }
        let is_flat_parent = kind == Kind::Queue && key.name == queue::FLAT_PARENT;
        let was_seen = !was_hidden && (self.settings.full_hierarchy_fairness || !is_flat_parent);
        if let Some(delta) = deletion(kind, key).filter(|_| was_seen) {
            sink(delta);
        }
    }

    /// The input of one object; `None` when it is not stored or not selected by the settings.
    fn derive(&mut self, kind: Kind, key: &Key) -> Option<Delta> {
        let mut report = Report::on(kind, key);
        let delta = match kind {
            Kind::Pod => self.derive_pod(key, &mut report),
            Kind::Node => self.derive_node(key, &mut report),
            Kind::Queue | Kind::PodGroup | Kind::Topology | Kind::ConfigMap => {
                self.derive_own(kind, key, &mut report)
            }
            Kind::PersistentVolume
            | Kind::PersistentVolumeClaim
            | Kind::CsiStorageCapacity
            | Kind::StorageClass
            | Kind::PodDisruptionBudget => self.derive_storage(kind, key, &mut report),
            Kind::ResourceClaim | Kind::ResourceSlice | Kind::DeviceClass => {
                self.derive_device(kind, key, &mut report)
            }
            Kind::BindRequest
            | Kind::PriorityClass
            | Kind::CsiDriver
            | Kind::NodeResourceTopology
            | Kind::CsiNode
            | Kind::Namespace => None,
        };
        let findings = report.into_findings();
        if !findings.is_empty() {
            self.new_findings.insert((kind, key.clone()));
            self.findings.insert((kind, key.clone()), findings);
        }
        delta
    }

    fn derive_pod(&self, key: &Key, report: &mut Report<'_>) -> Option<Delta> {
        self.pod_input(key, self.objects.pods.get(key)?, &mut Recent::default(), report)
    }

    /// The inputs of the stored pod of a key, with this object and as it is; `None` where either has no input, or where
    /// other problems are found.
    pub(crate) fn pod_inputs(&self, key: &Key, before: &Pod) -> Option<(PodInput, PodInput)> {
        let input = |object: &Pod| {
            let mut report = Report::on(Kind::Pod, key);
            let delta = self.pod_input(key, object, &mut Recent::default(), &mut report)?;
            let Delta::Pod(input) = delta else { return None };
            Some((*input, report.into_findings()))
        };
        let ((before, found), (after, found_now)) = (input(before)?, input(self.objects.pods.get(key)?)?);
        (found == found_now).then_some((before, after))
    }

    /// Whether a group has the same input with the stored object as with this one, and the same problems.
    pub(crate) fn has_equal_group_input(&self, key: &Key, before: &PodGroup) -> bool {
        let input = |object: &PodGroup| {
            let mut report = Report::on(Kind::PodGroup, key);
            let input = self.group_input(key, object, &mut report);
            (input, report.into_findings())
        };
        self.objects.pod_groups.get(key).is_some_and(|after| input(before) == input(after))
    }

    fn pod_input<'a>(
        &self,
        key: &Key,
        object: &'a Pod,
        recent: &mut Recent<'a>,
        report: &mut Report<'_>,
    ) -> Option<Delta> {
        let namespaces: &affinity::Namespaces = &self.objects.namespaces;
        let context = pod::TranslationContext {
            bind: self.live_bind(key, object),
            evicted: self.evictions.get(key).map(|eviction| eviction.since),
            namespaces,
            settings: &self.settings,
        };
        let input = pod::translate_next(object, context, recent, report)?;
        Some(Delta::Pod(Box::new(input)))
    }

    /// The bind request in effect for a pod: not failed for good, for this uid, to an existing node of this pool.
    fn live_bind(&self, key: &Key, object: &Pod) -> Option<&BindRequest> {
        let binds = self.index.binds_by_pod.get(key)?;
        let binds = binds.iter().filter_map(|bind| self.objects.bind_requests.get(bind)).map(|bind| &**bind);
        binds
            .filter(|bind| !pod::bind_failed(bind) && !pod::is_for_another(bind, object))
            .find(|bind| self.is_node_selected(&bind.spec.selected_node))
    }

    fn derive_node(&self, key: &Key, report: &mut Report<'_>) -> Option<Delta> {
        let object =
            self.objects.nodes.get(key).filter(|object| node::is_selected(object, &self.settings))?;
        let zones = self.objects.node_resource_topologies.get(key).filter(|_| self.settings.numa_zones);
        let drivers = self.objects.csi_nodes.get(key);
        let zones = zones.map(|zones| &**zones);
        let input = node::translate(object, zones, drivers.map(|d| &**d), &self.settings, report);
        Some(Delta::Node(Box::new(input)))
    }

    fn derive_own(&self, kind: Kind, key: &Key, report: &mut Report<'_>) -> Option<Delta> {
        let objects = &self.objects;
        if kind == Kind::Queue {
            let object =
                objects.queues.get(key).filter(|object| queue::is_selected(object, &self.settings))?;
            let usage = self.usage.get(&key.name).copied().unwrap_or_default();
            return Some(Delta::Queue(Box::new(queue::translate(object, &self.settings, usage, report))));
        }
        if kind == Kind::PodGroup {
            return self.group_input(key, objects.pod_groups.get(key)?, report);
        }
        if kind == Kind::Topology {
            return objects.topologies.get(key).map(|object| Delta::Topology(group::topology(object)));
        }
        objects.config_maps.get(key).map(|_| Delta::ConfigMap(key.clone()))
    }

    fn group_input(&self, key: &Key, object: &PodGroup, report: &mut Report<'_>) -> Option<Delta> {
        let context = group::TranslationContext {
            classes: &self.objects.priority_classes,
            topologies: &self.objects.topologies,
            settings: &self.settings,
        };
        if !group::is_selected(object, &self.settings) {
            return None;
        }
        let input = group::translate(object, context, report);
        let backoff = self.backoffs.get(key).cloned();
        Some(Delta::Group(Box::new(GroupInput { backoff, ..input })))
    }

    fn derive_storage(&self, kind: Kind, key: &Key, report: &mut Report<'_>) -> Option<Delta> {
        let objects = &self.objects;
        if kind == Kind::PersistentVolume {
            return objects.persistent_volumes.get(key).map(|o| Delta::Volume(storage::volume(o, report)));
        }
        if kind == Kind::PersistentVolumeClaim {
            let object = objects.persistent_volume_claims.get(key);
            return object.map(|o| Delta::VolumeClaim(storage::claim(o, report)));
        }
        if kind == Kind::CsiStorageCapacity {
            return objects
                .csi_storage_capacities
                .get(key)
                .map(|o| Delta::Capacity(storage::capacity(o, report)));
        }
        if kind == Kind::StorageClass {
            let object = objects.storage_classes.get(key)?;
            let driver = objects.csi_drivers.get(&Key::new("", &*object.provisioner));
            return Some(Delta::StorageClass(storage::class(object, driver.map(|d| &**d))));
        }
        objects.pod_disruption_budgets.get(key).map(|o| Delta::Budget(storage::budget(o, report)))
    }

    fn derive_device(&mut self, kind: Kind, key: &Key, report: &mut Report<'_>) -> Option<Delta> {
        if !self.settings.device_claims {
            return None;
        }
        let objects = &self.objects;
        let slices = &objects.resource_slices;
        if kind == Kind::ResourceSlice {
            return slices.get(key).map(|o| Delta::Slice(device::slice(o, report)));
        }
        if kind == Kind::DeviceClass {
            let object = objects.device_classes.get(key)?;
            return Some(Delta::DeviceClass(device::class(object, slices, &mut self.selectors, report)));
        }
        let object = objects.resource_claims.get(key)?;
        let input = device::claim(object, slices, &mut self.selectors, &self.settings, report);
        let releasing = self.is_releasing(object);
        Some(Delta::Claim(Box::new(ClaimInput { releasing, ..input })))
    }

    /// Whether all consumers of a claim are pods that are terminating, have ended, or are gone. The resource claim controller
    /// deallocates it some time after the last one is gone.
    fn is_releasing(&self, claim: &ResourceClaim) -> bool {
        let pods: Vec<_> = device::pod_consumers(claim).collect();
        let is_leaving = |uid: &str, key: &Key| {
            let pod = self.objects.pods.get(key).filter(|pod| pod.metadata.uid == *uid);
            pod.is_none_or(|pod| {
                pod.metadata.deletion_timestamp.is_some()
                    || self.evictions.contains_key(key)
                    || matches!(&*pod.status.phase, "Succeeded" | "Failed")
            })
        };
        let namespace = &*claim.metadata.namespace;
        !pods.is_empty()
            && pods.len() == claim.status.reserved_for.len()
            && pods.iter().all(|pod| is_leaving(&pod.uid, &Key::new(namespace, &*pod.name)))
    }

    fn is_stored(&self, kind: Kind, key: &Key) -> bool {
        self.objects.contains(kind, key)
    }
}

/// Side results of translating all objects of a kind.
#[derive(Default)]
struct Derived {
    findings: Vec<((Kind, Key), Vec<Finding>)>,
    hidden: Vec<(Kind, Key)>,
}

/// Emits the inputs of all objects of a kind, in the order of their keys. Many objects are translated on a thread beside the
/// one that takes their inputs in.
fn derive_each<'a, T: Send + Sync>(
    kind: Kind,
    objects: &'a BTreeMap<Key, Arc<T>>,
    input: impl FnMut(&'a Key, &'a T, &mut Report<'_>) -> Option<Delta> + Send,
    sink: &mut impl FnMut(Delta),
) -> Derived {
    if objects.len() < MANY_OBJECTS {
        return translate_each(kind, objects, input, sink);
    }
    let mut derived = Derived::default();
    let into = &mut derived;
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(BATCHES);
        let translate = move |(input, into): (_, &mut Derived)| {
            let mut batch = Vec::with_capacity(BATCH);
            let batched = &mut |delta| {
                batch.push(delta);
                if batch.len() == BATCH {
                    // This fails only after a panic of the receiver.
                    let _ = sender.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
                }
            };
            *into = translate_each(kind, objects, input, batched);
            let _ = sender.send(batch);
        };
        match start_with(scope, "translate", (input, into), translate) {
            Ok(()) => receiver.into_iter().flatten().for_each(sink),
            Err((input, into)) => *into = translate_each(kind, objects, input, sink),
        }
    });
    derived
}

fn translate_each<'a, T>(
    kind: Kind,
    objects: &'a BTreeMap<Key, Arc<T>>,
    mut input: impl FnMut(&'a Key, &'a T, &mut Report<'_>) -> Option<Delta>,
    sink: &mut impl FnMut(Delta),
) -> Derived {
    let mut derived = Derived::default();
    for (key, object) in objects {
        let mut report = Report::on(kind, key);
        match input(key, object, &mut report) {
            Some(delta) => sink(delta),
            None => derived.hidden.push((kind, key.clone())),
        }
        let found = report.into_findings();
        if !found.is_empty() {
            derived.findings.push(((kind, key.clone()), found));
        }
    }
    derived
}

fn deletion(kind: Kind, key: &Key) -> Option<Delta> {
    let name = || key.name.clone();
    let key = || key.clone();
    Some(match kind {
        Kind::Pod => Delta::PodGone(key()),
        Kind::Node => Delta::NodeGone(name()),
        Kind::Queue => Delta::QueueGone(name()),
        Kind::PodGroup => Delta::GroupGone(key()),
        Kind::Topology => Delta::TopologyGone(name()),
        Kind::ConfigMap => Delta::ConfigMapGone(key()),
        Kind::PersistentVolume => Delta::VolumeGone(name()),
        Kind::PersistentVolumeClaim => Delta::VolumeClaimGone(key()),
        Kind::CsiStorageCapacity => Delta::CapacityGone(key()),
        Kind::StorageClass => Delta::StorageClassGone(name()),
        Kind::ResourceSlice => Delta::SliceGone(name()),
        Kind::DeviceClass => Delta::DeviceClassGone(name()),
        Kind::ResourceClaim => Delta::ClaimGone(key()),
        Kind::PodDisruptionBudget => Delta::BudgetGone(key()),
        Kind::BindRequest
        | Kind::PriorityClass
        | Kind::CsiDriver
        | Kind::NodeResourceTopology
        | Kind::CsiNode
        | Kind::Namespace => return None,
    })
}
