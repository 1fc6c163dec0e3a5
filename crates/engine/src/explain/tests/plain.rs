//! Tests of plain sentences.

use super::super::plain;
use super::{GPU, excess, fit, topology, unschedulable};
use crate::verdict::{Measured, NodeRejection, PodRejection, PoolGap, QueueResource, Verdict};

#[test]
fn sentences_contain_numbers_and_a_hint() {
    let memory = PoolGap {
        resource: "memory".into(),
        wanted: 512_000_000_000,
        largest: 256_000_000_000,
        pool: "default".into(),
        ..PoolGap::default()
    };
    let mixed = fit(vec![(NodeRejection::Gpus, 2), (NodeRejection::Taint("spot".into(), String::new()), 1)]);
    let cases = [
        (Verdict::Placed, "all pods are placed"),
        (
            Verdict::QueueMissing,
            "queue `team` or one of its parents does not exist; hint: create the queue, or correct its name in the label `kai.scheduler/queue`",
        ),
        (
            Verdict::OverLimit(excess(QueueResource::Gpu, 8 * GPU, 8 * GPU, 4 * GPU)),
            "queue `research` would use 12 of its limit of 8 GPUs; hint: raise the limit of `research`, or wait for 4 GPUs to be released",
        ),
        (
            Verdict::OverLimit(excess(QueueResource::Cpu, 1000, 0, 4000)),
            "queue `research` would use 4 of its limit of 1 CPU core; hint: request less, or raise the limit of `research`",
        ),
        (
            Verdict::OverLimit(excess(QueueResource::Memory, 0, 0, 1_000_000_000)),
            "queue `research` would use 1 of its limit of 0 GB of memory; hint: set `spec.resources.memory.limit` of queue `research`; -1 is unlimited, and an absent limit is 0",
        ),
        (
            Verdict::NonPreemptibleOverQuota(excess(QueueResource::Gpu, 500_000, 0, GPU)),
            "queue `research` would use 1 of its quota of 0.5 GPUs for non-preemptible pods; hint: use a preemptible priority class, or raise the quota of `research`",
        ),
        (
            Verdict::NotReady { sub_group: "workers".into(), ready: 2, needed: 4 },
            "2 of 4 required pods exist and are not gated in sub-group `workers`; hint: create or ungate 2 more, or lower the minimum",
        ),
        (
            Verdict::GangNotSatisfied { sub_group: String::new(), found: 1, needed: 4, fit: mixed },
            "1 of 4 required pods fit; 0/3 nodes are available for pod `lab/train-0`: 2 insufficient GPUs, 1 untolerated taint `spot`; hint: wait for pods to finish, or add a node",
        ),
        (
            Verdict::NoNode(fit(vec![(NodeRejection::Cordoned, 2)])),
            "0/2 nodes are available for pod `lab/train-0`: 2 cordoned; hint: uncordon a node",
        ),
        (
            topology("", Measured::default()),
            "no `rack` of topology `dc` fits 4 pods; the best is `r2`, which fits 3; hint: require a wider level, or request fewer pods",
        ),
        (
            topology("", Measured::Whole(String::new())),
            "all nodes of topology `dc` together do not fit 4 pods; hint: wait for pods to finish, or request fewer pods",
        ),
        (
            topology("", Measured::Unlabelled("example.com/rack".into())),
            "no node has the label `example.com/rack`, a level of topology `dc`; hint: label the nodes, or remove the level from the topology: a node needs the labels of all levels",
        ),
        (
            unschedulable(PodRejection::ClaimUnmade("gpu".into())),
            "pod `lab/train-0` is unschedulable: device claim `gpu` has not been made from its template; hint: create the ResourceClaimTemplate that the pod names in `spec.resourceClaims`",
        ),
        (
            unschedulable(PodRejection::PoolTooSmall(Box::new(memory))),
            "pod `lab/train-0` is unschedulable: it requests 512 GB of memory, and the largest node of pool `default` has 256 GB of memory; hint: request less, or add a larger node",
        ),
        (Verdict::WaitingForVictims { waiting: 1 }, "1 pod is waiting for releasing pods to terminate"),
    ];
    for (verdict, text) in cases {
        assert_eq!(plain(&verdict, "team").to_string(), text);
    }
}
