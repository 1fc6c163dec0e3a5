//! Evicts the victims of a decision: those of one batch all or none, as far as the API server allows it.
//!
//! Before the first victim of a batch is evicted, all of them are evicted as a dry run, so that a rejection costs nothing.
//! A rejection after that, because another client used up a disruption budget in between, stops the rest of the batch.

use crate::options::Eviction;
use kai_engine::input::Key;
use kai_runtime::api::{Api, DISRUPTION_BUDGET_CAUSE, Error, Result};
use kai_runtime::backoff::BackoffPolicy;
use kai_runtime::kind::POD;
use serde_json::{Value, json};
use std::time::Duration;

/// Attempts of a request that fails with a transient error.
const ATTEMPTS: u32 = 5;
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(2));

/// Victims of one preemptor, or pods of one stale group.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The group that the victims are evicted for; `None` for stale gangs.
    pub(crate) preemptor: Option<Key>,
    pub(crate) victims: Vec<Victim>,
    /// Time of the decision, in RFC 3339.
    pub(crate) time: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Victim {
    pub(crate) pod: Key,
    pub(crate) uid: String,
    pub(crate) group: Option<Key>,
    /// How many pods of the group are evicted with it.
    pub(crate) gang_size: u32,
    pub(crate) action: &'static str,
    /// The message of its condition and of its group's event.
    pub(crate) message: String,
}

#[derive(Clone, Debug)]
pub(crate) struct EvictionResult {
    pub(crate) batch: Batch,
    /// How many victims were evicted, from the first on.
    pub(crate) evicted: usize,
    /// Why the next victim was not evicted.
    pub(crate) rejection: Option<String>,
}

pub(crate) async fn run(api: Api, batch: Batch, how: Eviction) -> EvictionResult {
    let rejection = match how {
        Eviction::Api => dry_run(&api, &batch).await,
        Eviction::Delete => None,
    };
    if let Some(rejection) = rejection {
        return EvictionResult { batch, evicted: 0, rejection: Some(rejection) };
    }
    for (at, victim) in batch.victims.iter().enumerate() {
        let evicted = match how {
            Eviction::Api => evict(&api, victim, &json!({})).await,
            Eviction::Delete => delete(&api, victim, &batch.time).await,
        };
        if let Err(error) = evicted {
            let rejection = Some(rejection_message(&victim.pod, &error));
            return EvictionResult { evicted: at, rejection, batch };
        }
    }
    EvictionResult { evicted: batch.victims.len(), rejection: None, batch }
}

/// Evicts all victims as a dry run; returns why one of them cannot be evicted.
async fn dry_run(api: &Api, batch: &Batch) -> Option<String> {
    if batch.victims.len() < 2 {
        return None;
    }
    for victim in &batch.victims {
        if let Err(error) = evict(api, victim, &json!({"dryRun": ["All"]})).await {
            return Some(rejection_message(&victim.pod, &error));
        }
    }
    None
}

async fn evict(api: &Api, victim: &Victim, options: &Value) -> Result<()> {
    let Victim { pod, uid, .. } = victim;
    let mut options = options.clone();
    options["preconditions"] = json!({"uid": uid});
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    });
    let path = POD.path_of(pod) + "/eviction";
    send_with_retries(api, "POST", &path, ("application/json", &eviction)).await
}

async fn delete(api: &Api, victim: &Victim, time: &str) -> Result<()> {
    let Victim { pod, uid, message, .. } = victim;
    let path = POD.path_of(pod);
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": message, "lastTransitionTime": time,
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let status = path.clone() + "/status";
    send_with_retries(api, "PATCH", &status, ("application/strategic-merge-patch+json", &patch)).await?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    send_with_retries(api, "DELETE", &path, ("application/json", &options)).await
}

/// Retries transient errors. A pod that does not exist, or has another uid by now, counts as evicted.
async fn send_with_retries(api: &Api, method: &str, path: &str, body: (&str, &Value)) -> Result<()> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match api.send(method, path, Some(body)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            // A disruption budget answers 429 like an overloaded server, but a retry does not help.
            Err(error)
                if error.has_cause(DISRUPTION_BUDGET_CAUSE)
                    || !error.is_transient()
                    || attempt >= ATTEMPTS =>
            {
                return Err(error);
            }
            Err(_) => tokio::time::sleep(RETRY.delay(attempt)).await,
        }
    }
}

fn rejection_message(pod: &Key, error: &Error) -> String {
    format!("the API server rejected the eviction of pod {pod}: {}", error.message())
}
