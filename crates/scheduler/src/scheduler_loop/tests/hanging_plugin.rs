//! A plugin that does not return when the loop answers a request or explains a verdict.

use super::*;
use kai_cache::config_file;
use kai_engine::cluster::Cluster;
use kai_engine::ids::{GroupIdx, NodeIdx, PodIdx};
use kai_engine::plugin::{Args, Depends, Filter, GroupCompare, GroupOrder, Plugin, Registry};
use std::sync::atomic::{AtomicBool, Ordering};

/// Hangs while the flag is set, in every callback.
struct Hanging(Arc<AtomicBool>);

impl Hanging {
    fn wait(&self) {
        while self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Plugin for Hanging {
    fn name(&self) -> &'static str {
        "hanging"
    }
    fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
        to.group_order.push(GroupOrder::Custom(Arc::new(Self(Arc::clone(&self.0)))));
        to.filters.push((Depends::Global, Arc::new(Self(Arc::clone(&self.0)))));
    }
}

impl GroupCompare for Hanging {
    fn compare(&self, _: &Cluster, _: GroupIdx, _: GroupIdx) -> std::cmp::Ordering {
        self.wait();
        std::cmp::Ordering::Equal
    }
}

impl Filter for Hanging {
    fn fits(&self, _: &Cluster, _: PodIdx, _: NodeIdx) -> Result<(), String> {
        self.wait();
        Err("it is full".to_owned())
    }
}

/// A loop with the plugin, and its flag.
fn with_hanging_plugin() -> (SchedulerLoop, Process, Arc<AtomicBool>) {
    let hangs = Arc::new(AtomicBool::new(false));
    let plugins = PluginSet::builtin().with(Arc::new(Hanging(Arc::clone(&hangs))));
    let config = "actions: allocate\ntiers: [{plugins: [{name: predicates}, {name: hanging}]}]\n";
    let options = Options {
        config: config_file::read(config, &plugins).unwrap(),
        plugin_timeout: Duration::from_millis(100),
        detailed_fit_errors: true,
        ..Options::default()
    };
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let client = kube::Client::new(Router::new(), "default");
    let process = Process::start(Api::new(client, "kai-scheduler"), clock, "kai-scheduler");
    let events = Arc::new(EventQueue::default());
    let scheduler = SchedulerLoop::new(options, plugins, &process, events, Kind::ALL.iter().copied());
    (scheduler, process, hangs)
}

async fn job_order(scheduler: &mut SchedulerLoop) -> Option<usize> {
    let (respond, response) = tokio::sync::oneshot::channel();
    serve::answer(scheduler, serve::Query::JobOrder(respond));
    let order = response.await.ok()?;
    Some(order["global_order"].as_array().unwrap().len())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plugin_that_does_not_return_from_the_job_order_is_cut_off() {
    let (mut scheduler, _process, hangs) = with_hanging_plugin();
    pending_groups(&mut scheduler, &["a", "b"]);
    assert_eq!(job_order(&mut scheduler).await, Some(2));
    hangs.store(true, Ordering::Relaxed);
    assert_eq!(job_order(&mut scheduler).await, None, "the request has no answer");
    assert_eq!(job_order(&mut scheduler).await, Some(2), "the next one is answered without the plugin");
    assert_eq!(scheduler.cut_off_plugins.keys().collect::<Vec<_>>(), ["hanging"]);
    hangs.store(false, Ordering::Relaxed);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plugin_that_does_not_return_from_detailed_fit_errors_is_cut_off() {
    let (mut scheduler, _process, hangs) = with_hanging_plugin();
    for kind in Kind::ALL {
        scheduler.handle(vec![SchedulerEvent::Watch(*kind, WatchEvent::Listed(Vec::new(), 1))]);
    }
    let node = json!({
        "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    });
    scheduler.handle(listed::<Node>(Kind::Node, &[node]));
    pending_groups(&mut scheduler, &["a"]);
    let (at, _) = scheduler.trigger.next().unwrap();
    tokio::time::sleep_until(at).await;
    scheduler.run_due();
    assert!(scheduler.cut_off_plugins.is_empty());
    hangs.store(true, Ordering::Relaxed);
    tokio::time::sleep_until(scheduler.next_report().unwrap()).await;
    scheduler.report_status(Instant::now());
    assert_eq!(scheduler.cut_off_plugins.keys().collect::<Vec<_>>(), ["hanging"]);
    let reported = &scheduler.reporter.pending[&Key::new("a", "g")].pods;
    let messages: Vec<&String> = reported.values().collect();
    assert!(
        matches!(messages[..], [message] if !message.contains("<n>")),
        "without the details: {messages:?}"
    );
    hangs.store(false, Ordering::Relaxed);
}
