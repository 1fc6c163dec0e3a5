//! Records what cycles decide, and serves the last decisions as JSON under `/audit`.

use kai_engine::plugin::{
    Allocation, AllocationHandler, Args, HttpHandler, HttpRequest, HttpResponse, Plugin, Registry,
    SessionHook,
};
use kai_engine::{Cluster, Cycle, Decision, Outcome};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The plugin `audit`. Its argument `keep` is the number of decisions to keep.
#[derive(Default)]
pub struct Audit {
    /// Outlives a cycle: entries are registered once for all of them.
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    cycles: u64,
    time: String,
    /// Changes of allocations, those of simulations included.
    changes: u64,
    decisions: VecDeque<String>,
}

impl Plugin for Audit {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn register(&self, args: &mut Args<'_>, to: &mut Registry) {
        let keep = args.number("keep", 100.0).max(0.0) as usize;
        let recorder = Arc::new(Recorder { log: Arc::clone(&self.log), keep });
        to.sessions.push(Arc::<Recorder>::clone(&recorder));
        to.allocation_handlers.push(Arc::<Recorder>::clone(&recorder));
        to.http_handlers.push(("/audit".to_owned(), recorder));
    }
}

struct Recorder {
    log: Arc<Mutex<Log>>,
    keep: usize,
}

impl Recorder {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionHook for Recorder {
    fn opened(&self, _: &Cluster, cycle: Cycle) {
        let mut log = self.log();
        log.cycles += 1;
        log.time = cycle.now.to_string();
    }

    fn closed(&self, _: &Cluster, outcome: &Outcome) {
        let mut log = self.log();
        for decision in &outcome.decisions {
            let line = match decision {
                Decision::Bind(bind) => format!("bind {} to {} ({})", bind.pod, bind.node, bind.action),
                Decision::Pipeline { pod, node, action, .. } => {
                    format!("pipeline {pod} to {node} ({action})")
                }
                Decision::Evict { pod, action, .. } => format!("evict {pod} ({action})"),
            };
            let line = format!("{} {line}", log.time);
            log.decisions.push_back(line);
        }
        while log.decisions.len() > self.keep {
            log.decisions.pop_front();
        }
    }
}

impl AllocationHandler for Recorder {
    fn allocated(&self, _: &Cluster, _: Allocation) {
        self.log().changes += 1;
    }

    fn deallocated(&self, _: &Cluster, _: Allocation) {
        self.log().changes += 1;
    }
}

impl HttpHandler for Recorder {
    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        if request.method != "GET" {
            return HttpResponse::error(405, "use GET");
        }
        let log = self.log();
        let report = serde_json::json!({
            "cycles": log.cycles, "allocationChanges": log.changes, "decisions": log.decisions,
        });
        HttpResponse::json(report.to_string())
    }
}
