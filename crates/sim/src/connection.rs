//! How a client of the server in this process reaches it: under a name, with whatever misfortune that name has.
//!
//! A client whose name is below another's, as `kubelet/node-1` is below `kubelet`, shares the misfortune of that one
//! and may have more of its own: so a single kubelet can be cut off, or all of them.

use crate::faults::Faults;
use kai_apiserver::ApiServer;
use kai_apiserver::user::User;
use std::time::Duration;

/// How long a crashed client takes to come back.
const RESTART: Duration = Duration::from_secs(5);

/// The way from one client to the server; clones are the same way.
#[derive(Clone, Debug)]
pub struct Connection {
    server: ApiServer,
    faults: Faults,
    name: String,
}

impl Connection {
    /// The way of a client of this name.
    pub fn new(server: &ApiServer, faults: &Faults, name: &str) -> Self {
        Self { server: server.clone(), faults: faults.clone(), name: name.to_owned() }
    }

    /// The way of a client that is a part of this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self::new(&self.server, &self.faults, &format!("{}/{name}", self.name))
    }

    /// The client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client for one life: after a crash it never gets an answer again.
    pub fn client(&self) -> kube::Client {
        let user = User::named(&format!("system:{}", self.name.replace('/', ":")), &["system:masters"]);
        kube::Client::new(self.faults.wrap(&self.name, self.server.service_as(user)), "default")
    }

    /// Runs what `start` makes. When the client crashes, everything it had in memory is gone, and it is started again
    /// a moment later. Returns when what `start` made does.
    pub async fn supervise<F>(self, start: impl Fn(&Self) -> F + Send)
    where
        F: Future<Output = ()> + Send,
    {
        let mut life = self.faults.life(&self.name);
        loop {
            life.mark_unchanged();
            let running = start(&self);
            tokio::select! {
                biased;
                changed = life.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = running => return,
            }
            tracing::info!(client = self.name, "crashed, and will be started again");
            tokio::time::sleep(RESTART).await;
        }
    }
}
