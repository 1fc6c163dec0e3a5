//! Binds pods to the nodes that the scheduler selected in BindRequests.
//!
//! For each BindRequest the binder runs the plugins (volume binding, dynamic resources, GPU sharing), posts the Binding
//! and writes the result to the status of the request; when a step fails it rolls back the earlier ones. It keeps no
//! state that it cannot rebuild: after a crash between any two requests it continues from the state of the API server.
//! Entry point: [`run`]; the steps of a bind attempt are in `bind`.
//! Not here: the choice of the node.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod attempt;
pub mod options;
pub mod plugin;

mod bind;
mod bind_request_controller;
mod bind_target;
mod concurrency_limit;
mod error;
mod informers;
mod objects;
mod report;
mod reservation;

pub use options::Options;

use bind::Binder;
use bind_request_controller::BindRequestController;
use kai_runtime::controller::{self, Context};
use kai_runtime::process::Process;
use parking_lot::Mutex;
use plugin::custom::PluginFailures;
use plugin::dynamic_resources::Claims;
use reservation::{GpuGroupController, Reservations};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Runs the binder. Never returns; dropping the future stops all its tasks.
pub async fn run(mut process: Process, options: Options) {
    let options = Arc::new(options);
    let informers = Arc::new(informers::informers());
    let context = Context::of(&process, Arc::clone(&informers));
    let reservations = Reservations::new(context.clone(), Arc::clone(&options), process.recorder.clone());
    let groups = GpuGroupController {
        reservations: Arc::clone(&reservations),
        resync: options.resync,
        workers: options.concurrent_max.max(1),
    };
    let limit = Arc::new(Semaphore::new(options.concurrent_max.max(1)));
    let binder = Binder {
        context: context.clone(),
        options,
        reservations,
        claims: Claims::default(),
        plugin_failures: PluginFailures::register(&process.metrics),
    };
    let requests = BindRequestController {
        binder: Arc::new(binder),
        recorder: process.recorder.clone(),
        limit,
        pending: Mutex::default(),
        unbound: Mutex::default(),
    };
    informers.start(&process.api, &process.health, &mut process.tasks);
    process.tasks.spawn(controller::run(groups, context.clone()));
    process.tasks.spawn(controller::run(requests, context));
    process.failed().await;
}
