//! CPU time of the scheduler for a change of one pod in a large idle cluster.
//!
//! The whole scheduler runs in virtual time on one thread, against a server that only lists, watches and accepts writes.
//! The CPU time of the thread from an event to the end of the cycle therefore consists of decoding the event, updating the
//! cluster model, planning, and submitting the decisions.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

mod cluster;
mod server;

use cluster::{BenchCluster, Quotas};
use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_scheduler::{Options, serve};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use server::Server;
use std::time::Duration;

/// The allocator of the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any time after the creation of the objects.
const NOW: &str = "2026-07-01T00:00:00Z";
/// Long enough for a cycle that allocates, too short for one that evicts.
const ALLOCATE: Duration = Duration::from_millis(60);
/// Long enough for a cycle with all actions, and for the status reports after it.
const SETTLE: Duration = Duration::from_secs(5);

fn main() {
    let mut sizes = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let mut next = |default| sizes.next().unwrap_or(default);
    let (nodes, pods, pending, rounds) = (next(4_000), next(140_000), next(500), next(20));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let size = |quotas| BenchCluster { nodes, pods, pending, quotas };
    let mut measured = runtime.block_on(measure(size(Quotas::Exact), rounds));
    let reclaims = runtime.block_on(measure(size(Quotas::Half), rounds));
    if let (Some(all), Some(more)) = (measured["changes"].as_array_mut(), reclaims["changes"].as_array()) {
        all.extend(more.iter().cloned());
    }
    println!("{measured}");
}

/// CPU time of this thread in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The cost of one kind of change, in milliseconds.
struct Costs {
    what: &'static str,
    /// The cycle that only allocates.
    allocate: Vec<f64>,
    /// The cycle with all actions and the status reports.
    all_actions: Vec<f64>,
}

impl Costs {
    fn new(what: &'static str) -> Self {
        Self { what, allocate: Vec::new(), all_actions: Vec::new() }
    }

    /// Applies a change and runs everything that follows from it.
    async fn measure(&mut self, change: impl FnOnce()) {
        let before = cpu_ms();
        change();
        tokio::time::sleep(ALLOCATE).await;
        let allocated = cpu_ms();
        tokio::time::sleep(SETTLE).await;
        self.allocate.push(allocated - before);
        self.all_actions.push(cpu_ms() - allocated);
    }

    fn json(mut self) -> Value {
        let mut figures = |list: fn(&mut Self) -> &mut Vec<f64>| {
            let list = list(&mut self);
            list.sort_by(f64::total_cmp);
            json!({"median": list[list.len() / 2], "max": list[list.len() - 1]})
        };
        let (allocate, all_actions) =
            (figures(|costs| &mut costs.allocate), figures(|costs| &mut costs.all_actions));
        json!({"change": self.what, "allocate_ms": allocate, "all_actions_ms": all_actions})
    }
}

async fn measure(cluster: BenchCluster, rounds: usize) -> Value {
    let BenchCluster { nodes, pods, pending, quotas } = cluster;
    let server = Server::new(cluster);
    let clock = Clock::starting_at(NOW.parse().expect("a time"));
    let process = Process::start(Api::new(server.client(), "kai-scheduler"), clock, "kai-scheduler");
    // Audits are not part of a cycle.
    let options = Options { audit_every: Duration::from_hours(24), ..Options::default() };
    let (_queries, requests) = serve::queries();
    let start = cpu_ms();
    let scheduler = tokio::spawn(kai_scheduler::run(process, options, PluginSet::builtin(), requests));
    tokio::time::sleep(Duration::from_mins(2)).await;
    let start_ms = cpu_ms() - start;
    let writes = server.take_writes();
    let evicted = writes.iter().find(|write| write.path.ends_with("/eviction"));
    assert!(evicted.is_none(), "nothing is evicted in an idle cluster: {evicted:?}");
    let costs = match quotas {
        Quotas::Exact => changes(&server, nodes, pending, rounds).await,
        Quotas::Half => reclaims(&server, rounds).await,
    };
    scheduler.abort();
    json!({
        "nodes": nodes, "pods": pods, "pending": pending, "rounds": rounds, "start_ms": start_ms,
        "initial_writes": writes.len(), "changes": costs.into_iter().map(Costs::json).collect::<Vec<_>>(),
    })
}

async fn changes(server: &Server, nodes: usize, pending: usize, rounds: usize) -> Vec<Costs> {
    let [mut labels, mut creates, mut deletes, mut ends, mut starts] = [
        "a running pod is labelled",
        "a pending pod is created",
        "a pending pod is deleted",
        "a running pod is deleted and a pending one is bound",
        "a bound pod starts",
    ]
    .map(Costs::new);
    for round in 0..rounds {
        let mut labelled = cluster::gpu_pod((round * 97) % (nodes * 8));
        labelled["metadata"]["labels"]["step"] = Value::from(round.to_string());
        labels.measure(|| server.emit("MODIFIED", "pods", labelled)).await;

        let number = pending + 500 + round;
        let create = || {
            server.emit("ADDED", "podgroups", cluster::pending_group(number));
            server.emit("ADDED", "pods", cluster::pending_pod(number));
        };
        creates.measure(create).await;
        let delete = || {
            server.emit("DELETED", "pods", cluster::pending_pod(number));
            server.emit("DELETED", "podgroups", cluster::pending_group(number));
        };
        deletes.measure(delete).await;

        server.take_writes();
        // Single pods run on every other node.
        let ended = (round * 2 + 1) * 8;
        ends.measure(|| server.emit("DELETED", "pods", cluster::gpu_pod(ended))).await;
        let writes = server.take_writes();
        let made: Vec<_> = writes.iter().filter(|write| write.path == "bindrequests").collect();
        let paths: Vec<&str> = writes.iter().map(|write| write.path.as_str()).collect();
        assert_eq!(made.len(), 1, "one pod is bound: {paths:?}");
        assert!(!paths.iter().any(|path| path.ends_with("/eviction")), "nothing is evicted: {paths:?}");
        starts.measure(|| run(server, &made[0].body, round * 2 + 1)).await;
    }
    vec![labels, creates, deletes, ends, starts]
}

/// A queue that is owed GPUs wants one more in each round.
async fn reclaims(server: &Server, rounds: usize) -> Vec<Costs> {
    let mut wants = Costs::new("a queue reclaims one GPU from a hundred queues over their share");
    let mut starts = Costs::new("its victim ends and it is bound");
    for round in 0..rounds {
        let create = || {
            server.emit("ADDED", "podgroups", cluster::reclaiming_group(round));
            server.emit("ADDED", "pods", cluster::reclaiming_pod(round));
        };
        wants.measure(create).await;
        let writes = server.take_writes();
        let evicted = writes.iter().filter_map(|write| {
            write.path.strip_prefix("pods/").and_then(|rest| rest.strip_suffix("/eviction"))
        });
        let evicted: Vec<String> = evicted.map(str::to_owned).collect();
        assert_eq!(evicted.len(), 1, "one pod is evicted: {writes:?}");
        let victim = cluster::named(&evicted[0]);
        let node = victim["spec"]["nodeName"].clone();
        starts.measure(|| server.emit("DELETED", "pods", victim)).await;
        let made = server.take_writes().into_iter().find(|write| write.path == "bindrequests");
        let made = made.expect("the pod is bound").body;
        assert_eq!(made["spec"]["selectedNode"], node, "on the freed GPU");
        let mut bound = made.clone();
        bound["metadata"]["uid"] = Value::from("created");
        server.emit("ADDED", "bindrequests", bound.clone());
        let mut running = cluster::running(cluster::reclaiming_pod(round), 0);
        running["spec"]["nodeName"] = node;
        server.emit("MODIFIED", "pods", running);
        server.emit("DELETED", "bindrequests", bound);
        tokio::time::sleep(SETTLE).await;
    }
    vec![wants, starts]
}

/// Emits the events of the binder and the kubelet for a bound pod.
fn run(server: &Server, request: &Value, node: usize) {
    let name = request["spec"]["podName"].as_str().expect("a bind request names its pod");
    let at = name.trim_start_matches("wait-").parse().expect("the names of pending pods are numbered");
    let mut bound = request.clone();
    bound["metadata"]["uid"] = Value::from("created");
    server.emit("ADDED", "bindrequests", bound.clone());
    server.emit("MODIFIED", "pods", cluster::running(cluster::pending_pod(at), node));
    server.emit("DELETED", "bindrequests", bound);
}
