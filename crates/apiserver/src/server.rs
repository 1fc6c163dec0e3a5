//! The server itself: everything a request needs, shared by all of them.

use crate::admission::Hooks;
use crate::clock::Clock;
use crate::expiry::Expiry;
use crate::identity::Identities;
use crate::kinds::{Catalog, Registry, Resource};
use crate::store::Store;
use crate::user::Tokens;
use std::sync::Arc;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What uids, generated names and tokens are drawn from.
    pub seed: u64,
    /// The time.
    pub clock: Clock,
    /// How many bytes of past versions are kept for watches and lists that go on.
    pub log_bytes_max: usize,
    /// The administrator's bearer token over HTTPS; drawn from the seed when absent.
    pub admin_token: Option<String>,
    /// How many requests other than watches are worked on at once; more are told to come back.
    pub requests_in_flight_max: usize,
}

impl Options {
    /// The usual set-up for a seed and a clock.
    pub fn new(seed: u64, clock: Clock) -> Self {
        Self { seed, clock, log_bytes_max: 128 << 20, admin_token: None, requests_in_flight_max: 600 }
    }
}

/// What all requests share.
#[derive(Debug)]
pub struct Core {
    /// All objects.
    pub store: Store,
    /// All resources.
    pub registry: Registry,
    /// The time.
    pub clock: Clock,
    /// The source of uids and suffixes.
    pub identities: Identities,
    /// Who may connect.
    pub tokens: Tokens,
    /// The administrator's bearer token.
    pub admin_token: String,
    /// Admission webhooks.
    pub hooks: Hooks,
    /// When events go.
    pub expiry: Expiry,
    /// How many more requests may be worked on.
    pub in_flight: Arc<tokio::sync::Semaphore>,
}

impl Core {
    /// An empty server.
    pub fn new(options: &Options) -> Self {
        let store = Store::new(options.log_bytes_max);
        let registry = Registry::new(&store);
        let identities = Identities::seeded(options.seed);
        let admin_token = options.admin_token.clone().unwrap_or_else(|| identities.uid() + &identities.uid());
        Self {
            store,
            registry,
            clock: options.clock,
            tokens: Tokens::with_admin(&admin_token),
            admin_token,
            identities,
            hooks: Hooks::default(),
            expiry: Expiry::default(),
            in_flight: Arc::new(tokio::sync::Semaphore::new(options.requests_in_flight_max)),
        }
    }

    /// What is served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.registry.current()
    }

    /// A built-in resource, by group and plural name.
    pub fn builtin(&self, group: &str, plural: &str) -> Arc<Resource> {
        Arc::clone(self.catalog().preferred(group, plural).expect("the table of built-in resources has it"))
    }
}
