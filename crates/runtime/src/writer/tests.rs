//! Lanes, slots and order of writes, on the embedded server.

use super::*;
use crate::kind::CONFIG_MAP;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::json;

struct World {
    api: Api,
    writer: Writer,
    done: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new() -> Self {
        let server =
            ApiServer::new(&Options::new(1, Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        Self { api, writer: Writer::default(), done: Arc::default() }
    }

    fn write(&self, lane: Lane, name: &str, slot: Option<&'static str>, value: &str) {
        let key = Key::new("default", name);
        let (done, label) = (Arc::clone(&self.done), format!("{name}={value}"));
        self.writer.submit(Write {
            lane,
            object: (CONFIG_MAP, key.clone()),
            slot,
            method: "PATCH",
            path: format!("{}?fieldManager=test&force=true", CONFIG_MAP.path_of(&key)),
            content_type: "application/apply-patch+yaml",
            body: json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default"}, "data": {"value": value},
            }),
            retry: Retry::UntilAnswered,
            done: Some(Box::new(move |answer| {
                assert!(answer.is_ok(), "{answer:?}");
                done.lock().unwrap().push(label);
            })),
        });
    }

    async fn run(&self) -> Vec<String> {
        let mut tasks = tokio::task::JoinSet::new();
        let (writer, api) = (self.writer.clone(), self.api.clone());
        tasks.spawn(async move { writer.run(api).await });
        self.writer.idle().await;
        self.done.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_acts_goes_before_what_tells_and_that_before_remarks() {
    let world = World::new();
    world.write(Lane::Remark, "c", None, "1");
    world.write(Lane::Tell, "b", None, "1");
    world.write(Lane::Act, "a", None, "1");
    let taken: Vec<String> =
        std::iter::from_fn(|| world.writer.lock().take()).map(|w| w.write.object.1.name).collect();
    assert_eq!(taken, ["a", "b", "c"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_newer_state_replaces_one_that_still_waits() {
    let world = World::new();
    world.write(Lane::Tell, "a", Some("status"), "1");
    world.write(Lane::Tell, "a", Some("status"), "2");
    world.write(Lane::Tell, "a", Some("other"), "3");
    assert_eq!(world.run().await, ["a=2", "a=3"]);
    assert_eq!(world.writer.counts().sent, 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn writes_about_one_object_keep_their_order_even_across_lanes() {
    let world = World::new();
    world.write(Lane::Tell, "a", None, "1");
    world.write(Lane::Act, "a", None, "2");
    world.write(Lane::Tell, "b", None, "1");
    assert_eq!(world.run().await, ["a=1", "b=1", "a=2"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn remarks_beyond_the_limit_are_lost_and_counted() {
    let world = World::new();
    for number in 0..EVENTS_MAX + 5 {
        world.write(Lane::Remark, &format!("e{number}"), None, "1");
    }
    assert_eq!(world.writer.counts().lost, 5);
    world.writer.cancel(&(CONFIG_MAP, Key::new("default", "e0")), "none");
    assert_eq!(world.writer.counts().waiting, EVENTS_MAX);
}
