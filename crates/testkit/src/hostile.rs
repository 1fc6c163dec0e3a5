//! Generates unexpected objects by seed: what a tenant, a broken controller or an attacker may write.
//!
//! Most of them are accepted by kube-apiserver; the rest is there because only a server can say which. [`generate`]
//! returns the objects in the order in which they are created, and the owner references that are set afterwards, since
//! cycles of owners need the uids that the server assigns.
//!
//! Valid pods request few resources, and others request more than any cluster has: a scheduler that handles both
//! has free capacity for its other tenants.

mod objects;
mod pods;
mod text;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

/// The namespace of all generated objects.
pub const NAMESPACE: &str = "hostile";

/// An API resource: group and version, kind, plural, and whether it is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

/// A generated object.
#[derive(Clone, Debug, PartialEq)]
pub struct HostileObject {
    pub resource: Resource,
    /// Complete, with `apiVersion`, `kind` and namespace.
    pub object: Value,
    /// Merged into the status subresource after the creation.
    pub status: Option<Value>,
}

/// The objects of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Hostile {
    /// In the order of creation.
    pub objects: Vec<HostileObject>,
    /// Owner references to set after the creation, as positions in `objects`: the first is owned by the second.
    pub owners: Vec<(usize, usize)>,
}

/// Generates the objects of a seed.
pub fn generate(seed: u64) -> Hostile {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    let names = Names::new(&mut random);
    let mut objects = objects::generate(&mut random, &names);
    objects.extend(pods::generate(&mut random, &names));
    let owners = links(&mut random, &objects);
    Hostile { objects, owners }
}

/// Names that objects of one seed use to refer to each other; some of them are never created.
struct Names {
    pods: Vec<String>,
    groups: Vec<String>,
    queues: Vec<String>,
    nodes: Vec<String>,
    claims: Vec<String>,
    volumes: Vec<String>,
    config_maps: Vec<String>,
    topologies: Vec<String>,
}

impl Names {
    fn new(random: &mut Random) -> Self {
        let mut some = |prefix: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| text::name(random, &format!("{prefix}-{number}"))).collect()
        };
        Self {
            pods: some("pod", 16),
            groups: some("group", 4),
            queues: some("queue", 5),
            nodes: some("new-node", 3),
            claims: some("claim", 4),
            volumes: some("volume", 4),
            config_maps: some("config", 3),
            topologies: some("topology", 2),
        }
    }
}

/// A few owner references among the namespaced objects: chains, references to oneself, and cycles.
fn links(random: &mut Random, objects: &[HostileObject]) -> Vec<(usize, usize)> {
    let namespaced: Vec<usize> = (0..objects.len()).filter(|at| objects[*at].resource.namespaced).collect();
    let mut links = Vec::new();
    for _ in 0..random.below(4) {
        let (first, second) = (*random.pick(&namespaced), *random.pick(&namespaced));
        links.push((first, second));
        if random.one_in(2) {
            links.push((second, first));
        }
    }
    links
}

fn object(resource: Resource, name: &str, fields: Value) -> HostileObject {
    let group = resource.group;
    let api_version =
        if group.is_empty() { resource.version.to_owned() } else { format!("{group}/{}", resource.version) };
    let mut object = json!({"apiVersion": api_version, "kind": resource.kind, "metadata": {"name": name}});
    if resource.namespaced {
        object["metadata"]["namespace"] = Value::from(NAMESPACE);
    }
    merge(&mut object, fields);
    HostileObject { resource, object, status: None }
}

/// Merges objects deeply; other values are replaced.
fn merge(to: &mut Value, from: Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (name, value) in from {
                merge(to.entry(name).or_insert(Value::Null), value);
            }
        }
        (to, from) => *to = from,
    }
}

/// The random stream of a seed.
struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.0.next_u64() % bound).unwrap_or(0)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_generates_the_same_objects() {
        for seed in 0..20 {
            assert_eq!(generate(seed), generate(seed), "seed {seed}");
        }
    }

    #[test]
    fn seeds_generate_all_kinds_and_stay_below_the_size_limit_of_requests() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..50 {
            for generated in generate(seed).objects {
                kinds.insert(generated.resource.kind);
                let size = generated.object.to_string().len();
                assert!(size < 1_500_000, "seed {seed}: {} has {size} bytes", generated.resource.kind);
            }
        }
        let expected = [
            "BindRequest",
            "ConfigMap",
            "Job",
            "Node",
            "PersistentVolumeClaim",
            "Pod",
            "PodDisruptionBudget",
            "PodGroup",
            "Queue",
            "ReplicaSet",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "Topology",
        ];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
    }
}
