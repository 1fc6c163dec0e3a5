//! Binds each pod to the first node with enough GPUs.

use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, Result};
use kai_runtime::controller::{self, Action, Context, DynamicController};
use kai_runtime::health::Health;
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

pub(crate) async fn run(client: kube::Client, clock: Clock) {
    let api = Api::new(client, "binder");
    let informers = Arc::new(Informers::dynamic_of([kind::POD, kind::NODE].map(Informer::dynamic)));
    let mut tasks = JoinSet::new();
    informers.start(&api, &Health::default(), &mut tasks);
    tasks.spawn(controller::run_dynamic(Binder, Context::new(api, informers, clock)));
    tasks.join_all().await;
}

struct Binder;

impl DynamicController for Binder {
    const NAME: &'static str = "binder";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD, kind::NODE]
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::POD { vec![kai_runtime::key_of(changed)] } else { Vec::new() }
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(pod) = context.informers.dynamic(&kind::POD).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let bound = !object::str_at(&pod, "/spec/nodeName").is_empty();
        let terminal = object::is_terminal(&pod);
        if bound || terminal || object::is_deleting(&pod) {
            return Ok(Action::AwaitChange);
        }
        let nodes = context.informers.dynamic(&kind::NODE).list();
        let Some(node) = nodes.iter().find(|node| fits(context, &pod, node)) else {
            return Ok(Action::RequeueAfter(Duration::from_secs(5)));
        };
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": key.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": object::name(node)},
        });
        let path = kind::POD.path_of(key) + "/binding";
        match context.api.send("POST", &path, Some(("application/json", &binding))).await {
            Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
            sent => sent?,
        };
        // The response has no pod. The read updates the cache, so that the next pod sees the GPUs as allocated.
        let fresh = context.api.get_dynamic(&kind::POD, key).await?;
        context.informers.update_dynamic(&kind::POD, &fresh);
        Ok(Action::AwaitChange)
    }
}

fn gpus(pod: &Value) -> i64 {
    let amount = pod.pointer("/spec/containers/0/resources/limits/nvidia.com~1gpu").and_then(Value::as_str);
    amount.and_then(|amount| amount.parse().ok()).unwrap_or(0)
}

fn fits(context: &Context, pod: &Value, node: &Value) -> bool {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let only = pod.pointer(terms).and_then(|terms| terms.pointer("/0/matchFields/0/values/0"));
    if only.is_some_and(|only| only != object::name(node)) {
        return false;
    }
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    if taints.is_some_and(|taints| !taints.is_empty()) && only.is_none() {
        return false;
    }
    let total = object::str_at(node, "/status/allocatable/nvidia.com~1gpu").parse().unwrap_or(0);
    let pods = context.informers.dynamic(&kind::POD).on_node(object::name(node));
    let active = |pod: &Value| !object::is_terminal(pod);
    let used: i64 = pods.iter().filter(|pod| active(pod)).map(|pod| gpus(pod)).sum();
    let count = pods.iter().filter(|pod| active(pod)).count();
    used + gpus(pod) <= total && count < 100
}
