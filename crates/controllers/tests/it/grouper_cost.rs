//! What grouping costs, in requests of the pod grouper.

use crate::{Component, TestCluster, group_name, job, k, pod};
use kai_object as object;
use serde_json::{Value, json};

/// The pods of one large Job, or of [`JOBS`] smaller ones together.
const PODS: u32 = 1_000;
const JOBS: u32 = 10;
/// Reads of an owner until its pods are assigned. Those that refresh it come later.
const READS: usize = 1;

/// The reads of owners and the writes for Jobs whose pods wait when the grouper starts.
async fn reads_and_writes(jobs: u32) -> (usize, usize) {
    let mut test = TestCluster::new(&[]).await;
    for number in 0..jobs {
        test.create(&k::JOB, job(&format!("train-{number}"), PODS / jobs, &json!({}), &json!({}))).await;
    }
    while test.list(&k::POD).await.len() < PODS as usize {
        test.sleep(10.0).await;
    }
    test.start(Component::Grouper);
    while test.list(&k::POD).await.iter().any(|pod| group_name(pod).is_empty()) {
        test.sleep(1.0).await;
    }
    assert_eq!(test.list(&k::POD_GROUP).await.len(), jobs as usize);
    let requests = test.requests(Component::Grouper);
    let reads =
        requests.iter().filter(|request| request.starts_with("GET /apis/batch/v1/namespaces/")).count();
    (reads, test.writes(Component::Grouper).len())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn large_job_costs_no_more_requests_than_ten_smaller_ones() {
    let one = reads_and_writes(1).await;
    let ten = reads_and_writes(JOBS).await;
    let pods = PODS as usize;
    assert_eq!((one.1, ten.1), (pods + 1, pods + JOBS as usize), "the groups, and a patch of every pod");
    assert!(one.0 <= READS && ten.0 <= READS * JOBS as usize, "reads of {} and of {}", one.0, ten.0);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn spark_pods_without_owners_join_one_group_that_is_written_once() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let labels =
        json!({"spark-app-name": "etl", "spark-app-selector": "spark-7", "kai.scheduler/queue": "team"});
    for name in ["a", "b", "c"] {
        test.create(&k::POD, pod(name, &labels, &json!({}))).await;
        assert_eq!(test.group_of(name).await, "spark-7");
    }
    test.sleep(60.0).await;
    let group = test.find(&k::POD_GROUP, "spark-7").await.unwrap();
    let owner = |group: &Value| object::str_at(group, "/metadata/ownerReferences/0/name").to_owned();
    assert_eq!(owner(&group), "a", "the others only join it");
    assert_eq!(test.writes(Component::Grouper).len(), 4, "{:?}", test.writes(Component::Grouper));

    // The group goes with the pod that owns it, and the others still need it.
    test.delete(&k::POD, "a").await;
    let is_another = |found: &Value| object::uid(found) != object::uid(&group);
    let restored = test.until(&k::POD_GROUP, "spark-7", is_another).await;
    assert!(["b", "c"].contains(&owner(&restored).as_str()), "{restored:#}");
    assert_eq!(restored["spec"], group["spec"]);
}
