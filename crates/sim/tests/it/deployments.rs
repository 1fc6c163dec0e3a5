//! Deployments and replica sets: scaling, rolling updates, rollback, adoption, disruption budgets.

use crate::k;
use crate::{TestCluster, count, deployment, has_condition, phase};
use kai_object as object;
use serde_json::{Value, json};
use std::time::Duration;

fn is_rolled_out(deployment: &Value) -> bool {
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
async fn rolling_update_stays_within_surge_and_unavailability() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 8)).await;
    let first = cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
    assert!(has_condition(&first, "Available") && has_condition(&first, "Progressing"));
    assert_eq!(first["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    cluster.patch(&k::DEPLOYMENT, "web", image("other")).await;
    let mut least = i64::MAX;
    let mut most = 0;
    loop {
        let now = cluster.get(&k::DEPLOYMENT, "web").await;
        if is_rolled_out(&now) {
            break;
        }
        least = least.min(count(&now, "availableReplicas"));
        most = most.max(cluster.list(&k::POD).await.iter().filter(|pod| !object::is_deleting(pod)).count());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(least >= 6, "at most 25 % may be unavailable, {least} were available");
    assert!(most <= 10, "at most 25 % may be added, there were {most} pods");
    let sets = cluster.list(&k::REPLICA_SET).await;
    assert_eq!(sets.len(), 2);
    let deployment = cluster.get(&k::DEPLOYMENT, "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    cluster.wait_for_all(&k::POD, |pods| pods.len() == 8).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn rollback_reuses_the_old_replica_set() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
    for name in ["other", "busybox"] {
        cluster.patch(&k::DEPLOYMENT, "web", image(name)).await;
        cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
    }
    assert_eq!(cluster.list(&k::REPLICA_SET).await.len(), 2);
    let deployment = cluster.get(&k::DEPLOYMENT, "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn stuck_rollout_reports_progress_deadline_exceeded() {
    let cluster = TestCluster::new().await;
    let mut broken = deployment("web", 2);
    broken["spec"]["progressDeadlineSeconds"] = json!(60);
    broken["spec"]["template"]["metadata"]["annotations"] = json!({"sim.kai.scheduler/start-delay": "2h"});
    cluster.create(&k::DEPLOYMENT, broken).await;
    let stuck = |deployment: &Value| {
        let conditions = deployment["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|known| known["reason"] == "ProgressDeadlineExceeded")
    };
    let found = cluster.wait_for(&k::DEPLOYMENT, "web", stuck).await;
    assert!(!has_condition(&found, "Available"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn recreate_strategy_stops_old_pods_before_it_starts_new_ones() {
    let cluster = TestCluster::new().await;
    let mut object = deployment("web", 3);
    object["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create(&k::DEPLOYMENT, object).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
    cluster.patch(&k::DEPLOYMENT, "web", image("other")).await;
    loop {
        let pods = cluster.list(&k::POD).await;
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
async fn deployment_is_scaled_up_and_down() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
    for replicas in [6, 1, 0] {
        cluster.patch(&k::DEPLOYMENT, "web", json!({"spec": {"replicas": replicas}})).await;
        cluster.wait_for(&k::DEPLOYMENT, "web", is_rolled_out).await;
        cluster.wait_for_all(&k::POD, |pods| pods.len() == replicas).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn replica_set_adopts_matching_pods_and_replaces_deleted_ones() {
    let cluster = TestCluster::new().await;
    let mut pod = crate::template(&json!({}), "Always");
    pod["metadata"]["name"] = json!("alone");
    cluster.create(&k::POD, pod).await;
    let set = json!({"metadata": {"name": "web"}, "spec": deployment("web", 2)["spec"]});
    cluster.create(&k::REPLICA_SET, set).await;
    cluster.wait_for(&k::REPLICA_SET, "web", |set| count(set, "availableReplicas") == 2).await;
    let pods = cluster.list(&k::POD).await;
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().any(|pod| object::name(pod) == "alone"));
    cluster.delete(&k::POD, "alone", kai_runtime::api::DeleteOptions::default()).await;
    cluster.wait_for_deletion(&k::POD, "alone").await;
    cluster.wait_for(&k::REPLICA_SET, "web", |set| count(set, "availableReplicas") == 2).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn disruption_budget_counts_allowed_disruptions() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 4)).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {
        "maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}},
    }});
    cluster.create(&k::POD_DISRUPTION_BUDGET, budget).await;
    let healthy =
        |budget: &Value| count(budget, "currentHealthy") == 4 && count(budget, "disruptionsAllowed") == 1;
    let budget = cluster.wait_for(&k::POD_DISRUPTION_BUDGET, "web", healthy).await;
    assert_eq!((count(&budget, "expectedPods"), count(&budget, "desiredHealthy")), (4, 3));
    assert!(has_condition(&budget, "DisruptionAllowed"));
    let evict = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        cluster.inner.api().send("POST", &path, Some(("application/json", &body))).await
    };
    let pods = cluster.list(&k::POD).await;
    evict(object::name(&pods[0])).await.unwrap();
    assert_eq!(evict(object::name(&pods[1])).await.unwrap_err().code(), 429);
    cluster
        .wait_for(&k::POD_DISRUPTION_BUDGET, "web", |budget| {
            healthy(budget) && budget["status"].get("disruptedPods").is_none()
        })
        .await;
}
