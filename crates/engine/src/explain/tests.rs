//! Tests of all messages.

mod evictions;
mod plain;

use super::*;
use crate::input::NodeCondition;
use crate::verdict::{
    ClaimRejection, DomainCapacity, GpuKindMismatch, Measured, NodeRejection, PoolGap, QueueResource,
    TopologyReason, TopologyRejection, VolumeClaimProblem, VolumeRejection,
};

const GPU: i64 = 1_000_000;

fn group(verdicts: Vec<Verdict>) -> GroupVerdict {
    let mut verdicts = verdicts.into_iter();
    GroupVerdict {
        group: Key::new("lab", "train"),
        queue: "research".into(),
        pending: 4,
        leading: verdicts.next().expect("a leading verdict"),
        further: verdicts.collect(),
    }
}

fn pod(name: &str) -> Key {
    Key::new("lab", name)
}

fn fit(reasons: Vec<(NodeRejection, u32)>) -> NodeFit {
    NodeFit { pod: pod("train-0"), nodes: reasons.iter().map(|r| r.1).sum(), reasons }
}

fn excess(resource: QueueResource, bound: i64, used: i64, requested: i64) -> QueueExcess {
    QueueExcess { queue: "research".into(), resource, bound, used, requested, numbers: None }
}

fn unschedulable(reason: PodRejection) -> Verdict {
    Verdict::PodUnschedulable { pod: pod("train-0"), reason, gang: None }
}

/// The message of the only reason; checks its code.
fn only(verdict: Verdict, code: &str) -> String {
    let mut reasons = reasons(&group(vec![verdict]));
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].reason.text(), code);
    reasons.remove(0).message
}

#[test]
fn numbers_have_three_decimals_at_most() {
    let cases = [
        (2_000_000, GPU, "2"),
        (590_000, GPU, "0.59"),
        (333_333, GPU, "0.333"),
        (1_999_999, GPU, "1.999"),
        (0, GPU, "0"),
        (1500, 1000, "1.5"),
        (-1500, 1000, "-1.5"),
        (20_000_000_000, 1_000_000_000, "20"),
        (1_234_567_890, 1_000_000_000, "1.234"),
        (1_234_999_999, 1_000_000_000, "1.235"),
    ];
    for (amount, unit, text) in cases {
        assert_eq!(amount::number(amount, unit), text, "{amount}/{unit}");
    }
    assert_eq!(amount::exact(333_333, GPU), "0.333333");
    let significant = [(2 * GPU, "2"), (12_500_000, "12.5"), (125_400_000, "125"), (1234 * GPU, "1.23e+03")];
    for (amount, text) in significant {
        assert_eq!(amount::significant(amount), text);
    }
    assert_eq!(amount::significant(250_000), "0.25");
}

#[test]
fn limit_message_contains_usage_and_request() {
    let text = |resource, bound, used, requested| {
        only(Verdict::OverLimit(excess(resource, bound, used, requested)), "OverLimit")
    };
    assert_eq!(
        text(QueueResource::Gpu, 8 * GPU, 6 * GPU, 2_500_000),
        "research quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 6 GPUs allocated and \
         workload requested 2.5 GPUs"
    );
    assert_eq!(
        text(QueueResource::Cpu, 4000, 3500, 1000),
        "research quota has reached the allowable limit of CPU cores. Limit is 4 cores, currently 3.5 cores \
         allocated and workload requested 1 cores"
    );
    assert_eq!(
        text(QueueResource::Memory, 64_000_000_000, 0, 65_000_000_000),
        "research quota has reached the allowable limit of memory. Limit is 64 GB, currently 0 GB allocated and \
         workload requested 65 GB"
    );
}

#[test]
fn quota_message_contains_non_preemptible_usage() {
    let text = |resource, bound, used, requested| {
        let verdict = Verdict::NonPreemptibleOverQuota(excess(resource, bound, used, requested));
        only(verdict, "NonPreemptibleOverQuota")
    };
    let end = "Use a preemptible workload to go over quota.";
    let gpus = "Non-preemptible workload is over quota. Workload requested 0.5 GPUs, but research quota is 1 GPUs, \
                while 0.6 GPUs are already allocated for non-preemptible pods.";
    assert_eq!(text(QueueResource::Gpu, GPU, 600_000, 500_000), format!("{gpus} {end}"));
    let cores = "Non-preemptible workload is over quota. Workload requested 2 CPU cores, but research quota is 3 \
                 cores, while 1.5 cores are already allocated for non-preemptible pods.";
    assert_eq!(text(QueueResource::Cpu, 3000, 1500, 2000), format!("{cores} {end}"));
    let memory = "Non-preemptible workload is over quota. Workload requested 2 GB memory, but research quota is 1 \
                  GB, while 0 GB are already allocated for non-preemptible pods.";
    assert_eq!(text(QueueResource::Memory, 1_000_000_000, 0, 2_000_000_000), format!("{memory} {end}"));
}

#[test]
fn exceeded_queue_has_details() {
    let numbers = QueueNumbers {
        name: "research-1".into(),
        requested: [2500, 3_000_000_000, 12 * GPU],
        quota: [None, None, None],
        allocated: [500, 1 << 30, 400_000],
        allocated_non_preemptible: [0; 3],
        limit: [Some(4000), None, Some(8 * GPU)],
        group_requested: [1000, 1_500, 2_700_000],
        group_requested_non_preemptible: [0, 0, 995_000],
    };
    let excess = QueueExcess {
        numbers: Some(Box::new(numbers)),
        ..excess(QueueResource::Gpu, 8 * GPU, 400_000, 9 * GPU)
    };
    let reasons = reasons(&group(vec![Verdict::OverLimit(excess)]));
    let details = reasons[0].detail.as_ref().expect("the queue's numbers");
    let text = |quantities: &capacity::Quantities| {
        quantities.iter().map(|(name, quantity)| format!("{name} {quantity}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(details.name, "research-1");
    assert_eq!(text(&details.requested), "cpu 2500m, memory 3G, nvidia.com/gpu 12");
    assert_eq!(text(&details.deserved), "cpu -1m, memory -1, nvidia.com/gpu 0");
    assert_eq!(text(&details.allocated), "cpu 500m, memory 1073741824, nvidia.com/gpu 400m");
    assert_eq!(text(&details.limits), "cpu 4, memory -1, nvidia.com/gpu 8");
    assert_eq!(text(&details.group_requested), "cpu 1, memory 1500, nvidia.com/gpu 2");
    assert_eq!(text(&details.group_requested_non_preemptible), "cpu 0, memory 0, nvidia.com/gpu 1");
}

#[test]
fn nodes_are_counted_by_reason() {
    let misses = vec![
        (NodeRejection::Gpus, 3),
        (NodeRejection::Cpu, 12),
        (NodeRejection::OutsideDomain, 7),
        (NodeRejection::GpuMemoryFree, 5),
        (
            NodeRejection::Overhead(
                Box::new(NodeRejection::Memory),
                vec![("cpu".into(), 250), ("memory".into(), 64)],
            ),
            1,
        ),
    ];
    assert_eq!(
        only(Verdict::NoNode(fit(misses)), "PodSchedulingErrors"),
        "Resources were not found for pod lab/train-0 due to: no nodes with enough resources were found: 1 node(s) \
         didn't have enough resources: memory. Not enough resources due to pod overhead resources. The overhead \
         resources are  cpu: 250m memory: 64. \n12 node(s) didn't have enough resources: CPU cores. \n3 node(s) \
         didn't have enough resources: GPUs."
    );
    assert_eq!(
        only(Verdict::NoNode(fit(vec![(NodeRejection::OutsideDomain, 1)])), "PodSchedulingErrors"),
        "Resources were not found for pod lab/train-0 due to: no nodes with enough resources were found"
    );
    assert_eq!(
        only(Verdict::NoNode(fit(Vec::new())), "PodSchedulingErrors"),
        "Resources were not found for pod lab/train-0 due to: Unable to schedule pod"
    );
}

#[test]
fn every_node_rejection_has_a_message() {
    let texts = [
        (NodeRejection::GpuMemory, "node(s) didn't have enough resources: GPU memory"),
        (NodeRejection::GpuMemoryFree, "node(s) didn't have enough resources: GPU memory"),
        (NodeRejection::Memory, "node(s) didn't have enough resources: memory"),
        (NodeRejection::PodSlots, "node(s) didn't have enough resources: pods"),
        (
            NodeRejection::Resource("acme.com/nic".into()),
            "node(s) didn't have enough resources: acme.com/nic",
        ),
        (
            NodeRejection::Mig("nvidia.com/mig-1g.5gb".into()),
            "node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb",
        ),
        (NodeRejection::ReservationSlot, "node(s) pod number exceeded"),
        (NodeRejection::Cordoned, "node is unschedulable"),
        (NodeRejection::Condition(NodeCondition::NotReady), "node has NotReady condition"),
        (NodeRejection::Condition(NodeCondition::PidPressure), "node has PIDPressure condition"),
        (NodeRejection::Taint("spot".into(), "yes".into()), "node(s) had untolerated taint {spot: yes}"),
        (NodeRejection::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"),
        (NodeRejection::PodAntiAffinity, "node(s) didn't match pod anti-affinity rules"),
        (NodeRejection::Volume(VolumeRejection::Capacity), "node(s) did not have enough free storage"),
        (NodeRejection::GpuKind(GpuKindMismatch::NoMig), "MIG job cannot be scheduled on non-MIG node"),
        (NodeRejection::Claims(ClaimRejection::NoDevices), "cannot allocate all DRA claims on node(s)"),
        (NodeRejection::Plugin("not on Mondays".into()), "not on Mondays"),
        (
            NodeRejection::OverCapacity(
                Box::new(excess(QueueResource::Gpu, GPU, 0, 2 * GPU)),
                CapacityRule::Limit,
            ),
            "node does not have enough capacity. Reason: OverLimit, Details: research quota has reached the \
             allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated and workload requested 2 GPUs",
        ),
    ];
    for (miss, words) in texts {
        let message = pod_message(&group(vec![Verdict::NoNode(fit(vec![(miss, 2)]))]), &pod("train-0"));
        assert_eq!(message, format!("no nodes with enough resources were found: 2 {words}."));
    }
}

#[test]
fn gang_message_contains_found_and_required_pods() {
    let short = |sub_group: &str| Verdict::GangNotSatisfied {
        sub_group: sub_group.into(),
        found: 3,
        needed: 4,
        fit: fit(vec![(NodeRejection::Gpus, 2)]),
    };
    let why = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs.";
    assert_eq!(
        only(short(""), "PodSchedulingErrors"),
        format!(
            "Resources were found for 3 pods while 4 are required for gang scheduling. Additional pods cannot be \
             scheduled due to: {why}"
        )
    );
    assert_eq!(
        only(short("workers"), "PodSchedulingErrors"),
        format!(
            "Resources were found for 3 pods from all sub-groups while sub-group workers requires 4 pods for gang \
             scheduling. Additional pods cannot be scheduled in this sub-group due to: {why}"
        )
    );
    let full = Verdict::PodUnschedulable {
        pod: pod("train-0"),
        reason: PodRejection::ClaimFull("c".into()),
        gang: Some(Box::new(GangGap { sub_group: String::new(), found: 1, needed: 2 })),
    };
    assert_eq!(
        only(full, "PodSchedulingErrors"),
        "Resources were found for 1 pods while 2 are required for gang scheduling. Additional pods cannot be \
         scheduled due to: resource claim lab/c has reached its maximum number of consumers (256)"
    );
}

#[test]
fn pool_without_a_large_enough_node_is_named() {
    let gap = |resource: &str, largest| PoolGap {
        resource: resource.into(),
        wanted: 9 * GPU,
        largest,
        pool: "default".into(),
        gpus: 9 * GPU,
        request: vec![
            ("cpu".into(), 1500),
            ("memory".into(), 2_000_000_000),
            ("nvidia.com/mig-2g.10gb".into(), 3000),
            ("pods".into(), 1),
            ("ephemeral-storage".into(), 5_000_000_000),
        ],
    };
    let text = |resource, largest| {
        pod_message(
            &group(vec![unschedulable(PodRejection::PoolTooSmall(Box::new(gap(resource, largest))))]),
            &pod("train-0"),
        )
    };
    let start = "Scheduling conditions were not met for pod lab/train-0:\nMaxNodePoolResources: The pod lab/train-0 \
                 requires GPU: 9, CPU: 1.5 (cores), memory: 2 (GB), pods: 1, ephemeral-storage: 5 (GB), mig \
                 nvidia.com/mig-2g.10gb: 3.";
    let most = |what: &str, amount: &str| {
        format!(
            "{start} Max {what} resources available in a single node in the default node-pool is topped at {amount}.\n"
        )
    };
    let none = |what: &str| format!("{start} No node in the default node-pool has {what} resources.\n");
    assert_eq!(text("gpu", 8 * GPU), most("GPU", "8"));
    assert_eq!(text("cpu", 1000), most("CPU", "1 cores"));
    assert_eq!(text("memory", 1_500_000_000), most("memory", "1.5 GB"));
    assert_eq!(text("gpu", 0), none("GPU"));
    assert_eq!(text("nvidia.com/mig-2g.10gb", 2000), none("nvidia.com/mig-2g.10gb"));
}

#[test]
fn unschedulable_pods_have_a_message() {
    let unmet = "Scheduling conditions were not met for pod lab/train-0:\n";
    let texts = [
        (
            PodRejection::ConfigMaps(vec!["env".into(), "settings".into()]),
            format!("{unmet}ConfigMap: Missing required configmaps: [env settings].\n"),
        ),
        (
            PodRejection::ClaimsUnavailable(vec!["gpu".into(), "nic".into()]),
            "pod lab/train-0 cannot be scheduled, it references resource claims <gpu, nic> while dynamic resource \
             allocation is not available in the cluster"
                .into(),
        ),
        (
            PodRejection::DeviceClassMissing { class: "gpu".into(), claim: "c".into(), request: "r".into() },
            "device class gpu does not exist for claim lab/c request r".into(),
        ),
        (
            PodRejection::VolumeClaim("data".into(), VolumeClaimProblem::Missing),
            format!("{unmet}VolumeBinding: persistentvolumeclaim \"data\" not found.\n"),
        ),
        (
            PodRejection::VolumeClaim("data".into(), VolumeClaimProblem::Lost("pv".into())),
            format!(
                "{unmet}VolumeBinding: persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"pv\".\n"
            ),
        ),
        (
            PodRejection::VolumeClaim("data".into(), VolumeClaimProblem::Deleting),
            format!("{unmet}VolumeBinding: persistentvolumeclaim \"data\" is being deleted.\n"),
        ),
        (
            PodRejection::UnboundImmediate("data".into()),
            format!("{unmet}VolumeBinding: pod has unbound immediate PersistentVolumeClaims.\n"),
        ),
        (
            PodRejection::ClaimQueueLabel("c".into(), Some("other".into())),
            "pod lab/train-0 cannot be scheduled: DRA claim c is a shared GPU claim with wrong queue label (expected \
             queue: research, claim queue label: other)"
                .into(),
        ),
        (
            PodRejection::ClaimMissing("c".into()),
            "failed to get resource claim lab/c: could not find ResourceClaim \"lab/c\"".into(),
        ),
        (
            PodRejection::ClaimUnmade("c".into()),
            "failed to get resource claim lab/c: could not find ResourceClaim \"lab/c\"".into(),
        ),
        (
            PodRejection::ClaimQueueLabel("c".into(), None),
            "pod lab/train-0 cannot be scheduled: DRA claim c is a shared GPU claim but does not have a queue label \
             (kai.scheduler/queue)"
                .into(),
        ),
        (
            PodRejection::UnknownSubGroup("workers".into()),
            "Pod references subgroup \"workers\", which does not exist in PodGroup lab/train".into(),
        ),
    ];
    for (reason, text) in texts {
        assert_eq!(pod_message(&group(vec![unschedulable(reason)]), &pod("train-0")), text);
    }
    let unknown = group(vec![unschedulable(PodRejection::UnknownSubGroup("workers".into()))]);
    assert!(reasons(&unknown).is_empty(), "the pod is at fault, not the group");
}

fn topology(sub_group: &str, measured: Measured) -> Verdict {
    Verdict::Topology(TopologyRejection {
        topology: "dc".into(),
        sub_group: sub_group.into(),
        level: "rack".into(),
        reason: TopologyReason::TooSmall { domain: "r2".into(), pods: Some(3), wanted: 4, measured },
    })
}

fn capacity(domain: &str, pods: u32) -> DomainCapacity {
    DomainCapacity { domain: domain.into(), pods: Some(pods), lacks: Vec::new() }
}

#[test]
fn every_domain_that_is_too_small_has_a_message() {
    let both = Measured::Each(vec![capacity("r1", 1), capacity("r2", 3)]);
    let verdict = group(vec![topology("", both.clone())]);
    let reasons = reasons(&verdict);
    let codes: Vec<_> = reasons.iter().map(|r| r.reason.text()).collect();
    let too_small = "Not enough resources for the workload";
    assert_eq!(codes, [too_small, too_small, "PodSchedulingErrors"]);
    assert_eq!(reasons[0].message, "node-group r1 can allocate only 1 of 4 required pods");
    assert_eq!(
        detailed(&verdict),
        "\nUnable to schedule podgroup.\n<r1>: node-group r1 can allocate only 1 of 4 required pods.\n<r2>: \
         node-group r2 can allocate only 3 of 4 required pods.\ntopology dc, requirement rack couldn't be satisfied \
         for job <lab/train>."
    );
    let inner = detailed(&group(vec![topology("workers", both)]));
    assert!(inner.contains("\n<r1>: subgroup workers: node-group r1 can"), "{inner}");
    assert!(inner.contains("for job <lab/train>, subgroup workers."), "{inner}");
}

#[test]
fn domains_without_a_pod_count_report_missing_resources() {
    let lacks = vec![
        ("cpu".into(), 4500, 4000),
        ("gpu".into(), 12_500_000, 8 * GPU),
        ("nvidia.com/mig-1g.5gb".into(), 3000, 1000),
    ];
    let measured = Measured::Each(vec![DomainCapacity { domain: "r1".into(), pods: None, lacks }]);
    let verdict = group(vec![topology("", measured)]);
    assert_eq!(
        reasons(&verdict)[0].message,
        "node-group(s) didn't have enough resources: CPU cores, node-group(s) didn't have enough resources: GPUs, \
         node-group(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb"
    );
    let text = detailed(&verdict);
    assert!(
        text.contains(
            "<r1>: r1 didn't have enough resources: CPU cores, requested: 4.5, available: 4, r1 didn't have enough \
             resource: GPUs, requested: 12.5, available: 8, r1 didn't have enough resource: nvidia.com/mig-1g.5gb, \
             requested: 3, available: 1."
        ),
        "{text}"
    );
}

#[test]
fn whole_cluster_that_is_too_small_is_named() {
    let start = "topology dc, requirement rack couldn't be satisfied for job <lab/train>";
    let whole = |domain: &str| only(topology("", Measured::Whole(domain.into())), "PodSchedulingErrors");
    assert_eq!(whole(""), format!("{start}: not enough resources in the cluster to allocate the job"));
    assert_eq!(whole("z1"), format!("{start}: not enough resources in z1 to allocate the job"));
    let unlabelled = only(topology("", Measured::Unlabelled("rack".into())), "PodSchedulingErrors");
    assert_eq!(unlabelled, whole(""), "as in KAI");
    let unknown =
        Verdict::Topology(TopologyRejection { topology: "dc".into(), ..TopologyRejection::default() });
    assert_eq!(only(unknown, "PodSchedulingErrors"), "Requested topology dc does not exist");
}

#[test]
fn condition_reason_is_that_of_a_single_error() {
    let one = group(vec![Verdict::QueueMissing]);
    assert_eq!(condition_message(&one), "QueueDoesNotExist: Queue 'research' does not exist.");
    assert_eq!(detailed(&one), "\nQueueDoesNotExist.\nQueue 'research' does not exist.");
    let gpus = || Verdict::NoNode(fit(vec![(NodeRejection::Gpus, 1)]));
    let several = group(vec![gpus(), Verdict::QueueMissing, gpus()]);
    let lacking = "Resources were not found for pod lab/train-0 due to: no nodes with enough resources were found: 1 \
                   node(s) didn't have enough resources: GPUs.";
    assert_eq!(
        condition_message(&several),
        format!("Unable to schedule podgroup: 2 {lacking}. \nQueue 'research' does not exist.")
    );
    let nothing = group(vec![Verdict::NotAttempted]);
    assert_eq!(condition_message(&nothing), "Unable to schedule podgroup");
    assert_eq!(detailed(&nothing), "\nUnable to schedule podgroup.");
}

#[test]
fn pod_message_prefers_its_own_error() {
    let gpus = |count| Verdict::NoNode(fit(vec![(NodeRejection::Gpus, count)]));
    let verdict = group(vec![Verdict::QueueMissing, gpus(1), gpus(2)]);
    assert_eq!(
        pod_message(&verdict, &pod("train-0")),
        "no nodes with enough resources were found: 3 node(s) didn't have enough resources: GPUs."
    );
    assert!(pod_message(&verdict, &pod("train-1")).starts_with("Unable to schedule podgroup: Queue"));
    assert_eq!(pod_message(&group(vec![Verdict::NotAttempted]), &pod("train-1")), "Unable to schedule pod");
    assert_eq!(in_node_pool("a100", "full"), "Node-Pool 'a100': full");
}

#[test]
fn preemption_delay_message_contains_its_end() {
    let verdict = Verdict::PreemptionDelay { delay: 600_000_000, until: 1_767_225_600_400_000 };
    assert_eq!(
        only(verdict, "PreemptionDelayNotElapsed"),
        "Workload is within its preemption delay window (10m0s) and may not trigger evictions before \
         2026-01-01T00:00:00Z"
    );
}

#[test]
fn waiting_is_no_error() {
    let ready = Verdict::NotReady { sub_group: String::new(), ready: 1, needed: 2 };
    for verdict in [Verdict::Placed, Verdict::WaitingForVictims { waiting: 2 }, ready] {
        assert!(reasons(&group(vec![verdict])).is_empty());
    }
    assert_eq!(
        only(Verdict::QueueNotLeaf, "Unable to schedule podgroup"),
        "queue `research` has child queues; only leaf queues run pod groups"
    );
}
