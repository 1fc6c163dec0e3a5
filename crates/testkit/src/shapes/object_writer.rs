//! Writes the objects of a shape: queues, jobs and topologies in, one section of a snapshot out.
//!
//! A snapshot lists pods before nodes, but uid and age of a pod depend on the objects before it. A shape is therefore built
//! once per section: every pass counts all objects and writes only those of its own section.

use super::object::{
    Affinity, AntiAffinity, AntiAffinityTerm, Body, Condition, Container, ContainerResources, Empty,
    GroupSpec, LabelSelector, Meta, NodeStatus, Object, Pairs, PodSpec, PodStatus, PriorityValue,
    QueueBounds, QueueResources, QueueSpec, Toleration, TopologyConstraint, TopologyLevel, TopologySpec,
};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

pub(super) const GPUS: usize = 8;

/// Seconds since the Unix epoch at which the first object is a second away: the first of January 2026.
const EPOCH_S: i64 = 1_767_225_600;
const NODES_PER_RACK: usize = 16;
const NODES_PER_BLOCK: usize = 128;
const NAMESPACE: &str = "bench";
const TOPOLOGY: &str = "datacenter";
const HOSTNAME: &str = "kubernetes.io/hostname";
const RACK: &str = "topology/rack";
const BLOCK: &str = "topology/block";
const GPU: &str = "nvidia.com/gpu";

/// Which objects a pass writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Pods,
    Nodes,
    Queues,
    Groups,
    PriorityClasses,
    Topologies,
}

pub(super) struct Queue<'a> {
    pub(super) name: &'a str,
    pub(super) parent: Option<&'a str>,
    pub(super) gpus: usize,
    pub(super) weight: usize,
    pub(super) priority: Option<usize>,
}

/// A job to build: a group and its pods.
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) queue: &'a str,
    pub(super) pods: usize,
    /// Least number of pods that may run; all of them unless given.
    pub(super) min_member: Option<usize>,
    pub(super) gpus: Gpus,
    pub(super) priority: &'a str,
    pub(super) cpu: Cow<'a, str>,
    pub(super) memory: Cow<'a, str>,
    pub(super) state: State<'a>,
    pub(super) placement: Placement,
}

#[derive(Clone, Copy)]
pub(super) enum Gpus {
    Whole(usize),
    Half,
}

pub(super) enum State<'a> {
    Pending,
    /// On the node with the index that the function returns for each pod.
    Running(&'a dyn Fn(usize) -> usize),
}

/// Placement constraints of a job.
pub(super) enum Placement {
    Anywhere,
    /// A node selector, and a toleration.
    Kind {
        node: usize,
        taint: usize,
    },
    /// Anti-affinity between its pods by node.
    Apart,
    /// Topology constraint: block required, rack preferred.
    Together,
}

impl<'a> Job<'a> {
    /// A pending job of equal pods with whole GPUs.
    pub(super) fn new(name: &'a str, queue: &'a str, pods: usize, gpus: usize) -> Self {
        Self {
            name,
            queue,
            pods,
            min_member: None,
            gpus: Gpus::Whole(gpus),
            priority: "train",
            cpu: Cow::Borrowed("1"),
            memory: Cow::Borrowed("4Gi"),
            state: State::Pending,
            placement: Placement::Anywhere,
        }
    }
}

/// One pass over a shape.
pub(super) struct ObjectWriter<'w> {
    section: Section,
    to: &'w mut dyn Write,
    count: i64,
    written: usize,
    failure: Option<io::Error>,
}

impl<'w> ObjectWriter<'w> {
    /// A pass that writes one section.
    pub(super) fn new(section: Section, to: &'w mut dyn Write) -> Self {
        Self { section, to, count: 0, written: 0, failure: None }
    }

    /// Ends the pass: the first failure to write, if there was one.
    pub(super) fn finish(self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    /// Adds `count` nodes in racks and blocks, with three values of the label `kind`.
    pub(super) fn nodes(&mut self, count: usize) {
        for index in 0..count {
            self.object(Section::Nodes, |writer| {
                let name = node_name(index);
                let labels = Pairs(vec![
                    (HOSTNAME, name.clone().into()),
                    (RACK, format!("rack-{:04}", index / NODES_PER_RACK).into()),
                    (BLOCK, format!("block-{:03}", index / NODES_PER_BLOCK).into()),
                    ("nvidia.com/gpu.count", GPUS.to_string().into()),
                    ("nvidia.com/gpu.memory", "81559".into()),
                    ("nvidia.com/gpu.present", "true".into()),
                    ("kind", kind_name(index % 3).into()),
                ]);
                let resources = Pairs(vec![
                    ("cpu", "128".into()),
                    ("memory", "1024Gi".into()),
                    ("pods", "250".into()),
                    (GPU, GPUS.to_string().into()),
                    ("ephemeral-storage", "2Ti".into()),
                ]);
                let status = NodeStatus {
                    capacity: resources.clone(),
                    allocatable: resources,
                    conditions: [Condition::holds("Ready")],
                };
                let metadata = Meta { labels: Some(labels), ..writer.meta(name) };
                let body = Body { spec: Empty {}, status: Some(status) };
                writer.write(&Object { api_version: "v1", kind: "Node", metadata, body });
            });
        }
    }

    pub(super) fn topology(&mut self) {
        self.object(Section::Topologies, |writer| {
            let levels = [BLOCK, RACK, HOSTNAME].map(|node_label| TopologyLevel { node_label });
            let body = Body { spec: TopologySpec { levels }, status: None::<Empty> };
            let metadata = writer.meta(TOPOLOGY);
            writer.write(&Object { api_version: "kai.scheduler/v1alpha1", kind: "Topology", metadata, body });
        });
    }

    pub(super) fn queue(&mut self, queue: &Queue<'_>) {
        self.object(Section::Queues, |writer| {
            let bounds = |quota| QueueBounds { quota, over_quota_weight: queue.weight, limit: -1 };
            let spec = QueueSpec {
                resources: QueueResources {
                    gpu: bounds(queue.gpus as i64),
                    cpu: bounds(-1),
                    memory: bounds(-1),
                },
                parent_queue: queue.parent,
                priority: queue.priority,
            };
            let metadata = writer.meta(queue.name);
            let body = Body { spec, status: Some(Empty {}) };
            writer.write(&Object { api_version: "scheduling.run.ai/v2", kind: "Queue", metadata, body });
        });
    }

    /// Adds a job: its group, then its pods.
    pub(super) fn job(&mut self, job: &Job<'_>) {
        self.object(Section::Groups, |writer| writer.group(job));
        for index in 0..job.pods {
            self.object(Section::Pods, |writer| writer.pod(job, index));
        }
    }

    pub(super) fn priority_class(&mut self, name: &str, value: i32) {
        self.object(Section::PriorityClasses, |writer| {
            let metadata = writer.meta(name);
            let body = PriorityValue { value };
            writer.write(&Object {
                api_version: "scheduling.k8s.io/v1",
                kind: "PriorityClass",
                metadata,
                body,
            });
        });
    }

    fn group(&mut self, job: &Job<'_>) {
        let annotations = match job.state {
            State::Pending => Pairs::default(),
            State::Running(_) => Pairs(vec![("kai.scheduler/last-start-timestamp", self.instant().into())]),
        };
        let topology_constraint = match job.placement {
            Placement::Together => Some(TopologyConstraint {
                topology: TOPOLOGY,
                required_topology_level: BLOCK,
                preferred_topology_level: RACK,
            }),
            Placement::Anywhere | Placement::Kind { .. } | Placement::Apart => None,
        };
        let spec = GroupSpec {
            queue: job.queue,
            min_member: job.min_member.unwrap_or(job.pods),
            priority_class_name: job.priority,
            topology_constraint,
        };
        let metadata =
            Meta { annotations: Some(annotations), namespace: Some(NAMESPACE), ..self.meta(job.name) };
        let body = Body { spec, status: Some(Empty {}) };
        self.write(&Object { api_version: "scheduling.run.ai/v2alpha2", kind: "PodGroup", metadata, body });
    }

    fn pod(&mut self, job: &Job<'_>, index: usize) {
        let mut annotations = Pairs(vec![("pod-group-name", job.name.into())]);
        let mut labels = Pairs(vec![("kai.scheduler/queue", job.queue.into())]);
        let mut requests = Pairs(vec![("cpu", (&*job.cpu).into()), ("memory", (&*job.memory).into())]);
        let mut limits = Pairs::default();
        match job.gpus {
            Gpus::Whole(count) => {
                requests.0.push((GPU, count.to_string().into()));
                limits.0.push((GPU, count.to_string().into()));
            }
            Gpus::Half => annotations.0.push(("gpu-fraction", "0.5".into())),
        }
        let (mut node_selector, mut tolerations, mut affinity) = (None, None, None);
        match job.placement {
            Placement::Anywhere | Placement::Together => {}
            Placement::Kind { node, taint } => {
                node_selector = Some(Pairs(vec![("kind", kind_name(node).into())]));
                tolerations = Some([Toleration { key: format!("t{taint}"), operator: "Exists" }]);
            }
            Placement::Apart => {
                labels.0.push(("job", job.name.into()));
                affinity = Some(apart(job.name));
            }
        }
        let node = match job.state {
            State::Pending => None,
            State::Running(node_of) => Some(node_name(node_of(index))),
        };
        let started = self.instant();
        let status = PodStatus {
            phase: if node.is_some() { "Running" } else { "Pending" },
            start_time: node.as_ref().map(|_| started.as_str()),
            conditions: node.as_ref().map(|_| ["PodScheduled", "Ready"].map(Condition::holds)),
        };
        let spec = PodSpec {
            scheduler_name: "kai-scheduler",
            priority_class_name: job.priority,
            containers: [Container {
                name: "main",
                image: "x",
                resources: ContainerResources { requests, limits },
            }],
            node_selector,
            tolerations,
            affinity,
            node_name: node.as_deref(),
        };
        let metadata = Meta {
            annotations: Some(annotations),
            labels: Some(labels),
            namespace: Some(NAMESPACE),
            ..self.meta(format!("{}-{index}", job.name))
        };
        let body = Body { spec, status: Some(status) };
        self.write(&Object { api_version: "v1", kind: "Pod", metadata, body });
    }

    /// Counts an object, and writes it if this pass has its section.
    fn object(&mut self, section: Section, write: impl FnOnce(&mut Self)) {
        self.count += 1;
        if section == self.section && self.failure.is_none() {
            write(self);
        }
    }

    /// Metadata of the current object.
    fn meta<'a>(&self, name: impl Into<Cow<'a, str>>) -> Meta<'a> {
        Meta {
            name: name.into(),
            uid: format!("00000000-0000-4000-8000-{:012}", self.count),
            creation_timestamp: self.instant(),
            annotations: None,
            labels: None,
            namespace: None,
        }
    }

    /// Creation timestamp of the current object.
    fn instant(&self) -> String {
        let second = EPOCH_S + self.count;
        jiff::Timestamp::from_second(second)
            .expect("fewer objects than seconds until the year 9999")
            .to_string()
    }

    fn write(&mut self, object: &impl Serialize) {
        let comma: &[u8] = if self.written > 0 { b"," } else { b"" };
        self.written += 1;
        let written = self
            .to
            .write_all(comma)
            .and_then(|()| serde_json::to_writer(&mut *self.to, object).map_err(io::Error::from));
        self.failure = written.err();
    }
}

fn apart(job: &str) -> Affinity<'_> {
    let term = AntiAffinityTerm {
        label_selector: LabelSelector { match_labels: Pairs(vec![("job", job.into())]) },
        topology_key: HOSTNAME,
    };
    Affinity {
        pod_anti_affinity: AntiAffinity { required_during_scheduling_ignored_during_execution: [term] },
    }
}

fn node_name(index: usize) -> String {
    format!("node-{index:05}")
}

fn kind_name(kind: usize) -> String {
    format!("k{kind}")
}
