//! Changes to a cluster, as edits of its objects.

use kai_api::meta::Meta;
use kai_api::pod_group::TopologyConstraint;
use kai_api::value::{Amount, Resources, Text};
use kai_api::well_known::{annotation, label};
use kai_cache::object::node::{NodeCondition, NodeStatus};
use kai_cache::object::{Node, Pod, PodGroup};
use kai_cache::translate::pod::{group_of, pod_of};
use kai_cache::{Kind, Object, Objects, Settings};
use kai_engine::Cluster;
use kai_engine::input::{Key, WHOLE_GPU};
use kai_engine::verdict::QueueResource;

/// What a queue is entitled to, or must not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    Quota,
    Limit,
}

/// A change of a cluster. Amounts are in base units: millionths of a GPU, millicores, bytes; `None` is unlimited.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    QueueBound {
        queue: String,
        bound: Bound,
        resource: QueueResource,
        from: Option<i64>,
        to: Option<i64>,
    },
    /// The minimum of a gang, or of one of its sub-groups.
    MinMember {
        group: Key,
        sub_group: Option<String>,
        from: u32,
        to: u32,
    },
    /// The level whose domain must hold all pods; `None` removes the constraint.
    TopologyLevel {
        group: Key,
        sub_group: Option<String>,
        from: String,
        to: Option<String>,
    },
    PriorityClass {
        group: Key,
        from: String,
        to: String,
    },
    /// Nodes like an existing one.
    AddNodesLike {
        node: String,
        count: u32,
    },
    /// Nodes with so many GPUs and otherwise more than any pod requests.
    AddNodes {
        gpus: u32,
        count: u32,
    },
    /// All pods of these groups end.
    Finish {
        groups: Vec<Key>,
    },
    /// A node is cordoned, and its pods are pending again.
    Drain {
        node: String,
    },
    /// An object is created or replaced.
    Put(Box<Object>),
}

/// An edit of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    Put(Object),
    Remove(Kind, Key),
}

impl Change {
    /// The edits that make the change to these objects, of which the cluster is a model.
    pub fn edits(&self, objects: &Objects, settings: &Settings, cluster: &Cluster) -> Vec<Edit> {
        match self {
            Self::QueueBound { queue, bound, resource, to, .. } => {
                set_bound(objects, queue, *bound, *resource, *to)
            }
            Self::MinMember { group, sub_group, to, .. } => edit_group(objects, group, |group| {
                let count = Some(i32::try_from(*to).unwrap_or(i32::MAX));
                match sub_group {
                    None => group.spec.min_member = count,
                    Some(name) => {
                        for one in group.spec.sub_groups.iter_mut().filter(|one| one.name == *name) {
                            one.min_member = count;
                        }
                    }
                }
            }),
            Self::TopologyLevel { group, sub_group, to, .. } => edit_group(objects, group, |group| {
                let spec = &mut group.spec;
                match sub_group {
                    None => relax(&mut spec.topology_constraint, to.as_deref()),
                    Some(name) => {
                        for one in spec.sub_groups.iter_mut().filter(|one| one.name == *name) {
                            relax(&mut one.topology_constraint, to.as_deref());
                        }
                    }
                }
            }),
            Self::PriorityClass { group, to, .. } => {
                edit_group(objects, group, |group| group.spec.priority_class_name.clone_from(to))
            }
            Self::AddNodesLike { node, count } => {
                let Some(like) = objects.nodes.get(&Key::new("", node.as_str())) else { return Vec::new() };
                added(objects, node, *count, |name| copy_of(like, name))
            }
            Self::AddNodes { gpus, count } => {
                added(objects, "node", *count, |name| new_node(name, *gpus, settings))
            }
            Self::Finish { groups } => {
                let pods = groups.iter().filter_map(|group| cluster.group(group));
                let pods = pods.flat_map(|group| &cluster.groups[group].pods);
                pods.map(|pod| Edit::Remove(Kind::Pod, cluster.pod_key(*pod))).collect()
            }
            Self::Drain { node } => drain(objects, settings, node),
            Self::Put(object) => vec![Edit::Put((**object).clone())],
        }
    }
}

fn set_bound(
    objects: &Objects,
    queue: &str,
    bound: Bound,
    resource: QueueResource,
    to: Option<i64>,
) -> Vec<Edit> {
    let Some(queue) = objects.queues.get(&Key::new("", queue)) else { return Vec::new() };
    let mut queue = (**queue).clone();
    let resources = queue.spec.resources.get_or_insert_default();
    let (share, unit) = match resource {
        QueueResource::Gpu => (resources.gpu.get_or_insert_default(), WHOLE_GPU as f64),
        QueueResource::Cpu => (resources.cpu.get_or_insert_default(), 1.0),
        QueueResource::Memory => (resources.memory.get_or_insert_default(), 1e6),
    };
    let value = Some(to.map_or(-1.0, |to| to as f64 / unit));
    match bound {
        Bound::Quota => share.quota = value,
        Bound::Limit => share.limit = value,
    }
    vec![Edit::Put(queue.into())]
}

fn edit_group(objects: &Objects, group: &Key, edit: impl FnOnce(&mut PodGroup)) -> Vec<Edit> {
    let Some(group) = objects.pod_groups.get(group) else { return Vec::new() };
    let mut group = (**group).clone();
    edit(&mut group);
    vec![Edit::Put(group.into())]
}

fn relax(constraint: &mut Option<TopologyConstraint>, level: Option<&str>) {
    match level {
        Some(level) => {
            if let Some(constraint) = constraint {
                level.clone_into(&mut constraint.required_topology_level);
            }
        }
        None => *constraint = None,
    }
}

/// Nodes under names that do not exist.
fn added(objects: &Objects, stem: &str, count: u32, node: impl Fn(&str) -> Node) -> Vec<Edit> {
    let free = (1..).map(|number: u32| format!("{stem}-added-{number}"));
    let free = free.filter(|name| !objects.nodes.contains_key(&Key::new("", name.as_str())));
    free.take(count as usize).map(|name| Edit::Put(node(&name).into())).collect()
}

fn copy_of(like: &Node, name: &str) -> Node {
    let mut node = like.clone();
    let labels = like.metadata.labels.iter();
    let own = |key: &str, value: &Text| if key == label::HOSTNAME { Text::from(name) } else { value.clone() };
    node.metadata = Meta {
        name: name.into(),
        uid: name.into(),
        labels: labels.map(|(key, value)| (key.to_owned(), own(key, value))).collect(),
        annotations: like.metadata.annotations.clone(),
        creation_timestamp: like.metadata.creation_timestamp,
        ..Meta::default()
    };
    node.spec.unschedulable = false;
    node
}

fn new_node(name: &str, gpus: u32, settings: &Settings) -> Node {
    let amounts = [
        ("cpu", "256".to_owned()),
        ("memory", "2Ti".to_owned()),
        ("pods", "110".to_owned()),
        ("nvidia.com/gpu", gpus.to_string()),
    ];
    let amounts: Resources =
        amounts.iter().map(|(key, value)| (*key, Amount::from(value.as_str()))).collect();
    let mut labels = vec![(label::HOSTNAME.to_owned(), Text::from(name))];
    if settings.restrict_nodes {
        labels.push((settings.gpu_worker_label.clone(), Text::from("true")));
    }
    if !settings.node_pool_value.is_empty() && !settings.node_pool_key.is_empty() {
        labels.push((settings.node_pool_key.clone(), Text::from(settings.node_pool_value.as_str())));
    }
    Node {
        metadata: Meta {
            name: name.into(),
            uid: name.into(),
            labels: labels.into_iter().collect(),
            ..Meta::default()
        },
        status: NodeStatus {
            capacity: amounts.clone(),
            allocatable: amounts,
            conditions: vec![NodeCondition { kind: "Ready".into(), status: "True".into() }].into(),
        },
        ..Node::default()
    }
}

/// Cordons a node. Its pods that belong to groups are pending again, as their controllers recreate them.
fn drain(objects: &Objects, settings: &Settings, name: &str) -> Vec<Edit> {
    let Some(node) = objects.nodes.get(&Key::new("", name)) else { return Vec::new() };
    let mut node = (**node).clone();
    node.spec.unschedulable = true;
    let mut edits = vec![Edit::Put(node.into())];
    let is_bound = |pod: &Pod| {
        let bind = objects
            .bind_requests
            .values()
            .find(|bind| pod_of(bind) == kai_cache::object::key_of(&pod.metadata));
        *pod.spec.node_name == *name
            || (pod.spec.node_name.is_empty() && bind.is_some_and(|bind| bind.spec.selected_node == name))
    };
    let is_ours =
        |pod: &Pod| pod.spec.scheduler_name == settings.scheduler_name.as_str() && group_of(pod).is_some();
    let is_live = |pod: &Pod| matches!(&*pod.status.phase, "" | "Pending" | "Running" | "Unknown");
    for pod in objects.pods.values().filter(|pod| is_ours(pod) && is_live(pod) && is_bound(pod)) {
        edits.push(Edit::Put(unbound(pod).into()));
    }
    let binds = objects.bind_requests.iter().filter(|(_, bind)| bind.spec.selected_node == name);
    edits.extend(binds.map(|(key, _)| Edit::Remove(Kind::BindRequest, key.clone())));
    edits
}

fn unbound(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    pod.spec.node_name = Text::default();
    pod.status.phase = "Pending".into();
    pod.status.nominated_node_name = Text::default();
    let is_gpu_group = |key: &str| key == label::GPU_GROUP || key.starts_with(label::GPU_GROUP_PREFIX);
    pod.metadata.labels = pod.metadata.labels.kept(|key| !is_gpu_group(key));
    pod.metadata.annotations = pod.metadata.annotations.kept(|key| key != annotation::RECEIVED_RESOURCE_TYPE);
    pod.metadata.deletion_timestamp = None;
    pod
}
