//! Kinds of which only metadata is read are listed and watched without the rest.

use crate::test_cluster::TestCluster;
use kai_cache::Kind;
use kai_runtime::health::Health;
use kai_runtime::kind::CONFIG_MAP;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_scheduler::resources::shape_of;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn data_of_config_maps_is_not_sent_to_the_scheduler() {
    let cluster = TestCluster::new(1).await;
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"key": "confidential"}});
    cluster.create(&CONFIG_MAP, map("listed")).await;
    let source = Source { shape: shape_of(Kind::ConfigMap), ..Source::all(CONFIG_MAP) };
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (api, health, to) = (cluster.api().clone(), Health::default(), Arc::clone(&seen));
    let health = health.watch("configmaps");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        watch::list_and_watch(&api, &source, &health, |event: WatchEvent<Value>| match event {
            WatchEvent::Listed(objects, _) => to.lock().extend(objects),
            WatchEvent::Applied(object) => to.lock().push(object),
            WatchEvent::Deleted(_) | WatchEvent::Invalid(_) | WatchEvent::Denied => {}
        })
        .await;
    });
    cluster.sleep(Duration::from_secs(1)).await;
    cluster.create(&CONFIG_MAP, map("watched")).await;
    cluster.sleep(Duration::from_secs(1)).await;
    let seen = seen.lock();
    for name in ["listed", "watched"] {
        let found = seen.iter().find(|object| kai_object::name(object) == name).unwrap();
        assert_eq!(found["kind"], "PartialObjectMetadata", "{found}");
        assert!(!found.to_string().contains("confidential"), "{found}");
    }
}
