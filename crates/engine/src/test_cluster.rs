//! Small clusters for unit tests of single rules.

use crate::delta::Delta;
use crate::ids::{GroupIdx, PodIdx};
use crate::input::{self, GroupInput, Key, NodeInput, PodInput, QueueInput, SubGroupInput, WHOLE_GPU};
use crate::plugin::PluginSet;
use crate::policy::{Config, Params, Policy};
use crate::state::ClusterState;
use kai_units::Timestamp;

const NAMESPACE: &str = "test";

/// A cluster builder; pods are pending unless the edit changes their phase.
pub(crate) struct TestCluster {
    pub(crate) cluster: ClusterState,
    pub(crate) policy: Policy,
}

impl Default for TestCluster {
    fn default() -> Self {
        let config = Config { actions: Vec::new(), ..Config::default() };
        let policy = Policy::resolve(&config, &Params::default(), &PluginSet::builtin());
        Self { cluster: ClusterState::new(), policy }
    }
}

impl TestCluster {
    /// Adds a node with some GPUs.
    pub(crate) fn node(&mut self, name: &str, gpus: i64) {
        let allocatable = vec![(input::CPU.to_owned(), 8000), (input::GPU.to_owned(), gpus * WHOLE_GPU)];
        let node = NodeInput { name: name.to_owned(), allocatable, ..NodeInput::default() };
        self.cluster.apply(Delta::Node(Box::new(node)));
    }

    /// Adds a queue.
    pub(crate) fn queue(&mut self, name: &str) {
        let queue = QueueInput { name: name.to_owned(), ..QueueInput::default() };
        self.cluster.apply(Delta::Queue(Box::new(queue)));
    }

    /// Adds a group of one pod set, which the edit may change.
    pub(crate) fn group(&mut self, name: &str, edit: impl FnOnce(&mut GroupInput)) {
        let mut group =
            GroupInput { key: Key::new(NAMESPACE, name), preemptible: true, ..GroupInput::default() };
        edit(&mut group);
        self.cluster.apply(Delta::Group(Box::new(group)));
    }

    /// Adds a pod that requests one CPU to a group; names give the task order.
    pub(crate) fn pod(&mut self, name: &str, group: &str, edit: impl FnOnce(&mut PodInput)) {
        let mut pod = PodInput {
            key: Key::new(NAMESPACE, name),
            uid: name.to_owned(),
            group: Some(group.to_owned()),
            ours: true,
            ..PodInput::default()
        };
        pod.spec.request = vec![(input::CPU.to_owned(), 1000)];
        edit(&mut pod);
        self.cluster.apply(Delta::Pod(Box::new(pod)));
    }

    /// Refreshes derived values.
    pub(crate) fn refresh(&mut self) {
        self.cluster.refresh(&self.policy, Timestamp(0));
    }

    /// The group with a name.
    pub(crate) fn find(&self, name: &str) -> GroupIdx {
        self.cluster.group(&Key::new(NAMESPACE, name)).unwrap()
    }

    /// The names of some pods.
    pub(crate) fn names(&self, pods: &[PodIdx]) -> Vec<&str> {
        pods.iter().map(|pod| self.cluster.text(self.cluster.pods[*pod].name)).collect()
    }
}

/// A sub-group; `parent/name` is inside another. Pod sets have `min` pods, sets need `min` members.
pub(crate) fn sub_group(path: &str, min: u32) -> SubGroupInput {
    let (parent, name) = path.split_once('/').map_or((None, path), |(parent, name)| (Some(parent), name));
    SubGroupInput {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        min_member: Some(min),
        min_sub_group: Some(min),
        topology: None,
    }
}
