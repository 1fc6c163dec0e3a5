//! Whether the problem of each unexpected object is reported on that object. What counts as a problem is judged here from
//! the objects alone, and only where it is certain.

use super::cut;
use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::kind::{self, NODE, POD, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE};
use kai_testkit::hostile::NAMESPACE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Length of a message that a component writes to one object. etcd's limit would be 1.5 MB.
const MESSAGE_BYTES_MAX: usize = 32 * 1024;
/// The deepest level of sub-groups that the scheduler accepts.
const LEVELS_MAX: usize = 64;
const POOL: &str = "kai.scheduler/node-pool";

/// The objects that have to say what is wrong with them, and everything that says it.
pub(crate) struct Reports {
    pods: Vec<Value>,
    groups: Vec<Value>,
    queues: Vec<Value>,
    nodes: Vec<Value>,
    bind_requests: Vec<Value>,
    events: Vec<Value>,
    /// Messages of the events by the uid of their object.
    messages: BTreeMap<String, Vec<String>>,
}

impl Reports {
    pub(crate) async fn read(api: &Api) -> Self {
        let list = async |kind: &ResourceKind, namespace: &str| {
            api.list_dynamic(kind, namespace).await.unwrap().items
        };
        let events = list(&kind::EVENT, "").await;
        let mut messages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in &events {
            let uid = object::str_at(event, "/involvedObject/uid").to_owned();
            messages.entry(uid).or_default().push(object::str_at(event, "/message").to_owned());
        }
        Self {
            pods: list(&POD, NAMESPACE).await,
            groups: list(&POD_GROUP, NAMESPACE).await,
            queues: list(&QUEUE, "").await,
            nodes: list(&NODE, "").await,
            bind_requests: list(&BIND_REQUEST, NAMESPACE).await,
            events,
            messages,
        }
    }

    /// The objects whose problem is not reported on them, with the problem.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> =
            self.pods.iter().filter(|pod| waits(pod)).filter_map(|pod| self.silent_pod(pod)).collect();
        let parents = self.parents();
        let mut check = |objects: &[Value], problems: &dyn Fn(&Value) -> Vec<String>| {
            for one in objects {
                let unreported = problems(one).into_iter().filter(|field| !self.is_reported(one, field));
                missing.extend(unreported.map(|field| describe(one, &field)));
            }
        };
        check(&self.queues, &|queue| queue_problems(queue, &parents));
        check(&self.groups, &group_problems);
        check(&self.nodes, &node_problems);
        let open = self.bind_requests.iter().filter(|request| {
            let phase = object::str_at(request, "/status/phase");
            !matches!(phase, "Succeeded" | "Failed") && !self.messages.contains_key(object::uid(request))
        });
        missing.extend(open.map(|request| describe(request, "status.phase")));
        missing
    }

    /// How many problems of each kind of object besides pods were looked for.
    pub(crate) fn problems(&self) -> [usize; 3] {
        let parents = self.parents();
        [
            self.queues.iter().map(|queue| queue_problems(queue, &parents).len()).sum(),
            self.groups.iter().map(|group| group_problems(group).len()).sum(),
            self.nodes.iter().map(|node| node_problems(node).len()).sum(),
        ]
    }

    /// Messages that are too long for an object.
    pub(crate) fn too_long(&self) -> Vec<String> {
        let of_pods = self.pods.iter().filter_map(|pod| pod["status"]["conditions"].as_array()).flatten();
        let of_groups = self
            .groups
            .iter()
            .filter_map(|group| group["status"]["schedulingConditions"].as_array())
            .flatten();
        let texts = of_pods.chain(of_groups).chain(&self.events).map(|one| object::str_at(one, "/message"));
        let long = texts.filter(|text| text.len() >= MESSAGE_BYTES_MAX);
        long.map(|text| format!("{} bytes: {}", text.len(), cut(text, 200))).collect()
    }

    fn parents(&self) -> BTreeMap<&str, &str> {
        self.queues.iter().map(|queue| (object::name(queue), parent(queue))).collect()
    }

    fn is_reported(&self, object: &Value, field: &str) -> bool {
        let messages = self.messages.get(object::uid(object));
        messages.is_some_and(|all| all.iter().any(|message| message.starts_with(&format!("`{field}"))))
    }

    /// A pod that waits and does not say why: in its condition, in an event, or in the condition of its group.
    fn silent_pod(&self, pod: &Value) -> Option<String> {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
        let says = condition.is_some_and(|found| !object::str_at(found, "/message").is_empty());
        let group = object::str_at(pod, "/metadata/annotations/pod-group-name");
        let group = self.groups.iter().find(|found| object::name(found) == group);
        if group.is_some_and(|group| !is_of_default_pool(group)) {
            // By the label of an owner.
            return None;
        }
        let group_says = group.is_some_and(|group| {
            !object::str_at(group, "/status/schedulingConditions/0/message").is_empty()
                || self.messages.contains_key(object::uid(group))
        });
        if says || group_says || self.messages.contains_key(object::uid(pod)) {
            return None;
        }
        let group = group.map(|group| group["spec"].to_string());
        Some(format!(
            "the pod {} waits (group {group:?}): {}",
            object::name(pod),
            cut(&pod.to_string(), 3_000)
        ))
    }
}

fn describe(object: &Value, field: &str) -> String {
    let name = object::name(object);
    format!("{} {}, `{field}`: {}", object::kind(object), cut(name, 60), cut(&object.to_string(), 3_000))
}

fn waits(pod: &Value) -> bool {
    object::str_at(pod, "/spec/nodeName").is_empty()
        && object::str_at(pod, "/spec/schedulerName") == "kai-scheduler"
        && is_of_default_pool(pod)
        // Its owner makes its group.
        && pod["metadata"]["annotations"][annotation::SKIP_GROUPING] != "true"
        && pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
        && !object::is_deleting(pod)
        && !object::is_terminal_phase(object::str_at(pod, "/status/phase"))
}

/// Another node pool has another scheduler.
fn is_of_default_pool(object: &Value) -> bool {
    object["metadata"]["labels"][POOL].is_null()
}

fn parent(queue: &Value) -> &str {
    object::str_at(queue, "/spec/parentQueue")
}

/// Text that is certainly no duration.
fn is_no_duration(text: &str) -> bool {
    text.chars().next().is_some_and(|first| first.is_alphabetic() || "{[\"'/".contains(first))
}

/// The fields of a queue that mean nothing, or something else than they say.
fn queue_problems(queue: &Value, parents: &BTreeMap<&str, &str>) -> Vec<String> {
    if !is_of_default_pool(queue) {
        return Vec::new();
    }
    let mut fields = Vec::new();
    let mut above = BTreeSet::new();
    let mut at = parent(queue);
    while let Some(next) = parents.get(at)
        && above.insert(at)
    {
        at = next;
    }
    if above.contains(object::name(queue))
        || !(parent(queue).is_empty() || parents.contains_key(parent(queue)))
    {
        fields.push("spec.parentQueue`".to_owned());
    }
    for field in ["preemptMinRuntime", "reclaimMinRuntime"] {
        if is_no_duration(object::str_at(queue, &format!("/spec/{field}"))) {
            fields.push(format!("spec.{field}`"));
        }
    }
    if queue["spec"]["priority"].as_i64().is_some_and(|priority| i32::try_from(priority).is_err()) {
        fields.push("spec.priority`".to_owned());
    }
    for resource in ["gpu", "cpu", "memory"] {
        for field in ["quota", "limit", "overQuotaWeight"] {
            let Some(amount) = queue["spec"]["resources"][resource][field].as_f64() else { continue };
            // 2^53 of the smallest unit is the most that counts; -1 and less is unlimited.
            let is_wrong = if field == "overQuotaWeight" { amount < 0.0 } else { amount > 1e17 };
            if is_wrong {
                fields.push(format!("spec.resources.{resource}.{field}`"));
            }
        }
    }
    fields
}

fn group_problems(group: &Value) -> Vec<String> {
    // With a backoff, the group belongs to no pool once it has failed in one.
    if !is_of_default_pool(group) || group["spec"].get("schedulingBackoff").is_some() {
        return Vec::new();
    }
    let mut fields = Vec::new();
    for field in ["preemptionDelay", "stalenessGracePeriod"] {
        if is_no_duration(object::str_at(group, &format!("/spec/{field}"))) {
            fields.push(format!("spec.{field}`"));
        }
    }
    for field in ["minMember", "minSubGroup"] {
        if group["spec"][field].as_i64().is_some_and(|count| count < 0) {
            fields.push(format!("spec.{field}`"));
        }
    }
    let sub_groups = group["spec"]["subGroups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parents: BTreeMap<&str, &str> =
        sub_groups.iter().map(|one| (object::str_at(one, "/name"), object::str_at(one, "/parent"))).collect();
    if parents.keys().any(|name| !reaches_the_root(name, &parents)) {
        fields.push("spec.subGroups`".to_owned());
    }
    fields
}

/// Whether a sub-group is below the root, through parents that exist and on a level that is not too deep.
fn reaches_the_root(name: &str, parents: &BTreeMap<&str, &str>) -> bool {
    let mut at = name;
    for _ in 0..LEVELS_MAX {
        match parents.get(at) {
            Some(&"") => return true,
            Some(above) => at = above,
            None => return false,
        }
    }
    false
}

fn node_problems(node: &Value) -> Vec<String> {
    if !is_of_default_pool(node) {
        return Vec::new();
    }
    let label = |name: &str| node["metadata"]["labels"][name].as_str().map(str::to_owned);
    let mut labels = Vec::new();
    if label("nvidia.com/gpu.memory").is_some_and(|text| text.parse::<i64>().is_err()) {
        labels.push("nvidia.com/gpu.memory");
    }
    if label("nvidia.com/gpu.count").is_some_and(|text| text.parse::<u32>().is_err()) {
        labels.push("nvidia.com/gpu.count");
    }
    let strategies = ["", "none", "single", "mixed"];
    if label("nvidia.com/mig.strategy").is_some_and(|text| !strategies.contains(&text.as_str())) {
        labels.push("nvidia.com/mig.strategy");
    }
    labels.into_iter().map(|name| format!("metadata.labels[{name}]`")).collect()
}
