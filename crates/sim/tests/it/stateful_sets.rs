//! Stateful sets: order, storage, rolling updates.

use crate::k;
use crate::{TestCluster, count, has_condition, template};
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

fn is_rolled_out(set: &Value) -> bool {
    let wanted = set["spec"]["replicas"].as_i64().unwrap();
    count(set, "observedGeneration") >= object::generation(set)
        && ["replicas", "readyReplicas", "updatedReplicas"].iter().all(|field| count(set, field) == wanted)
        && set["status"]["currentRevision"] == set["status"]["updateRevision"]
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_created_in_order_with_their_own_claims() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::STATEFUL_SET, set(3)).await;
    cluster.wait_for(&k::STATEFUL_SET, "db", is_rolled_out).await;
    let started = async |name: &str| -> String {
        cluster.get(&k::POD, name).await["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    assert!(started("db-0").await < started("db-1").await && started("db-1").await < started("db-2").await);
    let claims = cluster.list(&k::PERSISTENT_VOLUME_CLAIM).await;
    assert_eq!(claims.iter().map(object::name).collect::<Vec<_>>(), ["data-db-0", "data-db-1", "data-db-2"]);
    assert!(claims.iter().all(|claim| claim["status"]["phase"] == "Bound"));
    cluster.patch(&k::STATEFUL_SET, "db", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for_all(&k::POD, |pods| pods.len() == 1 && object::name(&pods[0]) == "db-0").await;
    assert_eq!(cluster.list(&k::PERSISTENT_VOLUME_CLAIM).await.len(), 3, "claims are kept");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn update_starts_at_the_highest_ordinal_and_stops_at_the_partition() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::STATEFUL_SET, set(3)).await;
    cluster.wait_for(&k::STATEFUL_SET, "db", is_rolled_out).await;
    let rolling = json!({"spec": {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        "template": {"spec": {"containers": [{"name": "main", "image": "other"}]}},
    }});
    cluster.patch(&k::STATEFUL_SET, "db", rolling).await;
    cluster
        .wait_for(&k::STATEFUL_SET, "db", |set| {
            count(set, "updatedReplicas") == 1 && count(set, "readyReplicas") == 3
        })
        .await;
    cluster.sleep(60).await;
    let image = async |name: &str| cluster.get(&k::POD, name).await["spec"]["containers"][0]["image"].clone();
    assert_eq!((image("db-1").await, image("db-2").await), (json!("busybox"), json!("other")));
    cluster
        .patch(
            &k::STATEFUL_SET,
            "db",
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
        )
        .await;
    cluster.wait_for(&k::STATEFUL_SET, "db", is_rolled_out).await;
    assert_eq!(image("db-0").await, json!("other"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn parallel_update_uses_max_unavailable() {
    let cluster = TestCluster::new().await;
    let mut object = set(6);
    object["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}});
    object["spec"]["podManagementPolicy"] = json!("Parallel");
    cluster.create(&k::STATEFUL_SET, object).await;
    cluster.wait_for(&k::STATEFUL_SET, "db", |set| count(set, "availableReplicas") == 6).await;
    let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}});
    cluster.patch(&k::STATEFUL_SET, "db", other).await;
    let mut least = 6;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let pods = cluster.list(&k::POD).await;
        let serving =
            pods.iter().filter(|pod| has_condition(pod, "Ready") && !object::is_deleting(pod)).count();
        least = least.min(serving);
        let new = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == "other");
        if new.filter(|pod| has_condition(pod, "Ready")).count() == 6 {
            break;
        }
    }
    assert_eq!(least, 3);
}
