//! A Kubernetes API server in one process: what `kubectl` and `kube` clients use works against it unchanged.
//!
//! It keeps everything in memory, knows no KAI concept and is no production store: production is Kubernetes.

pub mod admission;
pub mod apply;
pub mod crd;
pub mod expiry;
pub mod failure;
pub mod field;
pub mod fields;
pub mod http;
pub mod identity;
pub mod incoming;
pub mod kinds;
pub mod names;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod saved;
pub mod schema;
pub mod selector;
pub mod server;
pub mod store;
pub mod strategy;
pub mod table;
pub mod user;
pub mod verbs;

mod bootstrap;

use axum::Router;
use kai_clock as clock;
use kai_object as object;
use std::net::SocketAddr;
use std::sync::Arc;

pub use http::serve::{Error, Listening};
pub use server::Options;

/// A running API server; clones are the same server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    core: Arc<server::Core>,
}

impl ApiServer {
    /// A server with the objects that [`save`](Self::save) wrote; what every cluster has is added where it is missing.
    pub fn load(options: &Options, from: impl std::io::BufRead) -> Result<Self, saved::Error> {
        let core = Arc::new(server::Core::new(options));
        saved::load(&core, from)?;
        bootstrap::run(&core);
        Ok(Self { core })
    }

    /// Writes every object, as all of them stand at one moment.
    pub fn save(&self, to: impl std::io::Write) -> std::io::Result<()> {
        saved::save(&self.core, to)
    }

    /// A server with the objects that every cluster has, and nothing else.
    pub fn new(options: &Options) -> Self {
        let core = Arc::new(server::Core::new(options));
        bootstrap::run(&core);
        Self { core }
    }

    /// The API as a service for clients in this process, who are the administrator: `kube::Client::new` takes it.
    pub fn service(&self) -> Router {
        self.service_as(user::User::admin())
    }

    /// The API as a service for clients in this process, who are this user.
    pub fn service_as(&self, user: user::User) -> Router {
        http::router(Arc::clone(&self.core), http::Access::As(Arc::new(user)))
    }

    /// Serves the API over HTTPS; port 0 takes a free one. Must be called in a tokio runtime.
    pub fn listen(&self, address: SocketAddr) -> Result<Listening, Error> {
        http::serve::listen(&self.core, address)
    }

    /// What the requests share.
    pub fn core(&self) -> &Arc<server::Core> {
        &self.core
    }
}
