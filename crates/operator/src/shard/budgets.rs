//! Time budgets of the eviction search.

use kai_api::SchedulingShard;
use kai_units::Span;
use kai_units::duration::{format_go, parse_go};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const ACTIONS: [&str; 4] = ["default", "reclaim", "preempt", "consolidation"];
const FIELD: &str = "spec.scenarioSearchBudgets";

/// The budgets with their defaults.
pub(super) fn configuration(shard: &SchedulingShard) -> Result<Value, String> {
    let own = shard.spec.scenario_search_budgets.clone().unwrap_or_default();
    let actions = durations(
        "maxActionSearchDuration",
        own.max_action_search_duration,
        &[("default", Span::from_secs(300))],
    )?;
    if let Some(unknown) = actions.keys().find(|action| !ACTIONS.contains(&action.as_str())) {
        return Err(format!(
            "{FIELD}.maxActionSearchDuration: `{unknown}` is not an action that searches; hint: write one of {}",
            ACTIONS.join(", ")
        ));
    }
    let generators = durations(
        "maxGeneratorSearchDuration",
        own.max_generator_search_duration,
        &[
            ("default", Span::from_secs(120)),
            ("NodeLocalGreedy", Span::from_secs(30)),
            ("MultiNodeGang", Span::from_secs(120)),
        ],
    )?;
    let max = duration("maxJobSearchDuration", own.max_job_search_duration, Span::from_secs(240))?;
    let min = duration("minJobSearchDuration", own.min_job_search_duration, Span(0))?;
    if max.0 != 0 && min >= max {
        return Err(format!(
            "{FIELD}.minJobSearchDuration: {} is not below maxJobSearchDuration, {}",
            format_go(min),
            format_go(max)
        ));
    }
    Ok(json!({
        "maxActionSearchDuration": actions,
        "maxJobSearchDuration": format_go(max),
        "minJobSearchDuration": format_go(min),
        "maxGeneratorSearchDuration": generators,
    }))
}

fn durations(
    field: &str,
    own: Option<BTreeMap<String, String>>,
    defaults: &[(&str, Span)],
) -> Result<Map<String, Value>, String> {
    let default = defaults.iter().map(|(key, span)| ((*key).to_owned(), Value::from(format_go(*span))));
    let mut durations: Map<String, Value> = default.collect();
    for (key, text) in own.into_iter().flatten() {
        let span = duration(&format!("{field}.{key}"), Some(text), Span(0))?;
        durations.insert(key, Value::from(format_go(span)));
    }
    Ok(durations)
}

fn duration(field: &str, own: Option<String>, default: Span) -> Result<Span, String> {
    let Some(text) = own else { return Ok(default) };
    let span = parse_go(&text).map_err(|error| format!("{FIELD}.{field}: {error}"))?;
    if span.0 < 0 {
        return Err(format!("{FIELD}.{field}: `{text}` is negative; hint: write `0s` for no limit"));
    }
    Ok(span)
}
