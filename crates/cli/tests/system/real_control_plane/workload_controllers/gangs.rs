//! Gangs of real controllers: none of their pods runs while one too few fits, and they follow when the workload is scaled.

use super::{RealCluster, set_runtime};
use crate::test_cluster::PodBuilder;
use crate::workload_kinds;
use kai_object as object;
use kai_runtime::ResourceKind;
use kai_runtime::kind::POD;
use kai_scheduler::resources::POD_GROUP;
use serde_json::{Value, json};
use std::time::Duration;

/// GPUs of every pod that has any, and how many such pods the two nodes of eight GPUs hold.
const GPUS: u32 = 2;
const SLOTS: usize = 8;

/// A workload whose gang does not fit at first.
pub(super) struct Gang {
    pub(super) case: &'static str,
    /// Pods with GPUs that fit at first: one fewer than the gang needs.
    fits: usize,
    /// Pods that run nevertheless, since the others are created after them.
    early: usize,
    /// Pods that run when one more fits.
    required: usize,
    pods: usize,
    changes: &'static [Change],
}

/// A change of the workload when all its pods run.
struct Change {
    what: &'static str,
    patch: fn(&Value) -> Value,
    /// Pods that run then.
    pods: usize,
    /// A field of its pod group, and the value that it has then.
    minimum: (&'static str, i64),
}

pub(super) const GANGS: &[Gang] = &[
    Gang {
        case: "pytorchjob/master-and-workers",
        fits: 3,
        early: 0,
        required: 4,
        pods: 4,
        changes: &[
            Change {
                what: "one worker more",
                patch: |_| workers("pytorchReplicaSpecs", 4),
                pods: 5,
                minimum: ("/spec/minMember", 5),
            },
            Change {
                what: "two workers",
                patch: |_| workers("pytorchReplicaSpecs", 2),
                pods: 3,
                minimum: ("/spec/minMember", 3),
            },
        ],
    },
    Gang {
        case: "pytorchjob/elastic",
        fits: 1,
        early: 0,
        required: 2,
        pods: 4,
        changes: &[
            Change {
                what: "one worker less, which the gang does not need",
                patch: |_| workers("pytorchReplicaSpecs", 3),
                pods: 3,
                minimum: ("/spec/minMember", 2),
            },
            Change {
                what: "a higher minimum",
                patch: |_| json!({"spec": {"elasticPolicy": {"minReplicas": 3}}}),
                pods: 3,
                minimum: ("/spec/subGroups/0/minMember", 3),
            },
        ],
    },
    Gang {
        case: "mpijob/v2beta1",
        fits: 1,
        early: 0,
        required: 3,
        pods: 3,
        changes: &[Change {
            what: "one worker more",
            patch: |_| workers("mpiReplicaSpecs", 3),
            pods: 4,
            minimum: ("/spec/minMember", 4),
        }],
    },
    Gang {
        case: "raycluster/two-worker-groups",
        fits: 3,
        early: 0,
        required: 5,
        pods: 5,
        changes: &[
            Change {
                what: "one small worker more, as by the autoscaler",
                patch: |manifest| first_group(manifest, "/spec", &[("replicas", 3)]),
                pods: 6,
                minimum: ("/spec/minMember", 5),
            },
            Change {
                what: "a higher minimum",
                patch: |manifest| first_group(manifest, "/spec", &[("replicas", 3), ("minReplicas", 3)]),
                pods: 6,
                minimum: ("/spec/minMember", 6),
            },
        ],
    },
    Gang {
        case: "rayjob/autoscaled",
        fits: 0,
        early: 0,
        required: 2,
        pods: 4,
        changes: &[Change {
            what: "one worker more, as by the autoscaler",
            patch: |manifest| first_group(manifest, "/spec/rayClusterSpec", &[("replicas", 4)]),
            pods: 5,
            minimum: ("/spec/minMember", 2),
        }],
    },
    Gang {
        case: "jobset/depends-on",
        fits: 2,
        early: 1,
        required: 3,
        pods: 3,
        changes: &[
            Change {
                what: "it is suspended",
                patch: |_| suspended(true),
                pods: 0,
                minimum: ("/spec/minSubGroup", 1),
            },
            Change {
                what: "it goes on",
                patch: |_| suspended(false),
                pods: 3,
                minimum: ("/spec/minSubGroup", 1),
            },
        ],
    },
    Gang {
        case: "trainjob/three-nodes",
        fits: 2,
        early: 0,
        required: 3,
        pods: 3,
        changes: &[
            Change {
                what: "it is suspended",
                patch: |_| suspended(true),
                pods: 0,
                minimum: ("/spec/minSubGroup", 1),
            },
            Change {
                what: "it goes on",
                patch: |_| suspended(false),
                pods: 3,
                minimum: ("/spec/minSubGroup", 1),
            },
        ],
    },
];

fn suspended(is: bool) -> Value {
    json!({"spec": {"suspend": is}})
}

fn workers(roles: &str, replicas: u32) -> Value {
    json!({"spec": {roles: {"Worker": {"replicas": replicas}}}})
}

/// A patch of the first worker group of a RayCluster; a merge patch replaces the list.
fn first_group(manifest: &Value, spec: &str, fields: &[(&str, u32)]) -> Value {
    let mut groups = manifest.pointer(spec).unwrap()["workerGroupSpecs"].clone();
    for (field, value) in fields {
        groups[0][*field] = json!(value);
    }
    json!({"spec": {"workerGroupSpecs": groups}})
}

impl Gang {
    pub(super) async fn waits_and_scales(&self, cluster: &RealCluster) {
        let mut objects = workload_kinds::case(self.case).objects().unwrap();
        objects.iter_mut().for_each(set_gpus);
        let manifest = objects.remove(0);
        for runtime in &objects {
            set_runtime(cluster, runtime).await.unwrap();
        }
        let kind = workload_kinds::resource(&manifest);
        let name = object::name(&manifest).to_owned();
        for number in self.fits..SLOTS {
            let pod = PodBuilder::new(&taken(number), "vision", GPUS).priority_class("inference");
            cluster.create_pod(pod).await;
        }
        cluster.wait_for_running("taken", SLOTS - self.fits).await;
        cluster.create(&kind, manifest.clone()).await;
        self.waits(cluster, &name).await;
        cluster.delete_pod(&taken(self.fits)).await;
        cluster.wait_for_running(&name, self.required).await;
        for number in self.fits + 1..SLOTS {
            cluster.delete_pod(&taken(number)).await;
        }
        cluster.wait_for_running(&name, self.pods).await;
        for change in self.changes {
            let (kind, name) = scaled(cluster, &kind, &name).await;
            cluster.patch(&kind, &name, &(change.patch)(&manifest)).await;
            self.follows(cluster, change, object::name(&manifest)).await;
        }
        cluster.delete(&kind, &name).await;
        workload_kinds::nothing_is_left(cluster).await;
    }

    /// All pods of the gang exist, and none has a node.
    async fn waits(&self, cluster: &RealCluster, name: &str) {
        let is_grouped = async || {
            let pods = pods_of(cluster, name).await;
            pods.len() == self.pods && pods.iter().all(|pod| !group_of(pod).is_empty())
        };
        cluster.wait_until(&format!("the pods of {} are grouped", self.case), is_grouped).await;
        cluster.wait_for_running(name, self.early).await;
        // Longer than some cycles.
        cluster.sleep(Duration::from_secs(4)).await;
        let bound = cluster.bound_pods(name).await;
        assert_eq!(bound.len(), self.early, "{}: {bound:?}\n{}", self.case, cluster.dump().await);
    }

    async fn follows(&self, cluster: &RealCluster, change: &Change, name: &str) {
        let Change { what, pods, minimum: (field, value), .. } = change;
        let has_minimum = async || {
            let groups = cluster.list(&POD_GROUP).await;
            groups.iter().any(|group| group.pointer(field).and_then(Value::as_i64) == Some(*value))
        };
        cluster.wait_until(&format!("{}, {what}: `{field}` is {value}", self.case), has_minimum).await;
        cluster.wait_for_running(name, *pods).await;
    }
}

fn taken(number: usize) -> String {
    format!("taken-{number}")
}

/// The object that is scaled: the workload itself, or the RayCluster of a RayJob, which the Ray autoscaler changes.
async fn scaled(cluster: &RealCluster, kind: &ResourceKind, name: &str) -> (ResourceKind, String) {
    if *kind.kind != *"RayJob" {
        return (kind.clone(), name.to_owned());
    }
    let job = cluster.get(kind, name).await.unwrap();
    let of_job = object::str_at(&job, "/status/rayClusterName").to_owned();
    let kind = ResourceKind { kind: "RayCluster".into(), plural: "rayclusters".into(), ..kind.clone() };
    (kind, of_job)
}

/// The pods of a workload that are ours. KubeRay submits a job with a pod that is not.
async fn pods_of(cluster: &RealCluster, name: &str) -> Vec<Value> {
    let mut pods = cluster.list(&POD).await;
    pods.retain(|pod| object::name(pod).starts_with(name) && pod["spec"]["schedulerName"] == "kai-scheduler");
    pods
}

fn group_of(pod: &Value) -> &str {
    object::meta(pod, "annotations").map_or("", |all| object::str_at(all, "/pod-group-name"))
}

/// Sets the GPUs of every container that has a limit of them.
fn set_gpus(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                if key == "nvidia.com/gpu" {
                    *below = json!(GPUS);
                } else {
                    set_gpus(below);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(set_gpus),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
