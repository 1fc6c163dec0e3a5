//! The loop without an API server: events in, queued writes out.

use super::*;
use crate::serve;
use axum::Router;
use kai_cache::Object;
use kai_cache::object::{BindRequest, Node, Pod, PodGroup, Queue};
use kai_cache::snapshot::Limits;
use kai_runtime::Process;
use kai_runtime::watch::WatchEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tower::ServiceExt as _;

mod hanging_plugin;
mod hints;
mod lost_evictions;

/// A loop whose writes stay queued.
fn scheduler() -> (SchedulerLoop, Process) {
    scheduler_with(Router::new())
}

fn scheduler_with(server: Router) -> (SchedulerLoop, Process) {
    let client = kube::Client::new(server, "default");
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let process = Process::start(Api::new(client, "kai-scheduler"), clock, "kai-scheduler");
    let (options, events) = (Options::default(), Arc::new(EventQueue::default()));
    let scheduler =
        SchedulerLoop::new(options, PluginSet::builtin(), &process, events, Kind::ALL.iter().copied());
    (scheduler, process)
}

fn listed<T: DeserializeOwned + Into<Object>>(kind: Kind, objects: &[Value]) -> Vec<SchedulerEvent> {
    let objects = objects.iter().map(|object| from_value::<T>(object.clone()).unwrap().into()).collect();
    vec![SchedulerEvent::Watch(kind, WatchEvent::Listed(objects, 1))]
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn bind_request_is_not_obsolete_before_nodes_and_pods_are_listed() {
    let (mut scheduler, process) = scheduler();
    let request = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "r"},
        "spec": {"podName": "p", "selectedNode": "n"},
    });
    let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {}, "status": {}});
    let node = json!({"metadata": {"name": "n"}});
    scheduler.handle(listed::<BindRequest>(Kind::BindRequest, std::slice::from_ref(&request)));
    scheduler.handle(listed::<Pod>(Kind::Pod, std::slice::from_ref(&pod)));
    let labelled = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {"x": "y"}}, "spec": {}, "status": {},
    });
    let changed = from_value::<Pod>(labelled).unwrap().into();
    scheduler.handle(vec![SchedulerEvent::Watch(Kind::Pod, WatchEvent::Applied(changed))]);
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &[]));
    assert_eq!(process.writer.counts().queued, 0, "the node has not been listed yet");
    scheduler.handle(listed::<Node>(Kind::Node, std::slice::from_ref(&node)));
    assert_eq!(process.writer.counts().queued, 0, "the node exists");
    scheduler.handle(listed::<Node>(Kind::Node, &[]));
    assert_eq!(process.writer.counts().queued, 1, "the node does not exist, and the request is deleted");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn obsolete_bind_request_is_deleted_once_the_nodes_are_listed() {
    let (mut scheduler, process) = scheduler();
    let request = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "r"},
        "spec": {"podName": "p", "selectedNode": "deleted-while-the-scheduler-was-down"},
    });
    scheduler.handle(listed::<BindRequest>(Kind::BindRequest, &[request]));
    scheduler.handle(listed::<Pod>(Kind::Pod, &[]));
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &[]));
    assert_eq!(process.writer.counts().queued, 0);
    scheduler.handle(listed::<Node>(Kind::Node, &[]));
    assert_eq!(process.writer.counts().queued, 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn refused_deletion_of_a_bind_request_is_repeated_while_it_is_obsolete() {
    let status =
        r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "denied", "code": 403}"#;
    let refused = async move || (axum::http::StatusCode::FORBIDDEN, status);
    let (mut scheduler, process) = scheduler_with(Router::new().fallback(refused));
    let request = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "r"},
        "spec": {"podName": "p", "selectedNode": "n"}, "status": {"phase": "Failed"},
    });
    let node = json!({"metadata": {"name": "n"}});
    scheduler.handle(listed::<Node>(Kind::Node, &[node]));
    scheduler.handle(listed::<Pod>(Kind::Pod, &[]));
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &[]));
    scheduler.handle(listed::<BindRequest>(Kind::BindRequest, std::slice::from_ref(&request)));
    let run = async |scheduler: &mut SchedulerLoop| {
        let until = Instant::now() + Duration::from_mins(10);
        while tokio::time::timeout_at(until, scheduler.events.ready()).await.is_ok() {
            let events = scheduler.events.drain();
            scheduler.handle(events);
        }
    };
    run(&mut scheduler).await;
    let sent = process.writer.counts().sent;
    assert!((10..20).contains(&sent), "{sent} deletions within ten minutes, with backoff");
    // A repeated event adds no further deletion.
    scheduler.handle(listed::<BindRequest>(Kind::BindRequest, &[request]));
    assert_eq!(process.writer.counts().queued, 0);
    scheduler.handle(listed::<BindRequest>(Kind::BindRequest, &[]));
    run(&mut scheduler).await;
    assert_eq!(process.writer.counts().sent, sent, "the request is gone");
    assert!(scheduler.deleting.is_empty());
}

/// A list that lags lacks the request, so that the pod is placed again, to the same node; the event of the failure comes late
/// and changes nothing that the lookup has not stored.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_bind_request_that_a_lookup_finds_is_deleted() {
    let status =
        r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "exists", "code": 409}"#;
    let conflict = async move || (axum::http::StatusCode::CONFLICT, status);
    for (node, what) in [("n", "the request that was assumed"), ("m", "the request of another binding")] {
        let (mut scheduler, process) = scheduler_with(Router::new().fallback(conflict));
        for kind in Kind::ALL {
            scheduler.handle(vec![SchedulerEvent::Watch(*kind, WatchEvent::Listed(Vec::new(), 1))]);
        }
        let nodes = ["n", "m"].map(|name| json!({"metadata": {"name": name}}));
        scheduler.handle(listed::<Node>(Kind::Node, &nodes));
        scheduler.handle(listed::<Pod>(Kind::Pod, &[pending_pod()]));
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
        let request = |node: &str, status: Value| {
            json!({
                "metadata": {"name": "p", "namespace": "a", "uid": "r", "ownerReferences": owner},
                "spec": {"podName": "p", "selectedNode": node}, "status": status,
            })
        };
        let key = Key::new("a", "p");
        let (assumed, now) = (from_value(request("n", json!({}))).unwrap(), scheduler.now());
        scheduler.assumed.assume(key.clone(), assumed, None, None, now, scheduler.cache.store_mut());
        let exists = scheduler.api.send("POST", "/", None).await.unwrap_err();
        let found = request(node, json!({"phase": "Failed"}));
        let before = process.writer.counts().queued;
        scheduler.handle(vec![SchedulerEvent::BindLookup(key.clone(), exists, Some(found.clone()))]);
        assert!(scheduler.deleting.contains_key(&key), "{what} is deleted");
        assert!(process.writer.counts().queued > before, "{what}");
        assert!(scheduler.backoff.next_expiry(now).is_some(), "{what} counts as a failure");
        scheduler.handle(applied::<BindRequest>(Kind::BindRequest, found));
        assert!(scheduler.deleting.contains_key(&key), "the late event changes nothing");
    }
}

fn pending_pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": {"pod-group-name": "g"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}, "status": {"phase": "Pending"},
    })
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scheduler_is_not_ready_before_it_knows_what_to_watch() {
    let silent = Router::new().fallback(async || std::future::pending::<()>().await);
    let (_, process) = scheduler_with(silent);
    let health = process.health.clone();
    let (_queries, receiver) = serve::queries();
    let running = tokio::spawn(crate::run(process, Options::default(), PluginSet::builtin(), receiver));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(health.problems(), ["the kinds of the API server are not known yet"]);
    running.abort();
}

/// A queue, and a group `g` with one pending pod in each namespace.
fn pending_groups(scheduler: &mut SchedulerLoop, namespaces: &[&str]) {
    let queue = json!({"metadata": {"name": "q"}, "spec": {}});
    let group = |namespace: &&str| json!({"metadata": {"name": "g", "namespace": namespace}, "spec": {"queue": "q", "minMember": 1}});
    let pod = |namespace: &&str| {
        json!({
            "metadata": {
                "name": "p", "namespace": namespace, "uid": namespace, "annotations": {"pod-group-name": "g"},
            },
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
            "status": {"phase": "Pending"},
        })
    };
    let groups: Vec<Value> = namespaces.iter().map(group).collect();
    let pods: Vec<Value> = namespaces.iter().map(pod).collect();
    scheduler.handle(listed::<Queue>(Kind::Queue, &[queue]));
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &groups));
    scheduler.handle(listed::<Pod>(Kind::Pod, &pods));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_order_names_groups_with_their_namespace() {
    let (mut scheduler, _process) = scheduler();
    pending_groups(&mut scheduler, &["a", "b"]);
    let (respond, response) = tokio::sync::oneshot::channel();
    serve::answer(&mut scheduler, serve::Query::JobOrder(respond));
    let order = response.await.unwrap();
    let ids: Vec<&str> =
        order["global_order"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a/g", "b/g"]);
}

async fn discovery(uri: axum::http::Uri) -> (axum::http::StatusCode, String) {
    let body = match uri.path() {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}),
        "/apis" => json!({"groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}]}),
        "/api/v1" => json!({"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]}),
        "/apis/resource.k8s.io/v1" => {
            let claims = json!({"name": "resourceclaims", "kind": "ResourceClaim", "namespaced": true});
            json!({"groupVersion": "resource.k8s.io/v1", "resources": [claims]})
        }
        _ => return (axum::http::StatusCode::NOT_FOUND, String::new()),
    };
    (axum::http::StatusCode::OK, body.to_string())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn snapshot_has_the_servers_discovery() {
    let (mut scheduler, _process) = scheduler_with(Router::new().fallback(discovery));
    pending_groups(&mut scheduler, &["a"]);
    let (client, mut queries) = serve::queries();
    let request = axum::http::Request::get("/get-snapshot").body(axum::body::Body::empty()).unwrap();
    let response = tokio::spawn(serve::router(client).oneshot(request));
    serve::answer(&mut scheduler, queries.receiver.recv().await.unwrap());
    let body = response.await.unwrap().unwrap().into_body();
    let zip = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let snapshot = kai_cache::snapshot::read("zip", std::io::Cursor::new(zip), Limits::default()).unwrap();
    assert_eq!(snapshot.objects.pods.len(), 1);
    let discovery = snapshot.discovery.unwrap();
    let groups: Vec<&str> = discovery.resources.iter().map(|group| &*group.group_version).collect();
    assert_eq!(groups, ["v1", "resource.k8s.io/v1"]);
    assert_eq!(&*discovery.server_version.as_ref().unwrap().git_version, "v1.36.3");
    assert!(discovery.serves_device_claims(), "although there is no claim");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn audit_rebuilds_the_model_beside_the_loop() {
    let (mut scheduler, _process) = scheduler();
    pending_groups(&mut scheduler, &["a", "b"]);
    let pods = scheduler.cache.store().objects().pods.values().cloned().collect::<Vec<_>>();
    scheduler.audit();
    assert!(scheduler.is_auditing, "the loop continues meanwhile");
    scheduler.events.ready().await;
    let results = scheduler.events.drain();
    let [SchedulerEvent::Audited(result)] = &results[..] else { panic!("{results:?}") };
    assert_eq!(Some(result.kept), result.rebuilt);
    scheduler.handle(results);
    assert!(!scheduler.is_auditing);
    let kept = scheduler.cache.store().objects().pods.values();
    assert!(
        kept.zip(&pods).all(|(kept, before)| Arc::ptr_eq(kept, before)),
        "objects are shared and not copied"
    );
}

/// A node with a running pod of a group, and what else is there; all cycles have run.
async fn settled(more: Vec<SchedulerEvent>) -> (SchedulerLoop, Process) {
    let (mut scheduler, process) = scheduler();
    let node = json!({
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    });
    let queue = json!({"metadata": {"name": "q"}, "spec": {}});
    let group = json!({"metadata": {"name": "g", "namespace": "a"}, "spec": {"queue": "q", "minMember": 1}});
    for kind in Kind::ALL {
        scheduler.handle(vec![SchedulerEvent::Watch(*kind, WatchEvent::Listed(Vec::new(), 1))]);
    }
    scheduler.handle(listed::<Node>(Kind::Node, &[node]));
    scheduler.handle(listed::<Queue>(Kind::Queue, &[queue]));
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &[group]));
    scheduler.handle(listed::<Pod>(Kind::Pod, &[running_pod("p", &json!({"app": "x"}))]));
    scheduler.handle(more);
    while let Some((at, _)) = scheduler.trigger.next() {
        tokio::time::sleep_until(at).await;
        scheduler.run_due();
    }
    (scheduler, process)
}

fn running_pod(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": name, "labels": labels,
            "annotations": {"pod-group-name": "g"},
        },
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    })
}

fn applied<T: DeserializeOwned + Into<Object>>(kind: Kind, object: Value) -> Vec<SchedulerEvent> {
    let object = from_value::<T>(object).unwrap().into();
    vec![SchedulerEvent::Watch(kind, WatchEvent::Applied(object))]
}

/// Whether a cycle starts when the labels of the running pod change.
async fn label_starts_a_cycle(more: Vec<SchedulerEvent>, labels: Value) -> bool {
    let (mut scheduler, _process) = settled(more).await;
    scheduler.handle(applied::<Pod>(Kind::Pod, running_pod("p", &labels)));
    let stored = &scheduler.cache.store().objects().pods[&Key::new("a", "p")];
    assert_eq!(stored.metadata.labels.len(), labels.as_object().unwrap().len(), "the change is stored");
    scheduler.trigger.next().is_some()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn label_of_a_running_pod_that_no_rule_reads_starts_no_cycle() {
    assert!(!label_starts_a_cycle(Vec::new(), json!({"app": "y", "step": "7"})).await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn label_of_a_running_pod_that_a_rule_reads_starts_a_cycle() {
    assert!(
        label_starts_a_cycle(Vec::new(), json!({"kai.scheduler/subgroup-name": "s"})).await,
        "a sub-group"
    );
    let budget = |app: &str| {
        let spec = json!({"selector": {"matchLabels": {"app": app}}});
        let budget = json!({"metadata": {"name": "b", "namespace": "a"}, "spec": spec, "status": {"disruptionsAllowed": 1}});
        applied::<kai_cache::object::PodDisruptionBudget>(Kind::PodDisruptionBudget, budget)
    };
    assert!(label_starts_a_cycle(budget("x"), json!({"app": "y"})).await, "the pod leaves a budget");
    assert!(!label_starts_a_cycle(budget("z"), json!({"app": "y"})).await, "a budget of other pods");
    let mut neighbour = running_pod("q", &json!({}));
    neighbour["spec"]["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "y"}}, "topologyKey": "zone"},
        ],
    }});
    let neighbour = || applied::<Pod>(Kind::Pod, neighbour.clone());
    assert!(label_starts_a_cycle(neighbour(), json!({"app": "y"})).await, "a term selects the pod");
    assert!(!label_starts_a_cycle(neighbour(), json!({"app": "z"})).await, "the term selects neither state");
}

/// Whether a cycle starts when a group that cannot be placed changes.
async fn change_of_pending_group_starts_a_cycle(change: impl FnOnce(&mut Value)) -> bool {
    let mut pod = running_pod("waiting", &json!({}));
    pod["metadata"]["annotations"] = json!({"pod-group-name": "w"});
    pod["spec"]["nodeName"] = json!("");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"nvidia.com/gpu": "99"}});
    pod["status"] = json!({"phase": "Pending"});
    let mut group = json!({"metadata": {"name": "w", "namespace": "a", "uid": "w"}, "spec": {"queue": "q", "minMember": 1}});
    let mut more = applied::<PodGroup>(Kind::PodGroup, group.clone());
    more.extend(applied::<Pod>(Kind::Pod, pod));
    let (mut scheduler, _process) = settled(more).await;
    assert!(scheduler.reporter.pending.contains_key(&Key::new("a", "w")), "{:?}", scheduler.verdicts);
    change(&mut group);
    scheduler.handle(applied::<PodGroup>(Kind::PodGroup, group.clone()));
    let stored = &scheduler.cache.store().objects().pod_groups[&Key::new("a", "w")];
    assert_eq!(stored.spec.min_member, group["spec"]["minMember"].as_i64().map(|count| count as i32));
    scheduler.trigger.next().is_some()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn condition_of_a_pending_group_starts_no_cycle() {
    let condition = json!([{"type": "UnschedulableOnNodePool", "nodePool": "default", "reason": "Unschedulable",
        "message": "m", "transitionID": "1", "status": "True"}]);
    let starts = |backoff: i32| {
        let condition = condition.clone();
        change_of_pending_group_starts_a_cycle(move |group| {
            group["spec"]["schedulingBackoff"] = json!(backoff);
            group["status"] = json!({"schedulingConditions": condition});
        })
    };
    assert!(!starts(-1).await);
    assert!(starts(1).await, "the group leaves the node pool");
    assert!(change_of_pending_group_starts_a_cycle(|group| group["spec"]["minMember"] = json!(2)).await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn only_existence_of_a_config_map_starts_a_cycle() {
    use kai_cache::object::ConfigMap;
    let map = |label: &str| json!({"metadata": {"name": "m", "namespace": "a", "labels": {"l": label}}});
    let (mut scheduler, _process) = settled(applied::<ConfigMap>(Kind::ConfigMap, map("x"))).await;
    scheduler.handle(applied::<ConfigMap>(Kind::ConfigMap, map("y")));
    assert!(scheduler.trigger.next().is_none());
    let mut other = map("x");
    other["metadata"]["name"] = json!("other");
    scheduler.handle(applied::<ConfigMap>(Kind::ConfigMap, other));
    assert!(scheduler.trigger.next().is_some());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn change_of_a_running_pod_beside_its_labels_starts_a_cycle() {
    let (mut scheduler, _process) = settled(Vec::new()).await;
    let mut ending = running_pod("p", &json!({"app": "x"}));
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    scheduler.handle(applied::<Pod>(Kind::Pod, ending));
    assert!(scheduler.trigger.next().is_some());
}
