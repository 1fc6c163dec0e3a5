//! The server state that all requests share.

use crate::admission::Webhooks;
use crate::clock::Clock;
use crate::event_ttl::EventTtl;
use crate::id_generator::IdGenerator;
use crate::registry::{Catalog, Registry, Resource};
use crate::store::Store;
use crate::user::Tokens;
use std::sync::Arc;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seeds uids, generated names and tokens.
    pub seed: u64,
    pub clock: Clock,
    /// Limit of the change log, from which watches and paginated lists read old versions.
    pub log_bytes_max: usize,
    /// The administrator's bearer token over HTTPS; generated from the seed if absent.
    pub admin_token: Option<String>,
    /// Limit of concurrent requests other than watches (`--max-requests-inflight`); others get status 429.
    pub requests_in_flight_max: usize,
}

impl Options {
    /// The default settings.
    pub fn new(seed: u64, clock: Clock) -> Self {
        Self { seed, clock, log_bytes_max: 128 << 20, admin_token: None, requests_in_flight_max: 600 }
    }
}

/// The server state.
#[derive(Debug)]
pub struct Core {
    pub store: Store,
    pub registry: Registry,
    pub clock: Clock,
    pub ids: IdGenerator,
    /// Valid bearer tokens.
    pub tokens: Tokens,
    /// The administrator's bearer token.
    pub admin_token: String,
    pub webhooks: Webhooks,
    /// The TTL queue of events.
    pub event_ttl: EventTtl,
    /// Permits for concurrent requests.
    pub in_flight: Arc<tokio::sync::Semaphore>,
}

impl Core {
    pub fn new(options: &Options) -> Self {
        let store = Store::new(options.log_bytes_max);
        let registry = Registry::new(&store);
        let ids = IdGenerator::seeded(options.seed);
        let admin_token = options.admin_token.clone().unwrap_or_else(|| ids.uid() + &ids.uid());
        Self {
            store,
            registry,
            clock: options.clock,
            tokens: Tokens::with_admin(&admin_token),
            admin_token,
            ids,
            webhooks: Webhooks::default(),
            event_ttl: EventTtl::default(),
            in_flight: Arc::new(tokio::sync::Semaphore::new(options.requests_in_flight_max)),
        }
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.registry.current()
    }

    /// A built-in resource by group and plural name.
    pub fn builtin(&self, group: &str, plural: &str) -> Arc<Resource> {
        Arc::clone(
            self.catalog()
                .preferred(group, plural)
                .expect("callers name resources of the built-in table, which definitions cannot remove"),
        )
    }
}
