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
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
    decoded::<Node>(json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "rack": format!("r{rack}"), "zone": format!("z{}", rack / 2),
            "nvidia.com/gpu.memory": "40960",
        }},
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
pub(crate) struct Gang<'a> {
    pub(crate) name: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) gpus: &'a str,
    pub(crate) spec: Value,
    pub(crate) pods: Vec<Option<String>>,
    pub(crate) created: usize,
}

pub(crate) fn gang(of: &Gang<'_>) -> Vec<Object> {
    let created = format!("2026-01-01T00:{:02}:{:02}Z", of.created / 60 % 60, of.created % 60);
    let meta =
        |name: &str| json!({"name": name, "namespace": "a", "uid": name, "creationTimestamp": created});
    let mut spec = json!({"queue": of.queue, "minMember": of.pods.len()});
    for (key, value) in of.spec.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let mut objects = vec![decoded::<PodGroup>(json!({"metadata": meta(of.name), "spec": spec}))];
    for (number, node) in of.pods.iter().enumerate() {
        let mut metadata = meta(&format!("{}-{number}", of.name));
        metadata["annotations"] = json!({"pod-group-name": of.name});
        let amounts = json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": of.gpus});
        let mut pod = json!({"metadata": metadata, "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        }, "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}});
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
    let mut free: Vec<(String, usize)> = Vec::new();
    for number in 0..=random.below(6) {
        let (name, gpus) = (format!("n{number}"), random.pick(&[2, 4, 8, 8]));
        all.push(node(&name, gpus, number / 2));
        free.push((name, gpus));
    }
    let bound = |random: &mut Random| random.pick(&[-1, -1, -1, 2, 4, 8, 16]);
    for parent in ["d0", "d1"] {
        let (quota, limit) = (bound(&mut random), bound(&mut random));
        all.push(queue(parent, None, quota, limit));
        for leaf in ["a", "b"] {
            let (quota, limit) = (bound(&mut random), bound(&mut random));
            all.push(queue(&format!("{parent}{leaf}"), Some(parent), quota, limit));
        }
    }
    for number in 0..2 + random.below(10) {
        let (pods, gpus) = (1 + random.below(4), random.pick(&[0, 1, 1, 2, 4, 8]));
        let leaf = random.pick(&["d0a", "d0b", "d1a", "d1b"]);
        let mut spec = json!({"priorityClassName": random.pick(&["train", "train", "build", "inference"])});
        if random.below(3) == 0 {
            spec["minMember"] = json!(1 + random.below(pods + 1));
        }
        if random.below(4) == 0 {
            let level = random.pick(&["zone", "rack"]);
            spec["topologyConstraint"] = json!({"topology": "dc", "requiredTopologyLevel": level});
        }
        let runs = random.below(3) > 0;
        let mut nodes = Vec::new();
        for _ in 0..pods {
            let node = free.iter_mut().find(|(_, free)| *free >= gpus).filter(|_| runs);
            nodes.push(node.map(|(name, free)| {
                *free -= gpus;
                name.clone()
            }));
        }
        let name = format!("g{number}");
        all.extend(gang(&Gang {
            name: &name,
            queue: leaf,
            gpus: &gpus.to_string(),
            spec,
            pods: nodes,
            created: number,
        }));
    }
    objects(all)
}
