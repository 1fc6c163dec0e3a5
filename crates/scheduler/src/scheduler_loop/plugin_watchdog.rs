//! Plans, lists and explains so that no plugin can stop the scheduler.
//!
//! With plugins that are not built in, whatever calls them runs on a thread of its own, which owns the cluster model, while
//! the loop samples which plugin is running. A plugin whose callbacks take too long is cut off: the engine does not call it
//! any more. A callback that does not return even then cannot be ended, so its thread is abandoned with its model, the
//! loop builds a new one from the stored objects, and the next cycle runs without the plugin.

use super::SchedulerLoop;
use super::cycle_metrics::CycleTimings;
use crate::cycle_trigger::Impact;
use kai_engine::{ClusterState, Cycle, Outcome, Policy, plan_observed};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tokio::time::Instant;

/// How often the running plugin is sampled.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long a callback may go on after its plugin was cut off.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

impl SchedulerLoop {
    /// Plans a cycle on the cluster model; none when it was abandoned.
    pub(super) fn plan(
        &mut self,
        policy: &Arc<Policy>,
        cycle: Cycle,
        mut timings: CycleTimings,
    ) -> Option<(Outcome, CycleTimings)> {
        self.with_plugins(policy, move |cluster, policy| {
            let outcome = plan_observed(cluster, policy, cycle, &mut timings);
            (outcome, timings)
        })
    }

    /// Runs work that calls plugins on the cluster model; none when it was abandoned.
    pub(crate) fn with_plugins<R: Send + 'static>(
        &mut self,
        policy: &Arc<Policy>,
        work: impl FnOnce(&mut ClusterState, &Policy) -> R + Send + 'static,
    ) -> Option<R> {
        let cluster = self.cache.cluster_mut();
        if !policy.has_callbacks() {
            return Some(work(cluster, policy));
        }
        let carried = cluster.carried_over().clone();
        let (mut state, on_thread) = (std::mem::take(cluster), Arc::clone(policy));
        let (done, finished) = mpsc::sync_channel::<(ClusterState, R)>(1);
        let work = move || {
            let result = work(&mut state, &on_thread);
            // The receiver is gone if the work was abandoned.
            let _ = done.send((state, result));
        };
        let thread = std::thread::Builder::new().name("cycle".to_owned()).spawn(work);
        #[expect(clippy::expect_used, reason = "depends on limits of the process, not on any object")]
        let thread = thread.expect("a thread can be started, as at the start of the process");
        let mut watchdog = Watchdog::new(self.options.plugin_timeout);
        loop {
            match finished.recv_timeout(SAMPLE) {
                Ok((state, result)) => {
                    *self.cache.cluster_mut() = state;
                    return Some(result);
                }
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    #[expect(clippy::unreachable, reason = "the closure above sends as its last step")]
                    Ok(()) => unreachable!("a thread that ends without a panic has sent its result"),
                },
                Err(RecvTimeoutError::Timeout) => match watchdog.sample(policy.running_callback()) {
                    Finding::Fine => {}
                    Finding::CutOff(plugin) => self.cut_off(&plugin),
                    Finding::Abandon(plugin) => {
                        self.cache.cluster_mut().carry_over(carried);
                        self.abandon_work(&plugin);
                        return None;
                    }
                },
            }
        }
    }

    /// Calls a plugin no more, and says so.
    fn cut_off(&mut self, plugin: &str) {
        let seconds = self.options.plugin_timeout.as_secs();
        let why = format!(
            "its callbacks took longer than {seconds} s in one cycle or request; it is not called until the scheduler is restarted"
        );
        tracing::error!(plugin, why, "plugin cut off");
        self.metrics.plugin_failures.with_label_values(&[plugin, "timeout"]).inc();
        self.health
            .set_problem(&format!("plugin `{plugin}`"), Some(format!("plugin `{plugin}` is cut off: {why}")));
        self.policies.all_actions.cut_off(plugin, &why);
        self.cut_off_plugins.insert(plugin.to_owned(), why);
    }

    /// Leaves the thread to itself: a callback of the plugin does not return.
    fn abandon_work(&mut self, plugin: &str) {
        tracing::error!(
            plugin,
            "a callback of the plugin does not return; its thread is abandoned, and the next cycle runs without the plugin"
        );
        // The abandoned thread still uses the old entries; a plugin's new ones share no lock with them unless it does.
        self.resolve_policies();
        self.rebuild_cluster();
        self.trigger.record_event(Instant::now(), Impact::Replan);
    }

    /// Reports panics of plugins, which the engine caught.
    pub(super) fn report_plugin_failures(&self, outcome: &Outcome) {
        for failure in &outcome.plugin_failures {
            tracing::error!(plugin = failure.plugin, error = failure.message, "plugin failed");
            self.metrics.plugin_failures.with_label_values(&[failure.plugin.as_str(), "panic"]).inc();
        }
    }
}

/// What a sample means.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Fine,
    /// The plugin has used up its time in this cycle.
    CutOff(String),
    /// A callback of the plugin does not return.
    Abandon(String),
}

/// Adds up the time that plugins take in a cycle, from samples.
struct Watchdog {
    limit: Duration,
    spent: BTreeMap<String, Duration>,
    /// The call that was running in the last sample, and since how long.
    call: (u64, Duration),
}

impl Watchdog {
    fn new(limit: Duration) -> Self {
        Self { limit, spent: BTreeMap::new(), call: (0, Duration::ZERO) }
    }

    /// Takes in the plugin that is running, with the number of the call.
    fn sample(&mut self, running: Option<(&str, u64)>) -> Finding {
        let Some((plugin, call)) = running else {
            self.call = (0, Duration::ZERO);
            return Finding::Fine;
        };
        let since = if self.call.0 == call { self.call.1 + SAMPLE } else { SAMPLE };
        self.call = (call, since);
        let spent = self.spent.entry(plugin.to_owned()).or_default();
        let before = *spent;
        *spent += SAMPLE;
        if before <= self.limit && *spent > self.limit {
            return Finding::CutOff(plugin.to_owned());
        }
        if before > self.limit && since > RETURN_TIMEOUT {
            return Finding::Abandon(plugin.to_owned());
        }
        Finding::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_cut_off_after_its_time_and_abandoned_if_it_does_not_return() {
        let mut watchdog = Watchdog::new(Duration::from_secs(1));
        let mut findings = Vec::new();
        for sample in 0..60_u64 {
            // Short calls of one plugin between those of another, which hangs in its last call.
            let running = match sample {
                0..20 => ("fast", sample),
                _ => ("slow", 1_000),
            };
            let finding = watchdog.sample(Some(running));
            if finding != Finding::Fine {
                findings.push((sample, finding));
            }
        }
        assert_eq!(findings[0], (40, Finding::CutOff("slow".to_owned())), "the other plugin stays");
        assert_eq!(findings[1].1, Finding::Abandon("slow".to_owned()));
        assert_eq!(watchdog.sample(None), Finding::Fine);
    }

    #[test]
    fn slow_plugin_whose_calls_return_is_cut_off_and_its_cycle_goes_on() {
        let mut watchdog = Watchdog::new(Duration::from_secs(1));
        let findings: Vec<Finding> = (0..100).map(|call| watchdog.sample(Some(("slow", call)))).collect();
        let unusual: Vec<&Finding> = findings.iter().filter(|finding| **finding != Finding::Fine).collect();
        assert_eq!(unusual, [&Finding::CutOff("slow".to_owned())]);
    }
}
