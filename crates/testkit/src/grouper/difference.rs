//! Intended differences from KAI's pod grouper, as rules over the input of a case.
//!
//! `docs/differences.md` describes the same table. Predicates read the flags, the environment and the objects of a case,
//! never its name, its expectations or the result; a difference of calls is besides one only where ours are fewer.

use super::case::{Action, Case};
use super::compare::Differences;
use super::store::role_reads;
use kai_podgrouper::objects::OwnerObject;
use kai_podgrouper::table;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

struct Difference {
    /// The id in `docs/differences.md`.
    id: &'static str,
    /// Whether only the calls may differ.
    is_of_calls: bool,
    /// Whether the input of a case can show the difference.
    holds: fn(&Case) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference { id: "G01", is_of_calls: true, holds: |case| pods(case).any(|pod| owner(pod).is_some()) },
    Difference { id: "G02", is_of_calls: false, holds: kind_without_karta },
    Difference { id: "G03", is_of_calls: false, holds: one_segment },
    Difference { id: "G04", is_of_calls: false, holds: leader_before_its_segments },
    Difference { id: "G05", is_of_calls: false, holds: defaults_of_a_wrapper },
    Difference { id: "G06", is_of_calls: false, holds: owner_of_another_scheduler },
    Difference { id: "G07", is_of_calls: false, holds: owner_that_may_not_be_read },
    Difference { id: "G08", is_of_calls: false, holds: former_group_of_a_revision },
    Difference { id: "G09", is_of_calls: false, holds: settings_above_a_gang },
    Difference { id: "G10", is_of_calls: false, holds: wrapped_knative_service },
    Difference { id: "G11", is_of_calls: false, holds: suspended_worker_group },
    Difference { id: "G12", is_of_calls: false, holds: deleted_group_of_a_pod },
    Difference { id: "G13", is_of_calls: false, holds: long_name },
    Difference { id: "G14", is_of_calls: false, holds: negative_replicas },
    Difference { id: "G15", is_of_calls: false, holds: replicated_job_without_replicas },
];

/// The first difference whose predicate holds.
pub(super) fn explain(case: &Case, differences: &Differences) -> Option<&'static str> {
    let is_of_calls = differences.state.is_empty();
    if is_of_calls && differences.has_more_calls {
        return None;
    }
    let applies = |of: &&Difference| of.is_of_calls == is_of_calls && (of.holds)(case);
    DIFFERENCES.iter().find(applies).map(|of| of.id)
}

fn pods(case: &Case) -> impl Iterator<Item = &Value> {
    of_kind(case, "Pod")
}

fn of_kind<'a>(case: &'a Case, kind: &'static str) -> impl Iterator<Item = &'a Value> {
    case.created().filter(move |object| object["kind"] == kind)
}

/// The first owner reference of an object.
fn owner(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].get(0)
}

fn group_and_kind(object: &Value) -> (&str, &str, &str) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group, version, object["kind"].as_str().unwrap_or_default())
}

/// An owner of a kind without a rule, whose gangs no valid Karta describes, in a cluster with Kartas.
fn kind_without_karta(case: &Case) -> bool {
    let is_described = |(group, version, kind): (&str, &str, &str)| {
        of_kind(case, "Karta").any(|karta| {
            let labels = &karta["metadata"]["labels"];
            let object = OwnerObject::deserialize(karta);
            labels["run.ai/karta-group"] == group
                && labels["run.ai/karta-version"] == version
                && labels["run.ai/karta-kind"] == kind
                && object.is_ok_and(|karta| table::karta_describes(&karta, (group, version, kind)))
        })
    };
    let is_bare = |object: &Value| {
        let (group, version, kind) = group_and_kind(object);
        owner(object).is_none()
            && !["Karta", "PodGroup"].contains(&kind)
            && table::find(group, version, kind).is_none()
            && !is_described((group, version, kind))
    };
    case.environment.karta_definition && case.options.generic_karta_fallback && case.created().any(is_bare)
}

/// The number of pods and of pods in a segment of a set with segments.
fn segments(set: &Value) -> Option<(i64, i64)> {
    let template = &set["spec"]["leaderWorkerTemplate"];
    let annotation =
        |of: &Value| of["metadata"]["annotations"]["kai.scheduler/segment-size"].as_str()?.parse().ok();
    let size = template["subGroupPolicy"]["subGroupSize"].as_i64();
    let size = size.or_else(|| annotation(set)).or_else(|| annotation(&template["workerTemplate"]))?;
    Some((template["size"].as_i64()?, size))
}

/// All workers of a LeaderWorkerSet are in one segment.
fn one_segment(case: &Case) -> bool {
    let is_one = |set: &Value| {
        let size = segments(set).map(|(_, size)| size);
        let of_pods = pods(case).filter_map(|pod| {
            pod["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/size"].as_str()?.parse::<i64>().ok()
        });
        let pods = segments(set).map(|(pods, _)| pods);
        pods.into_iter().chain(of_pods).any(|pods| Some(pods - 1) == size)
    };
    of_kind(case, "LeaderWorkerSet").any(is_one)
}

/// The leader of a LeaderWorkerSet with segments starts alone.
fn leader_before_its_segments(case: &Case) -> bool {
    let is_leader = |pod: &Value| {
        pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
            && pod["spec"]["nodeName"].is_null()
    };
    of_kind(case, "LeaderWorkerSet")
        .any(|set| set["spec"]["startupPolicy"] == "LeaderReady" && segments(set).is_some())
        && pods(case).any(is_leader)
}

/// There are defaults for a kind that wraps another workload, and an object of it.
fn defaults_of_a_wrapper(case: &Case) -> bool {
    let maps = case.environment.cluster_objects.iter().filter(|object| object["kind"] == "ConfigMap");
    let types: Vec<Value> = maps
        .filter_map(|map| serde_json::from_str(map["data"]["types"].as_str()?).ok())
        .flat_map(|types: Vec<Value>| types)
        .collect();
    let is_wrapper =
        |object: &Value| is_wrapper(object) && types.iter().any(|of| of["typeName"] == object["kind"]);
    case.options.default_priorities.is_some() && case.created().any(is_wrapper)
}

fn is_wrapper(object: &Value) -> bool {
    let (group, version, kind) = group_and_kind(object);
    let text = table::find(group, version, kind).map(|entry| entry.rule.text);
    text.is_some_and(|text| text.starts_with("the object below it decides"))
}

/// A pod is owned by a pod of another scheduler.
fn owner_of_another_scheduler(case: &Case) -> bool {
    let is_other = |name: &Value| {
        let is_named = |pod: &&Value| pod["metadata"]["name"] == *name;
        pods(case)
            .filter(is_named)
            .any(|pod| pod["spec"]["schedulerName"] != case.options.scheduler_name.as_str())
    };
    let owned = pods(case).filter_map(owner).filter(|owner| owner["kind"] == "Pod");
    owned.into_iter().any(|owner| is_other(&owner["name"]))
}

/// The grouper has KAI's own role, and an owner is of a kind that the role does not have.
fn owner_that_may_not_be_read(case: &Case) -> bool {
    let is_hidden = |owner: &Value| {
        let (group, _, kind) = group_and_kind(owner);
        !role_reads(group, kind)
    };
    case.environment.rights.is_some() && case.created().filter_map(owner).any(is_hidden)
}

/// A Knative revision has several pods, one of which comes with a group that no Pod owns.
fn former_group_of_a_revision(case: &Case) -> bool {
    let is_of_pod = |name: &str| {
        of_kind(case, "PodGroup")
            .filter(|group| group["metadata"]["name"] == name)
            .any(|group| owner(group).is_some_and(|owner| owner["kind"] == "Pod"))
    };
    let mut revisions: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for pod in pods(case) {
        let metadata = &pod["metadata"];
        let Some(revision) = metadata["labels"]["serving.knative.dev/revision"].as_str() else { continue };
        let group = metadata["annotations"]["pod-group-name"].as_str();
        let (pods, has_former) = revisions.entry(revision).or_default();
        *pods += 1;
        *has_former |= group.is_some_and(|group| !is_of_pod(group));
    }
    revisions.values().any(|(pods, has_former)| *pods > 1 && *has_former)
}

/// The object above a PodGang names a queue or a staleness grace period.
fn settings_above_a_gang(case: &Case) -> bool {
    let is_above = |object: &Value| {
        let metadata = &object["metadata"];
        ["PodCliqueSet", "PodGangSet", "DynamoGraphDeployment"].iter().any(|kind| object["kind"] == *kind)
            && (!metadata["labels"][&case.options.queue_label_key].is_null()
                || !metadata["annotations"]["kai.scheduler/staleness-grace-period"].is_null())
    };
    of_kind(case, "PodGang").next().is_some() && case.created().any(is_above)
}

/// A Knative Service is owned by an object with labels or annotations.
fn wrapped_knative_service(case: &Case) -> bool {
    let has_settings = |object: &Value| {
        !object["metadata"]["labels"].is_null() || !object["metadata"]["annotations"].is_null()
    };
    of_kind(case, "Service").any(|service| owner(service).is_some())
        && case.created().any(|object| is_wrapper(object) && has_settings(object))
}

/// A worker group of Ray has KubeRay's field `suspend`.
fn suspended_worker_group(case: &Case) -> bool {
    let has = |cluster: &Value| {
        let groups = cluster["spec"]["workerGroupSpecs"].as_array();
        groups.into_iter().flatten().any(|group| group["suspend"] == true)
    };
    of_kind(case, "RayCluster").any(has)
}

/// KAI's group of a pod without owners is deleted.
fn deleted_group_of_a_pod(case: &Case) -> bool {
    let mut actions = case.steps.iter().flat_map(|step| &step.actions);
    let is_of_pod = |group: &str| {
        pods(case).filter(|pod| owner(pod).is_none()).any(|pod| {
            let metadata = &pod["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let uid = case.uids.get(&format!("Pod/{name}"));
            uid.is_some_and(|uid| group == format!("pg-{name}-{uid}"))
                || metadata["annotations"]["pod-group-name"] == group
                || metadata["labels"]["spark-app-selector"] == group
        })
    };
    actions.any(|action| {
        matches!(action, Action::Delete { delete } if delete.kind == "PodGroup"
            && delete.api_version.starts_with("scheduling.run.ai/")
            && is_of_pod(&delete.name))
    })
}

/// The name of an owner is too long for the rest of a group's name.
fn long_name(case: &Case) -> bool {
    case.created().any(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.len() > 213))
}

/// A role of a job of the training operator has a negative number of replicas.
fn negative_replicas(case: &Case) -> bool {
    let is_negative = |job: &Value| {
        let roles = job["spec"].as_object().into_iter().flatten();
        let roles = roles.filter(|(field, _)| field.ends_with("ReplicaSpecs")).map(|(_, roles)| roles);
        let mut roles = roles.filter_map(Value::as_object).flatten();
        roles.any(|(_, role)| role["replicas"].as_i64().is_some_and(|replicas| replicas < 0))
    };
    case.created().filter(|object| group_and_kind(object).0 == "kubeflow.org").any(is_negative)
}

/// A replicated job of a JobSet has no replicas.
fn replicated_job_without_replicas(case: &Case) -> bool {
    let has_one = |set: &Value| {
        let jobs = set["spec"]["replicatedJobs"].as_array();
        jobs.into_iter().flatten().any(|job| job["replicas"] == 0)
    };
    of_kind(case, "JobSet").any(has_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_replicas_decide_about_their_rules() {
        let of = |api_version: &str, kind: &str, spec: Value| {
            with_objects(&[
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o"}, "spec": spec}),
            ])
        };
        for replicas in [-1, 0, 1] {
            let roles = json!({"tfReplicaSpecs": {"Worker": {"replicas": replicas}}});
            assert_eq!(negative_replicas(&of("kubeflow.org/v1", "TFJob", roles)), replicas < 0);
            let jobs = json!({"replicatedJobs": [{"name": "a"}, {"name": "b", "replicas": replicas}]});
            let set = of("jobset.x-k8s.io/v1alpha2", "JobSet", jobs);
            assert_eq!(replicated_job_without_replicas(&set), replicas == 0);
        }
    }

    fn case(mut case: Value) -> Case {
        case["format"] = json!("kai-grouper-case/v1");
        case["id"] = json!("c");
        Case::parse(&case.to_string()).unwrap()
    }

    fn with_objects(objects: &[Value]) -> Case {
        case(json!({"environment": {"kartaDefinition": true}, "objects": objects, "expect": {}}))
    }

    #[test]
    fn karta_counts_only_if_it_is_of_the_kind_and_has_a_gang() {
        let flow = json!({"apiVersion": "flows.example/v1", "kind": "Flow", "metadata": {"name": "f"}});
        let labels = json!({
            "run.ai/karta-group": "flows.example", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Flow",
        });
        let holds = |kind: &str, instructions: Value| {
            let root = json!({
                "name": "flow", "kind": {"group": "flows.example", "version": "v1", "kind": kind}, "statusDefinition": {},
            });
            let spec = json!({"structureDefinition": {"rootComponent": root}, "optimizationInstructions": instructions});
            let karta = json!({"kind": "Karta", "metadata": {"name": "k", "labels": labels}, "spec": spec});
            kind_without_karta(&with_objects(&[flow.clone(), karta]))
        };
        let gang = json!({"gangScheduling": {"podGroup": {"name": "main"}}});
        assert!(!holds("Flow", gang.clone()));
        assert!(holds("Other", gang) && holds("Flow", json!({})));
    }

    #[test]
    fn more_calls_than_recorded_are_no_difference_by_design() {
        let owned = json!({"kind": "Pod", "metadata": {"name": "p", "ownerReferences": [{"kind": "Job"}]}});
        let of = |has_more_calls| {
            let calls = vec![String::new()];
            explain(
                &with_objects(std::slice::from_ref(&owned)),
                &Differences { state: vec![], calls, has_more_calls },
            )
        };
        assert_eq!((of(false), of(true)), (Some("G01"), None));
    }

    #[test]
    fn only_the_deleted_group_of_an_ownerless_pod_is_restored_by_design() {
        let holds = |api_version: &str, name: &str| {
            let pod = json!({"create": {"kind": "Pod", "metadata": {"name": "p", "note": "<uid:Pod/p>"}}});
            let delete = json!({"delete": {"apiVersion": api_version, "kind": "PodGroup", "name": name}});
            deleted_group_of_a_pod(&case(json!({"steps": [{"actions": [pod, delete], "expect": {}}]})))
        };
        assert!(holds("scheduling.run.ai/v2alpha2", "pg-p-<uid:Pod/p>"));
        assert!(!holds("scheduling.run.ai/v2alpha2", "other"));
        assert!(!holds("scheduling.x-k8s.io/v1alpha1", "pg-p-<uid:Pod/p>"));
    }

    #[test]
    fn revision_whose_pods_have_groups_of_their_own_is_as_in_kai() {
        let pod = |name: &str, group: &str| {
            let labels = json!({"serving.knative.dev/revision": "r"});
            json!({"kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": {"pod-group-name": group}}})
        };
        let group =
            json!({"kind": "PodGroup", "metadata": {"name": "g", "ownerReferences": [{"kind": "Pod"}]}});
        assert!(former_group_of_a_revision(&with_objects(&[pod("a", "g"), pod("b", "g")])));
        assert!(!former_group_of_a_revision(&with_objects(&[pod("a", "g"), pod("b", "g"), group])));
        assert!(!former_group_of_a_revision(&with_objects(&[pod("a", "g")])));
    }

    #[test]
    fn documentation_lists_the_same_differences() {
        let known: Vec<&str> = DIFFERENCES.iter().filter_map(|of| of.id.strip_prefix('G')).collect();
        assert_eq!(crate::recorded::documented_rules('G'), known);
    }
}
