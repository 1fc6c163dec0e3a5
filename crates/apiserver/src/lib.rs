//! An embedded Kubernetes API server that `kubectl` and `kube` clients use unchanged.
//!
//! All state is in memory. The crate has no KAI concepts and is not meant for production, which runs on Kubernetes.

pub mod admission;
pub mod apply;
pub mod crd;
pub mod event_ttl;
pub mod field;
pub mod field_management;
pub mod http;
pub mod id_generator;
pub mod names;
pub mod patch;
pub mod persistence;
pub mod protobuf;
pub mod quantity;
pub mod registry;
pub mod request_body;
pub mod schema;
pub mod selector;
pub mod server;
pub mod status_error;
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

/// An API server; clones share the same state.
#[derive(Clone, Debug)]
pub struct ApiServer {
    core: Arc<server::Core>,
}

/// A copy of all objects of a server.
#[derive(Clone, Debug)]
pub struct Backup {
    revision: u64,
    objects: Vec<store::StoredObject>,
}

/// The revision of the store after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredRevision {
    /// That of the backup: resource versions go back and are used again.
    AsSaved,
    /// Higher than any before (`--bump-revision --mark-compacted`). Restored objects have their old resource versions.
    Bumped,
}

/// By how much a restore raises the revision, as Kubernetes recommends.
const REVISION_BUMP: u64 = 1_000_000_000;

impl ApiServer {
    /// A server with the objects that [`save`](Self::save) wrote; missing bootstrap objects are added.
    pub fn load(options: &Options, from: impl std::io::BufRead) -> Result<Self, persistence::Error> {
        let core = Arc::new(server::Core::new(options));
        persistence::load(&core, from)?;
        bootstrap::run(&core);
        Ok(Self { core })
    }

    /// Writes a consistent copy of all objects.
    pub fn save(&self, to: impl std::io::Write) -> std::io::Result<()> {
        persistence::save(&self.core, to)
    }

    /// A copy of all objects, for [`restore`](Self::restore).
    pub fn back_up(&self) -> Backup {
        let (revision, objects) = self.core.store.all_objects();
        Backup { revision, objects }
    }

    /// Restores a backup, as `etcdutl snapshot restore` does: open watches end. The definitions of custom resources must be
    /// the same as at the time of the backup.
    pub fn restore(&self, backup: &Backup, revision: RestoredRevision) {
        let revision = match revision {
            RestoredRevision::AsSaved => backup.revision,
            RestoredRevision::Bumped => self.core.store.revision() + REVISION_BUMP,
        };
        self.core.store.replace_all(&backup.objects, revision);
    }

    /// A server with only the bootstrap objects.
    pub fn new(options: &Options) -> Self {
        let core = Arc::new(server::Core::new(options));
        bootstrap::run(&core);
        Self { core }
    }

    /// The API as a service for in-process clients with the administrator's identity; `kube::Client::new` takes it.
    pub fn service(&self) -> Router {
        self.service_as(user::User::admin())
    }

    /// The API as a service for in-process clients with the identity of `user`.
    pub fn service_as(&self, user: user::User) -> Router {
        http::router(Arc::clone(&self.core), http::Authenticator::InProcess(Arc::new(user)))
    }

    /// Serves the API over HTTPS; port 0 selects a free one. Must be called in a tokio runtime.
    pub fn listen(&self, address: SocketAddr) -> Result<Listening, Error> {
        http::serve::listen(&self.core, address)
    }

    pub fn core(&self) -> &Arc<server::Core> {
        &self.core
    }
}
