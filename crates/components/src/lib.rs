//! The table of KAI's components, how each runs as a process, and what an installation contains.
//!
//! [`COMPONENTS`] lists every process once: command line, watched resources, rights, ports, lease, health and service
//! account. The `kai COMPONENT` subcommands ([`command`]), the processes that `kai up` and whole-system tests start
//! ([`in_process`]) and the manifests in `deploy/rbac` ([`rbac`]) are made from it.

pub mod check;
pub mod combined;
pub mod command;
pub mod config;
pub mod extensions;
pub mod flags;
pub mod images;
pub mod in_process;
pub mod install;
pub mod process;
pub mod rbac;
pub mod signals;
pub mod spec;
pub mod supervisor;
pub mod workload_rules;

mod election_events;
mod logging;
pub mod options;
mod part;
mod program;
mod table;
mod webhook_metrics;

pub use extensions::Extensions;
pub use in_process::{ComponentOptions, SchedulerHandle};
pub use spec::{Component, ComponentSpec, MEMBERS};
pub use table::{COMPONENTS, name};
