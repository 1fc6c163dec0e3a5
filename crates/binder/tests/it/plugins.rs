//! Binder plugins that are not built in: their steps, their failures, and the rollback.

use super::{BIND_REQUEST, Reporter, TestCluster, builder};
use kai_binder::Options;
use kai_binder::plugin::{BindContext, BinderPlugin, BinderPlugins, BoxFuture, resolve_with};
use kai_object as object;
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

/// What the PreBind step of a plugin does.
#[derive(Clone, Copy)]
enum PreBind {
    Succeeds,
    Fails,
    Panics,
    Waits,
}

/// A plugin that records its steps.
struct Recorder {
    name: &'static str,
    does: PreBind,
    steps: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn record(&self, step: &str, bind: &BindContext) {
        let note = bind.annotations.get("note").map_or("", String::as_str);
        self.steps.lock().push(format!("{} {step} {}{note}", self.name, bind.request.name));
    }
}

impl BinderPlugin for Recorder {
    fn pre_bind(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.record("pre", &bind);
            match self.does {
                PreBind::Succeeds => Ok(()),
                PreBind::Fails => Err("no licence".to_owned()),
                PreBind::Panics => panic!("a defect"),
                PreBind::Waits => std::future::pending().await,
            }
        })
    }

    fn post_bind(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.record("post", &bind);
            Ok(())
        })
    }

    fn rollback(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.record("rollback", &bind);
            Ok(())
        })
    }
}

/// Binds one pod with two plugins, the second of which does this; returns the steps and the status of the request.
async fn bind(does: PreBind) -> (Vec<String>, String, String, String) {
    let steps: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut own = BinderPlugins::default();
    for (name, does) in [("first", PreBind::Succeeds), ("second", does)] {
        let steps = Arc::clone(&steps);
        own = own.with(name, move |_| Ok(Arc::new(Recorder { name, does, steps: Arc::clone(&steps) })));
    }
    let overrides = json!({"first": {"priority": 2}, "second": {"priority": 1, "arguments": {"bindTimeoutSeconds": "7"}}});
    let plugins = resolve_with(&serde_json::from_value(overrides).unwrap(), &own).unwrap();
    let options = Options { plugins, ..Options::default() };
    let nodes = builder().nodes([NodeGroup::gpu_nodes(1, 8)]);
    let test = TestCluster::with(nodes, options, Reporter::Absent).await;
    let container = json!({"name": "main", "image": "busybox"});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}});
    test.create(&POD, pod).await;
    let request = json!({
        "metadata": {"name": "p", "annotations": {"note": "!"}},
        "spec": {"podName": "p", "selectedNode": "node-1", "receivedResourceType": "Regular"},
    });
    test.create(&BIND_REQUEST, request).await;
    test.sleep(30).await;
    let request = test.find(&BIND_REQUEST, "p").await.unwrap();
    let pod = test.find(&POD, "p").await.unwrap();
    let steps = steps.lock().clone();
    let at = |object: &serde_json::Value, path: &str| object::str_at(object, path).to_owned();
    (steps, at(&request, "/status/phase"), at(&request, "/status/reason"), at(&pod, "/spec/nodeName"))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn steps_run_in_order_around_the_binding_and_see_the_annotations() {
    let (steps, phase, reason, node) = bind(PreBind::Succeeds).await;
    assert_eq!(steps, ["first pre p!", "second pre p!", "first post p!", "second post p!"]);
    assert_eq!((phase.as_str(), reason.as_str(), node.as_str()), ("Succeeded", "", "node-1"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_pre_bind_is_rolled_back_and_names_the_plugin() {
    let cases = [
        (PreBind::Fails, "binder plugin `second` failed in PreBind: no licence"),
        (PreBind::Panics, "binder plugin `second` failed in PreBind: it panicked: a defect"),
        (PreBind::Waits, "binder plugin `second` failed in PreBind: it took longer than 7 s"),
    ];
    for (does, expected) in cases {
        let (steps, phase, reason, node) = bind(does).await;
        assert_eq!(
            steps,
            ["first pre p!", "second pre p!", "second rollback p!", "first rollback p!"],
            "{expected}"
        );
        assert_eq!((phase.as_str(), reason.as_str(), node.as_str()), ("Failed", expected, ""));
    }
}

/// On a multi-threaded runtime, as the binder runs: a thread that is blocked is lost, and the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn plugin_that_blocks_its_thread_is_cut_off_and_not_called_again() {
    struct Blocking {
        calls: Arc<std::sync::atomic::AtomicU32>,
        released: Arc<std::sync::atomic::AtomicBool>,
    }
    impl BinderPlugin for Blocking {
        fn pre_bind(self: Arc<Self>, _: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async move {
                self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                while !self.released.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Ok(())
            })
        }
    }
    let (calls, released) = (Arc::default(), Arc::<std::sync::atomic::AtomicBool>::default());
    let (counted, release) = (Arc::clone(&calls), Arc::clone(&released));
    let own = BinderPlugins::default().with("blocking", move |_| {
        Ok(Arc::new(Blocking { calls: Arc::clone(&counted), released: Arc::clone(&release) }))
    });
    let overrides = json!({"blocking": {"arguments": {"bindTimeoutSeconds": "1"}}});
    let plugins = resolve_with(&serde_json::from_value(overrides).unwrap(), &own).unwrap();
    let nodes = builder().nodes([NodeGroup::gpu_nodes(1, 8)]);
    let test = TestCluster::with(nodes, Options { plugins, ..Options::default() }, Reporter::Absent).await;
    for name in ["p", "q"] {
        let container = json!({"name": "main", "image": "busybox"});
        let spec = json!({"schedulerName": "kai-scheduler", "containers": [container]});
        test.create(&POD, json!({"metadata": {"name": name}, "spec": spec})).await;
        let spec = json!({"podName": name, "selectedNode": "node-1", "receivedResourceType": "Regular"});
        test.create(&BIND_REQUEST, json!({"metadata": {"name": name}, "spec": spec})).await;
        for _ in 0..200 {
            let request = test.find(&BIND_REQUEST, name).await.unwrap();
            if object::str_at(&request, "/status/reason")
                .contains("binder plugin `blocking` failed in PreBind")
            {
                break;
            }
            test.sleep(0).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let request = test.find(&BIND_REQUEST, name).await.unwrap();
        let reason = object::str_at(&request, "/status/reason");
        assert!(reason.contains("cut off until the binder is restarted"), "{name}: {reason}");
    }
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
    released.store(true, std::sync::atomic::Ordering::Relaxed);
}
