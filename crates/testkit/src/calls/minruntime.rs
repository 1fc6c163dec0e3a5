//! Replays minimum runtimes of queues.

use super::compare::same;
use super::record::{Case, list, map, text, whole};
use super::{Adapter, Area, CallOutcome, recorded_cluster};
use kai_engine::ids::{Idx, QueueIdx};
use kai_engine::share::min_runtime::{self, MinRuntimes, ReclaimResolution};
use kai_units::{Span, Timestamp};
use serde_json::{Value, json};

pub(super) const AREA: Area = Area { name: "unit-minruntime", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "minruntime.resolver.getPreemptMinRuntime" => Some(preempt),
        "minruntime.resolver.getReclaimMinRuntime" => Some(reclaim),
        "minruntime.resolver.resolveReclaimMinRuntimeLCA" => Some(reclaim_lca),
        "minruntime.resolver.resolveReclaimMinRuntimeQueue" => Some(reclaim_queue),
        "minruntime.minruntimePlugin.preemptFilterFn" => Some(preempt_filter),
        "minruntime.minruntimePlugin.reclaimFilterFn" => Some(reclaim_filter),
        _ => None,
    }
}

/// The recorded queues, and those passed by value that are not among them.
struct Runtimes<'a> {
    queues: Vec<(&'a str, &'a Value)>,
}

impl<'a> Runtimes<'a> {
    fn new(recorded: &'a Value, passed: &[&'a Value]) -> Self {
        let mut queues: Vec<_> = map(&recorded["queues"]).map(|(key, queue)| (key.as_str(), queue)).collect();
        for queue in passed.iter().filter(|queue| !queue.is_null()) {
            let uid = text(&queue["uid"]);
            if !queues.iter().any(|(key, _)| *key == uid) {
                queues.push((uid, queue));
            }
        }
        Self { queues }
    }
    fn find(&self, uid: &str) -> Option<QueueIdx> {
        self.queues.iter().position(|(key, _)| *key == uid).map(QueueIdx::new)
    }
    /// A queue outside of every tree, which says nothing: it stands for one that is not there.
    fn outside(&self) -> QueueIdx {
        QueueIdx::new(self.queues.len())
    }
    fn recorded(&self, queue: QueueIdx) -> &Value {
        self.queues.get(queue.index()).map_or(&Value::Null, |(_, queue)| queue)
    }
    fn span(&self, queue: QueueIdx, key: &str) -> Option<Span> {
        seconds(&self.recorded(queue)[key])
    }
}

impl MinRuntimes for Runtimes<'_> {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.find(text(&self.recorded(queue)["parent_queue"]))
    }
    fn before_preempt(&self, queue: QueueIdx) -> Option<Span> {
        self.span(queue, "preempt_min_runtime")
    }
    fn before_reclaim(&self, queue: QueueIdx) -> Option<Span> {
        self.span(queue, "reclaim_min_runtime")
    }
}

fn seconds(value: &Value) -> Option<Span> {
    value.as_f64().map(|seconds| Span((seconds * 1e6) as i64))
}

fn default(case: &Case<'_>, key: &str) -> Span {
    seconds(&case.input["self"][key]).unwrap_or_default()
}

/// A span in seconds, and whether a queue was missing, which is recorded as an error.
fn found(case: &Case<'_>, span: Span, missing: bool) -> CallOutcome {
    let expected = json!([case.result()[0], !case.result()[1].is_null()]);
    same(&expected, &json!([span.0 as f64 / 1e6, missing]))
}

fn preempt(case: &Case<'_>) -> CallOutcome {
    let queue = &case.input["queue"];
    let runtimes = Runtimes::new(&case.input["self"], &[queue]);
    let known = runtimes.find(text(&queue["uid"]));
    let (queue, default) =
        (known.unwrap_or(runtimes.outside()), default(case, "default_preempt_min_runtime"));
    found(case, min_runtime::before_preempt(&runtimes, queue, default), known.is_none())
}

fn reclaim(case: &Case<'_>) -> CallOutcome {
    resolved(case, resolution(&case.input["resolve_method"]))
}

fn reclaim_lca(case: &Case<'_>) -> CallOutcome {
    resolved(case, ReclaimResolution::LowestCommonAncestor)
}

fn reclaim_queue(case: &Case<'_>) -> CallOutcome {
    resolved(case, ReclaimResolution::VictimQueue)
}

fn resolution(method: &Value) -> ReclaimResolution {
    match text(method) {
        "queue" => ReclaimResolution::VictimQueue,
        _ => ReclaimResolution::LowestCommonAncestor,
    }
}

fn resolved(case: &Case<'_>, resolution: ReclaimResolution) -> CallOutcome {
    let (from, victim) = (&case.input["preemptor_queue"], &case.input["preemptee_queue"]);
    let runtimes = Runtimes::new(&case.input["self"], &[from, victim]);
    let ends = runtimes.find(text(&from["uid"])).zip(runtimes.find(text(&victim["uid"])));
    // Nothing is agreed between two queues of which one is not there.
    let (from, victim) = ends.unwrap_or((runtimes.outside(), runtimes.outside()));
    let default = default(case, "default_reclaim_min_runtime");
    let span = min_runtime::before_reclaim(&runtimes, resolution, from, victim, default);
    found(case, span, ends.is_none())
}

fn preempt_filter(case: &Case<'_>) -> CallOutcome {
    filter(case, |runtimes, _, victim| {
        min_runtime::before_preempt(runtimes, victim, default(case, "default_preempt_min_runtime"))
    })
}

fn reclaim_filter(case: &Case<'_>) -> CallOutcome {
    let resolution = resolution(&case.input["self"]["reclaim_resolve_method"]);
    filter(case, |runtimes, from, victim| {
        let default = default(case, "default_reclaim_min_runtime");
        min_runtime::before_reclaim(runtimes, resolution, from, victim, default)
    })
}

fn filter(case: &Case<'_>, span: impl Fn(&Runtimes<'_>, QueueIdx, QueueIdx) -> Span) -> CallOutcome {
    let runtimes = Runtimes::new(&case.input["self"], &[]);
    let (pending, victim) = (&case.input["pending_job"], &case.input["victim"]);
    let ends = runtimes.find(text(&pending["queue"])).zip(runtimes.find(text(&victim["queue"])));
    let (from, to) = ends.unwrap_or((runtimes.outside(), runtimes.outside()));
    let now = Timestamp(1 << 50);
    let start = victim["last_start"]["age_s"].as_f64().map(|age| now + Span((-age * 1e6) as i64));
    let mut sets = Vec::new();
    recorded_cluster::pod_sets(recorded_cluster::tree_of(victim), &mut sets);
    let elastic = sets.iter().any(|set| list(&set["tasks"]).count() as i64 > whole(&set["min_available"]));
    let protected = min_runtime::is_protected(start, span(&runtimes, from, to), now);
    same(case.result(), &json!([!protected || elastic]))
}
