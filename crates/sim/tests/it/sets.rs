//! Stateful sets: order, identity, storage, versions.

use crate::k;
use crate::{World, count, holds, template};
use kai_object as object;
use serde_json::{Value, json};

fn set(replicas: i64) -> Value {
    json!({"metadata": {"name": "db"}, "spec": {
        "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
        "template": template(&json!({}), "Always"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}],
    }})
}

fn is_done(set: &Value) -> bool {
    let wanted = set["spec"]["replicas"].as_i64().unwrap();
    count(set, "observedGeneration") >= object::generation(set)
        && ["replicas", "readyReplicas", "updatedReplicas"].iter().all(|field| count(set, field) == wanted)
        && set["status"]["currentRevision"] == set["status"]["updateRevision"]
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_come_in_order_with_storage_of_their_own() {
    let world = World::new().await;
    world.create(&k::STATEFUL_SET, set(3)).await;
    world.until(&k::STATEFUL_SET, "db", is_done).await;
    let started = async |name: &str| -> String {
        world.get(&k::POD, name).await["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    assert!(started("db-0").await < started("db-1").await && started("db-1").await < started("db-2").await);
    let claims = world.list(&k::VOLUME_CLAIM).await;
    assert_eq!(claims.iter().map(object::name).collect::<Vec<_>>(), ["data-db-0", "data-db-1", "data-db-2"]);
    assert!(claims.iter().all(|claim| claim["status"]["phase"] == "Bound"));
    world.patch(&k::STATEFUL_SET, "db", json!({"spec": {"replicas": 1}})).await;
    world.until_all(&k::POD, |pods| pods.len() == 1 && object::name(&pods[0]) == "db-0").await;
    assert_eq!(world.list(&k::VOLUME_CLAIM).await.len(), 3, "storage outlives its pods");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_new_version_replaces_the_last_pod_first_and_stops_at_the_partition() {
    let world = World::new().await;
    world.create(&k::STATEFUL_SET, set(3)).await;
    world.until(&k::STATEFUL_SET, "db", is_done).await;
    let rolling = json!({"spec": {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        "template": {"spec": {"containers": [{"name": "main", "image": "other"}]}},
    }});
    world.patch(&k::STATEFUL_SET, "db", rolling).await;
    world
        .until(&k::STATEFUL_SET, "db", |set| {
            count(set, "updatedReplicas") == 1 && count(set, "readyReplicas") == 3
        })
        .await;
    world.sleep(60).await;
    let image = async |name: &str| world.get(&k::POD, name).await["spec"]["containers"][0]["image"].clone();
    assert_eq!((image("db-1").await, image("db-2").await), (json!("busybox"), json!("other")));
    world
        .patch(
            &k::STATEFUL_SET,
            "db",
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
        )
        .await;
    world.until(&k::STATEFUL_SET, "db", is_done).await;
    assert_eq!(image("db-0").await, json!("other"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn as_many_pods_are_replaced_at_once_as_may_be_missing() {
    let world = World::new().await;
    let mut made = set(6);
    made["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}});
    made["spec"]["podManagementPolicy"] = json!("Parallel");
    world.create(&k::STATEFUL_SET, made).await;
    world.until(&k::STATEFUL_SET, "db", |set| count(set, "availableReplicas") == 6).await;
    let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}});
    world.patch(&k::STATEFUL_SET, "db", other).await;
    let mut least = 6;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let pods = world.list(&k::POD).await;
        let serving = pods.iter().filter(|pod| holds(pod, "Ready") && !object::is_deleting(pod)).count();
        least = least.min(serving);
        let new = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == "other");
        if new.filter(|pod| holds(pod, "Ready")).count() == 6 {
            break;
        }
    }
    assert_eq!(least, 3);
}
