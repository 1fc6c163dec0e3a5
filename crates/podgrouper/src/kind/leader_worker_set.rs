//! LeaderWorkerSets: every replica is a gang of a leader and its workers, which may be divided into segments.

use crate::error::Invalid;
use crate::fields::template_annotation;
use crate::kind::segments;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::{SubGroup, TopologyConstraint};
use kai_api::well_known::{annotation, label};

const SIZE: &str = "spec.leaderWorkerTemplate.size";
const LEADER: &str = "leader";
const WORKERS: &str = "workers";

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let set = workload.top_object()?;
    let index = segments::index(workload, label::LWS_WORKER_INDEX)?;
    let size = set.int(SIZE)?.ok_or_else(|| set.invalid(format!("`{SIZE}` is missing")))?;
    if size <= 0 {
        return Err(set.invalid(format!("`{SIZE}` is {size}, and must be at least 1")));
    }
    let policy = set.text("spec.startupPolicy")?;
    // Workers are created when the leader is ready, so it cannot wait for them.
    let starts_alone =
        policy == Some("LeaderReady") && index == Some(0) && workload.pod.spec.node_name.is_none();
    let pods = match policy {
        None | Some("LeaderCreated") => size,
        Some("LeaderReady") if starts_alone => 1,
        Some("LeaderReady") => {
            let of_pod = workload.pod.metadata.annotation(annotation::LWS_SIZE);
            of_pod.and_then(|text| text.parse().ok()).unwrap_or(size)
        }
        Some(policy) => {
            return Err(set.invalid(format!(
                "`spec.startupPolicy` is `{policy}`, and must be `LeaderCreated` or `LeaderReady`"
            )));
        }
    };
    desired.min_member = pods;
    let replica =
        workload.pod.metadata.label(label::LWS_GROUP_INDEX).and_then(|text| text.parse::<i32>().ok());
    if let Some(replica) = replica {
        desired.name = format!("{}-group-{replica}", desired.name);
    }
    match segment_size(set)? {
        // A leader that starts alone has no segments to be divided into.
        Some(size) if !starts_alone => {
            let (policy, ignored) = segment_policy(set)?;
            desired.ignored.extend(ignored);
            divide(workload, &mut desired, set, Segments::new(set, pods, size, policy)?, index)?;
        }
        _ => {
            desired.sub_groups.push(leaf(LEADER, 1));
            if pods > 1 {
                desired.sub_groups.push(leaf(WORKERS, pods - 1));
            }
            desired.sub_group = match index {
                Some(0) => Some(LEADER.to_owned()),
                // A replica of one pod has no subgroup of workers that a pod could name.
                _ => (pods > 1).then(|| WORKERS.to_owned()),
            };
        }
    }
    Ok(desired)
}

/// Whether the leader is in a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    LeaderWorker,
    LeaderExcluded,
}

/// The policy of a set. As in KAI, an unknown one has no effect, which the text says.
fn segment_policy(set: &OwnerObject) -> Result<(Policy, Option<String>), Invalid> {
    const PATH: &str = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType";
    Ok(match set.text(PATH)? {
        None | Some("" | "LeaderWorker") => (Policy::LeaderWorker, None),
        Some("LeaderExcluded") => (Policy::LeaderExcluded, None),
        Some(policy) => {
            let ignored = format!(
                "`{PATH}` is `{policy}`, which has no effect; write `LeaderWorker` or `LeaderExcluded`"
            );
            (Policy::LeaderWorker, Some(ignored))
        }
    })
}

/// How the pods of a replica are divided.
#[derive(Clone, Copy)]
struct Segments {
    /// With the leader.
    pods: i32,
    size: i32,
    /// The workers fill all segments, and the leader is one more pod of the first.
    leader_is_extra: bool,
    leader_excluded: bool,
}

impl Segments {
    fn new(set: &OwnerObject, pods: i32, size: i32, policy: Policy) -> Result<Self, Invalid> {
        if size <= 1 || size > pods {
            return Err(set.invalid(format!(
                "the segment size is {size}, and must be at least 2 and at most the {pods} pods of a replica"
            )));
        }
        let leader_is_extra = (pods - 1) % size == 0;
        let leader_excluded = policy == Policy::LeaderExcluded;
        if leader_excluded && !leader_is_extra {
            return Err(set.invalid(format!(
                "without its leader, a replica has {} workers, which are not divisible by the segment size {size}",
                pods - 1
            )));
        }
        let segments = Self { pods, size, leader_is_extra, leader_excluded };
        if segments.count() > segments::SEGMENTS_MAX {
            return Err(set.invalid(format!(
                "{} segments of a replica are more than {}; set a larger segment size",
                segments.count(),
                segments::SEGMENTS_MAX
            )));
        }
        Ok(segments)
    }

    fn of_worker(&self, index: i32) -> i32 {
        match index {
            0 => 0,
            _ if self.leader_is_extra => (index - 1) / self.size,
            _ => index / self.size,
        }
    }

    fn count(&self) -> i32 {
        self.of_worker(self.pods - 1) + 1
    }

    /// The number of workers in a segment.
    fn workers(&self, segment: i32) -> i32 {
        // Without an extra leader, the leader is one of the pods of the first segment.
        let others = if self.leader_is_extra { self.pods - 1 } else { self.pods };
        let pods = self.size.min(others - segment * self.size);
        if segment == 0 && !self.leader_is_extra { pods - 1 } else { pods }
    }
}

fn divide(
    workload: &Workload<'_>,
    desired: &mut Desired,
    set: &OwnerObject,
    segments: Segments,
    index: Option<i32>,
) -> Result<(), Invalid> {
    let index = index
        .ok_or_else(|| workload.pod_invalid(format!("label `{}` is missing", label::LWS_WORKER_INDEX)))?;
    if index >= segments.pods {
        return Err(workload.pod_invalid(format!(
            "label `{}` is {index}, and a replica has {} pods",
            label::LWS_WORKER_INDEX,
            segments.pods
        )));
    }
    let template = set.field("spec.leaderWorkerTemplate.workerTemplate")?;
    let topology: Option<TopologyConstraint> = segments::topology(workload, template);
    let name = |segment: i32| format!("segment-{segment}");
    let first_is_parent = !segments.leader_excluded;
    if segments.leader_excluded {
        desired.sub_groups.push(leaf(LEADER, 1));
    }
    for segment in 0..segments.count() {
        let mut sub_group = leaf(&name(segment), segments.workers(segment));
        if segment == 0 && first_is_parent {
            sub_group.min_member = None;
            sub_group.min_sub_group = Some(2);
        }
        sub_group.topology_constraint.clone_from(&topology);
        desired.sub_groups.push(sub_group);
    }
    if first_is_parent {
        for (child, pods) in [(LEADER, 1), (WORKERS, segments.workers(0))] {
            desired.sub_groups.push(SubGroup { parent: Some(name(0)), ..leaf(child, pods) });
        }
    }
    desired.sub_group = Some(match segments.of_worker(index) {
        _ if index == 0 => LEADER.to_owned(),
        0 if first_is_parent => WORKERS.to_owned(),
        segment => name(segment),
    });
    Ok(())
}

fn leaf(name: &str, min_member: i32) -> SubGroup {
    SubGroup { name: name.to_owned(), min_member: Some(min_member), ..SubGroup::default() }
}

/// The segment size of the set, else of its annotation, else of the template of the workers.
fn segment_size(set: &OwnerObject) -> Result<Option<i32>, Invalid> {
    if let Some(size) = set.int("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize")? {
        return Ok(Some(size));
    }
    let template = set.field("spec.leaderWorkerTemplate.workerTemplate")?;
    let on_set = set.metadata.annotation(annotation::SEGMENT_SIZE);
    let text = on_set.or_else(|| template_annotation(template, annotation::SEGMENT_SIZE));
    text.map(segments::size).transpose().map_err(|problem| set.invalid(problem))
}
