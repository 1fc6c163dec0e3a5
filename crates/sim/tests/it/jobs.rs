//! Jobs and cron jobs.

use crate::k;
use crate::{TestCluster, count, has_condition, job, phase};
use kai_object as object;
use kai_runtime::kind::Key;
use serde_json::{Value, json};

fn runs(seconds: u32) -> Value {
    json!({"sim.kai.scheduler/run-for": format!("{seconds}s")})
}

fn fails() -> Value {
    json!({"sim.kai.scheduler/run-for": "2s", "sim.kai.scheduler/exit-code": "1"})
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_runs_its_completions_within_parallelism() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::JOB, job("a", &json!({"completions": 5, "parallelism": 2}), &runs(60))).await;
    let begin = tokio::time::Instant::now();
    cluster.wait_for(&k::JOB, "a", |job| count(job, "active") == 2 && count(job, "ready") == 2).await;
    let done = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert!(begin.elapsed().as_secs() >= 180, "three rounds of a minute: {:?}", begin.elapsed());
    assert_eq!((count(&done, "succeeded"), count(&done, "failed"), count(&done, "active")), (5, 0, 0));
    assert!(has_condition(&done, "SuccessCriteriaMet"));
    assert!(done["status"]["completionTime"].is_string());
    assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
    let pods = cluster.list(&k::POD).await;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| phase(pod) == "Succeeded" && object::finalizers(pod).is_empty()));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn indexed_job_completes_each_index_once() {
    let cluster = TestCluster::new().await;
    let spec = json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"});
    cluster.create(&k::JOB, job("a", &spec, &runs(10))).await;
    let done = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert_eq!(done["status"]["completedIndexes"], "0-3");
    let mut indexes: Vec<String> = Vec::new();
    for pod in cluster.list(&k::POD).await {
        let index =
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str().unwrap();
        assert!(object::name(&pod).starts_with(&format!("a-{index}-")));
        assert_eq!(pod["spec"]["hostname"], format!("a-{index}"));
        let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        assert!(variables.iter().any(|variable| variable["name"] == "JOB_COMPLETION_INDEX"));
        indexes.push(index.to_owned());
    }
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2", "3"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_fails_after_its_backoff_limit() {
    let cluster = TestCluster::new().await;
    let begin = tokio::time::Instant::now();
    cluster.create(&k::JOB, job("a", &json!({"backoffLimit": 2}), &fails())).await;
    let failed = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Failed")).await;
    assert_eq!(count(&failed, "failed"), 3);
    assert!(has_condition(&failed, "FailureTarget"));
    let reason =
        failed["status"]["conditions"].as_array().unwrap().iter().find(|known| known["type"] == "Failed");
    assert_eq!(reason.unwrap()["reason"], "BackoffLimitExceeded");
    assert!(begin.elapsed().as_secs() >= 30, "the backoff grows with each failure: {:?}", begin.elapsed());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn suspended_job_has_no_pods_until_it_is_resumed() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::JOB, job("a", &json!({"suspend": true}), &runs(600))).await;
    cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Suspended")).await;
    assert!(cluster.list(&k::POD).await.is_empty());
    cluster.patch(&k::JOB, "a", json!({"spec": {"suspend": false}})).await;
    let running = cluster.wait_for(&k::JOB, "a", |job| count(job, "ready") == 1).await;
    assert!(!has_condition(&running, "Suspended") && running["status"]["startTime"].is_string());
    cluster.patch(&k::JOB, "a", json!({"spec": {"suspend": true}})).await;
    let suspended = cluster
        .wait_for(&k::JOB, "a", |job| has_condition(job, "Suspended") && count(job, "active") == 0)
        .await;
    assert!(suspended["status"].get("startTime").is_none());
    cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_fails_after_its_active_deadline() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::JOB, job("a", &json!({"activeDeadlineSeconds": 30}), &runs(600))).await;
    let failed = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Failed")).await;
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["reason"] == "DeadlineExceeded"));
    cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn finished_job_is_deleted_with_its_pods_after_its_ttl() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::JOB, job("a", &json!({"ttlSecondsAfterFinished": 100}), &runs(5))).await;
    cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    cluster.sleep(90).await;
    assert!(cluster.find(&k::JOB, "a").await.is_some());
    cluster.wait_for_deletion(&k::JOB, "a").await;
    cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deleted_pod_of_a_job_is_replaced_and_counts_as_failed() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::JOB, job("a", &json!({}), &runs(60))).await;
    let pods = cluster.wait_for_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    cluster.delete(&k::POD, object::name(&pods[0]), kai_runtime::api::DeleteOptions::default()).await;
    let done = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (1, 1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn cron_job_creates_jobs_on_schedule_and_keeps_its_history_limit() {
    let cluster = TestCluster::new().await;
    let spec = json!({
        "schedule": "*/10 * * * *", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": job("", &json!({}), &runs(30))["spec"]},
    });
    cluster.create(&k::CRON_JOB, json!({"metadata": {"name": "tick"}, "spec": spec})).await;
    cluster.sleep(3_600 + 120).await;
    let cron = cluster.get(&k::CRON_JOB, "tick").await;
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-01-01T01:00:00Z");
    assert!(cron["status"]["lastSuccessfulTime"].is_string());
    let jobs = cluster.list(&k::JOB).await;
    assert_eq!(jobs.len(), 3, "successfulJobsHistoryLimit is 3");
    let minute = "2026-01-01T01:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    assert!(jobs.iter().any(|job| object::name(job) == format!("tick-{minute}")));
    cluster.patch(&k::CRON_JOB, "tick", json!({"spec": {"suspend": true}})).await;
    cluster.sleep(1_200).await;
    let cron = cluster.get(&k::CRON_JOB, "tick").await;
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-01-01T01:00:00Z");
    let gone = Key::new("default", "tick");
    cluster
        .inner
        .api()
        .delete_dynamic(&k::CRON_JOB, &gone, &kai_runtime::api::DeleteOptions::default())
        .await
        .unwrap();
    cluster.wait_for_all(&k::JOB, <[Value]>::is_empty).await;
    cluster.wait_for_all(&k::POD, <[Value]>::is_empty).await;
}

fn exits(code: u32) -> Value {
    json!({"sim.kai.scheduler/run-for": "2s", "sim.kai.scheduler/exit-code": code.to_string()})
}

fn reason<'a>(job: &'a Value, condition: &str) -> &'a str {
    let conditions = job["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|known| known["type"] == condition);
    found.map_or("", |found| object::str_at(found, "/reason"))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_failure_policy_decides_about_failed_pods() {
    let cluster = TestCluster::new().await;
    let policy = |action: &str| {
        json!({"backoffLimit": 3, "podFailurePolicy": {"rules": [
            {"action": action, "onExitCodes": {"operator": "In", "values": [42]}},
        ]}})
    };
    cluster.create(&k::JOB, job("fatal", &policy("FailJob"), &exits(42))).await;
    let failed = cluster.wait_for(&k::JOB, "fatal", |job| has_condition(job, "Failed")).await;
    assert_eq!((reason(&failed, "Failed"), count(&failed, "failed")), ("PodFailurePolicy", 1));

    cluster.create(&k::JOB, job("counted", &policy("Count"), &exits(42))).await;
    let failed = cluster.wait_for(&k::JOB, "counted", |job| has_condition(job, "Failed")).await;
    assert_eq!((reason(&failed, "Failed"), count(&failed, "failed")), ("BackoffLimitExceeded", 4));

    cluster.create(&k::JOB, job("ignored", &policy("Ignore"), &exits(42))).await;
    cluster.sleep(120).await;
    let job = cluster.get(&k::JOB, "ignored").await;
    assert!(!has_condition(&job, "Failed") && count(&job, "failed") == 0, "{job:#}");
    let pods = cluster.list(&k::POD).await;
    let tried = pods.iter().filter(|pod| object::name(pod).starts_with("ignored-")).count();
    assert!(tried > 4, "ignored failures do not count: {tried}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn backoff_limit_per_index_fails_indexes_separately() {
    let cluster = TestCluster::new().await;
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
    });
    cluster.create(&k::JOB, job("a", &spec, &exits(1))).await;
    let failed = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Failed")).await;
    assert_eq!(reason(&failed, "Failed"), "FailedIndexes");
    assert_eq!(failed["status"]["failedIndexes"], "0-2");
    assert_eq!(count(&failed, "failed"), 6, "two tries for each of three indexes");

    let mut few = spec.clone();
    few["maxFailedIndexes"] = json!(0);
    cluster.create(&k::JOB, job("b", &few, &exits(1))).await;
    let failed = cluster.wait_for(&k::JOB, "b", |job| has_condition(job, "Failed")).await;
    assert_eq!(reason(&failed, "Failed"), "MaxFailedIndexesExceeded");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn success_policy_completes_the_job_early() {
    let cluster = TestCluster::new().await;
    let spec = json!({
        "completions": 10, "parallelism": 2, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0-5", "succeededCount": 2}]},
    });
    cluster.create(&k::JOB, job("a", &spec, &runs(30))).await;
    let done = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert_eq!(reason(&done, "SuccessCriteriaMet"), "SuccessPolicy");
    assert_eq!((count(&done, "succeeded"), &done["status"]["completedIndexes"]), (2, &json!("0,1")));
}
