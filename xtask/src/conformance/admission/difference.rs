//! Intended differences from KAI's webhooks, as rules over the input of a case.
//!
//! `docs/differences.md` describes the same table. A failing case counts as a difference only if the predicate holds for
//! its input: objects, flags and stored queues, never its name, its note or its expectations.

use super::case::Input;
use super::direct;
use kai_admission::pod::{has_unusable_prefix, same_request};
use kai_admission::queue::{self, QuotaValidation};
use kai_api::spelling;
use kai_api::well_known::resource::NVIDIA_GPU;
use kai_api::well_known::{annotation as key, env};
use serde_json::Value;

struct Difference {
    /// The id in `docs/differences.md`.
    id: &'static str,
    holds: fn(&Facts) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference { id: "A01", holds: |facts| facts.created_pods().any(|pod| shares(pod) && is_nameless(pod)) },
    Difference { id: "A02", holds: |facts| facts.pods().any(|pod| shares(pod) && names_no_container(pod)) },
    Difference {
        id: "A03",
        holds: |facts| facts.pod_updates().any(|(old, new)| shares(new) && !shares(old)),
    },
    Difference { id: "A04", holds: |facts| !facts.sharing && facts.created_pods().any(shares) },
    Difference { id: "A05", holds: |facts| facts.pods().any(|pod| shares(pod) && has_request_only(pod)) },
    Difference {
        id: "A06",
        holds: |facts| facts.blocking && facts.created_pods().any(reads_devices_elsewhere),
    },
    Difference { id: "A07", holds: |facts| facts.blocking && facts.created_pods().any(has_limit_only) },
    Difference { id: "A08", holds: |facts| facts.created_pods().any(has_unusable_prefix) },
    Difference {
        id: "A09",
        holds: |facts| facts.created_pods().any(|pod| shares(pod) && volume_is_taken(pod)),
    },
    Difference { id: "A10", holds: |facts| facts.pod_updates().any(|(old, new)| same_request(old, new)) },
    Difference { id: "A11", holds: Facts::has_cycle },
    Difference { id: "A12", holds: Facts::deletes_a_used_queue },
    Difference { id: "A13", holds: |facts| facts.compares_quotas && facts.has_unlimited_quota() },
    Difference { id: "A14", holds: |facts| facts.compares_quotas && facts.exceeds_in_more_than_cpu() },
    Difference { id: "A15", holds: |facts| facts.compares_quotas && facts.status_is_not_the_tree() },
    Difference { id: "A16", holds: Facts::has_contradicting_bounds },
    Difference { id: "A17", holds: |facts| facts.created_pods().any(|pod| !spelling::check(pod).is_empty()) },
];

/// The first difference whose predicate holds.
pub(super) fn explain(input: &Input) -> Option<&'static str> {
    let facts = Facts::of(input);
    DIFFERENCES.iter().find(|difference| (difference.holds)(&facts)).map(|difference| difference.id)
}

/// One requested change.
struct Change {
    /// Null for a deletion.
    new: Value,
    /// Null for a creation.
    old: Value,
}

/// The input of a case.
struct Facts {
    sharing: bool,
    blocking: bool,
    compares_quotas: bool,
    changes: Vec<Change>,
    /// Queues that are stored or created.
    queues: Vec<Value>,
}

impl Facts {
    fn of(input: &Input) -> Self {
        let options = input.pod_options().unwrap_or_default();
        let changes = if input.is_direct() {
            vec![Change { new: input.object.clone(), old: input.old_object.clone() }]
        } else {
            steps(input)
        };
        let mut queues = direct::queues(input);
        queues.extend(
            changes.iter().map(|change| change.new.clone()).filter(|new| kai_object::kind(new) == "Queue"),
        );
        Self {
            sharing: options.gpu_sharing,
            blocking: options.block_visible_devices,
            compares_quotas: input.quota_validation().is_ok_and(|quotas| quotas == QuotaValidation::Enabled),
            changes,
            queues,
        }
    }

    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Change> {
        let is = move |object: &Value| kai_object::kind(object) == kind;
        self.changes.iter().filter(move |change| is(&change.new) || is(&change.old))
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("Pod").map(|change| &change.new)
    }

    fn created_pods(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("Pod").filter(|change| change.old.is_null()).map(|change| &change.new)
    }

    fn pod_updates(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let updates = self.of_kind("Pod").filter(|change| !change.old.is_null() && !change.new.is_null());
        updates.map(|change| (&change.old, &change.new))
    }

    /// The queue in question, in direct cases.
    fn queue(&self) -> Option<&Value> {
        self.of_kind("Queue").map(|change| &change.new).find(|new| !new.is_null())
    }

    fn stored(&self, name: &str) -> Option<&Value> {
        self.queues.iter().find(|queue| kai_object::name(queue) == name)
    }

    fn children<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = &'a Value> {
        self.queues.iter().filter(move |queue| parent_of(queue) == parent && !parent.is_empty())
    }

    /// A queue's parents lead back to it.
    fn has_cycle(&self) -> bool {
        self.of_kind("Queue").any(|change| {
            let name = kai_object::name(&change.new);
            let mut at = parent_of(&change.new);
            for _ in 0..=self.queues.len() {
                if at == name && !at.is_empty() {
                    return true;
                }
                at = self.stored(at).map_or("", parent_of);
            }
            false
        })
    }

    fn deletes_a_used_queue(&self) -> bool {
        self.of_kind("Queue").filter(|change| change.new.is_null()).any(|change| {
            let has_amounts = |pointer| {
                let amounts = change.old.pointer(pointer).and_then(Value::as_object);
                amounts.is_some_and(|amounts| !amounts.is_empty())
            };
            let name = kai_object::name(&change.old);
            self.children(name).next().is_some()
                || self.of_kind("PodGroup").any(|group| queue::uses(&group.new, name))
                || ["/status/requested", "/status/allocated"].into_iter().any(has_amounts)
        })
    }

    /// The limit of a queue is below its quota, or a quota, limit or weight is negative without a meaning.
    fn has_contradicting_bounds(&self) -> bool {
        let queues = self.of_kind("Queue").filter_map(|change| queue::decode(&change.new).ok());
        queues.into_iter().any(|queue| !queue::Change::Create(queue).warnings().is_empty())
    }

    /// The queue, its parent, and the queues beside and below it.
    fn family(&self) -> Vec<&Value> {
        let Some(queue) = self.queue() else { return Vec::new() };
        let (name, parent) = (kai_object::name(queue), parent_of(queue));
        let mut family = vec![queue];
        family.extend(self.stored(parent));
        family.extend(self.children(parent).chain(self.children(name)));
        family
    }

    fn has_unlimited_quota(&self) -> bool {
        let mut family = self.family().into_iter();
        family.any(|queue| RESOURCES.iter().any(|resource| quota(queue, resource) < 0.0))
    }

    /// GPUs or memory are exceeded by the sum beside the queue, or by a queue below it.
    fn exceeds_in_more_than_cpu(&self) -> bool {
        let Some(queue) = self.queue() else { return false };
        let (name, parent) = (kai_object::name(queue), parent_of(queue));
        let siblings = || self.children(parent).filter(|other| kai_object::name(other) != name);
        ["gpu", "memory"].iter().any(|resource| {
            let own = quota(queue, resource);
            let sum = own + siblings().map(|sibling| quota(sibling, resource)).sum::<f64>();
            self.stored(parent).is_some_and(|parent| sum > quota(parent, resource))
                || self.children(name).any(|child| quota(child, resource) > own)
        })
    }

    /// The statuses of the old and the new queue do not list exactly the queues that name it as their parent.
    fn status_is_not_the_tree(&self) -> bool {
        let Some(change) = self.of_kind("Queue").next() else { return false };
        let listed = |queue: &Value| -> Vec<String> {
            let names = queue.pointer("/status/childQueues").and_then(Value::as_array).into_iter().flatten();
            let mut names: Vec<String> = names.filter_map(Value::as_str).map(str::to_owned).collect();
            names.sort();
            names
        };
        let name = kai_object::name(&change.new);
        let mut tree: Vec<String> =
            self.children(name).map(|child| kai_object::name(child).to_owned()).collect();
        tree.sort();
        listed(&change.old) != tree || listed(&change.new) != tree
    }
}

/// The changes of a case through an API server.
fn steps(input: &Input) -> Vec<Change> {
    let mut stored: Vec<Value> = Vec::new();
    let mut changes = Vec::new();
    for step in &input.steps {
        let at = stored.iter().position(|object| {
            kai_object::kind(object) == step.kind
                && kai_object::name(object) == step.name
                && !step.kind.is_empty()
        });
        let old = at.map_or(Value::Null, |at| stored.swap_remove(at));
        let new = match step.op.as_str() {
            "CREATE" => step.object.clone(),
            "UPDATE" => {
                let mut new = old.clone();
                merge(&mut new, &step.patch);
                new
            }
            _ => Value::Null,
        };
        if !new.is_null() {
            stored.push(new.clone());
        }
        changes.push(Change { new, old });
    }
    changes
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (field, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(field));
        } else {
            merge(&mut object[field.as_str()], value);
        }
    }
}

const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];

fn parent_of(queue: &Value) -> &str {
    kai_object::str_at(queue, "/spec/parentQueue")
}

fn quota(queue: &Value, resource: &str) -> f64 {
    queue.pointer(&format!("/spec/resources/{resource}/quota")).and_then(Value::as_f64).unwrap_or(0.0)
}

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    kai_object::meta(pod, "annotations")?.get(key)?.as_str()
}

fn shares(pod: &Value) -> bool {
    annotation(pod, key::GPU_FRACTION).is_some() || annotation(pod, key::GPU_MEMORY).is_some()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let of = |pointer| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    of("/spec/initContainers").chain(of("/spec/containers"))
}

fn is_nameless(pod: &Value) -> bool {
    kai_object::name(pod).is_empty() && pod.pointer("/metadata/ownerReferences/0").is_none()
}

fn names_no_container(pod: &Value) -> bool {
    annotation(pod, key::GPU_FRACTION_CONTAINER)
        .filter(|named| !named.is_empty())
        .is_some_and(|named| containers(pod).all(|container| kai_object::str_at(container, "/name") != named))
}

fn whole_gpus<'a>(container: &'a Value, part: &str) -> Option<&'a Value> {
    container.get("resources")?.get(part)?.get(NVIDIA_GPU)
}

fn has_request_only(pod: &Value) -> bool {
    containers(pod).any(|one| whole_gpus(one, "requests").is_some() && whole_gpus(one, "limits").is_none())
}

/// Devices as a limit only, of any kind.
fn has_limit_only(pod: &Value) -> bool {
    containers(pod).any(|one| {
        one.pointer("/resources/limits").is_some_and(|limits| {
            let limits = limits.as_object().into_iter().flatten();
            let mut missing = limits.filter(|(name, _)| {
                one["resources"].get("requests").and_then(|all| all.get(*name)).is_none()
            });
            missing.any(|(name, _)| name.starts_with("nvidia.com/"))
        })
    })
}

fn reads_devices_elsewhere(pod: &Value) -> bool {
    containers(pod).any(|container| {
        let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
        variables
            .filter(|one| kai_object::str_at(one, "/name") == env::NVIDIA_VISIBLE_DEVICES)
            .any(|one| one.get("valueFrom").is_some())
    })
}

/// A volume has a name that belongs to the given prefix, but is no config map.
fn volume_is_taken(pod: &Value) -> bool {
    let Some(prefix) = annotation(pod, key::SHARED_GPU_CONFIG_MAP) else { return false };
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    volumes.filter(|one| kai_object::str_at(one, "/name").starts_with(prefix)).any(|volume| {
        let map = kai_object::str_at(volume, "/configMap/name");
        !map.starts_with(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explain(new: &Value, old: &Value, operation: &str) -> Option<&'static str> {
        let input = json!({
            "component": "admission", "flags": ["--gpu-sharing-enabled=true"], "operation": operation,
            "path": "/", "object": new, "oldObject": old,
        });
        super::explain(&serde_json::from_value(input).unwrap())
    }

    #[test]
    fn predicates_hold_only_where_the_answers_differ() {
        let with = |name: &str, value: &str| {
            json!({
                "kind": "Pod", "metadata": {"name": "p", "annotations": {key::GPU_FRACTION: "0.5", name: value}},
                "spec": {"containers": [{"name": "main"}]},
            })
        };
        for (name, value, expected) in [
            (key::GPU_FRACTION_CONTAINER, "", None),
            (key::GPU_FRACTION_CONTAINER, "nope", Some("A02")),
            (key::SHARED_GPU_CONFIG_MAP, "", Some("A08")),
            (key::SHARED_GPU_CONFIG_MAP, "a.-b", Some("A08")),
            (key::SHARED_GPU_CONFIG_MAP, "a-b", None),
        ] {
            assert_eq!(explain(&with(name, value), &Value::Null, "CREATE"), expected, "{name}: {value}");
        }
        let queue = |status: Value| json!({"kind": "Queue", "metadata": {"name": "q"}, "status": status});
        let used = queue(json!({"requested": {}, "allocated": {"cpu": "1"}}));
        assert_eq!(explain(&Value::Null, &used, "DELETE"), Some("A12"));
        assert_eq!(explain(&Value::Null, &queue(json!({"requested": {}})), "DELETE"), None);
    }

    #[test]
    fn documentation_lists_the_same_differences() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md");
        let text = std::fs::read_to_string(page).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| A"));
        let ids = rows.filter_map(|line| line.split(' ').next());
        let listed: Vec<&str> = ids.filter(|id| id.parse::<u32>().is_ok()).collect();
        let known: Vec<&str> = DIFFERENCES.iter().filter_map(|d| d.id.strip_prefix('A')).collect();
        assert_eq!(listed, known);
    }
}
