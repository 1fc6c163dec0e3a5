//! Faults of the components, of the control plane and of the nodes. Some last for a while, until [`Faults::end_due`].

use super::super::control_plane::NAMESPACE;
use super::workloads::{create, patch, remove};
use super::{NODES, Random, Soak};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::Killed;
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::kind::{LEASE, NODE};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Fault {
    KilledComponent,
    PausedComponent,
    TakenLease,
    KilledApiServer,
    KilledStore,
    KilledControllers,
    CordonedNode,
    FailedNode,
    DeletedNode,
}

/// Some occur more often.
const FAULTS: [Fault; 16] = [
    Fault::KilledComponent,
    Fault::KilledComponent,
    Fault::KilledComponent,
    Fault::KilledComponent,
    Fault::KilledComponent,
    Fault::KilledComponent,
    Fault::PausedComponent,
    Fault::PausedComponent,
    Fault::TakenLease,
    Fault::KilledApiServer,
    Fault::KilledStore,
    Fault::KilledControllers,
    Fault::CordonedNode,
    Fault::FailedNode,
    Fault::FailedNode,
    Fault::DeletedNode,
];

/// What ends a fault.
enum Remedy {
    Resume(String),
    Uncordon(String),
    Recover(String),
    Restore(Value),
}

/// The faults of a run.
pub(super) struct Faults {
    watch: Stopwatch,
    /// With the time at which each is due.
    remedies: Vec<(Duration, Remedy)>,
    counts: BTreeMap<String, usize>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self { watch: Stopwatch::start(), remedies: Vec::new(), counts: BTreeMap::new() }
    }

    pub(super) fn summary(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        counts.join(", ")
    }

    pub(super) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    fn end_in(&mut self, time: Duration, remedy: Remedy) {
        self.remedies.push((self.watch.elapsed() + time, remedy));
    }

    /// Makes something fail; returns what.
    pub(super) async fn cause(&mut self, cluster: &Soak, random: &mut Random) -> String {
        let mut fault = random.pick(&FAULTS);
        // At most one node fails at a time, so that the workloads have nodes.
        let of_node = matches!(fault, Fault::CordonedNode | Fault::FailedNode | Fault::DeletedNode);
        if of_node && self.remedies.iter().any(|(_, remedy)| !matches!(remedy, Remedy::Resume(_))) {
            fault = Fault::KilledComponent;
        }
        self.count(&format!("{fault:?}"));
        let pause = Duration::from_millis(random.below(3_000) as u64);
        match fault {
            Fault::KilledComponent => kill(cluster, random, pause).await,
            Fault::PausedComponent => self.pause(cluster, random),
            Fault::TakenLease => take_lease(cluster, random).await,
            Fault::KilledApiServer => restart(cluster, Killed::ApiServer, pause).await,
            Fault::KilledStore => restart(cluster, Killed::Store, pause).await,
            Fault::KilledControllers => restart(cluster, Killed::Controllers, pause).await,
            Fault::CordonedNode => self.cordon_node(cluster, random).await,
            Fault::FailedNode => self.fail_node(cluster, random).await,
            Fault::DeletedNode => self.delete_node(cluster, random).await,
        }
    }

    /// Stops a process for a while. A leader loses its lease, and must not write when it continues.
    fn pause(&mut self, cluster: &Soak, random: &mut Random) -> String {
        let names = cluster.backend.component_names();
        let name = names[random.below(names.len())].clone();
        let time = Duration::from_secs(1 + random.below(25) as u64);
        cluster.backend.signal_component(&name, "STOP");
        let what = format!("{name} is stopped for {time:?}");
        self.end_in(time, Remedy::Resume(name));
        what
    }

    async fn cordon_node(&mut self, cluster: &Soak, random: &mut Random) -> String {
        let node = random_node(cluster, random);
        patch(cluster, &NODE, &node, &json!({"spec": {"unschedulable": true}})).await;
        let what = format!("{node} is cordoned");
        self.end_in(Duration::from_secs(5 + random.below(20) as u64), Remedy::Uncordon(node));
        what
    }

    async fn fail_node(&mut self, cluster: &Soak, random: &mut Random) -> String {
        let node = random_node(cluster, random);
        let mode = random.pick(&["not-ready", "unreachable", "down"]);
        patch(cluster, &NODE, &node, &failure(&json!(mode))).await;
        let time = Duration::from_secs(5 + random.below(60) as u64);
        let what = format!("{node} is {mode} for {time:?}");
        self.end_in(time, Remedy::Recover(node));
        what
    }

    async fn delete_node(&mut self, cluster: &Soak, random: &mut Random) -> String {
        let node = random_node(cluster, random);
        let Some(found) = cluster.get(&NODE, &node).await else { return format!("{node} could not be read") };
        remove(cluster, &NODE, &node).await;
        // Pods of a missing node are deleted after 40 to 60 seconds.
        let time = Duration::from_secs(5 + random.below(80) as u64);
        self.end_in(time, Remedy::Restore(found));
        format!("{node} is deleted for {time:?}")
    }

    /// Ends the faults that are due; returns which.
    pub(super) async fn end_due(&mut self, cluster: &Soak) -> Vec<String> {
        let now = self.watch.elapsed();
        let (due, later) = std::mem::take(&mut self.remedies).into_iter().partition(|(at, _)| *at <= now);
        self.remedies = later;
        apply(cluster, due).await
    }

    /// Ends all faults.
    pub(super) async fn end_all(&mut self, cluster: &Soak) -> Vec<String> {
        apply(cluster, std::mem::take(&mut self.remedies)).await
    }
}

async fn apply(cluster: &Soak, remedies: Vec<(Duration, Remedy)>) -> Vec<String> {
    let mut ended = Vec::new();
    for (_, remedy) in remedies {
        ended.push(match remedy {
            Remedy::Resume(name) => {
                cluster.backend.signal_component(&name, "CONT");
                format!("{name} continues")
            }
            Remedy::Uncordon(node) => {
                patch(cluster, &NODE, &node, &json!({"spec": {"unschedulable": null}})).await;
                format!("{node} is uncordoned")
            }
            Remedy::Recover(node) => {
                patch(cluster, &NODE, &node, &failure(&Value::Null)).await;
                format!("{node} recovers")
            }
            Remedy::Restore(mut node) => {
                node["spec"]["taints"] = Value::Null;
                let metadata = node["metadata"].as_object_mut().unwrap();
                metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "annotations"));
                let name = object::name(&node).to_owned();
                create(cluster, &NODE, node).await;
                format!("{name} is there again")
            }
        });
    }
    ended
}

fn random_node(cluster: &Soak, random: &mut Random) -> String {
    cluster.node_name(1 + random.below(NODES))
}

fn failure(mode: &Value) -> Value {
    json!({"metadata": {"annotations": {"sim.kai.scheduler/failure": mode}}})
}

async fn kill(cluster: &Soak, random: &mut Random, pause: Duration) -> String {
    let names = cluster.backend.component_names();
    let name = &names[random.below(names.len())];
    cluster.backend.kill_component(name);
    tokio::time::sleep(pause).await;
    cluster.backend.start_again(name);
    format!("{name} was killed")
}

async fn restart(cluster: &Soak, killed: Killed, pause: Duration) -> String {
    cluster.backend.control().restart(killed, pause).await.unwrap();
    format!("{killed:?} was killed, and the API server is ready")
}

/// Writes another holder into a lease: its leader ends, and the other replica waits for the lease to expire.
async fn take_lease(cluster: &Soak, random: &mut Random) -> String {
    let leases = cluster.api().list_dynamic(&LEASE, NAMESPACE).await;
    let leases = leases.map(|list| list.items).unwrap_or_default();
    let Some(lease) = leases.get(random.below(leases.len().max(1))) else {
        return "no lease could be read".to_owned();
    };
    let taken = json!({"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 2}});
    let written = cluster.api().patch_dynamic(&LEASE, &kai_runtime::key_of(lease), Part::Main, &taken).await;
    format!("the lease {} was taken: {}", object::name(lease), written.is_ok())
}
