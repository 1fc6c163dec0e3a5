//! Rights that a component works without: each missing one is reported by a warning, a metric and an event.
//!
//! A role may grant less than the component can use, as KAI's roles do. What the component does instead is part of the
//! report, so that degraded work does not look like normal work. A right that is granted later ends the report.

use crate::event::{Event, EventType, Recorder, Regarding};
use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts, Registry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The missing optional rights of one component; clones share them.
#[derive(Clone, Debug)]
pub struct Degradations {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    component: String,
    gauge: IntGaugeVec,
    recorder: Recorder,
    /// The object that events about the component itself regard.
    regarding: Mutex<Option<Regarding>>,
    /// What the component does instead, by right.
    missing: Mutex<BTreeMap<&'static str, String>>,
}

impl Degradations {
    #[expect(clippy::expect_used, reason = "names of metrics and labels are constants")]
    pub(crate) fn new(component: &str, metrics: &Registry, recorder: Recorder) -> Self {
        let help = "1 while the component works without a right that its role does not grant";
        let opts = Opts::new("component_degraded", help).namespace("kai");
        let gauge = IntGaugeVec::new(opts, &["missing"]).expect("names and labels are valid constants");
        // Fails only when it is registered already.
        let _ = metrics.register(Box::new(gauge.clone()));
        let shared = Shared {
            component: component.to_owned(),
            gauge,
            recorder,
            regarding: Mutex::default(),
            missing: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records events on this object; without one, there are only log lines and the metric.
    pub fn report_on(&self, regarding: Regarding) {
        *self.shared.regarding.lock() = Some(regarding);
    }

    /// The object that events about the component itself regard.
    pub fn regarding(&self) -> Option<Regarding> {
        self.shared.regarding.lock().clone()
    }

    /// A right such as `list poddisruptionbudgets.policy` is missing; `consequence` says what the component does instead.
    pub fn begin(&self, right: &'static str, consequence: &str) {
        let before = self.shared.missing.lock().insert(right, consequence.to_owned());
        if before.as_deref() == Some(consequence) {
            return;
        }
        tracing::warn!(right, consequence, "working without an optional right");
        self.shared.gauge.with_label_values(&[right]).set(1);
        let message = format!("{} may not {right}: {consequence}", self.shared.component);
        self.record(EventType::Warning, "MissingPermission", message);
    }

    /// The right is granted.
    pub fn end(&self, right: &'static str) {
        if self.shared.missing.lock().remove(right).is_none() {
            return;
        }
        tracing::info!(right, "an optional right is granted");
        self.shared.gauge.with_label_values(&[right]).set(0);
        let message = format!("{} may {right} again", self.shared.component);
        self.record(EventType::Normal, "PermissionGranted", message);
    }

    pub fn is_missing(&self, right: &str) -> bool {
        self.shared.missing.lock().contains_key(right)
    }

    fn record(&self, type_: EventType, reason: &'static str, message: String) {
        let Some(regarding) = self.shared.regarding.lock().clone() else { return };
        self.shared.recorder.record(&Event {
            regarding,
            type_,
            reason,
            message,
            annotations: BTreeMap::new(),
        });
    }
}
