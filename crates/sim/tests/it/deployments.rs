//! Deployments and replica sets: scaling, rolling, going back.

use crate::k;
use crate::{World, count, deployment, holds, phase};
use kai_object as object;
use serde_json::{Value, json};
use std::time::Duration;

fn is_done(deployment: &Value) -> bool {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap();
    count(deployment, "observedGeneration") >= object::generation(deployment)
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|field| count(deployment, field) == wanted)
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}})
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_deployment_is_rolled_out_without_losing_too_many_pods() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 8)).await;
    let first = world.until(&k::DEPLOYMENT, "web", is_done).await;
    assert!(holds(&first, "Available") && holds(&first, "Progressing"));
    assert_eq!(first["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    world.patch(&k::DEPLOYMENT, "web", image("other")).await;
    let mut least = i64::MAX;
    let mut most = 0;
    loop {
        let now = world.get(&k::DEPLOYMENT, "web").await;
        if is_done(&now) {
            break;
        }
        least = least.min(count(&now, "availableReplicas"));
        most = most.max(world.list(&k::POD).await.iter().filter(|pod| !object::is_deleting(pod)).count());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(least >= 6, "a quarter may be missing, and {least} were there");
    assert!(most <= 10, "a quarter may be added, and {most} were there");
    let sets = world.list(&k::REPLICA_SET).await;
    assert_eq!(sets.len(), 2);
    let deployment = world.get(&k::DEPLOYMENT, "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    world.until_all(&k::POD, |pods| pods.len() == 8).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn going_back_uses_the_old_replica_set_again() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    world.until(&k::DEPLOYMENT, "web", is_done).await;
    for name in ["other", "busybox"] {
        world.patch(&k::DEPLOYMENT, "web", image(name)).await;
        world.until(&k::DEPLOYMENT, "web", is_done).await;
    }
    assert_eq!(world.list(&k::REPLICA_SET).await.len(), 2);
    let deployment = world.get(&k::DEPLOYMENT, "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_rollout_that_gets_stuck_says_so() {
    let world = World::new().await;
    let mut broken = deployment("web", 2);
    broken["spec"]["progressDeadlineSeconds"] = json!(60);
    broken["spec"]["template"]["metadata"]["annotations"] = json!({"sim.kai.scheduler/start-delay": "2h"});
    world.create(&k::DEPLOYMENT, broken).await;
    let stuck = |deployment: &Value| {
        let conditions = deployment["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|known| known["reason"] == "ProgressDeadlineExceeded")
    };
    let found = world.until(&k::DEPLOYMENT, "web", stuck).await;
    assert!(!holds(&found, "Available"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn recreate_stops_all_before_it_starts_any() {
    let world = World::new().await;
    let mut object = deployment("web", 3);
    object["spec"]["strategy"] = json!({"type": "Recreate"});
    world.create(&k::DEPLOYMENT, object).await;
    world.until(&k::DEPLOYMENT, "web", is_done).await;
    world.patch(&k::DEPLOYMENT, "web", image("other")).await;
    loop {
        let pods = world.list(&k::POD).await;
        let running = |image: &str| {
            let pods = pods.iter().filter(|pod| phase(pod) == "Running");
            pods.filter(|pod| pod["spec"]["containers"][0]["image"] == image).count()
        };
        assert!(running("busybox") == 0 || running("other") == 0);
        if running("other") == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_deployment_is_scaled_up_and_down() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    world.until(&k::DEPLOYMENT, "web", is_done).await;
    for replicas in [6, 1, 0] {
        world.patch(&k::DEPLOYMENT, "web", json!({"spec": {"replicas": replicas}})).await;
        world.until(&k::DEPLOYMENT, "web", is_done).await;
        world.until_all(&k::POD, |pods| pods.len() == replicas).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_replica_set_adopts_matching_pods_and_replaces_lost_ones() {
    let world = World::new().await;
    let mut pod = crate::template(&json!({}), "Always");
    pod["metadata"]["name"] = json!("alone");
    world.create(&k::POD, pod).await;
    let set = json!({"metadata": {"name": "web"}, "spec": deployment("web", 2)["spec"]});
    world.create(&k::REPLICA_SET, set).await;
    world.until(&k::REPLICA_SET, "web", |set| count(set, "availableReplicas") == 2).await;
    let pods = world.list(&k::POD).await;
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().any(|pod| object::name(pod) == "alone"));
    world.delete(&k::POD, "alone", kai_runtime::api::Deletion::default()).await;
    world.gone(&k::POD, "alone").await;
    world.until(&k::REPLICA_SET, "web", |set| count(set, "availableReplicas") == 2).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_budget_knows_how_many_pods_may_go() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 4)).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {
        "maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}},
    }});
    world.create(&k::POD_DISRUPTION_BUDGET, budget).await;
    let healthy =
        |budget: &Value| count(budget, "currentHealthy") == 4 && count(budget, "disruptionsAllowed") == 1;
    let budget = world.until(&k::POD_DISRUPTION_BUDGET, "web", healthy).await;
    assert_eq!((count(&budget, "expectedPods"), count(&budget, "desiredHealthy")), (4, 3));
    assert!(holds(&budget, "DisruptionAllowed"));
    let evict = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        world.cluster.api().send("POST", &path, Some(("application/json", &body))).await
    };
    let pods = world.list(&k::POD).await;
    evict(object::name(&pods[0])).await.unwrap();
    assert_eq!(evict(object::name(&pods[1])).await.unwrap_err().code(), 429);
    world
        .until(&k::POD_DISRUPTION_BUDGET, "web", |budget| {
            healthy(budget) && budget["status"].get("disruptedPods").is_none()
        })
        .await;
}
