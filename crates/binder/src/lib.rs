//! Turns bind requests into bound pods.
//!
//! A scheduler decides and writes a `BindRequest`; the binder has the pod's storage bound, its devices claimed, its
//! shared GPU reserved, binds it, and writes down what became of it. What it began it undoes when a step fails. It keeps
//! nothing in memory that it could not do without: stopped between any two requests, it begins anew from the state of
//! the server and comes to the same end. Begin at [`run`]; the order of an attempt is in `bind`.
//! Not here: why a node was chosen.

pub mod attempt;
pub mod options;
pub mod plugin;

mod bind;
mod bind_request_controller;
mod bind_target;
mod concurrency_limit;
mod error;
mod informers;
mod report;
mod reservation;

pub use informers::BIND_REQUEST;
pub use options::Options;

use bind::Binder;
use bind_request_controller::BindRequestController;
use kai_runtime::controller::{self, Context};
use kai_runtime::informer::Informers;
use kai_runtime::process::Process;
use plugin::dynamic_resources::Claims;
use reservation::{GpuGroupController, Reservations};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Runs the binder. Never returns; when it is dropped, everything stops at once.
pub async fn run(mut process: Process, options: Options) {
    let options = Arc::new(options);
    let informers = Arc::new(Informers::dynamic_of(informers::informers()));
    let context = Context::new(process.api.clone(), Arc::clone(&informers), process.clock);
    let reservations = Reservations::new(context.clone(), Arc::clone(&options));
    let groups = GpuGroupController {
        reservations: Arc::clone(&reservations),
        resync: options.resync,
        workers: options.concurrent_max.max(1),
    };
    let limit = Arc::new(Semaphore::new(options.concurrent_max.max(1)));
    let binder = Binder { context: context.clone(), options, reservations, claims: Claims::default() };
    let requests = BindRequestController {
        binder: Arc::new(binder),
        recorder: process.recorder.clone(),
        limit,
        pending: Mutex::default(),
    };
    informers.start(&process.api, &process.health, &mut process.tasks);
    process.tasks.spawn(controller::run_dynamic(groups, context.clone()));
    process.tasks.spawn(controller::run_dynamic(requests, context));
    process.failed().await;
}
