//! Jobs and cron jobs, from start to end.

use crate::k;
use crate::{World, count, holds, job, phase};
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
async fn a_job_runs_its_completions_a_few_at_a_time() {
    let world = World::new().await;
    world.create(&k::JOB, job("a", &json!({"completions": 5, "parallelism": 2}), &runs(60))).await;
    let begin = tokio::time::Instant::now();
    world.until(&k::JOB, "a", |job| count(job, "active") == 2 && count(job, "ready") == 2).await;
    let done = world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert!(begin.elapsed().as_secs() >= 180, "three rounds of a minute: {:?}", begin.elapsed());
    assert_eq!((count(&done, "succeeded"), count(&done, "failed"), count(&done, "active")), (5, 0, 0));
    assert!(holds(&done, "SuccessCriteriaMet"));
    assert!(done["status"]["completionTime"].is_string());
    assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
    let pods = world.list(&k::POD).await;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| phase(pod) == "Succeeded" && object::finalizers(pod).is_empty()));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn an_indexed_job_completes_each_index_once() {
    let world = World::new().await;
    let spec = json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"});
    world.create(&k::JOB, job("a", &spec, &runs(10))).await;
    let done = world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert_eq!(done["status"]["completedIndexes"], "0-3");
    let mut indexes: Vec<String> = Vec::new();
    for pod in world.list(&k::POD).await {
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
async fn a_job_gives_up_after_its_backoff_limit() {
    let world = World::new().await;
    let begin = tokio::time::Instant::now();
    world.create(&k::JOB, job("a", &json!({"backoffLimit": 2}), &fails())).await;
    let failed = world.until(&k::JOB, "a", |job| holds(job, "Failed")).await;
    assert_eq!(count(&failed, "failed"), 3);
    assert!(holds(&failed, "FailureTarget"));
    let reason =
        failed["status"]["conditions"].as_array().unwrap().iter().find(|known| known["type"] == "Failed");
    assert_eq!(reason.unwrap()["reason"], "BackoffLimitExceeded");
    assert!(begin.elapsed().as_secs() >= 30, "it waits longer after each failure: {:?}", begin.elapsed());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let world = World::new().await;
    world.create(&k::JOB, job("a", &json!({"suspend": true}), &runs(600))).await;
    world.until(&k::JOB, "a", |job| holds(job, "Suspended")).await;
    assert!(world.list(&k::POD).await.is_empty());
    world.patch(&k::JOB, "a", json!({"spec": {"suspend": false}})).await;
    let running = world.until(&k::JOB, "a", |job| count(job, "ready") == 1).await;
    assert!(!holds(&running, "Suspended") && running["status"]["startTime"].is_string());
    world.patch(&k::JOB, "a", json!({"spec": {"suspend": true}})).await;
    let suspended =
        world.until(&k::JOB, "a", |job| holds(job, "Suspended") && count(job, "active") == 0).await;
    assert!(suspended["status"].get("startTime").is_none());
    world.until_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_job_past_its_deadline_fails() {
    let world = World::new().await;
    world.create(&k::JOB, job("a", &json!({"activeDeadlineSeconds": 30}), &runs(600))).await;
    let failed = world.until(&k::JOB, "a", |job| holds(job, "Failed")).await;
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["reason"] == "DeadlineExceeded"));
    world.until_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_finished_job_goes_after_its_time_and_takes_its_pods_along() {
    let world = World::new().await;
    world.create(&k::JOB, job("a", &json!({"ttlSecondsAfterFinished": 100}), &runs(5))).await;
    world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    world.sleep(90).await;
    assert!(world.find(&k::JOB, "a").await.is_some());
    world.gone(&k::JOB, "a").await;
    world.until_all(&k::POD, <[Value]>::is_empty).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_deleted_pod_of_a_job_is_replaced_and_counts_as_failed() {
    let world = World::new().await;
    world.create(&k::JOB, job("a", &json!({}), &runs(60))).await;
    let pods = world.until_all(&k::POD, |pods| pods.len() == 1 && phase(&pods[0]) == "Running").await;
    world.delete(&k::POD, object::name(&pods[0]), kai_runtime::api::Deletion::default()).await;
    let done = world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (1, 1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_cron_job_starts_jobs_on_time_and_keeps_the_latest() {
    let world = World::new().await;
    let spec = json!({
        "schedule": "*/10 * * * *", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": job("", &json!({}), &runs(30))["spec"]},
    });
    world.create(&k::CRON_JOB, json!({"metadata": {"name": "tick"}, "spec": spec})).await;
    world.sleep(3_600 + 120).await;
    let cron = world.get(&k::CRON_JOB, "tick").await;
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-01-01T01:00:00Z");
    assert!(cron["status"]["lastSuccessfulTime"].is_string());
    let jobs = world.list(&k::JOB).await;
    assert_eq!(jobs.len(), 3, "three that succeeded are kept");
    let minute = "2026-01-01T01:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    assert!(jobs.iter().any(|job| object::name(job) == format!("tick-{minute}")));
    world.patch(&k::CRON_JOB, "tick", json!({"spec": {"suspend": true}})).await;
    world.sleep(1_200).await;
    let cron = world.get(&k::CRON_JOB, "tick").await;
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-01-01T01:00:00Z");
    let gone = Key::new("default", "tick");
    world.cluster.api().delete(&k::CRON_JOB, &gone, &kai_runtime::api::Deletion::default()).await.unwrap();
    world.until_all(&k::JOB, <[Value]>::is_empty).await;
    world.until_all(&k::POD, <[Value]>::is_empty).await;
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
async fn a_failed_pod_is_judged_by_the_policy_of_its_job() {
    let world = World::new().await;
    let policy = |action: &str| {
        json!({"backoffLimit": 3, "podFailurePolicy": {"rules": [
            {"action": action, "onExitCodes": {"operator": "In", "values": [42]}},
        ]}})
    };
    world.create(&k::JOB, job("fatal", &policy("FailJob"), &exits(42))).await;
    let failed = world.until(&k::JOB, "fatal", |job| holds(job, "Failed")).await;
    assert_eq!((reason(&failed, "Failed"), count(&failed, "failed")), ("PodFailurePolicy", 1));

    world.create(&k::JOB, job("counted", &policy("Count"), &exits(42))).await;
    let failed = world.until(&k::JOB, "counted", |job| holds(job, "Failed")).await;
    assert_eq!((reason(&failed, "Failed"), count(&failed, "failed")), ("BackoffLimitExceeded", 4));

    world.create(&k::JOB, job("ignored", &policy("Ignore"), &exits(42))).await;
    world.sleep(120).await;
    let going = world.get(&k::JOB, "ignored").await;
    assert!(!holds(&going, "Failed") && count(&going, "failed") == 0, "{going:#}");
    let pods = world.list(&k::POD).await;
    let tried = pods.iter().filter(|pod| object::name(pod).starts_with("ignored-")).count();
    assert!(tried > 4, "more often than its limit: {tried}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn indexes_fail_one_by_one_and_the_others_go_on() {
    let world = World::new().await;
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
    });
    world.create(&k::JOB, job("a", &spec, &exits(1))).await;
    let failed = world.until(&k::JOB, "a", |job| holds(job, "Failed")).await;
    assert_eq!(reason(&failed, "Failed"), "FailedIndexes");
    assert_eq!(failed["status"]["failedIndexes"], "0-2");
    assert_eq!(count(&failed, "failed"), 6, "two tries for each of three indexes");

    let mut few = spec.clone();
    few["maxFailedIndexes"] = json!(0);
    world.create(&k::JOB, job("b", &few, &exits(1))).await;
    let failed = world.until(&k::JOB, "b", |job| holds(job, "Failed")).await;
    assert_eq!(reason(&failed, "Failed"), "MaxFailedIndexesExceeded");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_job_is_done_when_its_success_policy_says_so() {
    let world = World::new().await;
    let spec = json!({
        "completions": 10, "parallelism": 2, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0-5", "succeededCount": 2}]},
    });
    world.create(&k::JOB, job("a", &spec, &runs(30))).await;
    let done = world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert_eq!(reason(&done, "SuccessCriteriaMet"), "SuccessPolicy");
    assert_eq!((count(&done, "succeeded"), &done["status"]["completedIndexes"]), (2, &json!("0,1")));
}
