//! What happens to calls of admission webhooks on their way from the server.

use super::{Client, Faults, lineage};
use bytes::Bytes;
use futures::future::BoxFuture;
use kai_apiserver::admission::webhook::{Answered, Way};
use std::time::Duration;

/// The name under which a webhook's host has its misfortune; all webhooks are below `webhook`.
///
/// Of the rates, those of slow, lost and broken answers count, and a partition is an answer that never comes: the
/// server then waits for as long as the webhook's configuration says, in the cluster's time.
pub fn webhook(host: &str) -> String {
    format!("webhook/{host}")
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Delayed(Duration),
    Broken,
    LostBefore,
    LostAfter,
}

fn fate(client: &mut Client) -> Fate {
    let rates = client.rates;
    client.counts.requests += 1;
    let partitioned = client.partition.get();
    let fate = if partitioned || client.happens(rates.timeout_before) {
        Fate::LostBefore
    } else if client.happens(rates.broken) {
        Fate::Broken
    } else if client.happens(rates.timeout_after) {
        Fate::LostAfter
    } else if client.happens(rates.slow) {
        Fate::Delayed(client.delay())
    } else {
        Fate::Passed
    };
    if fate != Fate::Passed {
        client.counts.requests_hurt += 1;
    }
    fate
}

impl Way for Faults {
    fn pass<'a>(
        &'a self,
        host: &'a str,
        asked: &'a Bytes,
        call: BoxFuture<'a, Answered>,
    ) -> BoxFuture<'a, Answered> {
        let client = webhook(host);
        let mut fates = lineage(&client).map(|name| self.with(name, fate));
        let fate = fates.find(|fate| *fate != Fate::Passed).unwrap_or(Fate::Passed);
        drop(fates);
        Box::pin(async move {
            self.journal.note(&client, &format!("is asked {fate:?}"), asked);
            let answered = match fate {
                Fate::Passed => call.await,
                Fate::Delayed(wait) => {
                    tokio::time::sleep(wait).await;
                    call.await
                }
                Fate::Broken => Ok((500, Bytes::from_static(b"a simulated fault"))),
                Fate::LostBefore => std::future::pending().await,
                Fate::LostAfter => {
                    drop(call.await);
                    std::future::pending().await
                }
            };
            match &answered {
                Ok((code, body)) => self.journal.note(&client, &format!("answers {code}"), body),
                Err(why) => self.journal.note(&client, "cannot be asked", &Bytes::from(why.clone())),
            }
            answered
        })
    }
}
