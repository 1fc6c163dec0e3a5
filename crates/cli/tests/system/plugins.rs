//! The example plugins in a cluster, and plugins that misbehave.

use crate::test_cluster::{PodBuilder, TestCluster};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use kai_cache::config_file;
use kai_cli::{Extensions, embedded};
use kai_components::ComponentOptions;
use kai_engine::plugin::{Args, Depends, Filter, HttpHandler, HttpRequest, HttpResponse, Plugin, PluginSet};
use kai_engine::plugin::{Registry, SessionHook};
use kai_engine::{Cluster, Cycle};
use kai_object as object;
use kai_runtime::kind::{CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP};
use kai_sim::NodeGroup;
use license_plugin::{Licenses, Seats};
use operations_plugin::{Audit, MaxRuntime};
use render_job_plugin::RenderJobs;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tower::ServiceExt as _;

/// A cluster of one node with these extensions and this scheduler configuration.
async fn cluster(
    extensions: &Extensions,
    config: &str,
    change: impl FnOnce(&mut ComponentOptions),
) -> TestCluster {
    let mut options = ComponentOptions::simulated();
    options.scheduler.config = config_file::read(config, &extensions.scheduler).unwrap();
    extensions.apply(&mut options).unwrap();
    change(&mut options);
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(1, 8)], |cluster| {
        embedded::join(cluster, &options, &extensions.scheduler)
    });
    let cluster = cluster.await;
    cluster.create_queue("a", 8).await;
    cluster
}

/// The answer of the scheduler's plugin server.
async fn get(cluster: &TestCluster, path: &str) -> (StatusCode, String) {
    let router = kai_scheduler::serve::router(cluster.scheduler.queries().unwrap());
    let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn failures(cluster: &TestCluster, plugin: &str, reason: &str) -> f64 {
    let families = cluster.scheduler.metrics().last().unwrap().gather();
    let failures = families.iter().find(|family| family.name() == "kai_plugin_failures_total");
    let counters = failures.map(|family| family.get_metric().to_vec()).unwrap_or_default();
    let is_of = |metric: &&prometheus::proto::Metric| {
        let has = |name: &str, value: &str| {
            metric.get_label().iter().any(|label| label.name() == name && label.value() == value)
        };
        has("plugin", plugin) && has("reason", reason)
    };
    counters.iter().find(is_of).map_or(0.0, |metric| metric.get_counter().get_value())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn custom_action_evicts_by_its_name_and_the_audit_answers_over_http() {
    let plugins = PluginSet::builtin().with(Arc::new(Audit::default())).with(Arc::new(MaxRuntime));
    let config = include_str!("../../../../examples/operations-plugin/scheduler.yaml").replace("8h", "5m");
    let cluster = cluster(&plugins.into(), &config, |_| {}).await;
    cluster.create_pod(PodBuilder::new("long", "a", 8)).await;
    cluster.wait_for_running("long", 1).await;
    cluster.create_pod(PodBuilder::new("next", "a", 8)).await;
    cluster.sleep(Duration::from_mins(4)).await;
    assert_eq!(cluster.running("long").await, 1, "its time has not elapsed");
    cluster.wait_for_running("next", 1).await;
    assert_eq!(cluster.running("long").await, 0);
    let group = object::str_at(&cluster.list(&POD_GROUP).await[0], "/metadata/name").to_owned();
    let events = cluster.event_messages("Evict", "").await;
    assert_eq!(events, ["the maximum run time of 5m0s has elapsed"], "on group {group}");

    let (status, body) = get(&cluster, "/audit").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let report: Value = serde_json::from_str(&body).unwrap();
    assert!(report["cycles"].as_u64() > Some(200), "the action runs once a period: {body}");
    let decisions: Vec<&str> =
        report["decisions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let position = |text: &str| decisions.iter().position(|line| line.ends_with(text));
    assert!(
        position("bind default/long to node-1 (allocate)") < position("evict default/long (retire)"),
        "{body}"
    );
    assert!(position("bind default/next to node-1 (allocate)").is_some(), "{body}");
    let (status, body) = get(&cluster, "/unknown").await;
    assert_eq!((status, body.contains("/audit")), (StatusCode::NOT_FOUND, true), "{body}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn annotation_of_the_bind_request_reaches_the_binder_plugin() {
    let mut extensions = Extensions::from(PluginSet::builtin().with(Arc::new(Licenses)));
    extensions.binder = extensions.binder.with("licenses", Seats::from_arguments);
    let config = include_str!("../../../../examples/license-plugin/scheduler.yaml");
    let cluster = cluster(&extensions, config, |_| {}).await;
    let licensed = |name: &str| {
        let mut pod = PodBuilder::new(name, "a", 1);
        pod.object["metadata"]["labels"]["license"] = json!("cad");
        pod
    };
    cluster.create_pod(licensed("first")).await;
    cluster.wait_for_running("first", 1).await;
    let request = cluster.get(&BIND_REQUEST, "first").await.unwrap();
    assert_eq!(request["metadata"]["annotations"], json!({license_plugin::ANNOTATION: "cad"}));
    let seat = cluster.get(&CONFIG_MAP, "license-cad-0").await.expect("the pod has a seat");
    assert_eq!(object::str_at(&seat, "/metadata/ownerReferences/0/name"), "first");

    cluster.create_pod(PodBuilder::new("free", "a", 1)).await;
    cluster.wait_for_running("free", 1).await;
    let request = cluster.get(&BIND_REQUEST, "free").await.unwrap();
    assert_eq!(request["metadata"]["annotations"], Value::Null);

    cluster.create_pod(licensed("second")).await;
    let why = "binder plugin `licenses` failed in PreBind: all 1 seats of license `cad` are taken";
    let failed = async || {
        let request = cluster.get(&BIND_REQUEST, "second").await.unwrap_or_default();
        object::str_at(&request, "/status/reason") == why
            || cluster.event_messages("", "second").await.iter().any(|text| text.contains(why))
            || cluster.dump().await.contains(why)
    };
    cluster.wait_until("the binder names the plugin", failed).await;
    assert_eq!(cluster.running("second").await, 0);
    cluster.delete_pod("first").await;
    cluster.wait_for_running("second", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_an_own_kind_are_grouped_by_the_users_rule() {
    let mut extensions = Extensions::default();
    extensions.grouper = extensions.grouper.with(Arc::new(RenderJobs));
    let cluster = cluster(&extensions, "", |_| {}).await;
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "renderjobs.render.example.com"},
        "spec": {
            "group": "render.example.com", "scope": "Namespaced",
            "names": {"kind": "RenderJob", "plural": "renderjobs", "singular": "renderjob", "listKind": "RenderJobList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
        },
    });
    cluster.create(&CUSTOM_RESOURCE_DEFINITION, definition).await;
    let kind = ResourceKind {
        group: "render.example.com".into(),
        version: "v1".into(),
        kind: "RenderJob".into(),
        plural: "renderjobs".into(),
        namespaced: true,
    };
    let queue = json!({"kai.scheduler/queue": "a"});
    let create = async |name: &str, spec: Value| {
        let job =
            cluster.create(&kind, json!({"metadata": {"name": name, "labels": queue}, "spec": spec})).await;
        object::str_at(&job, "/metadata/uid").to_owned()
    };
    let pod = async |name: &str, job: &str, uid: &str, role: &str| {
        let mut pod = PodBuilder::new(name, "a", 1);
        pod.object["metadata"]["labels"]["role"] = json!(role);
        pod.object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "render.example.com/v1", "kind": "RenderJob", "name": job, "uid": uid,
        }]);
        cluster.create_pod(pod).await;
    };
    let uid = create("film", json!({"workers": 2})).await;
    pod("film-0", "film", &uid, "leader").await;
    pod("film-1", "film", &uid, "worker").await;
    cluster.sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.running("film").await, 0, "a gang of three does not start with two pods");
    pod("film-2", "film", &uid, "worker").await;
    cluster.wait_for_running("film", 3).await;
    let group = cluster.get(&POD_GROUP, &format!("pg-film-{uid}")).await.expect("named as all groups are");
    let minima: Vec<&Value> =
        group["spec"]["subGroups"].as_array().unwrap().iter().map(|sub| &sub["minMember"]).collect();
    assert_eq!((&group["spec"]["minMember"], minima), (&json!(3), vec![&json!(1), &json!(2)]));

    let uid = create("empty", json!({"workers": 0})).await;
    pod("empty-0", "empty", &uid, "leader").await;
    let reported = async || !cluster.event_messages("PodGrouperWarning", "empty").await.is_empty();
    cluster.wait_until("the invalid object is reported", reported).await;
    let events = cluster.event_messages("PodGrouperWarning", "empty").await;
    assert_eq!(events, ["RenderJob `empty`: `spec.workers` must be a number from 1 up"]);
}

/// A plugin that hangs when a session opens, and panics for a pod and a request.
struct Hostile {
    released: Arc<AtomicBool>,
    opened: Arc<AtomicU32>,
    hangs: bool,
}

impl Plugin for Hostile {
    fn name(&self) -> &'static str {
        "hostile"
    }
    fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
        let entry = Arc::new(HostileEntry {
            released: Arc::clone(&self.released),
            opened: Arc::clone(&self.opened),
            hangs: self.hangs,
        });
        to.sessions.push(Arc::<HostileEntry>::clone(&entry));
        if !self.hangs {
            to.filters.push((Depends::Global, Arc::<HostileEntry>::clone(&entry)));
        }
        to.http_handlers.push(("/hostile".to_owned(), entry));
    }
}

struct HostileEntry {
    released: Arc<AtomicBool>,
    opened: Arc<AtomicU32>,
    hangs: bool,
}

impl SessionHook for HostileEntry {
    fn opened(&self, _: &Cluster, _: Cycle) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        while self.hangs && !self.released.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

impl Filter for HostileEntry {
    fn fits(
        &self,
        cluster: &Cluster,
        pod: kai_engine::ids::PodIdx,
        _: kai_engine::ids::NodeIdx,
    ) -> Result<(), String> {
        assert!(cluster.pod_key(pod).name != "bad", "cannot judge it");
        Ok(())
    }
}

impl HttpHandler for HostileEntry {
    fn answer(&self, _: &HttpRequest) -> HttpResponse {
        panic!("no answer")
    }
}

const HOSTILE: &str =
    "actions: allocate\ntiers: [{plugins: [{name: predicates}, {name: proportion}, {name: hostile}]}]\n";

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plugin_that_does_not_return_is_cut_off_and_scheduling_goes_on() {
    let (released, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let hostile = Hostile { released: Arc::clone(&released), opened: Arc::clone(&opened), hangs: true };
    let plugins = PluginSet::builtin().with(Arc::new(hostile));
    let extensions = Extensions::from(plugins);
    let cluster = cluster(&extensions, HOSTILE, |options| {
        options.scheduler.plugin_timeout = Duration::from_millis(500);
    });
    let cluster = cluster.await;
    cluster.create_pod(PodBuilder::new("good", "a", 1)).await;
    cluster.wait_for_running("good", 1).await;
    assert!((failures(&cluster, "hostile", "timeout") - 1.0).abs() < f64::EPSILON);
    cluster.create_pod(PodBuilder::new("later", "a", 1)).await;
    cluster.wait_for_running("later", 1).await;
    assert_eq!(opened.load(Ordering::Relaxed), 1, "it is not called again");
    released.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plugin_that_panics_is_named_on_the_group_and_other_pods_run() {
    let (released, opened) = (Arc::default(), Arc::default());
    let hostile = Hostile { released, opened, hangs: false };
    let cluster = cluster(&PluginSet::builtin().with(Arc::new(hostile)).into(), HOSTILE, |_| {}).await;
    cluster.create_pod(PodBuilder::new("bad", "a", 1)).await;
    cluster.create_pod(PodBuilder::new("good", "a", 1)).await;
    cluster.wait_for_running("good", 1).await;
    let groups = cluster.list(&POD_GROUP).await;
    let group = groups.iter().map(object::name).find(|name| name.starts_with("pg-bad-")).unwrap();
    cluster.wait_for_condition(group, "plugin `hostile` panicked: cannot judge it").await;
    assert!(failures(&cluster, "hostile", "panic") >= 1.0);
    let (status, body) = get(&cluster, "/hostile").await;
    assert_eq!((status, body.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "plugin `hostile` panicked"));
}
