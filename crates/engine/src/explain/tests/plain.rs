//! Sentences for people.

use super::super::plain;
use super::{GPU, excess, fit, impossible, topology};
use crate::verdict::{Measured, NodeRejection, PodRejection, PoolGap, QueueResource, Verdict};

#[test]
fn sentences_have_numbers_and_a_next_step() {
    let memory = PoolGap {
        resource: "memory".into(),
        wanted: 512_000_000_000,
        largest: 256_000_000_000,
        pool: "default".into(),
        ..PoolGap::default()
    };
    let mixed = fit(vec![(NodeRejection::Gpus, 2), (NodeRejection::Taint("spot".into(), String::new()), 1)]);
    let cases = [
        (Verdict::Placed, "every pod has a place"),
        (
            Verdict::QueueMissing,
            "queue `team` does not exist, or one of its parents does not; hint: create the queue, or correct its name in the label `kai.scheduler/queue`",
        ),
        (
            Verdict::OverLimit(excess(QueueResource::Gpu, 8 * GPU, 8 * GPU, 4 * GPU)),
            "queue `research` would go to 12 of its limit of 8 GPUs; hint: raise the limit of `research`, or wait for 4 \
             GPUs to be freed",
        ),
        (
            Verdict::OverLimit(excess(QueueResource::Cpu, 1000, 0, 4000)),
            "queue `research` would go to 4 of its limit of 1 CPU core; hint: it can never fit: ask for less, or raise \
             the limit of `research`",
        ),
        (
            Verdict::NonPreemptibleOverQuota(excess(QueueResource::Gpu, 500_000, 0, GPU)),
            "queue `research` would go to 1 of its quota of 0.5 GPUs for pods that cannot be preempted; hint: use a \
             preemptible priority class, or raise the quota of `research`",
        ),
        (
            Verdict::NotReady { sub_group: "workers".into(), ready: 2, needed: 4 },
            "2 of 4 needed pods are there and not held back in sub-group `workers`; hint: create or release the missing 2, or lower the minimum",
        ),
        (
            Verdict::GangNotSatisfied { sub_group: String::new(), found: 1, needed: 4, fit: mixed },
            "1 of 4 needed pods found a node; none of 3 nodes takes pod `lab/train-0`: 2 × not enough GPUs, 1 × taint \
             `spot`; hint: wait for pods to finish, or add a node",
        ),
        (
            Verdict::NoNode(fit(vec![(NodeRejection::Cordoned, 2)])),
            "none of 2 nodes takes pod `lab/train-0`: 2 × cordoned; hint: uncordon a node",
        ),
        (
            topology("", Measured::default()),
            "no `rack` of topology `dc` holds 4 pods; the best is `r2`, which holds 3; hint: ask for a wider level, or \
             for fewer pods",
        ),
        (
            topology("", Measured::Whole(String::new())),
            "all nodes of topology `dc` together do not hold 4 pods; hint: wait for pods to finish, or ask for fewer \
             pods",
        ),
        (
            impossible(PodRejection::PoolTooSmall(Box::new(memory))),
            "pod `lab/train-0` cannot be placed as it is: it asks for 512 GB of memory, and the largest node of pool \
             `default` has 256 GB of memory; hint: ask for less, or add a larger node",
        ),
        (Verdict::WaitingForVictims { waiting: 1 }, "1 pod waits for room that is being freed"),
    ];
    for (verdict, text) in cases {
        assert_eq!(plain(&verdict, "team").to_string(), text);
    }
}
