//! What a change of one pod costs a scheduler that watches a large cluster at rest.
//!
//! The whole scheduler runs, in virtual time and on one thread, against a server that does nothing but list, watch and
//! take writes. So the processor time of the thread, from an event to the end of the cycle that follows, is that of
//! reading the event, bringing the cluster up to date, planning, and handing on what was decided.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]

mod server;
mod world;

use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_scheduler::{Options, serve};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use server::Server;
use std::time::Duration;
use world::World;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any moment after the cluster was made.
const NOW: &str = "2026-07-01T00:00:00Z";
/// Long enough for a cycle that places, too short for one that evicts.
const PLACING: Duration = Duration::from_millis(60);
/// Long enough for a cycle that evicts, and for all that is told later.
const REST: Duration = Duration::from_secs(5);

fn main() {
    let mut sizes = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let mut next = |default| sizes.next().unwrap_or(default);
    let (nodes, pods, waiting, rounds) = (next(4_000), next(140_000), next(500), next(20));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let world = World { nodes, pods, waiting };
    let measured = runtime.expect("a runtime").block_on(measure(world, rounds));
    println!("{measured}");
}

/// Processor time of this thread, in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// What each kind of change cost, in milliseconds.
struct Costs {
    what: &'static str,
    /// Until pods were placed, each time.
    placing: Vec<f64>,
    /// What came after: whether somebody is to be evicted, and what is told.
    evicting: Vec<f64>,
}

impl Costs {
    fn new(what: &'static str) -> Self {
        Self { what, placing: Vec::new(), evicting: Vec::new() }
    }

    /// Lets a change be made and everything that follows from it be done.
    async fn measure(&mut self, change: impl FnOnce()) {
        let before = cpu_ms();
        change();
        tokio::time::sleep(PLACING).await;
        let placed = cpu_ms();
        tokio::time::sleep(REST).await;
        self.placing.push(placed - before);
        self.evicting.push(cpu_ms() - placed);
    }

    fn json(mut self) -> Value {
        let mut figures = |list: fn(&mut Self) -> &mut Vec<f64>| {
            let list = list(&mut self);
            list.sort_by(f64::total_cmp);
            json!({"median": list[list.len() / 2], "most": list[list.len() - 1]})
        };
        let (placing, evicting) = (figures(|costs| &mut costs.placing), figures(|costs| &mut costs.evicting));
        json!({"change": self.what, "placing_ms": placing, "evicting_ms": evicting})
    }
}

async fn measure(world: World, rounds: usize) -> Value {
    let (nodes, pods, waiting) = (world.nodes, world.pods, world.waiting);
    let server = Server::new(world);
    let clock = Clock::starting_at(NOW.parse().expect("a time"));
    let process = Process::start(Api::new(server.client(), "kai-scheduler"), clock, "kai-scheduler");
    // An audit is no part of a cycle.
    let options = Options { audit_every: Duration::from_hours(24), ..Options::default() };
    let (_queries, asked) = serve::queries();
    let begun = cpu_ms();
    let scheduler = tokio::spawn(kai_scheduler::run(process, options, PluginSet::builtin(), asked));
    tokio::time::sleep(Duration::from_mins(2)).await;
    let start_ms = cpu_ms() - begun;
    let writes = server.take_writes();
    let evicted = writes.iter().find(|write| write.path.ends_with("/eviction"));
    assert!(evicted.is_none(), "the cluster is at rest: {evicted:?}");
    let costs = changes(&server, nodes, waiting, rounds).await;
    scheduler.abort();
    json!({
        "nodes": nodes, "pods": pods, "waiting": waiting, "rounds": rounds, "start_ms": start_ms,
        "told": writes.len(), "changes": costs.into_iter().map(Costs::json).collect::<Vec<_>>(),
    })
}

async fn changes(server: &Server, nodes: usize, waiting: usize, rounds: usize) -> Vec<Costs> {
    let [mut labels, mut comes, mut goes, mut ends, mut runs] = [
        "a running pod is labelled",
        "a pod comes and waits",
        "a pod that waits goes",
        "a running pod ends and another takes its place",
        "a pod that was placed runs",
    ]
    .map(Costs::new);
    for round in 0..rounds {
        let mut labelled = world::gpu_pod((round * 97) % (nodes * 8));
        labelled["metadata"]["labels"]["step"] = Value::from(round.to_string());
        labels.measure(|| server.tell("MODIFIED", "pods", labelled)).await;

        let newcomer = waiting + 500 + round;
        let come = || {
            server.tell("ADDED", "podgroups", world::waiting_group(newcomer));
            server.tell("ADDED", "pods", world::waiting_pod(newcomer));
        };
        comes.measure(come).await;
        let go = || {
            server.tell("DELETED", "pods", world::waiting_pod(newcomer));
            server.tell("DELETED", "podgroups", world::waiting_group(newcomer));
        };
        goes.measure(go).await;

        server.take_writes();
        // Single pods run on every other node.
        let ended = (round * 2 + 1) * 8;
        ends.measure(|| server.tell("DELETED", "pods", world::gpu_pod(ended))).await;
        let writes = server.take_writes();
        let made: Vec<_> = writes.iter().filter(|write| write.path == "bindrequests").collect();
        let paths: Vec<&str> = writes.iter().map(|write| write.path.as_str()).collect();
        assert_eq!(made.len(), 1, "one pod takes the place: {paths:?}");
        assert!(!paths.iter().any(|path| path.ends_with("/eviction")), "nobody is evicted: {paths:?}");
        runs.measure(|| run(server, &made[0].body, round * 2 + 1)).await;
    }
    vec![labels, comes, goes, ends, runs]
}

/// Does what a binder and a kubelet would.
fn run(server: &Server, request: &Value, node: usize) {
    let name = request["spec"]["podName"].as_str().expect("a bind request names its pod");
    let at = name.trim_start_matches("wait-").parse().expect("those who wait are numbered");
    let mut bound = request.clone();
    bound["metadata"]["uid"] = Value::from("made");
    server.tell("ADDED", "bindrequests", bound.clone());
    server.tell("MODIFIED", "pods", world::running(world::waiting_pod(at), node));
    server.tell("DELETED", "bindrequests", bound);
}
