//! Faults of calls from the API server to admission webhooks.

use super::{Client, Faults, lineage};
use bytes::Bytes;
use futures::future::BoxFuture;
use kai_apiserver::admission::webhook::{WebhookResponse, WebhookTransport};
use serde_json::{Value, json};
use std::time::Duration;

/// The client name of a webhook's host; all webhooks are children of `webhook`.
///
/// The rates of delayed, lost and failed responses apply. During a partition no response arrives, and the API server
/// waits for the `timeoutSeconds` of the webhook configuration.
pub fn webhook_client(host: &str) -> String {
    format!("webhook/{host}")
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Passed,
    Delayed(Duration),
    Failed,
    Garbage,
    Denied,
    LostBefore,
    LostAfter,
}

fn fault(client: &mut Client) -> Fault {
    let rates = client.rates;
    client.counts.requests += 1;
    let partitioned = client.partition.get();
    let fault = if partitioned || client.occurs(rates.timeout_before) {
        Fault::LostBefore
    } else if client.occurs(rates.webhook_error) {
        Fault::Failed
    } else if client.occurs(rates.webhook_garbage) {
        Fault::Garbage
    } else if client.occurs(rates.webhook_denied) {
        Fault::Denied
    } else if client.occurs(rates.timeout_after) {
        Fault::LostAfter
    } else if client.occurs(rates.slow) {
        Fault::Delayed(client.delay())
    } else {
        Fault::Passed
    };
    if fault != Fault::Passed {
        client.counts.faulty_requests += 1;
    }
    fault
}

impl WebhookTransport for Faults {
    fn call<'a>(
        &'a self,
        host: &'a str,
        asked: &'a Bytes,
        call: BoxFuture<'a, WebhookResponse>,
    ) -> BoxFuture<'a, WebhookResponse> {
        let client = webhook_client(host);
        let mut faults = lineage(&client).map(|name| self.with(name, fault));
        let fault = faults.find(|fault| *fault != Fault::Passed).unwrap_or(Fault::Passed);
        drop(faults);
        Box::pin(async move {
            self.journal.note(&client, &format!("call {fault:?}"), asked);
            let answered = match fault {
                Fault::Passed => call.await,
                Fault::Delayed(wait) => {
                    tokio::time::sleep(wait).await;
                    call.await
                }
                Fault::Failed => Ok((500, Bytes::from_static(b"a simulated fault"))),
                Fault::Garbage => Ok((200, Bytes::from_static(b"{\"kind\": [\xff"))),
                Fault::Denied => Ok((200, denial(asked))),
                Fault::LostBefore => std::future::pending().await,
                Fault::LostAfter => {
                    drop(call.await);
                    std::future::pending().await
                }
            };
            match &answered {
                Ok((code, body)) => self.journal.note(&client, &format!("response {code}"), body),
                Err(why) => self.journal.note(&client, "unreachable", &Bytes::from(why.clone())),
            }
            answered
        })
    }
}

/// A review that denies the request.
fn denial(asked: &Bytes) -> Bytes {
    let asked: Value = serde_json::from_slice(asked).unwrap_or_default();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": asked["request"]["uid"], "allowed": false,
            "status": {"code": 403, "message": "denied by a simulated fault"},
        },
    });
    Bytes::from(review.to_string())
}
