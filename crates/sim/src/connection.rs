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
    to: To,
    name: String,
}

/// Where a connection leads.
#[derive(Clone)]
enum To {
    /// To the server in this process, past whatever goes wrong on the way.
    Embedded(ApiServer, Faults),
    /// To another server, where nothing is made to go wrong.
    Elsewhere(kube::Client),
}

impl std::fmt::Debug for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Embedded(..) => "Embedded",
            Self::Elsewhere(_) => "Elsewhere",
        })
    }
}

impl Connection {
    /// The way of a client of this name.
    pub fn new(server: &ApiServer, faults: &Faults, name: &str) -> Self {
        Self { to: To::Embedded(server.clone(), faults.clone()), name: name.to_owned() }
    }

    /// The way of a client of another server.
    pub fn elsewhere(client: kube::Client, name: &str) -> Self {
        Self { to: To::Elsewhere(client), name: name.to_owned() }
    }

    /// The way of a client that is a part of this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { to: self.to.clone(), name: format!("{}/{name}", self.name) }
    }

    /// The client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client for one life: after a crash it never gets an answer again.
    pub fn client(&self) -> kube::Client {
        match &self.to {
            To::Embedded(server, faults) => {
                let user =
                    User::named(&format!("system:{}", self.name.replace('/', ":")), &["system:masters"]);
                kube::Client::new(faults.wrap(&self.name, server.service_as(user)), "default")
            }
            To::Elsewhere(client) => client.clone(),
        }
    }

    /// Runs what `start` makes. When the client crashes, everything it had in memory is gone, and it is started again
    /// a moment later. Returns when what `start` made does.
    pub async fn supervise<F>(self, start: impl Fn(&Self) -> F + Send)
    where
        F: Future<Output = ()> + Send,
    {
        let life = match &self.to {
            To::Embedded(_, faults) => faults.life(&self.name),
            To::Elsewhere(_) => return start(&self).await,
        };
        loop {
            let born = life.get();
            let running = start(&self);
            tokio::select! {
                biased;
                () = life.until(|now| now != born) => {}
                () = running => return,
            }
            tracing::info!(client = self.name, "crashed, and will be started again");
            tokio::time::sleep(RESTART).await;
        }
    }
}
