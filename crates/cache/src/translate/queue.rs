//! Translates queues: quotas, limits and weights in base units.
//!
//! As in KAI, an absent quota, limit or weight is 0, and -1 is unlimited: a queue that does not mention a resource cannot
//! use it. Go clients drop a 0 when they write a queue, so absent and 0 must have the same meaning.

use super::time_limit;
use crate::finding::{Report, quoted};
use crate::object::Queue;
use crate::settings::Settings;
use kai_api::queue::QueueResource;
use kai_api::well_known::{annotation, name};
use kai_engine::input::{QueueInput, QueueShare, WHOLE_GPU};
use kai_engine::resource::AMOUNT_MAX;
use kai_units::{Span, duration};

/// Name of the synthetic parent of all queues in a flat hierarchy.
pub const FLAT_PARENT: &str = "default";

/// Whether this scheduler is responsible for a queue. In a flat hierarchy only queues with a parent are leaf queues.
pub fn is_selected(queue: &Queue, settings: &Settings) -> bool {
    let labels = queue.metadata.labels.as_ref();
    let pool = labels.and_then(|l| l.get(&settings.node_pool_key)).map(String::as_str);
    let flat = !settings.full_hierarchy_fairness;
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    settings.serves_pool(pool) && !(flat && (queue.spec.parent_queue.is_empty() || name == FLAT_PARENT))
}

pub fn translate(queue: &Queue, settings: &Settings, usage: [f64; 3], report: &mut Report<'_>) -> QueueInput {
    let spec = &queue.spec;
    let resources = spec.resources.unwrap_or_default();
    let name = queue.metadata.name.clone().unwrap_or_default();
    let display_name = Some(spec.display_name.clone()).filter(|n| !n.is_empty() && *n != name);
    let parent = Some(spec.parent_queue.clone()).filter(|p| !p.is_empty());
    let parent = parent.map(|p| if settings.full_hierarchy_fairness { p } else { FLAT_PARENT.to_owned() });
    let priority = priority(spec.priority, report);
    let min_runtimes = min_runtimes(queue, report);
    check_usage_half_life(queue, settings, report);
    QueueInput {
        display_name,
        parent,
        priority,
        created: created(queue.metadata.creation_timestamp.as_ref()),
        cpu: share(resources.cpu, 1.0, "spec.resources.cpu", report),
        memory: share(resources.memory, 1e6, "spec.resources.memory", report),
        gpu: share(resources.gpu, WHOLE_GPU as f64, "spec.resources.gpu", report),
        preempt_min_runtime: min_runtimes.preempt,
        reclaim_min_runtime: min_runtimes.reclaim,
        time_limit: time_limit::translate(queue.metadata.annotations.as_ref(), report),
        usage,
        name,
    }
}

fn priority(given: Option<i64>, report: &mut Report<'_>) -> i32 {
    let given = given.unwrap_or(name::DEFAULT_QUEUE_PRIORITY);
    let counted = given.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    if counted != given {
        report.warn(
            "spec.priority",
            format!("{given} is beyond 32 bits and counts as {counted}"),
            "write a smaller number",
        );
    }
    counted as i32
}

/// Minimum run times of a queue's groups before preemption and reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinRuntimes {
    pub preempt: Option<Span>,
    pub reclaim: Option<Span>,
}

/// Parses the minimum run times of a queue. Engine input and timers both use it, so that they accept the same values.
pub fn min_runtimes(queue: &Queue, report: &mut Report<'_>) -> MinRuntimes {
    let spec = &queue.spec;
    MinRuntimes {
        preempt: runtime(spec.preempt_min_runtime.as_deref(), "spec.preemptMinRuntime", report),
        reclaim: runtime(spec.reclaim_min_runtime.as_deref(), "spec.reclaimMinRuntime", report),
    }
}

/// The half-life of past usage that a queue has for itself; an error where it cannot be read.
pub fn usage_half_life(queue: &Queue) -> Option<Result<Span, String>> {
    let text = queue.metadata.annotations.as_ref()?.get(annotation::USAGE_HALF_LIFE)?;
    Some(match duration::parse_extended(text) {
        Ok(span) if span.0 > 0 => Ok(span),
        Ok(_) => Err(format!("{} is not longer than nothing", quoted(text))),
        // The finding has a hint of its own.
        Err(_) => Err(format!("{} is not a duration", quoted(text))),
    })
}

/// Reports a half-life that has no effect.
fn check_usage_half_life(queue: &Queue, settings: &Settings, report: &mut Report<'_>) {
    let field = || format!("metadata.annotations[{}]", annotation::USAGE_HALF_LIFE);
    match usage_half_life(queue) {
        Some(Err(problem)) => report.warn(
            field(),
            format!("{problem}, so the half-life of the shard holds"),
            "write a duration such as `6h`",
        ),
        Some(Ok(_)) if !settings.usage_half_lives => report.warn(
            field(),
            "Prometheus computes past usage with one half-life for all queues, so it has no effect",
            "remove the annotation, or set `usageDBConfig.clientType: ledger`",
        ),
        None | Some(Ok(_)) => {}
    }
}

/// The synthetic parent of all queues in a flat hierarchy: unlimited.
pub fn flat_parent() -> QueueInput {
    let unlimited = QueueShare { quota: None, limit: None, weight: 1.0 };
    QueueInput {
        name: FLAT_PARENT.to_owned(),
        priority: name::DEFAULT_QUEUE_PRIORITY as i32,
        cpu: unlimited,
        memory: unlimited,
        gpu: unlimited,
        ..QueueInput::default()
    }
}

pub(super) fn created(
    time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
) -> kai_units::Timestamp {
    kai_units::Timestamp(time.map_or(0, |t| t.0.as_microsecond()))
}

fn share(given: Option<QueueResource>, unit: f64, field: &str, report: &mut Report<'_>) -> QueueShare {
    let given = given.unwrap_or_default();
    let mut amount = |value: f64, what: &str| -> Option<i64> {
        if value <= -1.0 {
            return None;
        }
        if value < 0.0 {
            report.warn(
                format!("{field}.{what}"),
                format!("{value} is negative and counts as 0"),
                "write -1 for unlimited, or an amount of at least 0",
            );
        }
        let base = (value.max(0.0) * unit).round();
        if base > AMOUNT_MAX as f64 {
            report.warn(
                format!("{field}.{what}"),
                format!("{value:e} exceeds the largest amount, so it is clamped to 2^53 base units"),
                "write -1 for unlimited",
            );
            return Some(AMOUNT_MAX);
        }
        Some(base as i64)
    };
    let (quota, limit) =
        (amount(given.quota.unwrap_or(0.0), "quota"), amount(given.limit.unwrap_or(0.0), "limit"));
    let weight = given.over_quota_weight.unwrap_or(0.0);
    if weight < 0.0 {
        report.warn(
            format!("{field}.overQuotaWeight"),
            format!(
                "{weight} is negative, so what the quotas leave is not divided in proportion among this queue and its siblings"
            ),
            "write a weight of at least 0",
        );
    }
    QueueShare { quota, limit, weight }
}

fn runtime(text: Option<&str>, field: &str, report: &mut Report<'_>) -> Option<Span> {
    let text = text.filter(|t| !t.is_empty())?;
    match duration::parse_extended(text) {
        Ok(span) => Some(span),
        Err(error) => {
            report.warn(field, format!("{error}, so it has no effect"), "write a duration such as `10m`");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use kai_engine::input::Key;

    fn read(json: &str) -> (QueueInput, usize) {
        let queue: Queue = serde_json::from_str(json).unwrap();
        let key = Key::new("", "q");
        let mut report = Report::on(Kind::Queue, &key);
        let input = translate(&queue, &Settings::default(), [0.0; 3], &mut report);
        (input, report.into_findings().len())
    }

    #[test]
    fn absent_amounts_are_zero() {
        let (queue, findings) =
            read(r#"{"metadata":{"name":"q"},"spec":{"resources":{"gpu":{"quota":1.5},"cpu":{"limit":0}}}}"#);
        let nothing = QueueShare { quota: Some(0), limit: Some(0), weight: 0.0 };
        assert_eq!(queue.gpu, QueueShare { quota: Some(1_500_000), ..nothing });
        assert_eq!((queue.cpu, queue.memory), (nothing, nothing), "an absent limit equals an explicit 0");
        let (queue, _) = read(r#"{"metadata":{"name":"q"},"spec":{}}"#);
        assert_eq!([queue.cpu, queue.memory, queue.gpu], [nothing; 3], "and so does an absent resource");
        assert_eq!((queue.priority, findings), (100, 0));
    }

    #[test]
    fn priority_beyond_32_bits_and_negative_weight_are_reported() {
        let (queue, findings) = read(r#"{"metadata":{"name":"q"},"spec":{"priority":9223372036854775807}}"#);
        assert_eq!((queue.priority, findings), (i32::MAX, 1));
        let (queue, findings) =
            read(r#"{"metadata":{"name":"q"},"spec":{"resources":{"gpu":{"overQuotaWeight":-1}}}}"#);
        assert_eq!((queue.gpu.weight, findings), (-1.0, 1));
    }

    #[test]
    fn half_life_of_usage_that_has_no_effect_is_reported() {
        let findings = |text: &str, usage_half_lives: bool| {
            let metadata =
                serde_json::json!({"name": "q", "annotations": {annotation::USAGE_HALF_LIFE: text}});
            let queue = serde_json::json!({"metadata": metadata, "spec": {}});
            let queue: Queue = serde_json::from_value(queue).unwrap();
            let key = Key::new("", "q");
            let mut report = Report::on(Kind::Queue, &key);
            let settings = Settings { usage_half_lives, ..Settings::default() };
            translate(&queue, &settings, [0.0; 3], &mut report);
            report.into_findings().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(findings("6h", true), "");
        for text in ["soon", "-6h", "0s"] {
            let found = findings(text, true);
            assert!(found.contains("[kai.scheduler/usage-half-life]`"), "{text}: {found}");
            assert!(
                found.contains("the half-life of the shard holds; hint: write a duration"),
                "{text}: {found}"
            );
        }
        assert!(findings("6h", false).contains("Prometheus computes past usage with one half-life"));
    }

    #[test]
    fn minus_one_is_unlimited_and_memory_is_in_megabytes() {
        let (queue, findings) = read(
            r#"{"metadata":{"name":"q"},"spec":{"displayName":"Q","parentQueue":"p","priority":7,"preemptMinRuntime":"10m",
               "resources":{"memory":{"quota":2,"limit":-1,"overQuotaWeight":3},"cpu":{"quota":-5,"limit":1e30},"gpu":{"quota":-0.5}}}}"#,
        );
        assert_eq!(queue.memory, QueueShare { quota: Some(2_000_000), limit: None, weight: 3.0 });
        assert_eq!(queue.cpu, QueueShare { quota: None, limit: Some(AMOUNT_MAX), weight: 0.0 });
        assert_eq!(queue.gpu.quota, Some(0));
        assert_eq!(
            (queue.priority, queue.parent.as_deref(), queue.display_name.as_deref()),
            (7, Some("p"), Some("Q"))
        );
        assert_eq!(queue.preempt_min_runtime, Some(Span::from_secs(600)));
        assert_eq!(findings, 2, "one for the cut limit, one for the negative quota");
    }
}
