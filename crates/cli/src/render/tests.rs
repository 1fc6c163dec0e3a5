//! A complete outcome as tables.

use insta::assert_snapshot;
use kai_engine::input::Key;
use kai_engine::outcome::{Bind, Cause, Decision, EvictionReason, Outcome, QueueChange, QueueReport};
use kai_engine::verdict::{
    EvictionFailure, EvictionFailureReason, GroupVerdict, NodeFit, NodeRejection, QueueExcess, QueueResource,
    Verdict,
};
use kai_view::verdicts::obstacles;

fn key(name: &str) -> Key {
    Key::new("lab", name)
}

fn outcome(outcome: &Outcome) -> String {
    super::outcome(outcome, kai_view::Names::default(), |verdict| obstacles(verdict, None))
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
        reasons: vec![
            (NodeRejection::Gpus, 2),
            (NodeRejection::Taint("maintenance".to_owned(), String::new()), 1),
        ],
    }
}

fn evict(
    pod: &str,
    group: Option<&str>,
    preemptor: Option<&str>,
    action: &'static str,
    why: EvictionReason,
) -> Decision {
    Decision::Evict {
        pod: key(pod),
        uid: pod.to_owned(),
        group: group.map(key),
        gang_size: 1,
        preemptor: preemptor.map(key),
        action,
        why: Box::new(why),
    }
}

fn moved(node: &str) -> EvictionReason {
    EvictionReason::Moved { node: node.to_owned() }
}

fn above_share() -> EvictionReason {
    let change = |queue: &str, cpu: [i64; 2], gpus: [i64; 2]| QueueChange {
        queue: queue.to_owned(),
        quota: [Some(16_000), None, Some(4_000_000)],
        fair_share: [16_000, 64 << 30, 5_000_000],
        before: [cpu[0], 1 << 30, gpus[0]],
        after: [cpu[1], 1 << 30, gpus[1]],
    };
    EvictionReason::AboveShare {
        reclaimer: change("bob", [2_000, 2_000], [2_000_000, 4_000_000]),
        victim: change("alice", [4_000, 2_000], [7_000_000, 5_000_000]),
    }
}

fn no_victims(cause: Cause, reason: EvictionFailureReason) -> Verdict {
    Verdict::NoVictims(Box::new(EvictionFailure { cause, reason }))
}

fn like(group: &str) -> EvictionFailureReason {
    EvictionFailureReason::EquivalentGroupFailed(key(group))
}

fn too_little() -> EvictionFailureReason {
    EvictionFailureReason::InsufficientEvictable {
        resource: QueueResource::Gpu,
        requested: 24_000_000,
        free: 0,
        evictable: 16_000_000,
        queues: 1,
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
            evict("old-0", Some("old"), Some("next"), "reclaim", above_share()),
            evict("moving-0", Some("moving"), Some("next"), "reclaim", moved("node-b")),
            evict("old-1", Some("old"), Some("next"), "reclaim", above_share()),
            evict(
                "low-0",
                Some("low"),
                Some("high"),
                "preempt",
                EvictionReason::Priority { preemptor: 75, victim: 50 },
            ),
            evict("half-0", Some("half"), None, "stalegangeviction", EvictionReason::Stale { since: 0 }),
        ],
        verdicts: vec![
            GroupVerdict {
                group: key("big"),
                queue: "research".to_owned(),
                pending: 4,
                leading: Verdict::GangNotSatisfied {
                    sub_group: String::new(),
                    found: 3,
                    needed: 4,
                    fit: fit(),
                },
                further: vec![
                    Verdict::OverLimit(excess()),
                    no_victims(Cause::Consolidation, like("other")),
                    no_victims(Cause::Reclaim, too_little()),
                    no_victims(Cause::Preempt, like("other")),
                ],
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
fn outcome_has_all_tables() {
    let text = anstream::adapter::strip_str(&outcome(&example())).to_string();
    assert_snapshot!(text, @"
    Placements
      POD           NODE         GPUS   HOW
    ──────────────────────────────────────────────────────────
      lab/next-0    node-c          –   pipelined by reclaim
      lab/notes-0   node-a   0.5 of 1   bound by allocate
      lab/train-1   node-b          2   bound by allocate
      lab/web-0     node-a          –   bound by allocate

    Evictions
      PREEMPTOR   ACTION              VICTIM       PODS           REASON
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      lab/next    reclaim             lab/old      old-0, old-1   evicted: queue `alice` is above its
                                                                  fair share of GPUs
                                      lab/moving   moving-0       moved to node-b
      lab/high    preempt             lab/low      low-0          evicted: priority 75 is higher than
                                                                  50
      –           stalegangeviction   lab/half     half-0         evicted: the gang has been below its
                                                                  minimum since 1970-01-01T00:00:00Z

    Queue allocation changes
      PREEMPTOR   QUEUE   ROLE        RESOURCE   QUOTA   FAIR SHARE   BEFORE   AFTER
    ──────────────────────────────────────────────────────────────────────────────────
      lab/next    bob     reclaimer   GPU            4            5        2       4
                  alice   victim      GPU            4            5        7       5
                                      CPU           16           16        4       2

    Queue shares
      QUEUE      RESOURCE   QUOTA   LIMIT   FAIR SHARE   REQUESTED   BEFORE   AFTER
    ─────────────────────────────────────────────────────────────────────────────────
      research   GPU            8       ∞            7           8        3       4
                 CPU           16       ∞           16           8        4       5
        alice    GPU            4       ∞            5           6        1       2
                 CPU           16       ∞           16           8        4       5
        bob      GPU            4       6            2           2        2       3
                 CPU           16       ∞           16           8        4       5

    Pending
      GROUP      QUEUE      PODS   REASON
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      lab/big    research      4   3 of 4 required pods fit; 0/3 nodes are available for pod
                                   `lab/train-3`: 2 insufficient GPUs, 1 untolerated taint
                                   `maintenance`
                                   also: queue `research` would use 10 of its limit of 8 GPUs
                                   no consolidation or preemption: the search failed for group
                                   `lab/other`, which is equivalent and requests no more
                                   no reclaim: 24 GPUs would have to be freed in queues above their
                                   fair share; only 16 are reclaimable
      lab/lost   nowhere       1   queue `nowhere` or one of its parents does not exist
                                   hint: create the queue, or correct its name in the label
                                   `kai.scheduler/queue`
    ");
}

#[test]
fn empty_outcome_has_no_tables() {
    let text = anstream::adapter::strip_str(&outcome(&Outcome::default())).to_string();
    assert_snapshot!(text, @"
    Placements
    No pods were placed

    Queue shares
    No queues found

    Pending
    No pending pod groups
    ");
}

#[test]
fn long_table_ends_with_a_count() {
    let decisions = (0..50).map(|pod| bind(&format!("p-{pod:02}"), "node-a", 1, 100, &[])).collect();
    let text = outcome(&Outcome { decisions, ..Outcome::default() });
    assert!(text.contains("… and 10 more"), "{text}");
}

#[test]
fn many_pods_of_a_group_are_counted() {
    let evict = |at: usize| evict(&format!("p-{at}"), Some("g"), Some("next"), "reclaim", moved("node-a"));
    let text = outcome(&Outcome { decisions: (0..9).map(evict).collect(), ..Outcome::default() });
    assert!(text.contains("p-0, p-1, p-2, p-3 and 5"), "{text}");
    assert!(!text.contains("Queue allocation changes"), "{text}");
}

#[test]
fn many_victim_groups_of_one_rule_share_a_row() {
    let evict = |at: usize| {
        evict(&format!("p-{at}"), Some(&format!("g-{at}")), Some("next"), "reclaim", above_share())
    };
    let text = outcome(&Outcome { decisions: (0..90).map(evict).collect(), ..Outcome::default() });
    assert!(
        text.contains("lab/next    reclaim   lab/g-0 and 89 more   90 pods   evicted: queue `alice`"),
        "{text}"
    );
}

#[test]
fn pods_without_a_group_are_named_in_full() {
    let decisions = ["a", "b"].map(|pod| evict(pod, None, Some("next"), "reclaim", moved("node-a")));
    let text = outcome(&Outcome { decisions: decisions.into(), ..Outcome::default() });
    assert!(text.contains("lab/a ") && text.contains("lab/b "), "{text}");
}

#[test]
fn thousands_of_queues_are_rendered() {
    let name = |at: usize| format!("q{at:05}");
    let mut queues = vec![queue("top", None, None, None, [0; 3])];
    queues.extend((0..20_000).map(|at| queue(&name(at), Some("top"), None, None, [0; 3])));
    let text = outcome(&Outcome { queues, ..Outcome::default() });
    assert!(text.contains("  q00000"), "{text}");
}

#[test]
fn cycle_of_queues_terminates() {
    let queues = vec![queue("a", Some("b"), None, None, [0; 3]), queue("b", Some("a"), None, None, [0; 3])];
    outcome(&Outcome { queues, ..Outcome::default() });
}
