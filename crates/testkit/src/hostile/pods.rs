//! Pods: a valid one with a few changes, each of which is a field at a limit or a reference that leads nowhere.

use super::{HostileObject, Names, Random, Resource, merge, object, text};
use serde_json::{Map, Value, json};

const POD: Resource = Resource { group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true };

/// Annotations that some component reads.
const ANNOTATIONS: [&str; 24] = [
    "pod-group-name",
    "kai.scheduler/skip-podgrouper",
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "gpu-fraction-container-name",
    "mps",
    "nvidia.com/mig-1g.5gb",
    "received-resource-type",
    "runai/shared-gpu-configmap",
    "run.ai/reserve_for_gpu_index",
    "kai.scheduler/stale-podgroup-timestamp",
    "kai.scheduler/last-start-timestamp",
    "kai.scheduler/top-owner-metadata",
    "kai.scheduler/preemption-delay",
    "kai.scheduler/staleness-grace-period",
    "kai.scheduler/topology",
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/topology-preferred-placement",
    "kai.scheduler/segment-size",
    "kai.scheduler/batch-min-member",
    "resource.kubernetes.io/extended-resource-claim",
    "kai.scheduler/numa-placement-predicted",
    "leaderworkerset.sigs.k8s.io/size",
];

/// Labels that some component reads.
const LABELS: [&str; 16] = [
    "kai.scheduler/queue",
    "project",
    "kai.scheduler/node-pool",
    "kai.scheduler/subgroup-name",
    "kai.scheduler/preemptibility",
    "priorityClassName",
    "kai.scheduler/task-priority",
    "runai-gpu-group",
    "runai-gpu-group/0",
    "app",
    "ray.io/node-type",
    "training.kubeflow.org/replica-index",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "serving.knative.dev/revision",
    "spark-app-selector",
];

/// Owners of kinds that a pod grouper knows, or that no server has.
const OWNERS: [(&str, &str); 16] = [
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
    ("v1", "Node"),
    ("scheduling.run.ai/v2alpha2", "PodGroup"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("ray.io/v1", "RayCluster"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("serving.knative.dev/v1", "Revision"),
    ("grove.io/v1alpha1", "PodGang"),
    ("argoproj.io/v1alpha1", "Workflow"),
    ("v1", "Namespace"),
    ("example.com/v1", "Missing"),
    ("apps/v999", "ReplicaSet"),
];

type Change = fn(&mut Random, &Names, &mut Value);

const CHANGES: [Change; 18] = [
    owners,
    owners,
    annotations,
    annotations,
    labels,
    labels,
    many_labels,
    requests,
    requests,
    resource_names,
    containers,
    node_constraints,
    affinity,
    tolerations,
    gates,
    claims,
    volumes,
    others,
];

pub(super) fn generate(random: &mut Random, names: &Names) -> Vec<HostileObject> {
    // The last name stays a reference to nothing.
    let created = names.pods.split_last().map_or(&[][..], |(_, rest)| rest);
    created
        .iter()
        .map(|name| {
            let mut pod = base(random, names);
            for _ in 0..=random.below(5) {
                random.pick(&CHANGES)(random, names, &mut pod);
            }
            object(POD, name, pod)
        })
        .collect()
}

/// A pod template with a few changes.
pub(super) fn template(random: &mut Random, names: &Names) -> Value {
    let mut template = base(random, names);
    for change in [annotations as Change, labels, requests, node_constraints, tolerations] {
        if random.one_in(2) {
            change(random, names, &mut template);
        }
    }
    template
}

fn base(random: &mut Random, names: &Names) -> Value {
    let queue = if random.one_in(2) { "default-queue" } else { random.pick(&names.queues).as_str() };
    // A longer name than 63 characters is no label value: the queue is then unknown.
    let queue = if queue.len() > 63 { "unknown" } else { queue };
    json!({
        "metadata": {"labels": {"kai.scheduler/queue": queue}, "annotations": {}},
        "spec": {
            "schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1m"}}}],
        },
    })
}

fn owners(random: &mut Random, names: &Names, pod: &mut Value) {
    let owners: Vec<Value> = (0..=random.below(3))
        .map(|number| {
            let (version, kind) = *random.pick(&OWNERS);
            let name = match random.below(4) {
                0 => random.pick(&names.pods).clone(),
                1 => random.pick(&names.groups).clone(),
                2 => random.pick(&names.config_maps).clone(),
                _ => text::non_empty(random),
            };
            let mut owner = json!({
                "apiVersion": version, "kind": kind, "name": name, "uid": text::non_empty(random),
                "controller": number == 0,
            });
            if random.one_in(3) {
                owner["kind"] = Value::from(text::non_empty(random));
            }
            if random.one_in(3) {
                let group = text::any(random).replace('/', "");
                owner["apiVersion"] =
                    Value::from(format!("{group}/{}", text::non_empty(random).replace('/', "v")));
            }
            owner
        })
        .collect();
    pod["metadata"]["ownerReferences"] = Value::from(owners);
}

fn annotations(random: &mut Random, names: &Names, pod: &mut Value) {
    let annotations = &mut pod["metadata"]["annotations"];
    for _ in 0..=random.below(6) {
        let key = *random.pick(&ANNOTATIONS);
        annotations[key] = Value::from(match random.below(4) {
            0 if key == "pod-group-name" => random.pick(&names.groups).clone(),
            1 if key == "runai/shared-gpu-configmap" => random.pick(&names.config_maps).clone(),
            _ => text::any(random),
        });
    }
    if random.one_in(8) {
        annotations["example.com/large"] = Value::from("x".repeat(200_000));
    }
    if random.one_in(8) {
        for number in 0..1_000 {
            annotations[format!("example.com/a{number}")] = Value::from("y");
        }
    }
}

fn labels(random: &mut Random, _: &Names, pod: &mut Value) {
    for _ in 0..=random.below(4) {
        let key = *random.pick(&LABELS);
        pod["metadata"]["labels"][key] = Value::from(text::label(random));
    }
}

fn many_labels(random: &mut Random, _: &Names, pod: &mut Value) {
    for number in 0..random.below(2_000) {
        pod["metadata"]["labels"][format!("example.com/{}", text::fill(&format!("l{number}"), 63))] =
            Value::from(text::label(random));
    }
}

/// Requests and limits of every kind; absurd ones fit nowhere.
fn requests(random: &mut Random, _: &Names, pod: &mut Value) {
    let mut resources = json!({"requests": {}, "limits": {}});
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        if random.one_in(2) {
            resources["requests"][resource] = Value::from(text::quantity(random));
        }
    }
    for resource in
        ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-x", "example.com/x"]
    {
        if random.one_in(4) {
            // The same in both, or the API server rejects the pod.
            let amount = Value::from(text::count(random));
            resources["requests"][resource] = amount.clone();
            resources["limits"][resource] = amount;
        }
    }
    if random.one_in(6) {
        merge(
            &mut resources,
            json!({"requests": {"memory": "1", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}),
        );
    }
    pod["spec"]["containers"][0]["resources"] = resources;
}

/// Many resources that no node offers.
fn resource_names(random: &mut Random, _: &Names, pod: &mut Value) {
    let first = random.below(100_000);
    for number in first..first + *random.pick(&[1, 300, 3_000]) {
        let name = format!("example.com/r{number}");
        pod["spec"]["containers"][0]["resources"]["limits"][name] = Value::from("1");
    }
}

/// Many containers, with init containers and sidecars among them.
fn containers(random: &mut Random, _: &Names, pod: &mut Value) {
    let count = *random.pick(&[2, 20, 300, 2_000]);
    let container = |number: usize, cpu: &str| json!({"name": format!("c{number}"), "image": "x", "resources": {"requests": {"cpu": cpu}}});
    let cpu = text::quantity(random);
    let mut all = vec![pod["spec"]["containers"][0].clone()];
    all.extend((0..count).map(|number| container(number, "1n")));
    all.push(container(count, &cpu));
    pod["spec"]["containers"] = Value::from(all);
    let init: Vec<Value> = (0..random.below(30))
        .map(|number| {
            let mut init = container(count + 1 + number, "9E");
            if random.one_in(2) {
                init["restartPolicy"] = Value::from("Always");
            }
            init
        })
        .collect();
    if !init.is_empty() {
        pod["spec"]["initContainers"] = Value::from(init);
    }
}

fn node_constraints(random: &mut Random, names: &Names, pod: &mut Value) {
    match random.below(3) {
        0 => {
            let selector: Map<String, Value> = (0..random.below(100))
                .map(|number| (format!("example.com/s{number}"), Value::from(text::label(random))))
                .collect();
            pod["spec"]["nodeSelector"] = Value::Object(selector);
        }
        1 => {
            let constraints: Vec<Value> = (0..=random.below(4))
                .map(|number| {
                    json!({
                        "maxSkew": *random.pick(&[1, 2, i32::MAX]), "topologyKey": format!("example.com/t{number}"),
                        "whenUnsatisfiable": *random.pick(&["DoNotSchedule", "ScheduleAnyway"]),
                        "labelSelector": {"matchLabels": {"app": "x"}},
                    })
                })
                .collect();
            pod["spec"]["topologySpreadConstraints"] = Value::from(constraints);
        }
        _ => {
            if random.one_in(2) {
                pod["spec"]["nodeName"] = Value::from(random.pick(&names.nodes).as_str());
            } else {
                let node = random.pick(&names.nodes).as_str();
                pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": &node[..node.len().min(63)]});
            }
        }
    }
}

fn affinity(random: &mut Random, _: &Names, pod: &mut Value) {
    let count = *random.pick(&[1, 2, 100]);
    let mut affinity = json!({});
    if random.one_in(2) {
        let terms: Vec<Value> = (0..count)
            .map(|number| {
                let operator = *random.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
                let values: Vec<String> = match operator {
                    "Exists" | "DoesNotExist" => Vec::new(),
                    "Gt" | "Lt" => vec![text::integer(random).unsigned_abs().to_string()],
                    _ => vec![text::label(random)],
                };
                json!({"matchExpressions": [
                    {"key": format!("example.com/k{number}"), "operator": operator, "values": values},
                ]})
            })
            .collect();
        affinity["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if random.one_in(2) {
            let terms: Vec<Value> = (0..count)
                .map(|number| {
                    json!({
                        "topologyKey": *random.pick(&["kubernetes.io/hostname", "example.com/rack", "x"]),
                        "labelSelector": {"matchExpressions": [{"key": format!("k{number}"), "operator": "Exists"}]},
                        "namespaceSelector": {},
                    })
                })
                .collect();
            affinity[kind] = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        }
    }
    pod["spec"]["affinity"] = affinity;
}

fn tolerations(random: &mut Random, _: &Names, pod: &mut Value) {
    let tolerations: Vec<Value> = (0..random.below(500))
        .map(|number| match random.below(3) {
            0 => json!({"operator": "Exists"}),
            1 => json!({
                "key": format!("k{number}"), "operator": "Equal", "value": text::label(random), "effect": "NoExecute",
                "tolerationSeconds": text::integer(random),
            }),
            _ => json!({"key": format!("k{number}"), "operator": "Exists", "effect": "NoSchedule"}),
        })
        .collect();
    pod["spec"]["tolerations"] = Value::from(tolerations);
}

fn gates(random: &mut Random, _: &Names, pod: &mut Value) {
    let gates: Vec<Value> =
        (0..=random.below(10)).map(|number| json!({"name": format!("example.com/gate-{number}")})).collect();
    pod["spec"]["schedulingGates"] = Value::from(gates);
}

/// Claims that exist, that do not, and templates of both kinds; some are used by containers.
fn claims(random: &mut Random, names: &Names, pod: &mut Value) {
    let claims: Vec<Value> = (0..=random.below(5))
        .map(|number| {
            let source = if random.one_in(2) { "resourceClaimName" } else { "resourceClaimTemplateName" };
            json!({"name": format!("c{number}"), source: random.pick(&names.claims)})
        })
        .collect();
    pod["spec"]["resourceClaims"] = Value::from(claims);
    if random.one_in(2) {
        merge(&mut pod["spec"]["containers"][0], json!({"resources": {"claims": [{"name": "c0"}]}}));
    }
}

/// Volumes of all sources. Those of the ephemeral kind get a claim with the name of the pod and of the volume.
fn volumes(random: &mut Random, names: &Names, pod: &mut Value) {
    let volumes: Vec<Value> = (0..=random.below(60))
        .map(|number| {
            let mut volume = match random.below(5) {
                0 => json!({"persistentVolumeClaim": {"claimName": random.pick(&names.volumes)}}),
                1 => json!({"configMap": {"name": random.pick(&names.config_maps)}}),
                2 => json!({"ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Ei"}},
                }}}}),
                3 => json!({"emptyDir": {"sizeLimit": text::quantity(random)}}),
                _ => json!({"hostPath": {"path": "/a b"}}),
            };
            volume["name"] = Value::from(format!("v{number}"));
            volume
        })
        .collect();
    pod["spec"]["volumes"] = Value::from(volumes);
}

/// Single fields of the specification and the metadata.
fn others(random: &mut Random, _: &Names, pod: &mut Value) {
    match random.below(8) {
        0 => pod["spec"]["terminationGracePeriodSeconds"] = Value::from(i64::MAX),
        1 => pod["spec"]["activeDeadlineSeconds"] = Value::from(*random.pick(&[1, i64::from(i32::MAX)])),
        2 => pod["metadata"]["finalizers"] = json!(["example.com/never"]),
        3 => {
            let ports: Vec<Value> = (0..random.below(200))
                .map(|number| json!({"containerPort": 1 + number, "hostPort": 1 + number}))
                .collect();
            pod["spec"]["containers"][0]["ports"] = Value::from(ports);
        }
        4 => pod["spec"]["priorityClassName"] = Value::from(*random.pick(&["missing", "train", "inference"])),
        5 => pod["spec"]["schedulerName"] = Value::from("another-scheduler"),
        6 => pod["spec"]["hostNetwork"] = Value::from(true),
        _ => pod["spec"]["setHostnameAsFQDN"] = Value::from(true),
    }
}
