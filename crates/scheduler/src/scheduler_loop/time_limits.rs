//! Reports maximum run times: annotations that the next cycles read, events on the group, and a metric.

use super::SchedulerLoop;
use crate::pending_annotations::GroupTimestamp;
use kai_engine::input::{Key, LimitAction};
use kai_engine::outcome::{LimitNotice, TimeLimitNotices};
use kai_runtime::event::{Event, EventType};
use kai_units::{Span, Timestamp, duration};
use std::collections::{BTreeMap, BTreeSet};

/// Time without a scheduler, at most: what happened earlier was reported by its predecessor.
const OUTAGE: Span = Span::from_secs(60);

impl SchedulerLoop {
    /// Handles the notices of a cycle; returns the groups whose annotations are to be written.
    pub(super) fn handle_time_limits(&mut self, notices: &TimeLimitNotices, now: Timestamp) -> Vec<Key> {
        let mut annotated = Vec::new();
        for notice in &notices.warn {
            self.annotations.set(&notice.group, GroupTimestamp::LimitWarned, Some(now));
            annotated.push(notice.group.clone());
            let what = format!("reaches {} at {}", limit_of(notice), notice.reached);
            let message = format!("The workload {what}. {}", consequence(notice));
            self.report_limit(&notice.group, "MaxRuntimeApproaching", message);
        }
        for notice in &notices.end {
            self.annotations.set(&notice.group, GroupTimestamp::Ended, Some(now));
            annotated.push(notice.group.clone());
            self.metrics.max_runtime_reached.with_label_values(&["end"]).inc();
            let message = format!(
                "The workload reached {}: its pods are evicted, and it is not started again",
                limit_of(notice)
            );
            self.report_limit(&notice.group, "MaxRuntimeReached", message);
        }
        let exceeded: BTreeSet<Key> = notices.exceeded.iter().map(|notice| notice.group.clone()).collect();
        let known = self.beyond_limits.take();
        let is_reported = |notice: &&LimitNotice| match &known {
            Some(known) => known.contains(&notice.group),
            // By an earlier process, unless that ended at about this time.
            None => (now - notice.reached).0 > notice.limit.grace.0.saturating_add(OUTAGE.0),
        };
        for notice in notices.exceeded.iter().filter(|notice| !is_reported(notice)) {
            self.metrics.max_runtime_reached.with_label_values(&["preemptible"]).inc();
            let message = format!("The workload reached {}: it is preemptible", limit_of(notice));
            self.report_limit(&notice.group, "MaxRuntimeReached", message);
        }
        self.beyond_limits = Some(exceeded);
        annotated
    }

    fn report_limit(&self, group: &Key, reason: &'static str, message: String) {
        let Some(regarding) = self.regarding(group) else { return };
        tracing::info!(%group, reason, message, "maximum run time");
        self.recorder.record(&Event {
            regarding,
            type_: EventType::Warning,
            reason,
            message,
            annotations: BTreeMap::new(),
        });
    }
}

/// `its maximum run time of 8h0m0s`, or that of its queue.
fn limit_of(notice: &LimitNotice) -> String {
    let span = duration::format_go(notice.limit.limit);
    match &notice.queue {
        None => format!("its maximum run time of {span}"),
        Some(queue) => format!("the maximum run time of {span} of queue `{queue}`"),
    }
}

/// What follows after the limit and its grace period.
fn consequence(notice: &LimitNotice) -> String {
    let when = if notice.limit.grace.0 > 0 {
        format!("After a grace period of {}", duration::format_go(notice.limit.grace))
    } else {
        "Then".to_owned()
    };
    match notice.limit.action {
        LimitAction::Preemptible => format!("{when} it is preemptible"),
        LimitAction::End => format!("{when} its pods are evicted, and it is not started again"),
    }
}
