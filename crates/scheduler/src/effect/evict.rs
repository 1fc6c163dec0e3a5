//! Evicts the victims of a decision: those of one batch all or none, as far as the API server allows it.
//!
//! Before the first victim of a batch is evicted, all of them are evicted as a dry run, so that a rejection costs nothing.
//! A rejection after that, because another client used up a disruption budget in between, stops the rest of the batch.
//! The requests of a batch are sent in parallel.
//!
//! Where the role grants deletions but not the eviction API, as KAI's does, a deletion would bypass disruption budgets. The
//! pods are deleted only where budgets are not known either; otherwise the evictions are rejected.

use super::look_up::look_up;
use crate::options::Eviction;
use futures::future::join_all;
use kai_engine::input::Key;
use kai_runtime::api::{Api, DISRUPTION_BUDGET_CAUSE, Error, Result};
use kai_runtime::backoff::BackoffPolicy;
use kai_runtime::kind::POD;
use serde_json::{Value, json};
use std::time::Duration;

/// Requests for the victims of one batch that are in flight at the same time.
const PARALLEL_MAX: usize = 16;
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
    /// Whether that group has no object.
    pub(crate) is_implicit: bool,
    /// How many pods of the group are evicted with it.
    pub(crate) gang_size: u32,
    pub(crate) action: &'static str,
    /// The message of its condition and of its group's event.
    pub(crate) message: String,
}

/// What to do where the role does not grant the eviction API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfDenied {
    /// As KAI: budgets are not known.
    Delete,
    /// A deletion would bypass the budgets.
    Refuse,
}

/// How a pod was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    EvictionApi,
    Deletion,
}

#[derive(Clone, Debug)]
pub(crate) struct EvictionResult {
    pub(crate) preemptor: Option<Key>,
    pub(crate) evicted: Vec<Victim>,
    /// Victims that keep running, because an eviction was refused.
    pub(crate) kept: Vec<Victim>,
    /// Why the first of them was not evicted.
    pub(crate) rejection: Option<String>,
    /// Whether the role grants the eviction API; `None` where it was not used.
    pub(crate) may_evict: Option<bool>,
}

pub(crate) async fn run(api: Api, batch: Batch, how: Eviction, denied: IfDenied) -> EvictionResult {
    let Batch { preemptor, victims, time } = batch;
    // With a single victim, its eviction itself shows whether it is refused.
    if how == Eviction::Api && victims.len() > 1 {
        let results = in_parallel(&victims, |victim| dry_run(&api, victim, denied)).await;
        if let Some(rejection) = first_rejection(&victims, &results) {
            return EvictionResult {
                preemptor,
                evicted: Vec::new(),
                kept: victims,
                rejection: Some(rejection),
                may_evict: may_evict(&results),
            };
        }
    }
    let results = in_parallel(&victims, |victim| evict(&api, victim, how, denied, &time)).await;
    let rejection = first_rejection(&victims, &results);
    let (mut evicted, mut kept) = (Vec::new(), Vec::new());
    for (at, victim) in victims.into_iter().enumerate() {
        let list = if results.get(at).is_some_and(Result::is_ok) { &mut evicted } else { &mut kept };
        list.push(victim);
    }
    let may_evict = if how == Eviction::Api { may_evict(&results) } else { None };
    EvictionResult { preemptor, evicted, kept, rejection, may_evict }
}

fn may_evict(results: &[Result<Via>]) -> Option<bool> {
    let is_denied = |result: &Result<Via>| match result {
        Ok(via) => *via == Via::Deletion,
        Err(error) => error.is_permission_denied(),
    };
    let is_granted = |result: &Result<Via>| matches!(result, Ok(Via::EvictionApi));
    if results.iter().any(is_denied) { Some(false) } else { results.iter().any(is_granted).then_some(true) }
}

/// Sends a request for each victim, up to [`PARALLEL_MAX`] at a time, until one fails. The results are in the order of the
/// victims; those that were not attempted have none.
async fn in_parallel<'a, F: Future<Output = Result<Via>>>(
    victims: &'a [Victim],
    request: impl Fn(&'a Victim) -> F,
) -> Vec<Result<Via>> {
    let mut results = Vec::with_capacity(victims.len());
    for some in victims.chunks(PARALLEL_MAX) {
        let responses = join_all(some.iter().map(&request)).await;
        let is_rejected = responses.iter().any(Result::is_err);
        results.extend(responses);
        if is_rejected {
            break;
        }
    }
    results
}

fn first_rejection(victims: &[Victim], results: &[Result<Via>]) -> Option<String> {
    let mut failed =
        victims.iter().zip(results).filter_map(|(victim, result)| Some((victim, result.as_ref().err()?)));
    failed.next().map(|(victim, error)| rejection_message(&victim.pod, error))
}

async fn dry_run(api: &Api, victim: &Victim, denied: IfDenied) -> Result<Via> {
    match request_eviction(api, victim, &json!({"dryRun": ["All"]})).await {
        // It will be deleted instead, which no budget refuses.
        Err(error) if error.is_permission_denied() && denied == IfDenied::Delete => Ok(Via::Deletion),
        result => result,
    }
}

async fn evict(api: &Api, victim: &Victim, how: Eviction, denied: IfDenied, time: &str) -> Result<Via> {
    match how {
        Eviction::Api => match request_eviction(api, victim, &json!({})).await {
            Err(error) if error.is_permission_denied() && denied == IfDenied::Delete => {
                delete(api, victim).await
            }
            result => result,
        },
        Eviction::Delete => delete(api, victim).await,
        Eviction::DeleteWithCondition => {
            set_condition(api, victim, time).await?;
            delete(api, victim).await
        }
    }
}

async fn request_eviction(api: &Api, victim: &Victim, options: &Value) -> Result<Via> {
    let Victim { pod, uid, .. } = victim;
    let mut options = options.clone();
    kai_object::set(&mut options, &["preconditions"], json!({"uid": uid}));
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    });
    let path = POD.path_of(pod) + "/eviction";
    send_with_retries(api, "POST", &path, ("application/json", &eviction)).await?;
    Ok(Via::EvictionApi)
}

async fn set_condition(api: &Api, victim: &Victim, time: &str) -> Result<()> {
    let Victim { pod, uid, message, .. } = victim;
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": message, "lastTransitionTime": time,
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let path = POD.path_of(pod) + "/status";
    send_with_retries(api, "PATCH", &path, ("application/strategic-merge-patch+json", &patch)).await
}

/// Deletes a pod with its own grace period.
async fn delete(api: &Api, victim: &Victim) -> Result<Via> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": victim.uid}});
    send_with_retries(api, "DELETE", &POD.path_of(&victim.pod), ("application/json", &options)).await?;
    Ok(Via::Deletion)
}

/// Divides victims that were evicted into those that the server shows without a deletion, and the rest: those that are
/// deleted, and those that cannot be read.
pub(crate) async fn lost_deletions(api: &Api, victims: Vec<Victim>) -> (Vec<Victim>, Vec<Victim>) {
    let (mut kept, mut rest) = (Vec::new(), Vec::new());
    for victim in victims {
        let found = look_up(api, &POD, &victim.pod).await;
        let is_kept =
            found.is_some_and(|pod| kai_object::uid(&pod) == victim.uid && !kai_object::is_deleting(&pod));
        if is_kept { kept.push(victim) } else { rest.push(victim) }
    }
    (kept, rest)
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
    if error.is_permission_denied() {
        return format!(
            "pod {pod} may not be evicted: {}; hint: grant the scheduler `create` on `pods/eviction`, or set \
             `disruptionBudgets: ignore`",
            error.message()
        );
    }
    format!("the API server rejected the eviction of pod {pod}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::State;
    use axum::http::{Method, StatusCode, Uri};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokio::time::Instant;

    /// Answers after a second; evictions with this status.
    #[derive(Default)]
    struct Server {
        eviction_status: StatusCode,
        requests: Vec<String>,
        in_flight: usize,
        most_in_flight: usize,
    }

    type Shared = Arc<Mutex<Server>>;

    async fn respond(State(server): State<Shared>, method: Method, uri: Uri) -> (StatusCode, String) {
        {
            let mut server = server.lock();
            server.requests.push(format!("{method} {}", uri.path()));
            server.in_flight += 1;
            server.most_in_flight = server.most_in_flight.max(server.in_flight);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut server = server.lock();
        server.in_flight -= 1;
        let status = if uri.path().ends_with("/eviction") { server.eviction_status } else { StatusCode::OK };
        let message = "pods \"x\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in \
                       the namespace \"a\"";
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "code": status.as_u16(), "reason": "Forbidden", "message": message,
            "status": if status.is_success() { "Success" } else { "Failure" },
        });
        (status, body.to_string())
    }

    async fn evict_all(
        count: usize,
        how: Eviction,
        denied: IfDenied,
        status: StatusCode,
    ) -> (EvictionResult, Shared) {
        let server = Shared::new(Mutex::new(Server { eviction_status: status, ..Server::default() }));
        let router = Router::new().fallback(respond).with_state(Arc::clone(&server));
        let victim = |number: usize| Victim {
            pod: Key::new("a", format!("p{number}")),
            uid: number.to_string(),
            group: None,
            is_implicit: false,
            gang_size: 1,
            action: "reclaim",
            message: String::new(),
        };
        let batch = Batch { preemptor: None, victims: (0..count).map(victim).collect(), time: String::new() };
        let api = Api::new(kube::Client::new(router, "default"), "test");
        (run(api, batch, how, denied).await, server)
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn victims_are_evicted_in_parallel_up_to_a_bound() {
        let before = Instant::now();
        let (result, server) = evict_all(20, Eviction::Api, IfDenied::Refuse, StatusCode::CREATED).await;
        assert_eq!((result.evicted.len(), result.kept.len(), result.may_evict), (20, 0, Some(true)));
        assert_eq!(before.elapsed(), Duration::from_secs(4), "two rounds of dry runs and two of evictions");
        let server = server.lock();
        assert_eq!((server.most_in_flight, server.requests.len()), (PARALLEL_MAX, 40));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn pods_are_not_deleted_around_known_budgets() {
        for count in [1, 3] {
            let (result, server) =
                evict_all(count, Eviction::Api, IfDenied::Refuse, StatusCode::FORBIDDEN).await;
            assert_eq!((result.evicted.len(), result.kept.len(), result.may_evict), (0, count, Some(false)));
            let rejection = result.rejection.unwrap();
            assert!(rejection.contains("grant the scheduler `create` on `pods/eviction`"), "{rejection}");
            assert!(!server.lock().requests.iter().any(|request| request.starts_with("DELETE")));
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn pods_are_deleted_without_the_rights_to_evict_and_to_read_budgets() {
        for count in [1, 3] {
            let (result, server) =
                evict_all(count, Eviction::Api, IfDenied::Delete, StatusCode::FORBIDDEN).await;
            assert_eq!((result.evicted.len(), result.rejection), (count, None));
            assert_eq!(result.may_evict, Some(false));
            let requests = &server.lock().requests;
            let deleted =
                requests.iter().filter(|request| request.starts_with("DELETE /api/v1/namespaces/a/pods/p"));
            assert_eq!(deleted.count(), count, "{requests:?}");
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn deletion_does_not_use_the_eviction_api() {
        let (result, server) = evict_all(2, Eviction::Delete, IfDenied::Refuse, StatusCode::FORBIDDEN).await;
        assert_eq!((result.evicted.len(), result.may_evict), (2, None));
        let requests = server.lock().requests.clone();
        assert_eq!(requests, ["DELETE /api/v1/namespaces/a/pods/p0", "DELETE /api/v1/namespaces/a/pods/p1"]);
    }
}
