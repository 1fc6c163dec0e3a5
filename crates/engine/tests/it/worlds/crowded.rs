//! Random small clusters that are nearly full, with groups waiting that have a claim to some of the room.
//!
//! Running pods are laid out by this file so that no node holds more than it has: what is evicted is evicted for
//! somebody, not because the cluster was impossible to begin with.

use proptest::collection::vec;
use proptest::prelude::*;

/// Groups that wait and groups that run, on nodes without much room left.
pub(crate) fn crowded() -> impl Strategy<Value = String> {
    crowd(rules(), protection())
}

/// The same without anything that depends on the time of day, and with KAI's policy.
pub(crate) fn timeless() -> impl Strategy<Value = String> {
    crowd(Just(""), Just((false, None)))
}

fn crowd(
    rules: impl Strategy<Value = &'static str>,
    protection: impl Strategy<Value = (bool, Option<u32>)>,
) -> impl Strategy<Value = String> {
    let nodes = vec((0..5_u32, 3..9_u32, 0..2_u32, 0..2_u32), 1..5);
    let queues = vec((0..4_u32, limit(), 0..3_u32, prop_oneof![4 => Just(100), 1 => Just(200)]), 2..5);
    let departments =
        (prop_oneof![Just("none"), Just("0"), Just("2"), Just("4")], prop_oneof![Just("0"), Just("3")]);
    (nodes, departments, queues, vec(held(), 1..7), vec(wanted(), 1..4), rules, protection).prop_map(
        |(nodes, departments, queues, held, wanted, rules, (protected, budget))| {
            let mut floor: Vec<Room> = nodes.iter().map(|(gpu, cpu, _, _)| Room::new(*gpu, *cpu)).collect();
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
                let words = format!("quota={quota} limit={limit} weight={weight} priority={priority}");
                lines.push(format!("queues   d{}/q{i} {words}", i % 2));
            }
            lines.extend(budget.map(|allows| format!("budgets  calm covers=app:calm allows={allows}")));
            let queue = |at: usize| format!("queue=d{}/q{}", at % queues.len() % 2, at % queues.len());
            for (i, group) in held.iter().enumerate() {
                let text = group.text(&mut floor);
                lines.extend(text.map(|text| format!("groups   h{i} {} {text}", queue(group.queue))));
            }
            for (i, group) in wanted.iter().enumerate() {
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

/// Whether a department protects its groups for a while, and how many calm pods may be evicted.
fn protection() -> impl Strategy<Value = (bool, Option<u32>)> {
    (
        prop_oneof![3 => Just(false), 1 => Just(true)],
        prop_oneof![3 => Just(None), 1 => (0..3_u32).prop_map(Some)],
    )
}

/// What a pod takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Gpus(u32),
    /// Hundredths of one GPU.
    Part(u32),
    Cpu(u32),
}

impl Want {
    fn words(self) -> String {
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

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        5 => Just(Want::Gpus(1)),
        3 => Just(Want::Gpus(2)),
        1 => Just(Want::Gpus(3)),
        2 => Just(Want::Part(50)),
        1 => Just(Want::Part(30)),
        1 => Just(Want::Cpu(3)),
    ]
}

/// What a node has left.
struct Room {
    gpus: u32,
    cpu: u32,
    /// Hundredths left of each shared GPU.
    shared: Vec<u32>,
}

impl Room {
    fn new(gpus: u32, cpu: u32) -> Self {
        Self { gpus, cpu, shared: Vec::new() }
    }

    /// Takes what a pod wants; gives back the shared GPU in the words of a state, or nothing where there is no room.
    fn take(&mut self, want: Want) -> Option<String> {
        let cpu = self.cpu.checked_sub(want.cpu())?;
        let shared = match want {
            Want::Gpus(count) => {
                self.gpus = self.gpus.checked_sub(count)?;
                String::new()
            }
            Want::Cpu(_) => String::new(),
            Want::Part(hundredths) => {
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

/// A group that runs.
#[derive(Clone, Debug)]
struct HeldGroup {
    queue: usize,
    priority: u32,
    want: Want,
    pods: u32,
    /// Pods beyond the minimum.
    surplus: u32,
    /// Pods that wait, beyond those that run.
    waiting: u32,
    calm: bool,
    started: &'static str,
    from: usize,
}

impl HeldGroup {
    fn text(&self, floor: &mut [Room]) -> Option<String> {
        let mut places = Vec::new();
        for n in 0..self.pods {
            let nodes =
                (0..floor.len()).map(|i| (i + self.from + n as usize) % floor.len()).collect::<Vec<_>>();
            let found = nodes.into_iter().find_map(|at| Some((at, floor[at].take(self.want)?)));
            places.extend(found.map(|(at, shared)| format!("n{at}{shared}")));
        }
        if places.is_empty() {
            return None;
        }
        let min = (places.len() as u32).saturating_sub(self.surplus).max(1);
        let label = if self.calm { ",label:app=calm" } else { "" };
        let pod = format!("{{{}{label}}}", self.want.words());
        let waiting = if self.waiting > 0 { format!("pods={}x{pod}", self.waiting) } else { String::new() };
        Some(format!(
            "priority={} min={min} started={} pods={}x{pod} running@{{{}}} {waiting}",
            self.priority,
            self.started,
            places.len(),
            places.join(",")
        ))
    }
}

fn held() -> impl Strategy<Value = HeldGroup> {
    let priority = prop_oneof![6 => Just(50), 2 => Just(75), 1 => Just(100)];
    let surplus = prop_oneof![2 => Just(0), 2 => 1..4_u32];
    let waiting = prop_oneof![5 => Just(0), 1 => 1..3_u32];
    let started = prop_oneof![Just("10s"), Just("1h")];
    let calm = prop_oneof![3 => Just(false), 1 => Just(true)];
    (0..4_usize, priority, want(), 1..4_u32, surplus, waiting, calm, started, 0..4_usize).prop_map(
        |(queue, priority, want, pods, surplus, waiting, calm, started, from)| HeldGroup {
            queue,
            priority,
            want,
            pods,
            surplus,
            waiting,
            calm,
            started,
            from,
        },
    )
}

/// A group that waits.
#[derive(Clone, Debug)]
struct WantedGroup {
    queue: usize,
    priority: u32,
    want: Want,
    pods: u32,
    min: u32,
    rule: &'static str,
}

impl WantedGroup {
    fn text(&self) -> String {
        let (min, pods, want) = (self.min.min(self.pods), self.pods, self.want.words());
        format!("priority={} min={min} {} pods={pods}x{{{want}}}", self.priority, self.rule)
    }
}

fn wanted() -> impl Strategy<Value = WantedGroup> {
    let priority = prop_oneof![2 => Just(50), 3 => Just(75), 1 => Just(100)];
    let rule = prop_oneof![
        8 => Just(""),
        1 => Just("topology=dc:required=rack"),
        1 => Just("topology=dc:preferred=zone"),
        1 => Just("age=1m delay=5m"),
    ];
    (0..4_usize, priority, want(), 1..4_u32, 1..4_u32, rule).prop_map(
        |(queue, priority, want, pods, min, rule)| WantedGroup { queue, priority, want, pods, min, rule },
    )
}
