//! The connection of a named client to the API server, with the faults of that name.
//!
//! Names form a tree: `kubelet/node-1` is a child of `kubelet`, has the faults of its parent, and may have its own. So
//! one kubelet can be partitioned, or all of them.

use crate::faults::Faults;
use kai_apiserver::ApiServer;
use kai_apiserver::user::User;
use std::time::Duration;

/// Time between a crash and the restart.
const RESTART_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Connection {
    target: Target,
    name: String,
}

#[derive(Clone)]
enum Target {
    /// The embedded API server, with fault injection.
    Embedded(ApiServer, Faults),
    /// Another API server, without fault injection.
    External(kube::Client),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Embedded(..) => "Embedded",
            Self::External(_) => "External",
        })
    }
}

impl Connection {
    pub fn new(server: &ApiServer, faults: &Faults, name: &str) -> Self {
        Self { target: Target::Embedded(server.clone(), faults.clone()), name: name.to_owned() }
    }

    /// A connection to another API server.
    pub fn external(client: kube::Client, name: &str) -> Self {
        Self { target: Target::External(client), name: name.to_owned() }
    }

    /// A connection whose client is a child of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { target: self.target.clone(), name: format!("{}/{name}", self.name) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client for one incarnation: after a crash its requests never complete.
    pub fn client(&self) -> kube::Client {
        match &self.target {
            Target::Embedded(server, faults) => {
                let user =
                    User::named(&format!("system:{}", self.name.replace('/', ":")), &["system:masters"]);
                kube::Client::new(faults.wrap(&self.name, server.service_as(user)), "default")
            }
            Target::External(client) => client.clone(),
        }
    }

    /// Runs the future of `start`. An injected crash drops it, and it is started again after a delay. Returns when the
    /// future completes.
    pub async fn supervise<F>(self, start: impl Fn(&Self) -> F + Send)
    where
        F: Future<Output = ()> + Send,
    {
        let incarnation = match &self.target {
            Target::Embedded(_, faults) => faults.incarnation(&self.name),
            Target::External(_) => return start(&self).await,
        };
        loop {
            let current = incarnation.get();
            let running = start(&self);
            tokio::select! {
                biased;
                () = incarnation.wait_for(|now| now != current) => {}
                () = running => return,
            }
            tracing::info!(client = self.name, "client crashed and is restarted");
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }
}
