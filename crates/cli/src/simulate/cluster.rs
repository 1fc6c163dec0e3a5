//! Sets up a simulation from a snapshot: its objects, the run times in their annotations, and historical usage.

use super::Setup;
use super::request::Request;
use kai_api::well_known::annotation;
use kai_cache::{Objects, Snapshot};
use kai_engine::Policy;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_replay::{AfterEviction, Options, PodScript, Script, UsageOptions, Window};
use kai_units::{Span, Timestamp, duration};
use serde_json::Value;

pub(super) fn setup(mut snapshot: Snapshot, request: &Request, plugins: &PluginSet) -> Setup {
    if let Some(config) = &request.config {
        snapshot.config.clone_from(config);
    }
    let recorded = snapshot.replay.now.map(|stamp| stamp.0);
    // A recorded cycle is replayed at its own time, with or without `--now`.
    let (start, source) = match (recorded, request.now) {
        (Some(now), _) => (now, "from the file"),
        (None, Some(now)) => (now, "from --now"),
        (None, None) => (Timestamp(kai_clock::unix_micros()), "current time"),
    };
    let policy = Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), plugins);
    let mut warnings = snapshot.config.warnings.clone();
    warnings.extend(policy.warnings.iter().cloned());
    let weighs_usage = policy.registry.builtin.proportion.is_some_and(|share| share.k_value > 0.0);
    let usage = snapshot.config.usage_db.as_ref().filter(|_| weighs_usage);
    let period = snapshot.params.schedule_period;
    let from_file = Options {
        start,
        period: if period > Span(0) { period } else { Options::default().period },
        seed: snapshot.replay.seed.unwrap_or_default(),
        usage: usage.map(|config| usage_options(config, &mut warnings)),
        ..Options::default()
    };
    let options = request.options(from_file);
    let script = script(&snapshot.objects, &mut warnings);
    let mut deltas = Vec::new();
    snapshot.into_store().drain(|delta| deltas.push(delta));
    Setup { end: request.end(&options, None), deltas, script, policy, options, source, warnings }
}

/// Run times and submission times of pods from annotations; those of a pod override those of its group.
fn script(objects: &Objects, warnings: &mut Vec<String>) -> Script {
    let mut script = Script::default();
    for (key, group) in &objects.pod_groups {
        let annotations = group.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(annotation::SIMULATED_SUBMIT_AT)).map(String::as_str);
        let after =
            text.and_then(|text| span("PodGroup", key, annotation::SIMULATED_SUBMIT_AT, text, warnings));
        if let Some(after) = after {
            script.groups.insert(key.clone(), after);
        }
    }
    for (key, pod) in &objects.pods {
        let own = |name: &str| pod.metadata.annotation(name);
        let group = own(annotation::POD_GROUP).map(|group| Key::new(key.namespace.as_str(), group));
        let group = group.and_then(|group| objects.pod_groups.get(&group));
        let of_group = |name: &str| Some(group?.metadata.annotations.as_ref()?.get(name)?.as_str());
        let effective = |name: &str| own(name).or_else(|| of_group(name));
        let mut read = |name: &str, text: Option<&str>| span("Pod", key, name, text?, warnings);
        let pod = PodScript {
            runs_for: read(annotation::SIMULATED_DURATION, effective(annotation::SIMULATED_DURATION)),
            // The pods of a group that is submitted later are submitted with it.
            submitted_after: read(annotation::SIMULATED_SUBMIT_AT, own(annotation::SIMULATED_SUBMIT_AT)),
            after_eviction: match effective(annotation::SIMULATED_RESTART) {
                Some("false") => AfterEviction::Deleted,
                Some(_) | None => AfterEviction::Recreated,
            },
        };
        if pod != PodScript::default() {
            script.pods.insert(key.clone(), pod);
        }
    }
    script
}

/// The duration in an annotation; an invalid one becomes a warning and counts as absent.
fn span(kind: &str, key: &Key, name: &str, text: &str, warnings: &mut Vec<String>) -> Option<Span> {
    match duration::parse_extended(text) {
        Ok(span) if span >= Span(0) => return Some(span),
        Ok(_) => warnings.push(format!(
            "{kind} `{key}`, annotation `{name}`: `{text}` is negative and is ignored; hint: write a duration such as `90s`"
        )),
        Err(error) => warnings.push(format!("{kind} `{key}`, annotation `{name}` is ignored: {error}")),
    }
    None
}

/// How usage is measured, from `usageDBConfig`.
fn usage_options(config: &Value, warnings: &mut Vec<String>) -> UsageOptions {
    let defaults = UsageOptions::default();
    let params = config.as_object().and_then(|members| {
        members.iter().find(|(name, _)| name.eq_ignore_ascii_case("usageParams")).map(|(_, value)| value)
    });
    let text = |name: &str| {
        let members = params?.as_object()?;
        members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1.as_str()
    };
    let mut read = |name: &str| {
        let text = text(name)?;
        let span = duration::parse_extended(text).or_else(|_| duration::parse_prometheus(text));
        if span.is_err() {
            warnings.push(format!(
                "usageDBConfig.usageParams.{name}: `{text}` is not a duration and is ignored; hint: write a duration such as `1h`"
            ));
        }
        span.ok().filter(|span| *span > Span(0))
    };
    let length = read("windowSize").unwrap_or(defaults.window_length());
    let half_life = read("halfLifePeriod");
    let fetch_every = read("fetchInterval").unwrap_or(defaults.fetch_every);
    let start = text("tumblingWindowStartTime").and_then(|text| text.parse::<Timestamp>().ok());
    let window = match (text("windowType"), start) {
        (Some("tumbling"), Some(start)) => Window::Tumbling { start, length },
        (None | Some("sliding" | ""), _) => Window::Sliding(length),
        (Some(other), _) => {
            warnings.push(format!(
                "usageDBConfig.usageParams.windowType: `{other}` windows are simulated as sliding ones"
            ));
            Window::Sliding(length)
        }
    };
    UsageOptions { window, half_life, fetch_every }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_is_measured_as_configured() {
        let mut warnings = Vec::new();
        let config = json!({"usageParams": {"halfLifePeriod": "10m", "windowSize": "1w", "fetchInterval": "30s",
            "windowType": "tumbling", "tumblingWindowStartTime": "2026-01-01T00:00:00Z"}});
        let options = usage_options(&config, &mut warnings);
        assert_eq!(options.half_life, Some(Span::from_secs(600)));
        assert_eq!(options.fetch_every, Span::from_secs(30));
        assert!(
            matches!(options.window, Window::Tumbling { length, .. } if length == Span::from_secs(604_800))
        );
        assert!(warnings.is_empty(), "{warnings:?}");
        let invalid = json!({"usageParams": {"windowSize": "long", "windowType": "cron"}});
        assert_eq!(usage_options(&invalid, &mut warnings), UsageOptions::default());
        assert_eq!(warnings.len(), 2);
        assert_eq!(usage_options(&json!({}), &mut warnings), UsageOptions::default());
    }
}
