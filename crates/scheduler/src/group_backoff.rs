//! Exponential backoff of groups whose decisions could not be carried out.
//!
//! A bind request that fails for good and a rejected bind request exclude the group from placement. Without that, a
//! group whose pods can never be bound is placed in every cycle and holds capacity that other groups could use. A refused
//! eviction only excludes it from evicting: it may still be placed on capacity that becomes free. The engine reports both
//! with verdicts of their own (`Verdict::InBackoff`, `Verdict::EvictionBackoff`).

use kai_engine::input::{Backoff, BackoffScope, Key};
use kai_runtime::backoff::BackoffPolicy;
use kai_units::{Span, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The delay doubles with each further failure.
const DELAY: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(2), Duration::from_mins(5));
/// After this time without a failure the delay starts again at its base.
const RESET_AFTER: Span = Span::from_secs(600);

#[derive(Clone, Debug)]
struct Failure {
    backoff: Backoff,
    at: Timestamp,
}

impl Failure {
    /// Whether the backoff lasts at `now`. One that ends later than the longest delay allows was recorded before the
    /// clock was set back, and is over.
    fn is_active(&self, now: Timestamp) -> bool {
        let left = self.backoff.until - now;
        left > Span(0) && left.0 <= DELAY.max.as_micros() as i64
    }
}

/// The groups that failed, with the backoff of each.
#[derive(Debug, Default)]
pub(crate) struct GroupBackoff {
    groups: BTreeMap<Key, Failure>,
}

impl GroupBackoff {
    /// Records a failure and starts or extends the group's backoff.
    pub(crate) fn record_failure(&mut self, group: &Key, scope: BackoffScope, cause: String, now: Timestamp) {
        let active = self.groups.get(group).filter(|previous| previous.is_active(now));
        // A refused eviction does not lift the exclusion from placement.
        let scope = active.map_or(scope, |previous| previous.backoff.scope.max(scope));
        let previous = self.groups.get(group).filter(|previous| (now - previous.at).0 < RESET_AFTER.0);
        // The pods of a gang fail together: a failure during the backoff belongs to the same attempt.
        let failures =
            previous.map_or(1, |previous| previous.backoff.failures + u32::from(!previous.is_active(now)));
        let delay = Span(DELAY.delay(failures).as_micros() as i64);
        let backoff = Backoff { cause, failures, until: now + delay, scope };
        self.groups.insert(group.clone(), Failure { backoff, at: now });
    }

    pub(crate) fn forget(&mut self, group: &Key) {
        self.groups.remove(group);
    }

    /// The groups that are in backoff at `now`.
    pub(crate) fn active(&self, now: Timestamp) -> BTreeMap<Key, Backoff> {
        let failures = self.groups.iter().filter(|(_, failure)| failure.is_active(now));
        failures.map(|(group, failure)| (group.clone(), failure.backoff.clone())).collect()
    }

    /// When the next backoff ends.
    pub(crate) fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        self.groups
            .values()
            .filter(|failure| failure.is_active(now))
            .map(|failure| failure.backoff.until)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::config_file::SchedulerConfig;
    use kai_cache::object::{Node, Pod, PodGroup, Queue};
    use kai_cache::{Cache, Settings};
    use kai_engine::plugin::PluginSet;
    use kai_engine::verdict::Verdict;
    use kai_engine::{Cycle, Outcome, Params, Policy, plan};
    use serde_json::{from_value, json};

    /// A node with a GPU, and a group with a pending pod that fits on it.
    fn cache() -> Cache {
        let mut cache = Cache::new(Settings::default());
        let capacity = json!({"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"});
        let node = json!({"metadata": {"name": "n"}, "status": {
            "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let gpu = json!({"quota": 1, "overQuotaWeight": 1, "limit": -1});
        let rest = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
        let queue = json!({"metadata": {"name": "q"}, "spec": {"resources": {
            "cpu": rest, "memory": rest, "gpu": gpu,
        }}});
        let group =
            json!({"metadata": {"name": "g", "namespace": "a"}, "spec": {"queue": "q", "minMember": 1}});
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "a", "uid": "u", "annotations": {"pod-group-name": "g"},
            },
            "spec": {"schedulerName": "kai-scheduler", "containers": [{
                "name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}},
            }]},
            "status": {"phase": "Pending"},
        });
        cache.apply(from_value::<Node>(node).unwrap());
        cache.apply(from_value::<Queue>(queue).unwrap());
        cache.apply(from_value::<PodGroup>(group).unwrap());
        cache.apply(from_value::<Pod>(pod).unwrap());
        cache
    }

    fn run_cycle(cache: &mut Cache, backoff: &GroupBackoff, now: Timestamp) -> Outcome {
        let policy =
            Policy::resolve(&SchedulerConfig::default().engine, &Params::default(), &PluginSet::builtin());
        cache.store_mut().set_backoffs(backoff.active(now));
        plan(cache.cluster_mut(), &policy, Cycle { now, seed: 0 })
    }

    #[test]
    fn group_is_not_placed_until_its_backoff_ends() {
        let (mut cache, mut backoff) = (cache(), GroupBackoff::default());
        let (group, now) = (Key::new("a", "g"), Timestamp(1_000_000_000));
        backoff.record_failure(&group, BackoffScope::Placement, "binding failed".to_owned(), now);
        let outcome = run_cycle(&mut cache, &backoff, now);
        assert_eq!(outcome.decisions, []);
        let until = now + Span::from_secs(2);
        let verdict = Verdict::InBackoff { cause: "binding failed".to_owned(), failures: 1, until: until.0 };
        assert_eq!((&outcome.verdicts[0].leading, outcome.verdicts[0].pending), (&verdict, 1));
        let outcome = run_cycle(&mut cache, &backoff, until);
        assert_eq!(outcome.decisions.len(), 1, "{:?}", outcome.verdicts);
    }

    #[test]
    fn delay_doubles_up_to_the_maximum_and_resets() {
        let group = Key::new("a", "g");
        let mut backoff = GroupBackoff::default();
        let mut now = Timestamp(0);
        let mut delays = Vec::new();
        for failures in 1..=10 {
            backoff.record_failure(&group, BackoffScope::Placement, "first pod".to_owned(), now);
            backoff.record_failure(
                &group,
                BackoffScope::Placement,
                "second pod of the same gang".to_owned(),
                now,
            );
            let active = backoff.active(now);
            assert_eq!(active[&group].failures, failures, "one attempt counts once");
            assert_eq!(active[&group].cause, "second pod of the same gang");
            let until = backoff.next_expiry(now).expect("the group is in backoff");
            delays.push((until - now).0 / 1_000_000);
            now = until;
            assert!(backoff.active(now).is_empty());
        }
        assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let later = now + Span::from_secs(3_600);
        backoff.record_failure(&group, BackoffScope::Placement, "an hour later".to_owned(), later);
        assert_eq!(backoff.next_expiry(later), Some(later + Span::from_secs(2)));
    }

    #[test]
    fn backoff_does_not_outlast_a_clock_that_is_set_back() {
        let (mut backoff, group, now) = (GroupBackoff::default(), Key::new("a", "g"), Timestamp(0));
        let an_hour_ahead = now + Span::from_secs(3_600);
        backoff.record_failure(&group, BackoffScope::Placement, "binding failed".to_owned(), an_hour_ahead);
        assert!(backoff.active(now).is_empty());
        assert_eq!(backoff.next_expiry(now), None);
        backoff.record_failure(&group, BackoffScope::Placement, "binding failed again".to_owned(), now);
        assert_eq!(backoff.active(now)[&group].until, now + Span::from_secs(4), "the second failure");
    }
}
