//! Starts and stops the API server, the controllers and the simulated nodes of a cluster.

use crate::connection::Connection;
use crate::controllers::persistent_volume;
use crate::faults::Faults;
use crate::journal::{Journal, Lines};
use crate::kubelet;
use crate::node::heartbeat::Failure;
use crate::node::{self, NodeGroup};
use crate::{controllers, well_known};
use jiff::Timestamp;
use kai_apiserver::{ApiServer, Listening};
use kai_clock::Clock;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::kind::{self, Key};
use rustc_hash::FxHasher;
use serde_json::{Value, json};
use std::hash::Hasher;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Client name of the cluster's set-up.
const CLIENT: &str = "kai-sim";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Nodes(#[from] node::Error),
    #[error("cannot load the saved state")]
    Load(#[source] kai_apiserver::persistence::Error),
    #[error("cannot serve the API")]
    Listen(#[source] kai_apiserver::Error),
    #[error("cannot write `{object}`")]
    Write {
        object: String,
        #[source]
        source: api::Error,
    },
}

#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    epoch: Option<Timestamp>,
    nodes: Vec<NodeGroup>,
    kubelet: kubelet::Options,
    listen: Option<SocketAddr>,
    state: Option<Vec<u8>>,
    lines: Lines,
    with_controllers: bool,
}

impl Builder {
    /// Seed of generated names, uids and faults.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Virtual time at the start; the system time without it.
    #[must_use]
    pub fn starting_at(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    #[must_use]
    pub fn nodes(mut self, groups: impl IntoIterator<Item = NodeGroup>) -> Self {
        self.nodes.extend(groups);
        self
    }

    /// Defaults for pods without annotations of the simulation.
    #[must_use]
    pub fn kubelet(mut self, options: kubelet::Options) -> Self {
        self.kubelet = options;
        self
    }

    /// Also serves the API over HTTPS; port 0 selects a free port.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Restores a state that [`Cluster::save`] wrote.
    #[must_use]
    pub fn load(mut self, state: Vec<u8>) -> Self {
        self.state = Some(state);
        self
    }

    /// Keeps the journal's lines, to find the first difference between two runs.
    #[must_use]
    pub fn keep_lines(mut self) -> Self {
        self.lines = Lines::Kept;
        self
    }

    /// Starts only the API server and the nodes.
    #[must_use]
    pub fn without_controllers(mut self) -> Self {
        self.with_controllers = false;
        self
    }

    /// Starts the cluster. Must be called in a tokio runtime.
    pub async fn start(self) -> Result<Cluster, Error> {
        for group in &self.nodes {
            node::check(group)?;
        }
        let clock = self.epoch.map_or_else(Clock::system, Clock::starting_at);
        let server = self.server(clock)?;
        let journal = Journal::new(clock, self.lines);
        let faults = Faults::new(self.seed, journal);
        let listening =
            self.listen.map(|address| server.listen(address)).transpose().map_err(Error::Listen)?;
        let api = Api::new(Connection::new(&server, &faults, CLIENT).client(), CLIENT);
        server.core().webhooks.set_transport(Arc::new(faults.clone()));
        let mut cluster = Cluster { server, faults, clock, listening, api, tasks: JoinSet::new() };
        cluster.install().await?;
        cluster.add_nodes(&self.nodes).await?;
        if self.with_controllers {
            let authority = cluster.listening.as_ref().map(|listening| Arc::from(listening.ca_pem()));
            let start =
                move |connection: &Connection| controllers::run(connection.clone(), clock, authority.clone());
            cluster.spawn(controllers::CLIENT, start);
        }
        let options = self.kubelet;
        cluster.spawn(kubelet::CLIENT, move |connection| kubelet::run(connection.clone(), clock, options));
        Ok(cluster)
    }

    fn server(&self, clock: Clock) -> Result<ApiServer, Error> {
        let mut options = kai_apiserver::Options::new(self.seed, clock);
        let Some(state) = &self.state else { return Ok(ApiServer::new(&options)) };
        // Restored objects may have uids from the same seed; new uids must differ.
        let mut hasher = FxHasher::default();
        hasher.write(state);
        options.seed ^= hasher.finish();
        ApiServer::load(&options, state.as_slice()).map_err(Error::Load)
    }
}

/// A running cluster; dropping it stops it.
#[derive(Debug)]
pub struct Cluster {
    server: ApiServer,
    faults: Faults,
    clock: Clock,
    listening: Option<Listening>,
    api: Api,
    tasks: JoinSet<()>,
}

impl Cluster {
    /// Defaults: no nodes, system time, seed 0.
    pub fn builder() -> Builder {
        Builder {
            seed: 0,
            epoch: None,
            nodes: Vec::new(),
            kubelet: kubelet::Options::default(),
            listen: None,
            state: None,
            lines: Lines::Hashed,
            with_controllers: true,
        }
    }

    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub fn listening(&self) -> Option<&Listening> {
        self.listening.as_ref()
    }

    /// Fault injection by client. The cluster's own clients are [`controllers::CLIENT`] with a child for each
    /// controller, and [`kubelet::CLIENT`] with a child for each node.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn journal(&self) -> &Journal {
        self.faults.journal()
    }

    /// A client with this name, to which faults can be injected.
    pub fn client(&self, name: &str) -> kube::Client {
        Connection::new(&self.server, &self.faults, name).client()
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Runs a client of the API server, and restarts it after each injected crash.
    pub fn run<F>(&mut self, name: &'static str, start: impl Fn(kube::Client) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(name, move |connection| start(connection.client()));
    }

    fn spawn<F>(&mut self, name: &str, start: impl Fn(&Connection) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(Connection::new(&self.server, &self.faults, name).supervise(start));
    }

    /// Adds nodes; existing ones are not changed.
    pub async fn add_nodes(&self, groups: &[NodeGroup]) -> Result<(), Error> {
        for group in groups {
            node::check(group)?;
            for (at, name) in group.names().enumerate() {
                let made = node::node(group, at, &self.clock.time());
                self.ensure(&kind::NODE, &made).await?;
                if group.dra && group.gpus > 0 {
                    let node = self.api.get_dynamic(&kind::NODE, &Key::new("", &name)).await;
                    let node = node.map_err(|source| Error::Write { object: name.clone(), source })?;
                    self.ensure(&kind::DEVICE_CLASS, &node::device_class()).await?;
                    self.ensure(&kind::RESOURCE_SLICE, &node::slice(group, &node)).await?;
                }
                if group.numa_zones > 1 {
                    self.ensure(&kind::CUSTOM_RESOURCE_DEFINITION, &node::topology_definition()).await?;
                    self.ensure(&kind::NODE_RESOURCE_TOPOLOGY, &node::topology(group, &name)).await?;
                }
            }
        }
        Ok(())
    }

    /// Sets the failure mode of a node, until [`Cluster::restore_node`].
    pub async fn fail_node(&self, name: &str, failure: Failure) -> Result<(), Error> {
        self.annotate_node(name, Value::from(failure.name())).await
    }

    pub async fn restore_node(&self, name: &str) -> Result<(), Error> {
        self.annotate_node(name, Value::Null).await
    }

    async fn annotate_node(&self, name: &str, value: Value) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {well_known::FAILURE: value}}});
        let written = self.api.patch_dynamic(&kind::NODE, &Key::new("", name), Part::Main, &patch).await;
        written.map(|_| ()).map_err(|source| Error::Write { object: format!("node {name}"), source })
    }

    /// Writes the state of the API server, for [`Builder::load`].
    pub fn save(&self, to: impl Write) -> std::io::Result<()> {
        self.server.save(to)
    }

    /// Waits until no workload object has changed for `quiet`; returns false where that takes longer than `limit`.
    pub async fn settle(&self, quiet: Duration, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        let mut before = self.workload_revision().await;
        loop {
            tokio::time::sleep(quiet).await;
            let now = self.workload_revision().await;
            if now == before {
                return true;
            }
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            before = now;
        }
    }

    /// A hash of the resource versions of pods and workloads. Leases and nodes change with every heartbeat.
    async fn workload_revision(&self) -> u64 {
        let lists = [
            kind::POD,
            kind::JOB,
            kind::CRON_JOB,
            kind::REPLICA_SET,
            kind::DEPLOYMENT,
            kind::STATEFUL_SET,
            kind::DAEMON_SET,
        ];
        let mut hash = FxHasher::default();
        for kind in &lists {
            let Ok(listed) = self.api.list_dynamic(kind, "").await else { continue };
            for item in &listed.items {
                hash.write(kai_object::meta_str(item, "resourceVersion").as_bytes());
            }
        }
        hash.finish()
    }

    /// Stops the nodes and controllers, then the API server.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Some(listening) = self.listening.take() {
            listening.stop().await;
        }
    }

    /// Creates the default `StorageClass`, whose volumes are simulated.
    async fn install(&self) -> Result<(), Error> {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": {persistent_volume::DEFAULT_CLASS: "true"}},
            "provisioner": persistent_volume::PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        });
        self.ensure(&kind::STORAGE_CLASS, &class).await
    }

    async fn ensure(&self, kind: &kind::ResourceKind, object: &Value) -> Result<(), Error> {
        let name = || format!("{} {}", kind.kind, kai_object::name(object));
        self.api
            .ensure_dynamic(kind, "", object)
            .await
            .map_err(|source| Error::Write { object: name(), source })
    }
}
