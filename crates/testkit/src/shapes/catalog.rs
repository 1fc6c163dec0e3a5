//! The shapes themselves: what is asked of the scheduler, by name.

use super::sketch::{GPUS, Gpus, Job, Queue, Sketch, State, Wish};

/// A kind of cluster that can be drawn at any size.
pub struct Shape {
    /// Its name on command lines and in tables.
    pub name: &'static str,
    /// What it asks of the scheduler.
    pub description: &'static str,
    pub(super) draw: fn(&mut Sketch<'_>, usize),
}

macro_rules! shapes {
    ($($name:literal $draw:ident $description:literal)*) => {
        &[$(Shape { name: $name, description: $description, draw: $draw }),*]
    };
}

/// All shapes.
pub const SHAPES: &[Shape] = shapes! {
    "fill" fill "an empty cluster and as many single-GPU jobs as GPUs"
    "fill-varied" fill_varied "like fill, with node kinds, tolerations and hundreds of distinct requests"
    "fractions" fractions "an empty cluster and two half-GPU jobs per GPU"
    "anti-affinity" anti_affinity "jobs of eight pods that avoid each other's nodes, for half the GPUs"
    "gang" gang "an empty cluster and one job that takes all of it"
    "topology" topology "a half-used cluster and eight jobs that must stay inside a block"
    "reclaim-one" reclaim_one "one queue holds everything; another wants a single GPU of its quota"
    "reclaim-large" reclaim_large "one queue holds everything; another wants half of it for one job"
    "reclaim-many" reclaim_many "one queue holds everything; another wants half of it for small jobs"
    "reclaim-gangs" reclaim_gangs "one queue holds everything in ten-node jobs; another wants half, in the same size"
    "preempt" preempt "a queue full of low-priority jobs and an important one over a tenth of the nodes"
    "consolidate" consolidate "every node half used; jobs that need empty nodes"
    "unschedulable" unschedulable "nothing free, nothing that may be evicted; fifty jobs that cannot run"
    "mixed" mixed "a hundred teams, nine tenths full, jobs of all sizes and priorities running and waiting"
};

fn two_queues(sketch: &mut Sketch<'_>, nodes: usize, a: usize, b: usize) {
    for (name, parent, gpus) in [("org", None, GPUS * nodes), ("a", Some("org"), a), ("b", Some("org"), b)] {
        sketch.queue(&Queue { name, parent, gpus, weight: 1, priority: None });
    }
}

fn halves(sketch: &mut Sketch<'_>, nodes: usize) {
    two_queues(sketch, nodes, GPUS * nodes / 2, GPUS * nodes / 2);
}

fn in_turn(index: usize) -> &'static str {
    ["a", "b"][index % 2]
}

fn fill(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    for i in 0..GPUS * nodes {
        sketch.job(&Job::new(&format!("job-{i}"), in_turn(i), 1, 1));
    }
}

fn fill_varied(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    for i in 0..GPUS * nodes {
        sketch.job(&Job {
            cpu: format!("{}m", 500 + 10 * (i % 331)).into(),
            memory: format!("{}Gi", 1 + i % 13).into(),
            wish: Wish::Kind { node: i % 3, taint: i % 7 },
            ..Job::new(&format!("job-{i}"), in_turn(i), 1, 1)
        });
    }
}

fn fractions(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    for i in 0..2 * GPUS * nodes {
        sketch.job(&Job {
            gpus: Gpus::Half,
            cpu: "500m".into(),
            memory: "1Gi".into(),
            ..Job::new(&format!("job-{i}"), in_turn(i), 1, 1)
        });
    }
}

fn anti_affinity(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    for i in 0..nodes / 2 {
        sketch.job(&Job { wish: Wish::Apart, ..Job::new(&format!("job-{i}"), in_turn(i), 8, 1) });
    }
}

fn gang(sketch: &mut Sketch<'_>, nodes: usize) {
    two_queues(sketch, nodes, GPUS * nodes, 0);
    sketch.job(&Job::new("gang", "a", nodes, GPUS));
}

fn topology(sketch: &mut Sketch<'_>, nodes: usize) {
    sketch.topology();
    two_queues(sketch, nodes, GPUS * nodes, 0);
    for i in (0..nodes).step_by(2) {
        sketch.job(&Job {
            priority: "build",
            state: State::Running(&|_| i),
            ..Job::new(&format!("busy-{i}"), "a", 1, GPUS)
        });
    }
    for i in 0..8 {
        sketch.job(&Job { wish: Wish::Together, ..Job::new(&format!("dist-{i}"), "a", 8, GPUS) });
    }
}

/// One queue runs a single-GPU job on every GPU.
fn packed(sketch: &mut Sketch<'_>, nodes: usize, queue: &str) {
    for i in 0..GPUS * nodes {
        let state = State::Running(&|_| i / GPUS);
        sketch.job(&Job { state, ..Job::new(&format!("run-{i}"), queue, 1, 1) });
    }
}

fn reclaim_one(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    packed(sketch, nodes, "b");
    sketch.job(&Job::new("want", "a", 1, 1));
}

fn reclaim_large(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    packed(sketch, nodes, "b");
    sketch.job(&Job::new("want", "a", nodes / 2, GPUS));
}

fn reclaim_many(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    packed(sketch, nodes, "b");
    for i in 0..GPUS * nodes / 2 {
        sketch.job(&Job::new(&format!("want-{i}"), "a", 1, 1));
    }
}

fn reclaim_gangs(sketch: &mut Sketch<'_>, nodes: usize) {
    halves(sketch, nodes);
    for i in 0..nodes / 10 {
        let state = State::Running(&|pod| 10 * i + pod);
        sketch.job(&Job { state, ..Job::new(&format!("run-{i}"), "b", 10, GPUS) });
    }
    for i in 0..nodes / 20 {
        sketch.job(&Job::new(&format!("want-{i}"), "a", 10, GPUS));
    }
}

fn preempt(sketch: &mut Sketch<'_>, nodes: usize) {
    two_queues(sketch, nodes, GPUS * nodes, 0);
    packed(sketch, nodes, "a");
    sketch.job(&Job { priority: "build", ..Job::new("want", "a", (nodes / 10).max(1), GPUS) });
}

fn consolidate(sketch: &mut Sketch<'_>, nodes: usize) {
    two_queues(sketch, nodes, GPUS * nodes, 0);
    for i in 0..nodes {
        for k in 0..GPUS / 2 {
            let state = State::Running(&|_| i);
            sketch.job(&Job { state, ..Job::new(&format!("run-{i}-{k}"), "a", 1, 1) });
        }
    }
    for i in 0..(nodes / 100).max(1) {
        sketch.job(&Job::new(&format!("want-{i}"), "a", 2, GPUS));
    }
}

fn unschedulable(sketch: &mut Sketch<'_>, nodes: usize) {
    two_queues(sketch, nodes, GPUS * nodes, GPUS * nodes);
    for i in 0..nodes {
        let state = State::Running(&|_| i);
        sketch.job(&Job { priority: "build", state, ..Job::new(&format!("run-{i}"), "b", 1, GPUS) });
    }
    for i in 0..50 {
        sketch.job(&Job::new(&format!("want-{i}"), "a", 10 + i % 3, GPUS));
    }
}

fn mixed(sketch: &mut Sketch<'_>, nodes: usize) {
    for d in 0..10 {
        let department = format!("dep-{d}");
        let gpus = GPUS * nodes / 10;
        sketch.queue(&Queue {
            name: &department,
            parent: None,
            gpus,
            weight: 1,
            priority: Some(100 + d % 3),
        });
        for t in 0..10 {
            sketch.queue(&Queue {
                name: &format!("team-{d}-{t}"),
                parent: Some(&department),
                gpus: GPUS * nodes / 120,
                weight: 1 + t % 4,
                priority: None,
            });
        }
    }
    for i in 0..nodes * 9 / 10 {
        mixed_node(sketch, i);
    }
    let priorities = ["train", "build-preemptible", "build", "inference"];
    for i in 0..nodes {
        let queue = format!("team-{}-{}", 7 * i % 10, 3 * i % 10);
        let pods = if i % 7 == 0 { 8 } else { 1 };
        let priority = priorities[if i % 11 == 0 { 3 } else { i % 4 }];
        sketch.job(&Job { priority, ..Job::new(&format!("want-{i}"), &queue, pods, 1 << (i % 4)) });
    }
}

/// What runs on one node of the mixed cluster: one large job, four medium, eight small, or an elastic one.
fn mixed_node(sketch: &mut Sketch<'_>, i: usize) {
    let queue = format!("team-{}-{}", i % 10, i / 10 % 10);
    let mut run = |name: String, pods, gpus, priority, min_member| {
        let state = State::Running(&|_| i);
        sketch.job(&Job { min_member, priority, state, ..Job::new(&name, &queue, pods, gpus) });
    };
    match i % 5 {
        0 => run(format!("run-{i}"), 1, GPUS, "train", None),
        1 | 2 => {
            for k in 0..4 {
                run(format!("run-{i}-{k}"), 1, 2, ["train", "build-preemptible"][k % 2], None);
            }
        }
        3 => {
            for k in 0..GPUS {
                run(format!("run-{i}-{k}"), 1, 1, ["train", "build"][k % 2], None);
            }
        }
        _ => run(format!("run-{i}"), 8, 1, "train", Some(4)),
    }
}
