//! Random small clusters as scenario texts, so that failures shrink to readable scenarios.

pub(crate) mod full;

use proptest::collection::vec;
use proptest::prelude::*;

/// A cluster of a few nodes, queues and groups.
pub(crate) fn random_cluster() -> impl Strategy<Value = String> {
    (vec(node(), 1..5), vec(queue(), 1..4), vec(group(), 1..7), policy()).prop_map(
        |(nodes, queues, groups, policy)| {
            let mut lines = vec![format!("policy   {policy}"), "topologies  dc zone rack".to_owned()];
            lines.extend(nodes.iter().enumerate().map(|(i, node)| format!("nodes    n{i} host=n{i} {node}")));
            lines.push("queues   d0 quota=none | d1 quota=2 limit=6".to_owned());
            let queue = |(i, queue): (usize, &String)| format!("queues   d{}/q{i} {queue}", i % 2);
            lines.extend(queues.iter().enumerate().map(queue));
            lines.extend(groups.iter().enumerate().map(|(i, group)| {
                let at = group.queue % queues.len();
                format!("groups   g{i} queue=d{}/q{at} {}", at % 2, group.text(nodes.len()))
            }));
            lines.join("\n")
        },
    )
}

fn policy() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just(""),
        1 => Just("-gpupack +gpuspread nodeplacement.gpu=spread"),
        1 => Just("depth=1"),
        1 => Just("+podaffinity +numa"),
    ]
}

fn node() -> impl Strategy<Value = String> {
    (0..5_u32, 1..9_u32, 0..2_u32, 0..2_u32, 2..8_u32, extra_of_node()).prop_map(
        |(gpu, cpu, zone, rack, pods, extra)| {
            format!(
                "gpu={gpu} cpu={cpu} mem=16 pods={pods} gpumem=40000 zone=z{zone} rack=z{zone}r{rack} {extra}"
            )
        },
    )
}

fn extra_of_node() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        8 => Just(""),
        1 => Just("cordon"),
        1 => Just("taint=t:NoSchedule"),
        1 => Just("taint=t:PreferNoSchedule"),
        1 => Just("condition=not-ready"),
        1 => Just("numa=single-numa-node/pod:{cpu=2}x2"),
    ]
}

fn queue() -> impl Strategy<Value = String> {
    let quota = prop_oneof![Just("none".to_owned()), (0..5_u32).prop_map(|q| q.to_string())];
    let limit = prop_oneof![2 => Just("none".to_owned()), 1 => (0..5_u32).prop_map(|q| q.to_string())];
    (quota, limit, 0..3_u32, prop_oneof![Just(100), Just(200)]).prop_map(
        |(quota, limit, weight, priority)| {
            format!("quota={quota} limit={limit} weight={weight} priority={priority}")
        },
    )
}

/// A group without its queue.
#[derive(Clone, Debug)]
struct GroupSketch {
    queue: usize,
    priority: u32,
    form: Form,
    want: &'static str,
    rule: &'static str,
    running: u32,
    leaving: bool,
    place: usize,
}

/// Sub-group structure of a group.
#[derive(Clone, Debug)]
enum Form {
    Gang { count: u32, min: u32, topology: &'static str },
    Subs { first: u32, second: u32, minsub: &'static str },
}

impl GroupSketch {
    fn text(&self, nodes: usize) -> String {
        let pod = |sub: &str| format!("{{{}{}{sub}}}", self.want, self.rule);
        let node = self.place % nodes;
        let gpu_group = if self.want.contains("0.") || self.want.contains("gpumem") {
            if self.want.ends_with("x2") { "#0+1" } else { "#0" }
        } else {
            ""
        };
        let state = if self.leaving { "leaving" } else { "running" };
        let pods = match &self.form {
            Form::Gang { count, min, topology } => {
                let running = self.running.min(*count);
                let mut parts = vec![format!("min={} {topology}", min.min(count))];
                if running > 0 {
                    parts.push(format!("pods={running}x{} {state}@n{node}{gpu_group}", pod("")));
                }
                if *count > running {
                    parts.push(format!("pods={}x{} pending", count - running, pod("")));
                }
                parts.join(" ")
            }
            Form::Subs { first, second, minsub } => format!(
                "{minsub} sub={{a,min={first}}} sub={{b,min={second}}} pods={first}x{} pods={second}x{}",
                pod(",sub=a"),
                pod(",sub=b")
            ),
        };
        format!("priority={} {pods}", self.priority)
    }
}

fn group() -> impl Strategy<Value = GroupSketch> {
    let want = prop_oneof![
        Just("gpu=1"),
        Just("gpu=2"),
        Just("gpu=0.5"),
        Just("gpu=0.3"),
        Just("gpu=0.3x2"),
        Just("gpumem=10000"),
        Just("cpu=2"),
        Just("cpu=1,guaranteed"),
    ];
    let rule = prop_oneof![
        6 => Just(""),
        1 => Just(",tolerate=t"),
        1 => Just(",select:zone=z0"),
        1 => Just(",label:app=x,apart=app:x@host"),
        1 => Just(",label:app=x,near=app:x@zone"),
        1 => Just(",label:app=x,spread=app:x@zone:1"),
        1 => Just(",port=80"),
        1 => Just(",prefer:zone=z1"),
    ];
    let running = prop_oneof![3 => Just(0_u32), 1 => 1..3_u32];
    let priority = prop_oneof![Just(50), Just(75), Just(100)];
    (0..4_usize, priority, form(), want, rule, running, any::<bool>(), 0..4_usize).prop_map(
        |(queue, priority, form, want, rule, running, leaving, place)| GroupSketch {
            queue,
            priority,
            form,
            want,
            rule,
            running,
            leaving,
            place,
        },
    )
}

fn form() -> impl Strategy<Value = Form> {
    let topology = prop_oneof![
        4 => Just(""),
        1 => Just("topology=dc:required=rack"),
        1 => Just("topology=dc:preferred=rack"),
        1 => Just("topology=dc:required=zone:preferred=rack"),
    ];
    prop_oneof![
        4 => (1..5_u32, 1..4_u32, topology).prop_map(|(count, min, topology)| Form::Gang { count, min, topology }),
        1 => (1..3_u32, 1..3_u32, prop_oneof![Just(""), Just("minsub=1")])
            .prop_map(|(first, second, minsub)| Form::Subs { first, second, minsub }),
    ]
}

/// A shuffle that depends only on its seed.
pub(crate) fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for i in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, (seed >> 33) as usize % (i + 1));
    }
}
