//! Everything but pods: nodes, queues, groups, owners, claims, volumes, config maps, bind requests, budgets, topologies.

use super::{HostileObject, Names, Random, Resource, object, text};
use serde_json::{Map, Value, json};

const fn core(kind: &'static str, plural: &'static str, namespaced: bool) -> Resource {
    Resource { group: "", version: "v1", kind, plural, namespaced }
}

const fn in_group(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Resource {
    Resource { group, version, kind, plural, namespaced }
}

const NODE: Resource = core("Node", "nodes", false);
const CONFIG_MAP: Resource = core("ConfigMap", "configmaps", true);
const VOLUME_CLAIM: Resource = core("PersistentVolumeClaim", "persistentvolumeclaims", true);
const JOB: Resource = in_group("batch", "v1", "Job", "jobs", true);
const REPLICA_SET: Resource = in_group("apps", "v1", "ReplicaSet", "replicasets", true);
const BUDGET: Resource = in_group("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);
const CLAIM: Resource = in_group("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true);
const CLAIM_TEMPLATE: Resource =
    in_group("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", true);
const QUEUE: Resource = in_group("scheduling.run.ai", "v2", "Queue", "queues", false);
const POD_GROUP: Resource = in_group("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
const BIND_REQUEST: Resource = in_group("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests", true);
const TOPOLOGY: Resource = in_group("kai.scheduler", "v1alpha1", "Topology", "topologies", false);

pub(super) fn generate(random: &mut Random, names: &Names) -> Vec<HostileObject> {
    let mut objects = Vec::new();
    // The last name of each kind stays a reference to nothing.
    for name in names.nodes.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(node(random, name));
    }
    for name in names.queues.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(queue(random, names, name));
    }
    for name in names.topologies.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(topology(random, name));
    }
    for name in names.groups.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(pod_group(random, names, name));
    }
    for name in names.config_maps.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(config_map(random, name));
    }
    for name in names.volumes.split_last().map_or(&[][..], |(_, rest)| rest) {
        objects.push(volume_claim(random, name));
    }
    for name in names.claims.split_last().map_or(&[][..], |(_, rest)| rest) {
        let spec = claim_spec(random);
        objects.push(object(CLAIM, name, json!({"spec": spec})));
        let spec = claim_spec(random);
        objects.push(object(CLAIM_TEMPLATE, name, json!({"spec": {"spec": spec}})));
    }
    for number in 0..=random.below(3) {
        objects.push(bind_request(random, names, number));
    }
    objects.push(owner(random, names, JOB, "job"));
    objects.push(owner(random, names, REPLICA_SET, "replicas"));
    let selector = if random.one_in(2) { json!({}) } else { json!({"matchLabels": {"app": "x"}}) };
    let limit = random.pick(&[json!(0), json!("0%"), json!("100%"), json!(i32::MAX)]).clone();
    objects.push(object(BUDGET, "budget", json!({"spec": {"maxUnavailable": limit, "selector": selector}})));
    objects
}

/// A node that reports itself as ready, with absurd amounts, labels and taints.
fn node(random: &mut Random, name: &str) -> HostileObject {
    let mut amounts = Map::new();
    for resource in
        ["cpu", "memory", "pods", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "example.com/x"]
    {
        if random.one_in(2) {
            let amount = match resource {
                "cpu" | "memory" => text::quantity(random).replace('-', ""),
                _ => text::count(random),
            };
            amounts.insert(resource.to_owned(), Value::from(amount));
        }
    }
    let mut labels = Map::new();
    for key in [
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory",
        "nvidia.com/mig.strategy",
        "node-role.kubernetes.io/gpu-worker",
        "kai.scheduler/node-pool",
        "feature.node.kubernetes.io/memory-numa",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "run.ai/fake.gpu",
    ] {
        if random.one_in(3) {
            labels.insert(key.to_owned(), Value::from(text::label(random)));
        }
    }
    let taints: Vec<Value> = (0..random.below(20))
        .map(|number| json!({"key": format!("taint-{number}"), "effect": "PreferNoSchedule"}))
        .collect();
    let mut node = object(
        NODE,
        name,
        json!({"metadata": {"labels": labels}, "spec": {"taints": taints, "unschedulable": random.one_in(4)}}),
    );
    node.status = Some(json!({
        "allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}],
    }));
    node
}

fn queue(random: &mut Random, names: &Names, name: &str) -> HostileObject {
    let mut resources = Map::new();
    for resource in ["gpu", "cpu", "memory"] {
        let mut amounts = Map::new();
        for field in ["quota", "limit", "overQuotaWeight"] {
            if random.one_in(2) {
                amounts.insert(field.to_owned(), text::number(random));
            }
        }
        resources.insert(resource.to_owned(), Value::Object(amounts));
    }
    let mut spec = json!({"resources": resources});
    // Itself, one of the others (which makes cycles), one that does not exist, or any text.
    match random.below(4) {
        0 => spec["parentQueue"] = Value::from(name),
        1 => spec["parentQueue"] = Value::from(random.pick(&names.queues).as_str()),
        2 => spec["parentQueue"] = Value::from(text::any(random)),
        _ => {}
    }
    if random.one_in(3) {
        spec["priority"] = Value::from(text::integer(random));
    }
    for field in ["preemptMinRuntime", "reclaimMinRuntime", "displayName"] {
        if random.one_in(4) {
            spec[field] = Value::from(text::any(random));
        }
    }
    let mut queue = object(QUEUE, name, json!({"spec": spec}));
    if random.one_in(3) {
        let amounts = |random: &mut Random| json!({"cpu": text::quantity(random), "nvidia.com/gpu": text::count(random)});
        queue.status = Some(json!({
            "allocated": amounts(random), "requested": amounts(random), "allocatedNonPreemptible": amounts(random),
            "childQueues": [random.pick(&names.queues), text::any(random)],
        }));
    }
    queue
}

fn topology(random: &mut Random, name: &str) -> HostileObject {
    let count = 1 + random.below(17);
    let levels: Vec<Value> = (0..count)
        .map(|level| json!({"nodeLabel": format!("{}/level-{level}", text::fill("a", 60))}))
        .collect();
    object(TOPOLOGY, name, json!({"spec": {"levels": levels}}))
}

fn pod_group(random: &mut Random, names: &Names, name: &str) -> HostileObject {
    let mut spec = json!({"queue": random.pick(&names.queues)});
    match random.below(3) {
        0 => spec["minMember"] = Value::from(text::small_integer(random)),
        1 => spec["minSubGroup"] = Value::from(text::small_integer(random)),
        _ => {}
    }
    if random.one_in(3) {
        spec["queue"] = Value::from(text::any(random));
    }
    for field in ["priorityClassName", "preemptionDelay", "stalenessGracePeriod"] {
        if random.one_in(4) {
            spec[field] = Value::from(text::any(random));
        }
    }
    if random.one_in(4) {
        spec["schedulingBackoff"] = Value::from(text::small_integer(random));
    }
    if random.one_in(3) {
        spec["topologyConstraint"] = topology_constraint(random, names);
    }
    if random.one_in(2) {
        spec["subGroups"] = Value::from(sub_groups(random, names));
    }
    let mut group = object(POD_GROUP, name, json!({"spec": spec}));
    if random.one_in(3) {
        group.status = Some(group_status(random));
    }
    group
}

/// A status as no scheduler writes it: other pools, repeated conditions, identifiers that are no numbers.
fn group_status(random: &mut Random) -> Value {
    let condition = |random: &mut Random| {
        json!({
            "type": text::any(random), "nodePool": *random.pick(&["default", "", "another"]), "status": "True",
            "reason": text::any(random), "message": text::any(random), "transitionID": text::any(random),
        })
    };
    let conditions: Vec<Value> = (0..random.below(4)).map(|_| condition(random)).collect();
    json!({
        "schedulingConditions": conditions,
        "resourcesStatus": {"allocated": {"cpu": text::quantity(random), "nvidia.com/gpu": text::count(random)}},
    })
}

fn topology_constraint(random: &mut Random, names: &Names) -> Value {
    json!({
        "topology": random.pick(&names.topologies), "requiredTopologyLevel": text::any(random),
        "preferredTopologyLevel": text::any(random),
    })
}

/// Subgroups with parents that are themselves, each other, or missing; sometimes many, or a deep chain.
fn sub_groups(random: &mut Random, names: &Names) -> Vec<Value> {
    let count = if random.one_in(5) { 500 } else { 1 + random.below(5) };
    let chain = random.one_in(3);
    (0..count)
        .map(|number| {
            let mut group = json!({"name": format!("s{number}")});
            if chain && number > 0 {
                group["parent"] = Value::from(format!("s{}", number - 1));
            } else if random.one_in(2) {
                group["parent"] = Value::from(format!("s{}", random.below(count + 1)));
            }
            match random.below(3) {
                0 => group["minMember"] = Value::from(text::small_integer(random)),
                1 => group["minSubGroup"] = Value::from(text::small_integer(random)),
                _ => {}
            }
            if random.one_in(6) {
                group["topologyConstraint"] = topology_constraint(random, names);
            }
            group
        })
        .collect()
}

fn config_map(random: &mut Random, name: &str) -> HostileObject {
    let mut data = Map::new();
    for number in 0..random.below(5) {
        data.insert(format!("key.{number}"), Value::from(text::any(random)));
    }
    for key in ["CUDA_VISIBLE_DEVICES", "GPU_PORTION", "RUNAI-VISIBLE-DEVICES", "types"] {
        if random.one_in(3) {
            data.insert(key.to_owned(), Value::from(text::any(random)));
        }
    }
    if random.one_in(4) {
        data.insert("large".to_owned(), Value::from("x".repeat(900_000)));
    }
    object(CONFIG_MAP, name, json!({"data": data, "immutable": random.one_in(2)}))
}

fn volume_claim(random: &mut Random, name: &str) -> HostileObject {
    let mut spec = json!({
        "accessModes": [random.pick(&["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])],
        "resources": {"requests": {"storage": text::quantity(random)}},
    });
    match random.below(4) {
        0 => spec["storageClassName"] = Value::from(""),
        1 => spec["storageClassName"] = Value::from("missing"),
        2 => spec["volumeName"] = Value::from("missing"),
        _ => {}
    }
    if random.one_in(4) {
        spec["selector"] = json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]});
    }
    object(VOLUME_CLAIM, name, json!({"spec": spec}))
}

/// Expressions for device selectors: false, failing, and expensive ones.
const EXPRESSIONS: [&str; 6] = [
    "true",
    "false",
    "device.attributes['x'].y > 1",
    "device.attributes[\"gpu.example.com\"].missing == \"a\"",
    "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a + b + c > 0)))",
    "1 / 0 == 1",
];

fn claim_spec(random: &mut Random) -> Value {
    let count = 1 + random.below(4);
    let requests: Vec<Value> = (0..count)
        .map(|number| {
            let mut exactly = json!({"deviceClassName": *random.pick(&["missing", "gpu.nvidia.com", "a.b"])});
            match random.below(4) {
                0 => exactly["allocationMode"] = Value::from("All"),
                1 => exactly["count"] = Value::from(text::integer(random)),
                _ => {}
            }
            if random.one_in(2) {
                let expression = *random.pick(&EXPRESSIONS);
                exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            json!({"name": format!("r{number}"), "exactly": exactly})
        })
        .collect();
    let mut devices = json!({"requests": requests});
    if random.one_in(3) {
        devices["constraints"] = json!([{"matchAttribute": "example.com/uuid"}]);
    }
    json!({"devices": devices})
}

fn bind_request(random: &mut Random, names: &Names, number: usize) -> HostileObject {
    let mut spec = json!({
        "podName": random.pick(&names.pods), "selectedNode": random.pick(&names.nodes),
        "receivedResourceType": *random.pick(&["Regular", "Fraction", "MigInstance", "", "x y"]),
    });
    if random.one_in(4) {
        spec["podName"] = Value::from(text::any(random));
    }
    if random.one_in(4) {
        spec["selectedNode"] = Value::from(text::any(random));
    }
    if random.one_in(2) {
        spec["receivedGPU"] = json!({"count": text::integer(random), "portion": text::any(random)});
    }
    if random.one_in(2) {
        let groups: Vec<String> = (0..random.below(100)).map(|_| text::any(random)).collect();
        spec["selectedGPUGroups"] = Value::from(groups);
    }
    if random.one_in(3) {
        spec["backoffLimit"] = Value::from(text::small_integer(random));
    }
    if random.one_in(4) {
        spec["resourceClaimAllocations"] = json!([{"name": text::any(random)}, {"name": names.claims[0]}]);
    }
    let mut request = object(BIND_REQUEST, &format!("bind-{number}"), json!({"spec": spec}));
    if random.one_in(3) {
        let reason = if random.one_in(2) {
            format!("GPUReservationLost: a, {}", text::any(random))
        } else {
            text::any(random)
        };
        request.status = Some(json!({
            "phase": *random.pick(&["Succeeded", "Failed", "Pending", ""]), "reason": reason,
            "failedAttempts": text::small_integer(random),
        }));
    }
    request
}

/// A workload whose pod template is hostile.
fn owner(random: &mut Random, names: &Names, resource: Resource, name: &str) -> HostileObject {
    let mut template = super::pods::template(random, names);
    template["metadata"]["labels"]["app"] = Value::from("x");
    let mut spec = json!({"template": template});
    if resource.kind == "Job" {
        spec["template"]["spec"]["restartPolicy"] = Value::from("Never");
        spec["parallelism"] = Value::from(random.below(3));
        spec["completions"] = Value::from(*random.pick(&[1, 2, 1_000_000, i32::MAX]));
        spec["backoffLimit"] = Value::from(i32::MAX);
    } else {
        spec["replicas"] = Value::from(random.below(3));
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
    }
    let mut metadata = json!({});
    if random.one_in(3) {
        metadata["annotations"] = json!({"kai.scheduler/batch-min-member": text::any(random)});
    }
    // The pods of a job have its name as a label.
    let name = if random.one_in(3) { text::fill(name, 63) } else { name.to_owned() };
    object(resource, &name, json!({"metadata": metadata, "spec": spec}))
}
