//! Random clusters by seed: queues with quotas and limits, nodes in racks, running and pending gangs.

use kai_cache::object::{Node, Pod, PodGroup, PriorityClass, Queue, Topology};
use kai_cache::{Object, Objects};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

pub(crate) fn decoded<T: DeserializeOwned + Into<Object>>(object: Value) -> Object {
    serde_json::from_value::<T>(object).expect("it has the form of its kind").into()
}

pub(crate) fn node(name: &str, gpus: usize, rack: usize) -> Object {
    kind_of_node(name, gpus, rack, "a100", false)
}

/// A node with a product label, and a taint that only some pods tolerate.
fn kind_of_node(name: &str, gpus: usize, rack: usize, product: &str, is_tainted: bool) -> Object {
    let taints = if is_tainted {
        json!([{"key": "reserved", "value": "yes", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
    decoded::<Node>(json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "rack": format!("r{rack}"), "zone": format!("z{}", rack / 2),
            "nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.product": product,
        }},
        "spec": {"taints": taints},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

pub(crate) fn queue(name: &str, parent: Option<&str>, quota: i64, limit: i64) -> Object {
    weighted_queue(name, parent, quota, limit, 1)
}

pub(crate) fn weighted_queue(
    name: &str,
    parent: Option<&str>,
    quota: i64,
    limit: i64,
    weight: i64,
) -> Object {
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let gpu = json!({"quota": quota, "limit": limit, "overQuotaWeight": weight});
    let mut spec = json!({"resources": {"gpu": gpu, "cpu": open, "memory": open}});
    if let Some(parent) = parent {
        spec["parentQueue"] = json!(parent);
    }
    decoded::<Queue>(json!({"metadata": {"name": name}, "spec": spec}))
}

pub(crate) fn class(name: &str, value: i32) -> Object {
    decoded::<PriorityClass>(json!({"metadata": {"name": name}, "value": value}))
}

pub(crate) fn topology() -> Object {
    let levels = json!([{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]);
    decoded::<Topology>(json!({"metadata": {"name": "dc"}, "spec": {"levels": levels}}))
}

/// A group and its pods; those with a node run.
#[derive(Default)]
pub(crate) struct Gang<'a> {
    pub(crate) name: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) gpus: &'a str,
    pub(crate) spec: Value,
    pub(crate) pods: Vec<Option<String>>,
    pub(crate) created: usize,
    /// The part of a GPU that each pod requests instead of whole ones, and the device of those that run.
    pub(crate) fraction: Option<(&'a str, Vec<String>)>,
    /// Sub-groups to which the pods belong in turn.
    pub(crate) sub_groups: &'a [&'a str],
    /// Merged into the specification of each pod.
    pub(crate) pod: Value,
    /// When the group started.
    pub(crate) started: Option<&'a str>,
}

pub(crate) fn gang(of: &Gang<'_>) -> Vec<Object> {
    let created = format!("2026-01-01T00:{:02}:{:02}Z", of.created / 60 % 60, of.created % 60);
    let meta =
        |name: &str| json!({"name": name, "namespace": "a", "uid": name, "creationTimestamp": created});
    let mut spec = json!({"queue": of.queue, "minMember": of.pods.len()});
    for (key, value) in of.spec.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let mut group = meta(of.name);
    if let Some(started) = of.started {
        group["annotations"] = json!({"kai.scheduler/last-start-timestamp": started});
    }
    let mut objects = vec![decoded::<PodGroup>(json!({"metadata": group, "spec": spec}))];
    for (number, node) in of.pods.iter().enumerate() {
        let mut metadata = meta(&format!("{}-{number}", of.name));
        metadata["annotations"] = json!({"pod-group-name": of.name});
        let mut amounts = json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": of.gpus});
        if let Some((fraction, devices)) = &of.fraction {
            amounts = json!({"cpu": "1", "memory": "1Gi"});
            metadata["annotations"]["gpu-fraction"] = json!(fraction);
            if let Some(device) = devices.get(number).filter(|_| node.is_some()) {
                metadata["annotations"]["received-resource-type"] = json!("Fraction");
                metadata["labels"]["runai-gpu-group"] = json!(device);
            }
        }
        if !of.sub_groups.is_empty() {
            let name = of.sub_groups[number % of.sub_groups.len()];
            metadata["labels"]["kai.scheduler/subgroup-name"] = json!(name);
        }
        let mut pod = json!({"metadata": metadata, "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        }, "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}});
        for (key, value) in of.pod.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        objects.push(decoded::<Pod>(pod));
    }
    objects
}

pub(crate) fn objects(all: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in all {
        objects.insert(object);
    }
    objects
}

/// A cluster of a seed.
pub(crate) fn cluster(seed: u64) -> Objects {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    let mut all = vec![topology(), class("train", 50), class("build", 100), class("inference", 125)];
    let mut nodes: Vec<FreeNode> = Vec::new();
    for number in 0..=random.below(6) {
        let (name, gpus) = (format!("n{number}"), random.pick(&[2, 4, 8, 8]));
        let (product, is_tainted) = (random.pick(&["a100", "a100", "h100"]), random.below(5) == 0);
        all.push(kind_of_node(&name, gpus, number / 2, product, is_tainted));
        nodes.push(FreeNode { name, gpus, product, is_tainted, shared: Vec::new() });
    }
    all.extend(queues(&mut random));
    for number in 0..2 + random.below(10) {
        all.extend(workload(&mut random, number, &mut nodes));
    }
    objects(all)
}

/// What a node has left.
struct FreeNode {
    name: String,
    gpus: usize,
    product: &'static str,
    is_tainted: bool,
    /// Devices of which parts are free, in hundredths.
    shared: Vec<(String, usize)>,
}

impl FreeNode {
    /// Takes a part of a device, and returns its name.
    fn take_part(&mut self, hundredths: usize) -> Option<String> {
        if let Some((device, free)) = self.shared.iter_mut().find(|(_, free)| *free >= hundredths) {
            *free -= hundredths;
            return Some(device.clone());
        }
        self.gpus = self.gpus.checked_sub(1)?;
        let device = format!("{}-shared-{}", self.name, self.shared.len());
        self.shared.push((device.clone(), 100 - hundredths));
        Some(device)
    }
}

fn queues(random: &mut Random) -> Vec<Object> {
    let bound = |random: &mut Random| random.pick(&[-1, -1, -1, 2, 4, 8, 16]);
    let mut all = Vec::new();
    for parent in ["d0", "d1"] {
        let (quota, limit) = (bound(random), bound(random));
        all.push(queue(parent, None, quota, limit));
        for leaf in ["a", "b"] {
            let (quota, limit) = (bound(random), bound(random));
            let minimum = random.pick(&[None, None, None, Some("1h"), Some("1000h")]);
            all.push(queue_with_runtime(&format!("{parent}{leaf}"), parent, (quota, limit), minimum));
        }
    }
    all
}

/// A queue whose pods may not be evicted before they ran for so long.
fn queue_with_runtime(name: &str, parent: &str, (quota, limit): (i64, i64), minimum: Option<&str>) -> Object {
    let Object::Queue(queue) = queue(name, Some(parent), quota, limit) else { panic!("it is a queue") };
    let mut queue = serde_json::to_value(&*queue).expect("a queue is JSON");
    if let Some(minimum) = minimum {
        queue["spec"]["preemptMinRuntime"] = json!(minimum);
        queue["spec"]["reclaimMinRuntime"] = json!(minimum);
    }
    decoded::<Queue>(queue)
}

/// A group, some of whose pods run.
fn workload(random: &mut Random, number: usize, nodes: &mut [FreeNode]) -> Vec<Object> {
    let (pods, gpus) = (1 + random.below(4), random.pick(&[0, 1, 1, 2, 4, 8]));
    let leaf = random.pick(&["d0a", "d0b", "d1a", "d1b"]);
    let fraction = random.pick(&[None, None, None, None, Some(("0.5", 50)), Some(("0.3", 30))]);
    let (tolerates, selects) = (random.below(3) == 0, random.pick(&["", "", "", "a100", "h100"]));
    let mut spec = json!({"priorityClassName": random.pick(&["train", "train", "build", "inference"])});
    if random.below(3) == 0 {
        spec["minMember"] = json!(1 + random.below(pods + 1));
    }
    if random.below(4) == 0 {
        let level = random.pick(&["zone", "rack"]);
        spec["topologyConstraint"] = json!({"topology": "dc", "requiredTopologyLevel": level});
    }
    let sub_groups: &[&str] = if pods > 1 && random.below(4) == 0 { &["head", "workers"] } else { &[] };
    if !sub_groups.is_empty() {
        let least = |share: usize, random: &mut Random| 1 + random.below(share);
        let (head, workers) = (least(pods.div_ceil(2), random), least(pods / 2, random));
        spec["subGroups"] =
            json!([{"name": "head", "minMember": head}, {"name": "workers", "minMember": workers}]);
        spec["minMember"] = json!(head + workers);
    }
    let mut pod = json!({});
    if tolerates {
        pod["tolerations"] = json!([{"key": "reserved", "operator": "Exists"}]);
    }
    if !selects.is_empty() {
        pod["nodeSelector"] = json!({"nvidia.com/gpu.product": selects});
    }
    let runs = random.below(3) > 0;
    let (mut places, mut devices) = (Vec::new(), Vec::new());
    for _ in 0..pods {
        let mut fits = nodes.iter_mut().filter(|node| {
            runs && (tolerates || !node.is_tainted) && (selects.is_empty() || selects == node.product)
        });
        let place = match fraction {
            Some((_, part)) => fits.find_map(|node| Some((node.name.clone(), node.take_part(part)?))),
            None => fits.find(|node| node.gpus >= gpus).map(|node| {
                node.gpus -= gpus;
                (node.name.clone(), String::new())
            }),
        };
        let (place, device) = place.unzip();
        places.push(place);
        devices.push(device.unwrap_or_default());
    }
    // Within the hour before the clusters are planned, or long before.
    let started = random.pick(&[None, Some("2026-12-31T23:30:00Z"), Some("2026-01-02T00:00:00Z")]);
    gang(&Gang {
        name: &format!("g{number}"),
        queue: leaf,
        gpus: &gpus.to_string(),
        spec,
        pods: places,
        created: number,
        fraction: fraction.map(|(text, _)| (text, devices)),
        sub_groups,
        pod,
        started: started.filter(|_| runs),
    })
}
