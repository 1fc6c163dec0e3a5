//! Random workloads: single pods, parts of GPUs by fraction and by memory, Jobs, Deployments, StatefulSets, disruption
//! budgets, gangs, sub-groups, elastic groups, run time limits, device claims and volumes, in two queues and with several
//! priorities. They are created, scaled and deleted; quotas and minimum run times of the queues change.

use super::laws::{GANG, GPU_MEMORY_MIB, MINIMUM};
use super::observer::Observer;
use super::{Random, Soak};
use crate::test_cluster::PodBuilder;
use kai_api::well_known::annotation::{MAX_RUNTIME, MAX_RUNTIME_ACTION, SHARED_GPU_CONFIG_MAP};
use kai_api::well_known::label::SUBGROUP;
use kai_clock::Stopwatch;
use kai_object as object;
use kai_runtime::api::{self, DeleteOptions, Part};
use kai_runtime::kind::{
    DEPLOYMENT, JOB, Key, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET,
    RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, ResourceKind, STATEFUL_SET, STORAGE_CLASS,
};
use kai_scheduler::resources::{POD_GROUP, QUEUE, TOPOLOGY};
use kai_sim::node::{self, RACK};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Workloads that exist at a time; together they request more than the nodes have.
const WORKLOADS_MAX: usize = 16;
/// Pods that are kept while the cluster becomes quiet, each counted as a whole GPU. With at most ten of 16 GPUs in use every
/// one of them fits, however the others are placed: two GPUs are free on some node, and four in some rack.
const KEPT_MAX: usize = 10;
/// Pods with device claims that are kept: as many as there are devices.
const CLAIMS_KEPT_MAX: usize = 3;
/// How long a write is repeated while the API server is down.
const WRITE_WITHIN: Duration = Duration::from_mins(2);

/// Taint of the node with devices: pods that request `nvidia.com/gpu` would be placed there as in KAI, which counts devices as
/// GPUs, and be rejected by the kubelet.
pub(super) const DEVICES_TAINT: &str = "soak/devices";

const QUEUES: [&str; 2] = ["a", "b"];
/// The initial quotas.
const QUOTAS: [i64; 2] = [8, 4];
/// While the cluster becomes quiet: pods that cannot be preempted need quota.
const KEPT_QUOTA: usize = KEPT_MAX + CLAIMS_KEPT_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    OneGpu,
    TwoGpus,
    Half,
    Quarter,
    /// A part of a GPU, by its memory.
    Memory,
    Gang,
    RackGang,
    /// A gang of two sub-groups.
    SubGroups,
    Elastic,
    Job,
    /// A Job whose pods end.
    Batch,
    /// A pod that is ended at its maximum run time.
    Timed,
    Deployment,
    /// A Deployment with a disruption budget.
    Guarded,
    StatefulSet,
    Disk,
    Claim,
    SharedClaim,
}

/// Some occur more often.
const SHAPES: [Shape; 22] = [
    Shape::OneGpu,
    Shape::OneGpu,
    Shape::Half,
    Shape::Half,
    Shape::Quarter,
    Shape::Quarter,
    Shape::Memory,
    Shape::TwoGpus,
    Shape::Gang,
    Shape::RackGang,
    Shape::SubGroups,
    Shape::Elastic,
    Shape::Elastic,
    Shape::Job,
    Shape::Batch,
    Shape::Timed,
    Shape::Deployment,
    Shape::Guarded,
    Shape::StatefulSet,
    Shape::Disk,
    Shape::Claim,
    Shape::SharedClaim,
];

/// A submitted workload.
struct Workload {
    name: String,
    shape: Shape,
    queue: &'static str,
    /// Pods that it has or should have.
    pods: usize,
    /// Number of the next pod of an elastic group.
    next: usize,
}

impl Workload {
    fn uses_claims(&self) -> bool {
        matches!(self.shape, Shape::Claim | Shape::SharedClaim)
    }

    /// The kind of its controller, where that replaces pods for ever.
    fn replicated(&self) -> Option<ResourceKind> {
        let is_deployment = matches!(self.shape, Shape::Deployment | Shape::Guarded);
        let of_set = (self.shape == Shape::StatefulSet).then_some(STATEFUL_SET);
        if is_deployment { Some(DEPLOYMENT) } else { of_set }
    }

    fn gpus(&self) -> usize {
        self.pods * if self.shape == Shape::TwoGpus { 2 } else { 1 }
    }
}

pub(super) struct Workloads {
    live: Vec<Workload>,
    with_claims: bool,
    number: usize,
    created: BTreeMap<Shape, usize>,
    deleted: usize,
    scaled: usize,
    quotas_changed: usize,
    runtimes_changed: usize,
}

impl Workloads {
    /// Creates queues, the topology and templates of claims.
    pub(super) async fn prepare(cluster: &Soak, with_claims: bool) -> Self {
        for (queue, quota) in QUEUES.into_iter().zip(QUOTAS) {
            cluster.create_queue(queue, quota).await;
            if with_claims {
                let template =
                    json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}, "spec": one_gpu()});
                let template = json!({"metadata": {"name": format!("gpu-{queue}")}, "spec": template});
                cluster.create(&RESOURCE_CLAIM_TEMPLATE, template).await;
            }
        }
        let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
        cluster.create(&TOPOLOGY, json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}})).await;
        Self {
            live: Vec::new(),
            with_claims,
            number: 0,
            created: BTreeMap::new(),
            deleted: 0,
            scaled: 0,
            quotas_changed: 0,
            runtimes_changed: 0,
        }
    }

    pub(super) fn summary(&self) -> String {
        let shapes: Vec<String> =
            self.created.iter().map(|(shape, count)| format!("{shape:?} {count}")).collect();
        format!(
            "{} workloads ({}), {} deleted, {} scaled, {} quotas and {} minimum run times changed",
            self.created.values().sum::<usize>(),
            shapes.join(", "),
            self.deleted,
            self.scaled,
            self.quotas_changed,
            self.runtimes_changed
        )
    }

    /// Creates, scales or deletes a workload, or changes a quota.
    pub(super) async fn change(&mut self, cluster: &Soak, random: &mut Random) {
        if self.live.len() >= WORKLOADS_MAX || (!self.live.is_empty() && random.one_in(5)) {
            let gone = self.live.swap_remove(random.below(self.live.len()));
            self.delete(cluster, &gone).await;
        } else if random.one_in(6) && self.scale(cluster, random).await {
            self.scaled += 1;
        } else if random.one_in(12) {
            let (queue, quota) = (random.pick(&QUEUES), 2 * random.below(5));
            set_quota(cluster, queue, quota).await;
            self.quotas_changed += 1;
        } else if random.one_in(20) {
            let field = random.pick(&["preemptMinRuntime", "reclaimMinRuntime"]);
            let time = random.pick(&[None, Some("5s"), Some("20s")]);
            let queue = cluster.queue_name(random.pick(&QUEUES));
            patch(cluster, &QUEUE, &queue, &json!({"spec": {field: time}})).await;
            self.runtimes_changed += 1;
        } else {
            self.create(cluster, random).await;
        }
    }

    async fn create(&mut self, cluster: &Soak, random: &mut Random) {
        let shape = random.pick(&SHAPES);
        if !self.with_claims && matches!(shape, Shape::Claim | Shape::SharedClaim) {
            return;
        }
        self.number += 1;
        let name = format!("{}-{}", format!("{shape:?}").to_lowercase(), self.number);
        let queue = random.pick(&QUEUES);
        let class = random.pick(&["train", "train", "train", "build-preemptible", "build"]);
        let make = Make { cluster, name: &name, queue, class, short_toleration: random.one_in(2) };
        let pods = match shape {
            Shape::OneGpu => make.pod(PodBuilder::new(&name, queue, 1)).await,
            Shape::TwoGpus => make.pod(PodBuilder::new(&name, queue, 2)).await,
            Shape::Half => make.pod(PodBuilder::fraction(&name, queue, "0.5")).await,
            Shape::Quarter => make.pod(PodBuilder::fraction(&name, queue, "0.25")).await,
            Shape::Memory => {
                let pod = PodBuilder::new(&name, queue, 0)
                    .annotation("gpu-memory", &(GPU_MEMORY_MIB / 4).to_string())
                    .annotation(SHARED_GPU_CONFIG_MAP, &format!("{name}-shared-gpu"));
                make.pod(pod).await
            }
            Shape::Gang => make.gang(2 + random.below(3), 0, &json!({})).await,
            Shape::RackGang => {
                let level = random.pick(&["requiredTopologyLevel", "preferredTopologyLevel"]);
                let constraint = json!({"topologyConstraint": {"topology": "racks", level: RACK}});
                make.gang(2 + random.below(3), 0, &constraint).await
            }
            Shape::SubGroups => make.sub_groups().await,
            Shape::Elastic => make.gang(2, random.below(4), &json!({})).await,
            Shape::Job => make.job(None).await,
            Shape::Batch => make.job(Some(5 + random.below(20))).await,
            Shape::Timed => {
                let limit = format!("{}s", 10 + random.below(20));
                let pod = PodBuilder::new(&name, queue, 1).annotation(MAX_RUNTIME, &limit);
                make.pod(pod.annotation(MAX_RUNTIME_ACTION, "end")).await
            }
            Shape::Deployment => make.deployment(1 + random.below(3)).await,
            Shape::Guarded => {
                make.budget().await;
                make.deployment(2).await
            }
            Shape::StatefulSet => make.stateful_set(1 + random.below(3)).await,
            Shape::Disk => make.disk(random).await,
            Shape::Claim => make.claim().await,
            Shape::SharedClaim => make.shared_claim().await,
        };
        *self.created.entry(shape).or_default() += 1;
        self.live.push(Workload { next: pods, name, shape, queue, pods });
    }

    /// Returns false where no workload can be scaled.
    async fn scale(&mut self, cluster: &Soak, random: &mut Random) -> bool {
        let scalable = [Shape::Deployment, Shape::StatefulSet, Shape::Job, Shape::Elastic];
        let mut scalable: Vec<&mut Workload> =
            self.live.iter_mut().filter(|workload| scalable.contains(&workload.shape)).collect();
        if scalable.is_empty() {
            return false;
        }
        let workload = scalable.swap_remove(random.below(scalable.len()));
        if let Some(kind) = workload.replicated() {
            workload.pods = random.below(4);
            patch(cluster, &kind, &workload.name, &json!({"spec": {"replicas": workload.pods}})).await;
        } else if workload.shape == Shape::Job {
            workload.pods = 1 + random.below(3);
            patch(cluster, &JOB, &workload.name, &json!({"spec": {"parallelism": workload.pods}})).await;
        } else if workload.pods > 2 && random.one_in(2) {
            remove(cluster, &POD, &format!("{}-{}", workload.name, random.below(workload.next))).await;
        } else {
            let (name, queue) = (workload.name.as_str(), workload.queue);
            let make = Make { cluster, name, queue, class: "train", short_toleration: false };
            make.member(workload.next, 2).await;
            workload.next += 1;
            workload.pods += 1;
        }
        true
    }

    async fn delete(&mut self, cluster: &Soak, workload: &Workload) {
        let name = workload.name.as_str();
        match workload.shape {
            Shape::Gang | Shape::RackGang | Shape::SubGroups | Shape::Elastic => {
                for number in 0..workload.next {
                    remove(cluster, &POD, &format!("{name}-{number}")).await;
                }
                remove(cluster, &POD_GROUP, name).await;
            }
            Shape::Job | Shape::Batch => remove(cluster, &JOB, name).await,
            Shape::Deployment => remove(cluster, &DEPLOYMENT, name).await,
            Shape::Guarded => {
                remove(cluster, &DEPLOYMENT, name).await;
                remove(cluster, &POD_DISRUPTION_BUDGET, name).await;
            }
            Shape::StatefulSet => remove(cluster, &STATEFUL_SET, name).await,
            Shape::Disk => {
                remove(cluster, &POD, name).await;
                remove(cluster, &PERSISTENT_VOLUME_CLAIM, name).await;
                remove(cluster, &PERSISTENT_VOLUME, name).await;
                remove(cluster, &STORAGE_CLASS, name).await;
            }
            Shape::SharedClaim => {
                for user in 0..2 {
                    remove(cluster, &POD, &format!("{name}-{user}")).await;
                }
                remove(cluster, &RESOURCE_CLAIM, name).await;
            }
            Shape::OneGpu
            | Shape::TwoGpus
            | Shape::Half
            | Shape::Quarter
            | Shape::Memory
            | Shape::Timed
            | Shape::Claim => remove(cluster, &POD, name).await,
        }
        self.deleted += 1;
    }

    /// Deletes so many workloads that all others fit.
    pub(super) async fn reduce(&mut self, cluster: &Soak) {
        for queue in QUEUES {
            set_quota(cluster, queue, KEPT_QUOTA).await;
        }
        let (mut gpus, mut claims) = (0, 0);
        for workload in std::mem::take(&mut self.live) {
            let (sum, limit) =
                if workload.uses_claims() { (&mut claims, CLAIMS_KEPT_MAX) } else { (&mut gpus, KEPT_MAX) };
            if *sum + workload.gpus() <= limit {
                *sum += workload.gpus();
                self.live.push(workload);
            } else {
                self.delete(cluster, &workload).await;
            }
        }
    }

    /// Deployments and StatefulSets whose number of running pods differs from the wanted one.
    pub(super) fn incomplete(&self, observer: &Observer) -> Vec<String> {
        let replicated = self.live.iter().filter(|workload| workload.replicated().is_some());
        let counted = replicated.map(|workload| (workload, observer.running(&workload.name)));
        let wrong = counted.filter(|(workload, running)| workload.pods != *running);
        wrong
            .map(|(workload, running)| {
                format!("{running} of {} pods of {} run", workload.pods, workload.name)
            })
            .collect()
    }

    pub(super) async fn delete_all(&mut self, cluster: &Soak) {
        for workload in std::mem::take(&mut self.live) {
            self.delete(cluster, &workload).await;
        }
    }
}

/// Spec of a claim on one GPU.
fn one_gpu() -> Value {
    let class = node::device_class();
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": object::name(&class)}}]}})
}

/// Creates the objects of one workload; each method returns the number of its pods.
struct Make<'a> {
    cluster: &'a Soak,
    name: &'a str,
    queue: &'a str,
    class: &'a str,
    short_toleration: bool,
}

impl Make<'_> {
    /// The pod with a request for memory, priority and tolerations.
    fn finish(&self, mut pod: PodBuilder) -> PodBuilder {
        pod.object["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("64Mi");
        let pod = pod.priority_class(self.class).label("priorityClassName", self.class);
        if !self.short_toleration {
            return pod;
        }
        let short = ["not-ready", "unreachable"].map(|state| {
            let key = format!("node.kubernetes.io/{state}");
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5})
        });
        let mut tolerations = pod.object["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        tolerations.extend(short);
        pod.spec_field("tolerations", Value::from(tolerations))
    }

    async fn pod(&self, pod: PodBuilder) -> usize {
        create(self.cluster, &POD, self.finish(pod).object).await;
        1
    }

    /// A gang of `minimum` pods and some more; `spec` is added to that of the group.
    async fn gang(&self, minimum: usize, more: usize, spec: &Value) -> usize {
        let metadata = json!({"name": self.name, "labels": {"kai.scheduler/queue": self.queue}});
        let mut group = json!({"metadata": metadata, "spec": {
            "minMember": minimum, "queue": self.queue, "priorityClassName": self.class,
        }});
        crate::test_cluster::json_merge(&mut group["spec"], spec);
        create(self.cluster, &POD_GROUP, group).await;
        for number in 0..minimum + more {
            self.member(number, minimum).await;
        }
        minimum + more
    }

    /// One leader and two workers, which start together.
    async fn sub_groups(&self) -> usize {
        let metadata = json!({"name": self.name, "labels": {"kai.scheduler/queue": self.queue}});
        let sub_groups = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]);
        let spec = json!({
            "queue": self.queue, "priorityClassName": self.class, "minSubGroup": 2, "subGroups": sub_groups,
        });
        create(self.cluster, &POD_GROUP, json!({"metadata": metadata, "spec": spec})).await;
        for (number, sub_group) in ["leader", "worker", "worker"].into_iter().enumerate() {
            let pod = PodBuilder::new(&format!("{}-{number}", self.name), self.queue, 1);
            self.gang_pod(pod.label(SUBGROUP, sub_group), 3).await;
        }
        3
    }

    async fn member(&self, number: usize, minimum: usize) {
        self.gang_pod(PodBuilder::new(&format!("{}-{number}", self.name), self.queue, 1), minimum).await;
    }

    async fn gang_pod(&self, pod: PodBuilder, minimum: usize) {
        let pod = pod.pod_group(self.name);
        let pod = pod.annotation(GANG, self.name).annotation(MINIMUM, &minimum.to_string());
        create(self.cluster, &POD, self.finish(pod).object).await;
    }

    /// A Job of two pods that end after some seconds, or run until they are deleted.
    async fn job(&self, seconds: Option<usize>) -> usize {
        let pod = PodBuilder::new("x", self.queue, 1).spec_field("restartPolicy", json!("Never"));
        let pod = match seconds {
            Some(seconds) => pod.annotation("sim.kai.scheduler/run-for", &format!("{seconds}s")),
            None => pod,
        };
        let spec = json!({
            "parallelism": 2, "completions": 4, "backoffLimit": 1_000, "template": self.finish(pod).template(),
        });
        let metadata = json!({"name": self.name, "labels": {"kai.scheduler/queue": self.queue}});
        create(self.cluster, &JOB, json!({"metadata": metadata, "spec": spec})).await;
        2
    }

    async fn deployment(&self, replicas: usize) -> usize {
        let template = self.finish(PodBuilder::new("x", self.queue, 1).label("app", self.name)).template();
        let labels = json!({"kai.scheduler/queue": self.queue, "priorityClassName": self.class});
        let spec = json!({
            "replicas": replicas, "selector": {"matchLabels": {"app": self.name}}, "template": template,
        });
        let deployment = json!({"metadata": {"name": self.name, "labels": labels}, "spec": spec});
        create(self.cluster, &DEPLOYMENT, deployment).await;
        replicas
    }

    /// A budget for the pods of the Deployment of this name.
    async fn budget(&self) {
        let selector = json!({"matchLabels": {"app": self.name}});
        let budget =
            json!({"metadata": {"name": self.name}, "spec": {"maxUnavailable": 1, "selector": selector}});
        create(self.cluster, &POD_DISRUPTION_BUDGET, budget).await;
    }

    async fn stateful_set(&self, replicas: usize) -> usize {
        let template = self.finish(PodBuilder::new("x", self.queue, 1).label("app", self.name)).template();
        let labels = json!({"kai.scheduler/queue": self.queue, "priorityClassName": self.class});
        let spec = json!({
            "replicas": replicas, "selector": {"matchLabels": {"app": self.name}}, "template": template,
            "serviceName": self.name, "podManagementPolicy": "Parallel",
        });
        let set = json!({"metadata": {"name": self.name, "labels": labels}, "spec": spec});
        create(self.cluster, &STATEFUL_SET, set).await;
        replicas
    }

    /// A pod with a volume that exists on one node. The class has no other volume.
    async fn disk(&self, random: &mut Random) -> usize {
        let class = json!({
            "metadata": {"name": self.name}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        create(self.cluster, &STORAGE_CLASS, class).await;
        let node = self.cluster.node_name(1 + random.below(super::NODES));
        let terms = json!([{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
        ]}]);
        let volume = json!({"metadata": {"name": self.name}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": self.name,
            "local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }});
        create(self.cluster, &PERSISTENT_VOLUME, volume).await;
        let claim = json!({"metadata": {"name": self.name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": self.name,
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        create(self.cluster, &PERSISTENT_VOLUME_CLAIM, claim).await;
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}]);
        self.pod(PodBuilder::new(self.name, self.queue, 0).spec_field("volumes", volumes)).await
    }

    /// A pod with a claim. `field` is `resourceClaimName` or `resourceClaimTemplateName`.
    fn user(&self, name: &str, field: &str, claim: &str) -> PodBuilder {
        let claims = json!([{"name": "gpu", field: claim}]);
        let tolerations = json!([{"key": DEVICES_TAINT, "operator": "Exists"}]);
        let pod = PodBuilder::new(name, self.queue, 0).spec_field("resourceClaims", claims);
        let mut pod = pod.spec_field("tolerations", tolerations);
        pod.object["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
        pod
    }

    async fn claim(&self) -> usize {
        self.pod(self.user(self.name, "resourceClaimTemplateName", &format!("gpu-{}", self.queue))).await
    }

    async fn shared_claim(&self) -> usize {
        let metadata = json!({"name": self.name, "labels": {"kai.scheduler/queue": self.queue}});
        create(self.cluster, &RESOURCE_CLAIM, json!({"metadata": metadata, "spec": one_gpu()})).await;
        for user in 0..2 {
            self.pod(self.user(&format!("{}-{user}", self.name), "resourceClaimName", self.name)).await;
        }
        2
    }
}

async fn set_quota(cluster: &Soak, queue: &str, quota: usize) {
    let spec = json!({"spec": {"resources": {"gpu": {"quota": quota}}}});
    patch(cluster, &QUEUE, &cluster.queue_name(queue), &spec).await;
}

fn key(cluster: &Soak, kind: &ResourceKind, name: &str) -> Key {
    Key::new(if kind.namespaced { cluster.namespace() } else { "" }, name)
}

/// Creates an object, however long the API server is down. That it exists already means that a response was lost.
pub(super) async fn create(cluster: &Soak, kind: &ResourceKind, object: Value) {
    let object = cluster.complete(kind, object);
    let namespace = if kind.namespaced { cluster.namespace() } else { "" };
    repeat(async || match cluster.api().create_dynamic(kind, namespace, &object).await {
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    })
    .await;
}

/// Applies a merge patch, unless the object is gone.
pub(super) async fn patch(cluster: &Soak, kind: &ResourceKind, name: &str, patch: &Value) {
    let key = key(cluster, kind, name);
    repeat(async || match cluster.api().patch_dynamic(kind, &key, Part::Main, patch).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    })
    .await;
}

pub(super) async fn remove(cluster: &Soak, kind: &ResourceKind, name: &str) {
    let (key, how) = (key(cluster, kind, name), DeleteOptions::default().propagate("Background"));
    repeat(async || match cluster.api().delete_dynamic(kind, &key, &how).await {
        // It was evicted, or has ended.
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    })
    .await;
}

async fn repeat(write: impl AsyncFn() -> api::Result<()>) {
    let watch = Stopwatch::start();
    while let Err(error) = write().await {
        assert!(watch.elapsed() < WRITE_WITHIN, "a write fails for {WRITE_WITHIN:?}: {error}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
