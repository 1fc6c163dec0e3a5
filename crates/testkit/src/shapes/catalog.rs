//! The shapes by name. Names and descriptions appear in bench tables.

use super::object_writer::{GPUS, Gpus, Job, ObjectWriter, Placement, Queue, State};

/// A cluster that can be generated at any size.
pub struct Shape {
    /// The name on command lines and in tables.
    pub name: &'static str,
    /// The work of the scheduler.
    pub description: &'static str,
    pub(super) build: fn(&mut ObjectWriter<'_>, usize),
}

macro_rules! shapes {
    ($($name:literal $build:ident $description:literal)*) => {
        &[$(Shape { name: $name, description: $description, build: $build }),*]
    };
}

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

/// For a search about one group of many; not part of the benches of planning.
pub const BACKLOG: Shape = Shape {
    name: "backlog",
    description: "every node full, and ten thousand jobs that wait",
    build: backlog,
};

fn backlog(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes / 2, GPUS * nodes / 2);
    for i in 0..nodes {
        let state = State::Running(&|_| i);
        writer.job(&Job { priority: "build", state, ..Job::new(&format!("run-{i}"), in_turn(i), 1, GPUS) });
    }
    for i in 0..10_000 {
        writer.job(&Job::new(&format!("want-{i}"), in_turn(i), 1 + i % 3, 1 << (i % 4)));
    }
}

fn two_queues(writer: &mut ObjectWriter<'_>, nodes: usize, a: usize, b: usize) {
    for (name, parent, gpus) in [("org", None, GPUS * nodes), ("a", Some("org"), a), ("b", Some("org"), b)] {
        writer.queue(&Queue { name, parent, gpus, weight: 1, priority: None });
    }
}

fn halves(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes / 2, GPUS * nodes / 2);
}

fn in_turn(index: usize) -> &'static str {
    ["a", "b"][index % 2]
}

fn fill(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    for i in 0..GPUS * nodes {
        writer.job(&Job::new(&format!("job-{i}"), in_turn(i), 1, 1));
    }
}

fn fill_varied(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    for i in 0..GPUS * nodes {
        writer.job(&Job {
            cpu: format!("{}m", 500 + 10 * (i % 331)).into(),
            memory: format!("{}Gi", 1 + i % 13).into(),
            placement: Placement::Kind { node: i % 3, taint: i % 7 },
            ..Job::new(&format!("job-{i}"), in_turn(i), 1, 1)
        });
    }
}

fn fractions(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    for i in 0..2 * GPUS * nodes {
        writer.job(&Job {
            gpus: Gpus::Half,
            cpu: "500m".into(),
            memory: "1Gi".into(),
            ..Job::new(&format!("job-{i}"), in_turn(i), 1, 1)
        });
    }
}

fn anti_affinity(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    for i in 0..nodes / 2 {
        writer.job(&Job { placement: Placement::Apart, ..Job::new(&format!("job-{i}"), in_turn(i), 8, 1) });
    }
}

fn gang(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes, 0);
    writer.job(&Job::new("gang", "a", nodes, GPUS));
}

fn topology(writer: &mut ObjectWriter<'_>, nodes: usize) {
    writer.topology();
    two_queues(writer, nodes, GPUS * nodes, 0);
    for i in (0..nodes).step_by(2) {
        writer.job(&Job {
            priority: "build",
            state: State::Running(&|_| i),
            ..Job::new(&format!("busy-{i}"), "a", 1, GPUS)
        });
    }
    for i in 0..8 {
        writer.job(&Job { placement: Placement::Together, ..Job::new(&format!("dist-{i}"), "a", 8, GPUS) });
    }
}

/// One queue runs a single-GPU job on every GPU.
fn packed(writer: &mut ObjectWriter<'_>, nodes: usize, queue: &str) {
    for i in 0..GPUS * nodes {
        let state = State::Running(&|_| i / GPUS);
        writer.job(&Job { state, ..Job::new(&format!("run-{i}"), queue, 1, 1) });
    }
}

fn reclaim_one(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    packed(writer, nodes, "b");
    writer.job(&Job::new("want", "a", 1, 1));
}

fn reclaim_large(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    packed(writer, nodes, "b");
    writer.job(&Job::new("want", "a", nodes / 2, GPUS));
}

fn reclaim_many(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    packed(writer, nodes, "b");
    for i in 0..GPUS * nodes / 2 {
        writer.job(&Job::new(&format!("want-{i}"), "a", 1, 1));
    }
}

fn reclaim_gangs(writer: &mut ObjectWriter<'_>, nodes: usize) {
    halves(writer, nodes);
    for i in 0..nodes / 10 {
        let state = State::Running(&|pod| 10 * i + pod);
        writer.job(&Job { state, ..Job::new(&format!("run-{i}"), "b", 10, GPUS) });
    }
    for i in 0..nodes / 20 {
        writer.job(&Job::new(&format!("want-{i}"), "a", 10, GPUS));
    }
}

fn preempt(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes, 0);
    packed(writer, nodes, "a");
    writer.job(&Job { priority: "build", ..Job::new("want", "a", (nodes / 10).max(1), GPUS) });
}

fn consolidate(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes, 0);
    for i in 0..nodes {
        for k in 0..GPUS / 2 {
            let state = State::Running(&|_| i);
            writer.job(&Job { state, ..Job::new(&format!("run-{i}-{k}"), "a", 1, 1) });
        }
    }
    for i in 0..(nodes / 100).max(1) {
        writer.job(&Job::new(&format!("want-{i}"), "a", 2, GPUS));
    }
}

fn unschedulable(writer: &mut ObjectWriter<'_>, nodes: usize) {
    two_queues(writer, nodes, GPUS * nodes, GPUS * nodes);
    for i in 0..nodes {
        let state = State::Running(&|_| i);
        writer.job(&Job { priority: "build", state, ..Job::new(&format!("run-{i}"), "b", 1, GPUS) });
    }
    for i in 0..50 {
        writer.job(&Job::new(&format!("want-{i}"), "a", 10 + i % 3, GPUS));
    }
}

fn mixed(writer: &mut ObjectWriter<'_>, nodes: usize) {
    for d in 0..10 {
        let department = format!("dep-{d}");
        let gpus = GPUS * nodes / 10;
        writer.queue(&Queue {
            name: &department,
            parent: None,
            gpus,
            weight: 1,
            priority: Some(100 + d % 3),
        });
        for t in 0..10 {
            writer.queue(&Queue {
                name: &format!("team-{d}-{t}"),
                parent: Some(&department),
                gpus: GPUS * nodes / 120,
                weight: 1 + t % 4,
                priority: None,
            });
        }
    }
    for i in 0..nodes * 9 / 10 {
        mixed_node(writer, i);
    }
    let priorities = ["train", "build-preemptible", "build", "inference"];
    for i in 0..nodes {
        let queue = format!("team-{}-{}", 7 * i % 10, 3 * i % 10);
        let pods = if i % 7 == 0 { 8 } else { 1 };
        let priority = priorities[if i % 11 == 0 { 3 } else { i % 4 }];
        writer.job(&Job { priority, ..Job::new(&format!("want-{i}"), &queue, pods, 1 << (i % 4)) });
    }
}

/// What runs on one node of the mixed cluster: one large job, four medium, eight small, or an elastic one.
fn mixed_node(writer: &mut ObjectWriter<'_>, i: usize) {
    let queue = format!("team-{}-{}", i % 10, i / 10 % 10);
    let mut run = |name: String, pods, gpus, priority, min_member| {
        let state = State::Running(&|_| i);
        writer.job(&Job { min_member, priority, state, ..Job::new(&name, &queue, pods, gpus) });
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
