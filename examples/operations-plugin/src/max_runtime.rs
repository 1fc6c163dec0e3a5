//! Evicts groups that have run for longer than a maximum, by an action named `retire`.

use kai_engine::cluster::pod::Status;
use kai_engine::ids::{GroupIdx, PodIdx};
use kai_engine::plugin::{Args, CustomAction, Plugin, Registry, Session};
use kai_units::{Span, duration};
use std::sync::Arc;

/// The plugin `maxruntime`. Its argument `max` is the maximum, 24 hours by default.
pub struct MaxRuntime;

impl Plugin for MaxRuntime {
    fn name(&self) -> &'static str {
        "maxruntime"
    }

    fn register(&self, args: &mut Args<'_>, to: &mut Registry) {
        let max = args.span("max", Span::from_secs(24 * 60 * 60));
        to.actions.push(Arc::new(Retire { max }));
    }
}

struct Retire {
    max: Span,
}

impl CustomAction for Retire {
    fn name(&self) -> &'static str {
        "retire"
    }

    fn run(&self, session: &mut Session<'_>) {
        let now = session.cycle().now;
        let is_due = |group: &GroupIdx| {
            let group = &session.groups[*group];
            group.present
                && group.preemptible
                && group.last_start.is_some_and(|start| start + self.max <= now)
        };
        let due: Vec<GroupIdx> = session.groups.indices().filter(is_due).collect();
        let why = format!("the maximum run time of {} has elapsed", duration::format_go(self.max));
        for group in due {
            let is_running = |pod: &PodIdx| session.pods[*pod].state.status == Status::Running;
            let pods: Vec<PodIdx> = session.groups[group].pods.iter().copied().filter(is_running).collect();
            // A disruption budget may forbid it; the next cycle tries again.
            let _ = session.evict(&pods, &why);
        }
    }
}
