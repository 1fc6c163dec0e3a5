//! Runs a client of the server and starts it anew whenever it crashes.

use crate::faults::Faults;
use kai_apiserver::ApiServer;
use kai_apiserver::user::User;
use std::time::Duration;

/// How long a crashed client takes to come back.
const RESTART: Duration = Duration::from_secs(5);

/// Runs what `start` makes of a connection. When the client crashes, everything it had in memory is gone, and it is
/// started again a moment later. Returns when what `start` made does.
pub async fn supervise<F>(
    server: ApiServer,
    faults: Faults,
    client: &'static str,
    start: impl Fn(kube::Client) -> F + Send,
) where
    F: Future<Output = ()> + Send,
{
    let mut life = faults.life(client);
    loop {
        life.mark_unchanged();
        let running = start(connect(&server, &faults, client));
        tokio::select! {
            biased;
            changed = life.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = running => return,
        }
        tracing::info!(client, "crashed, and will be started again");
        tokio::time::sleep(RESTART).await;
    }
}

/// A connection to the server for a client of this name, with whatever misfortune it has.
pub fn connect(server: &ApiServer, faults: &Faults, client: &str) -> kube::Client {
    let user = User::named(&format!("system:{client}"), &["system:masters"]);
    kube::Client::new(faults.wrap(client, server.service_as(user)), "default")
}
