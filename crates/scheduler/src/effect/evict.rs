//! Makes pods leave: those that must leave together, together or not at all, as far as the server allows that.
//!
//! Before the first pod of a batch is evicted, all of them are evicted on trial. A refusal then costs nothing. One that
//! comes later, because somebody else used up a disruption budget in between, stops the rest of the batch.

use crate::options::Eviction;
use crate::resources::api_key;
use kai_engine::input::Key;
use kai_runtime::api::{Api, DISRUPTION_BUDGET_CAUSE, Error, Result};
use kai_runtime::kind::POD;
use serde_json::{Value, json};
use std::time::Duration;

/// How often a request that got no answer is sent again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// Pods that leave for one group, or for being stale.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The group that they leave for; none when nobody gains.
    pub(crate) preemptor: Option<Key>,
    /// The pods.
    pub(crate) pods: Vec<Leaving>,
    /// When it was decided, as times are written.
    pub(crate) time: String,
}

/// A pod that leaves.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    /// The pod.
    pub(crate) pod: Key,
    /// Its uid.
    pub(crate) uid: String,
    /// Its group.
    pub(crate) group: Option<Key>,
    /// How many pods of the group leave with it.
    pub(crate) gang_size: u32,
    /// By which action.
    pub(crate) action: &'static str,
    /// Why, as its condition and its group are told.
    pub(crate) message: String,
}

/// What became of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Evicted {
    /// The batch.
    pub(crate) batch: Batch,
    /// How many of its pods leave; the others stay.
    pub(crate) leaving: usize,
    /// Why the next one stays.
    pub(crate) refusal: Option<String>,
}

/// Evicts a batch.
pub(crate) async fn run(api: Api, batch: Batch, how: Eviction) -> Evicted {
    let refusal = match how {
        Eviction::Api => rehearse(&api, &batch).await,
        Eviction::Delete => None,
    };
    if let Some(refusal) = refusal {
        return Evicted { batch, leaving: 0, refusal: Some(refusal) };
    }
    for (at, leaving) in batch.pods.iter().enumerate() {
        let evicted = match how {
            Eviction::Api => evict(&api, leaving, &json!({})).await,
            Eviction::Delete => delete(&api, leaving, &batch.time).await,
        };
        if let Err(error) = evicted {
            let refusal = Some(told(&leaving.pod, &error));
            return Evicted { leaving: at, refusal, batch };
        }
    }
    Evicted { leaving: batch.pods.len(), refusal: None, batch }
}

/// Evicts everybody on trial; says why somebody stays.
async fn rehearse(api: &Api, batch: &Batch) -> Option<String> {
    if batch.pods.len() < 2 {
        return None;
    }
    for leaving in &batch.pods {
        if let Err(error) = evict(api, leaving, &json!({"dryRun": ["All"]})).await {
            return Some(told(&leaving.pod, &error));
        }
    }
    None
}

async fn evict(api: &Api, leaving: &Leaving, options: &Value) -> Result<()> {
    let Leaving { pod, uid, .. } = leaving;
    let mut options = options.clone();
    options["preconditions"] = json!({"uid": uid});
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    });
    let path = POD.path_of(&api_key(pod)) + "/eviction";
    patiently(api, "POST", &path, ("application/json", &eviction)).await
}

async fn delete(api: &Api, leaving: &Leaving, time: &str) -> Result<()> {
    let Leaving { pod, uid, message, .. } = leaving;
    let path = POD.path_of(&api_key(pod));
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": message, "lastTransitionTime": time,
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let status = path.clone() + "/status";
    patiently(api, "PATCH", &status, ("application/strategic-merge-patch+json", &patch)).await?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    patiently(api, "DELETE", &path, ("application/json", &options)).await
}

/// Sends a request again while the server gives no answer. A pod that is gone, or another by now, has left.
async fn patiently(api: &Api, method: &str, path: &str, body: (&str, &Value)) -> Result<()> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match api.send(method, path, Some(body)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            // A budget says 429 like a server that is busy; asking again would not help.
            Err(error)
                if error.has_cause(DISRUPTION_BUDGET_CAUSE)
                    || !error.is_transient()
                    || attempt >= ATTEMPTS =>
            {
                return Err(error);
            }
            Err(_) => tokio::time::sleep(PAUSE * attempt).await,
        }
    }
}

fn told(pod: &Key, error: &Error) -> String {
    format!("the server refused to evict pod {pod}: {}", error.message())
}
