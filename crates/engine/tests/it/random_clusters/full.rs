//! Random small clusters that are nearly full, with pending groups that may evict running ones.
//!
//! Running pods are placed so that no node is overcommitted at the start.

use proptest::collection::vec;
use proptest::prelude::*;

/// Pending and running groups on nodes with little free capacity.
pub(crate) fn full_cluster() -> impl Strategy<Value = String> {
    cluster_with(rules(), protection())
}

/// The same without time-dependent settings, with KAI's policy.
pub(crate) fn full_cluster_without_time() -> impl Strategy<Value = String> {
    cluster_with(Just(""), Just((false, None)))
}

fn cluster_with(
    rules: impl Strategy<Value = &'static str>,
    protection: impl Strategy<Value = (bool, Option<u32>)>,
) -> impl Strategy<Value = String> {
    let nodes = vec((0..5_u32, 3..9_u32, 0..2_u32, 0..2_u32), 1..5);
    let queues = vec((0..4_u32, limit(), 0..3_u32, prop_oneof![4 => Just(100), 1 => Just(200)]), 2..5);
    let departments =
        (prop_oneof![Just("none"), Just("0"), Just("2"), Just("4")], prop_oneof![Just("0"), Just("3")]);
    (nodes, departments, queues, vec(running(), 1..7), vec(pending(), 1..4), rules, protection).prop_map(
        |(nodes, departments, queues, running, pending, rules, (protected, budget))| {
            let mut capacity: Vec<FreeCapacity> =
                nodes.iter().map(|(gpu, cpu, _, _)| FreeCapacity::new(*gpu, *cpu)).collect();
            let mut lines = vec![format!("policy   {rules}"), "topologies  dc zone rack".to_owned()];
            for (i, (gpu, cpu, zone, rack)) in nodes.iter().enumerate() {
                lines.push(format!(
                    "nodes    n{i} gpu={gpu} cpu={cpu} mem=64 gpumem=40000 zone=z{zone} rack=z{zone}r{rack}"
                ));
            }
            let time = if protected { "preemptmin=5m reclaimmin=5m" } else { "" };
            lines.push(format!("queues   d0 quota={} {time}", departments.0));
            lines.push(format!("queues   d1 quota={}", departments.1));
            for (i, (quota, limit, weight, priority)) in queues.iter().enumerate() {
                let text = format!("quota={quota} limit={limit} weight={weight} priority={priority}");
                lines.push(format!("queues   d{}/q{i} {text}", i % 2));
            }
            lines.extend(budget.map(|allows| format!("budgets  calm covers=app:calm allows={allows}")));
            let queue = |at: usize| format!("queue=d{}/q{}", at % queues.len() % 2, at % queues.len());
            for (i, group) in running.iter().enumerate() {
                let text = group.text(&mut capacity);
                lines.extend(text.map(|text| format!("groups   h{i} {} {text}", queue(group.queue))));
            }
            for (i, group) in pending.iter().enumerate() {
                lines.push(format!("groups   w{i} {} {}", queue(group.queue), group.text()));
            }
            lines.join("\n")
        },
    )
}

fn limit() -> impl Strategy<Value = &'static str> {
    prop_oneof![5 => Just("none"), 1 => Just("2"), 1 => Just("4")]
}

fn rules() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just(""),
        1 => Just("search=kai"),
        1 => Just("movable=1"),
        1 => Just("strictreclaim"),
        1 => Just("grace=0s"),
        1 => Just("-gpupack +gpuspread nodeplacement.gpu=spread"),
        1 => Just("proportion.relcaimerSaturationMultiplier=2"),
    ]
}

/// Whether a department has a minimum run time, and the disruptions that the budget of `calm` pods allows.
fn protection() -> impl Strategy<Value = (bool, Option<u32>)> {
    (
        prop_oneof![3 => Just(false), 1 => Just(true)],
        prop_oneof![3 => Just(None), 1 => (0..3_u32).prop_map(Some)],
    )
}

/// Resources of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Gpus(u32),
    /// Hundredths of one GPU.
    Part(u32),
    Cpu(u32),
}

impl Request {
    fn text(self) -> String {
        match self {
            Self::Gpus(count) => format!("gpu={count}"),
            Self::Part(hundredths) => format!("gpu=0.{hundredths}"),
            Self::Cpu(count) => format!("cpu={count}"),
        }
    }
    fn cpu(self) -> u32 {
        match self {
            Self::Gpus(_) | Self::Part(_) => 1,
            Self::Cpu(count) => count,
        }
    }
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        5 => Just(Request::Gpus(1)),
        3 => Just(Request::Gpus(2)),
        1 => Just(Request::Gpus(3)),
        2 => Just(Request::Part(50)),
        1 => Just(Request::Part(30)),
        1 => Just(Request::Cpu(3)),
    ]
}

/// Free capacity of a node.
struct FreeCapacity {
    gpus: u32,
    cpu: u32,
    /// Hundredths left of each shared GPU.
    shared: Vec<u32>,
}

impl FreeCapacity {
    fn new(gpus: u32, cpu: u32) -> Self {
        Self { gpus, cpu, shared: Vec::new() }
    }

    /// Allocates a pod; returns its shared GPU in scenario syntax, or `None` where it does not fit.
    fn allocate(&mut self, request: Request) -> Option<String> {
        let cpu = self.cpu.checked_sub(request.cpu())?;
        let shared = match request {
            Request::Gpus(count) => {
                self.gpus = self.gpus.checked_sub(count)?;
                String::new()
            }
            Request::Cpu(_) => String::new(),
            Request::Part(hundredths) => {
                let at = self.shared.iter().position(|left| *left >= hundredths);
                if at.is_none() {
                    self.gpus = self.gpus.checked_sub(1)?;
                    self.shared.push(100);
                }
                let at = at.unwrap_or(self.shared.len().saturating_sub(1));
                self.shared[at] -= hundredths;
                format!("#{at}")
            }
        };
        self.cpu = cpu;
        Some(shared)
    }
}

/// A running group.
#[derive(Clone, Debug)]
struct RunningGroup {
    queue: usize,
    priority: u32,
    request: Request,
    pods: u32,
    /// Pods beyond the minimum.
    surplus: u32,
    /// Additional pending pods.
    pending_pods: u32,
    calm: bool,
    started: &'static str,
    from: usize,
}

impl RunningGroup {
    fn text(&self, capacity: &mut [FreeCapacity]) -> Option<String> {
        let mut places = Vec::new();
        for n in 0..self.pods {
            let nodes = (0..capacity.len())
                .map(|i| (i + self.from + n as usize) % capacity.len())
                .collect::<Vec<_>>();
            let found = nodes.into_iter().find_map(|at| Some((at, capacity[at].allocate(self.request)?)));
            places.extend(found.map(|(at, shared)| format!("n{at}{shared}")));
        }
        if places.is_empty() {
            return None;
        }
        let min = (places.len() as u32).saturating_sub(self.surplus).max(1);
        let label = if self.calm { ",label:app=calm" } else { "" };
        let pod = format!("{{{}{label}}}", self.request.text());
        let pending_pods =
            if self.pending_pods > 0 { format!("pods={}x{pod}", self.pending_pods) } else { String::new() };
        Some(format!(
            "priority={} min={min} started={} pods={}x{pod} running@{{{}}} {pending_pods}",
            self.priority,
            self.started,
            places.len(),
            places.join(",")
        ))
    }
}

fn running() -> impl Strategy<Value = RunningGroup> {
    let priority = prop_oneof![6 => Just(50), 2 => Just(75), 1 => Just(100)];
    let surplus = prop_oneof![2 => Just(0), 2 => 1..4_u32];
    let pending_pods = prop_oneof![5 => Just(0), 1 => 1..3_u32];
    let started = prop_oneof![Just("10s"), Just("1h")];
    let calm = prop_oneof![3 => Just(false), 1 => Just(true)];
    (0..4_usize, priority, request(), 1..4_u32, surplus, pending_pods, calm, started, 0..4_usize).prop_map(
        |(queue, priority, request, pods, surplus, pending_pods, calm, started, from)| RunningGroup {
            queue,
            priority,
            request,
            pods,
            surplus,
            pending_pods,
            calm,
            started,
            from,
        },
    )
}

/// A pending group.
#[derive(Clone, Debug)]
struct PendingGroup {
    queue: usize,
    priority: u32,
    request: Request,
    pods: u32,
    min: u32,
    rule: &'static str,
    /// Restricts the nodes.
    nodes: &'static str,
}

impl PendingGroup {
    fn text(&self) -> String {
        let (min, pods, request, nodes) =
            (self.min.min(self.pods), self.pods, self.request.text(), self.nodes);
        format!("priority={} min={min} {} pods={pods}x{{{request}{nodes}}}", self.priority, self.rule)
    }
}

fn pending() -> impl Strategy<Value = PendingGroup> {
    let priority = prop_oneof![2 => Just(50), 3 => Just(75), 1 => Just(100)];
    let rule = prop_oneof![
        8 => Just(""),
        1 => Just("topology=dc:required=rack"),
        1 => Just("topology=dc:preferred=zone"),
        1 => Just("age=1m delay=5m"),
    ];
    let nodes = prop_oneof![5 => Just(""), 1 => Just(",select:zone=z0"), 1 => Just(",select:rack=z1r0")];
    (0..4_usize, priority, request(), 1..4_u32, 1..4_u32, rule, nodes).prop_map(
        |(queue, priority, request, pods, min, rule, nodes)| PendingGroup {
            queue,
            priority,
            request,
            pods,
            min,
            rule,
            nodes,
        },
    )
}
