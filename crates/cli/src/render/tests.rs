//! What people see, whole: one outcome rendered.

use super::outcome;
use insta::assert_snapshot;
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Decision, Outcome, QueueReport};
use kai_engine::verdict::{GroupVerdict, NodeFit, NodeMiss, QueueExcess, QueueResource, Verdict};

fn key(name: &str) -> Key {
    Key::new("lab", name)
}

fn bind(pod: &str, node: &str, gpus: u32, hundredths: u32, groups: &[&str]) -> Decision {
    Decision::Bind(Box::new(Bind {
        pod: key(pod),
        node: node.to_owned(),
        action: "allocate",
        gpu_count: gpus,
        gpu_hundredths: hundredths,
        gpu_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..Bind::default()
    }))
}

fn queue(
    name: &str,
    parent: Option<&str>,
    quota: Option<i64>,
    limit: Option<i64>,
    rest: [i64; 3],
) -> QueueReport {
    let gpus = |amount: i64| amount * 1_000_000;
    QueueReport {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        quota: [Some(16_000), None, quota.map(gpus)],
        limit: [None, None, limit.map(gpus)],
        allocated: [4_000, 1 << 30, gpus(rest[0])],
        allocated_after: [5_000, 1 << 30, gpus(rest[0] + 1)],
        requested: [8_000, 3 << 30, gpus(rest[1])],
        fair_share: [16_000, 64 << 30, gpus(rest[2])],
        ..QueueReport::default()
    }
}

fn excess() -> QueueExcess {
    QueueExcess {
        queue: "research".to_owned(),
        resource: QueueResource::Gpu,
        bound: 8_000_000,
        used: 6_000_000,
        requested: 4_000_000,
        numbers: None,
    }
}

fn fit() -> NodeFit {
    NodeFit {
        pod: key("train-3"),
        nodes: 3,
        reasons: vec![(NodeMiss::Gpus, 2), (NodeMiss::Taint("maintenance".to_owned(), String::new()), 1)],
    }
}

fn example() -> Outcome {
    Outcome {
        decisions: vec![
            bind("train-1", "node-b", 2, 100, &[]),
            bind("notes-0", "node-a", 1, 50, &["f3a"]),
            bind("web-0", "node-a", 0, 0, &[]),
            Decision::Pipeline {
                pod: key("next-0"),
                node: "node-c".to_owned(),
                gpu_groups: vec![],
                action: "reclaim",
                moved: false,
            },
            Decision::Evict {
                pod: key("old-0"),
                uid: "7".to_owned(),
                group: Some(key("old")),
                gang_size: 1,
                preemptor: Some(key("next")),
                action: "reclaim",
            },
        ],
        verdicts: vec![
            GroupVerdict {
                group: key("big"),
                queue: "research".to_owned(),
                pending: 4,
                leading: Verdict::GangShort { sub_group: String::new(), found: 3, needed: 4, fit: fit() },
                further: vec![Verdict::OverLimit(excess())],
            },
            GroupVerdict {
                group: key("lost"),
                queue: "nowhere".to_owned(),
                pending: 1,
                leading: Verdict::QueueMissing,
                further: vec![],
            },
            GroupVerdict {
                group: key("train"),
                queue: "research".to_owned(),
                pending: 0,
                leading: Verdict::Placed,
                further: vec![],
            },
        ],
        queues: vec![
            queue("alice", Some("research"), Some(4), None, [1, 6, 5]),
            queue("bob", Some("research"), Some(4), Some(6), [2, 2, 2]),
            queue("research", None, Some(8), None, [3, 8, 7]),
        ],
        ..Outcome::default()
    }
}

#[test]
fn an_outcome_reads_from_placements_to_reasons() {
    let text = anstream::adapter::strip_str(&outcome(&example())).to_string();
    assert_snapshot!(text, @"
    Placements
      POD           NODE     GPUS       HOW
    ────────────────────────────────────────────────────────────────
      lab/next-0    node-c   –          waits for room, by reclaim
      lab/notes-0   node-a   0.5 of 1   bound by allocate
      lab/train-1   node-b   2          bound by allocate
      lab/web-0     node-a   –          bound by allocate

    Evictions
      POD         GROUP     FOR        BY
    ────────────────────────────────────────────
      lab/old-0   lab/old   lab/next   reclaim

    Queue shares
      QUEUE      RESOURCE   QUOTA   LIMIT   FAIR SHARE   REQUESTED   BEFORE   AFTER
    ─────────────────────────────────────────────────────────────────────────────────
      research   GPU        8       ∞       7            8           3        4
                 CPU        16      ∞       16           8           4        5
        alice    GPU        4       ∞       5            6           1        2
                 CPU        16      ∞       16           8           4        5
        bob      GPU        4       6       2            2           2        3
                 CPU        16      ∞       16           8           4        5

    Pending
      GROUP      QUEUE      PODS   WHY
    ───────────────────────────────────────────────────────────────────────────────────────────────
      lab/big    research   4      3 of 4 needed pods found a node; none of 3 nodes takes pod
                                   `lab/train-3`: 2 × not enough GPUs, 1 × taint `maintenance`
                                   hint: wait for pods to finish, or add a node
                                   also: queue `research` would go to 10 of its limit of 8 GPUs
      lab/lost   nowhere    1      queue `nowhere` does not exist, or one of its parents does not
                                   hint: create the queue, or correct its name in the label
                                   `kai.scheduler/queue`
    ");
}

#[test]
fn an_empty_outcome_says_so() {
    let text = anstream::adapter::strip_str(&outcome(&Outcome::default())).to_string();
    assert_snapshot!(text, @"
    Placements
    nothing was placed

    Queue shares
    there are no queues

    Pending
    every group has its place
    ");
}

#[test]
fn long_tables_end_in_a_count() {
    let decisions = (0..50).map(|pod| bind(&format!("p-{pod:02}"), "node-a", 1, 100, &[])).collect();
    let text = outcome(&Outcome { decisions, ..Outcome::default() });
    assert!(text.contains("… and 10 more"), "{text}");
}

#[test]
fn thousands_of_queues_are_no_burden() {
    let name = |at: usize| format!("q{at:05}");
    let mut queues = vec![queue("top", None, None, None, [0; 3])];
    queues.extend((0..20_000).map(|at| queue(&name(at), Some("top"), None, None, [0; 3])));
    let text = outcome(&Outcome { queues, ..Outcome::default() });
    assert!(text.contains("  q00000"), "{text}");
}

#[test]
fn a_cycle_of_queues_ends() {
    let queues = vec![queue("a", Some("b"), None, None, [0; 3]), queue("b", Some("a"), None, None, [0; 3])];
    outcome(&Outcome { queues, ..Outcome::default() });
}
