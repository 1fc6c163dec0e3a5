//! RayClusters, and the RayJobs and RayServices that own one: a subgroup for the head and one for every worker group.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::fields::{self, template_annotation};
use crate::kind::segments::with_level;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::{SubGroup, TopologyConstraint};
use kai_api::well_known::{annotation, label};
use kai_runtime::Key;
use serde_json::Value;

const HEAD_GROUP: &str = "headgroup";
const ACTIVE: &str = "status.activeServiceStatus.rayClusterName";
const PENDING: &str = "status.pendingServiceStatus.rayClusterName";

pub(crate) fn cluster(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    group(workload, workload.top_object()?)
}

pub(crate) fn of_cluster(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let owner = workload.top_object()?;
    let reference = cluster_of(owner)?;
    let Some(cluster) = workload.objects.get(&reference) else {
        let ObjectRef::Object { name, .. } = reference else { return Err(no_cluster(owner)) };
        return Err(owner.invalid(format!("its RayCluster `{name}` does not exist")));
    };
    group(workload, cluster)
}

/// The cluster that a job or a service names in its status.
pub(crate) fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    let owner = workload.top_object().ok();
    owner.and_then(|owner| cluster_of(owner).ok()).into_iter().collect()
}

fn cluster_of(owner: &OwnerObject) -> Result<ObjectRef, Invalid> {
    let name = if owner.kind == "RayService" {
        match owner.text(ACTIVE)? {
            Some(active) => Some(active),
            None => owner.text(PENDING)?,
        }
    } else {
        owner.text("status.rayClusterName")?
    };
    let name = name.filter(|name| !name.is_empty()).ok_or_else(|| no_cluster(owner))?;
    let (api_version, kind) = (owner.api_version.clone(), "RayCluster".to_owned());
    Ok(ObjectRef::Object { api_version, kind, name: name.to_owned() })
}

fn no_cluster(owner: &OwnerObject) -> Invalid {
    owner.invalid("its status names no RayCluster yet; is the Ray operator running?")
}

fn group(workload: &Workload<'_>, cluster: &OwnerObject) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    if let Some(class) = workload.top().metadata.label(label::RAY_PRIORITY_CLASS) {
        class.clone_into(&mut desired.priority_class);
    }
    let mut sub_groups = vec![SubGroup {
        topology_constraint: topology(cluster, HEAD_GROUP, cluster.field("spec.headGroupSpec.template")?)?,
        ..leaf(HEAD_GROUP, 1)
    }];
    let mut sum = 1i32;
    for (index, spec) in cluster.list("spec.workerGroupSpecs")?.unwrap_or_default().iter().enumerate() {
        let name = spec.get("groupName").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("worker-group-{index}"), str::to_owned);
        let Some(pods) = pods_of(cluster, &name, spec)? else { continue };
        let beyond = || cluster.invalid("the worker groups have together more pods than 32 bits count");
        sum = sum.checked_add(pods).ok_or_else(beyond)?;
        let topology_constraint = topology(cluster, &name, spec.get("template"))?;
        sub_groups.push(SubGroup { topology_constraint, ..leaf(&name, pods) });
    }
    desired.min_member = sum;
    let stored = workload.cluster.group(&Key::new(&desired.namespace, &desired.name));
    if stored.is_some_and(|stored| !stored.has_sub_groups) {
        // A group of an older version of KAI; its pods have no subgroup.
        return Ok(desired);
    }
    let of_pod = workload.pod.metadata.label(label::RAY_GROUP);
    let is_known = |name: &&str| sub_groups.iter().any(|sub_group| sub_group.name == *name);
    desired.sub_group = of_pod.filter(is_known).map(str::to_owned);
    desired.sub_groups = sub_groups;
    Ok(desired)
}

/// The pods of a worker group that are required; none where the group is suspended or has no replicas, and does not count.
fn pods_of(cluster: &OwnerObject, name: &str, spec: &Value) -> Result<Option<i32>, Invalid> {
    let wrong = |problem: String| cluster.invalid(format!("worker group `{name}`: {problem}"));
    let int = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => fields::int(value, field).map(Some),
    };
    // KubeRay's field is `suspend`; `suspended` is what KAI reads.
    let is_set = |field: &str| spec.get(field).and_then(Value::as_bool) == Some(true);
    if is_set("suspend") || is_set("suspended") {
        return Ok(None);
    }
    let replicas = int("replicas").map_err(wrong)?.unwrap_or(0);
    let least = int("minReplicas").map_err(wrong)?.unwrap_or(0);
    if least > replicas {
        return Err(wrong(format!("`minReplicas` is {least}, which is more than the {replicas} `replicas`")));
    }
    if replicas == 0 && least == 0 {
        return Ok(None);
    }
    let hosts = int("numOfHosts").map_err(wrong)?.unwrap_or(1);
    let count = if least > 0 { least } else { replicas };
    count
        .checked_mul(hosts)
        .map(Some)
        .ok_or_else(|| wrong(format!("{count} replicas of {hosts} hosts are beyond 32 bits")))
}

fn topology(
    cluster: &OwnerObject,
    group: &str,
    template: Option<&Value>,
) -> Result<Option<TopologyConstraint>, Invalid> {
    let of = |name| template_annotation(template, name).unwrap_or_default().to_owned();
    let constraint = TopologyConstraint {
        topology: of(annotation::TOPOLOGY),
        required_topology_level: of(annotation::TOPOLOGY_REQUIRED),
        preferred_topology_level: of(annotation::TOPOLOGY_PREFERRED),
    };
    let has_level =
        !constraint.required_topology_level.is_empty() || !constraint.preferred_topology_level.is_empty();
    if constraint.topology.is_empty() && has_level {
        return Err(cluster.invalid(format!(
            "the template of `{group}` has a placement annotation, but no `{}`",
            annotation::TOPOLOGY
        )));
    }
    Ok(with_level(constraint))
}

fn leaf(name: &str, min_member: i32) -> SubGroup {
    SubGroup { name: name.to_owned(), min_member: Some(min_member), ..SubGroup::default() }
}
