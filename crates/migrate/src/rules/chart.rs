//! What the chart does differently, as rules over the values.

use crate::schema;
use serde_json::Value;
use std::sync::LazyLock;

pub struct Rule {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// The keys with which the difference shows, such as `global.fips`.
    pub keys: fn(&Value) -> Vec<String>,
}

/// All differences that values can show.
pub const RULES: &[Rule] = &[
    Rule { id: "H01", keys: |values| refusals(values).into_iter().map(|refusal| refusal.key).collect() },
    Rule { id: "H02", keys: |values| is(values, "openshift", |on| *on == true) },
    Rule {
        id: "H03",
        keys: |values| any_set(values, &["topologyMigration.image.registry", "postCleanup.image.registry"]),
    },
    Rule {
        id: "H04",
        keys: |values| {
            let mut keys = any_set(values, &["global.imagePullPolicy"]);
            keys.extend(empty_pull_policies(values));
            keys
        },
    },
    Rule { id: "H05", keys: |values| any_set(values, &["postCleanup.serviceAccountName"]) },
    Rule {
        id: "H06",
        keys: |values| any_set(values, &["operator.metricsBindAddress", "operator.probeBindAddress"]),
    },
    Rule { id: "H07", keys: |values| any_set(values, &["prometheus.externalPrometheusUrl"]) },
    Rule { id: "H08", keys: |values| any_set(values, &["global.podSecurityContext"]) },
    Rule {
        id: "H09",
        keys: |values| {
            any_set(
                values,
                &[
                    "admission.gpuPodRuntimeClassName",
                    "admission.queueLabelSelector",
                    "global.daemonsetsTolerations",
                    "global.fips",
                ],
            )
        },
    },
    Rule {
        id: "H10",
        keys: |values| {
            any_set(
                values,
                &[
                    "crdupgrader.affinity",
                    "kaiConfigDeployer.affinity",
                    "operator.affinity",
                    "postCleanup.affinity",
                    "topologyMigration.affinity",
                ],
            )
        },
    },
];

/// A key that the chart refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub key: String,
    pub problem: String,
    pub hint: String,
}

/// Keys that KAI's guides name or older versions of its chart had, each with what to do instead: the templates refuse them, too.
const REFUSED_KEYS: &str = include_str!("../../../../charts/kai-scheduler/files/refused-keys.yaml");

/// What is written in [`REFUSED_KEYS`], where every text is in double quotes.
static REFUSED: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let rows = REFUSED_KEYS.lines().filter_map(|line| line.split_once(": "));
    rows.filter_map(|(key, text)| Some((key, serde_json::from_str(text).ok()?))).collect()
});

/// What to do about other keys.
const KNOWN: &[(&str, &str)] = &[
    ("admission.cdi", "set binder.cdiEnabled, or remove it to have CDI detected"),
    ("binder.name", "remove it: the components find each other by name"),
    ("admission.name", "remove it: the components find each other by name"),
    ("global.fipsMode", "write \"on\" or \"off\" with quotes: without them YAML reads a boolean"),
    ("scheduler.args", "write every value as text, such as v: \"5\""),
];

/// What the chart's schema and templates refuse.
pub fn refusals(values: &Value) -> Vec<Refusal> {
    let mut refused: Vec<Refusal> = schema::violations(values)
        .into_iter()
        .map(|violation| {
            let hint = hint(&violation.key).map_or_else(|| violation.hint.clone(), str::to_owned);
            Refusal { key: violation.key, problem: violation.problem, hint }
        })
        .collect();
    for (key, instead) in &*REFUSED {
        refused.extend(is(values, key, is_set).into_iter().map(|key| Refusal {
            key,
            problem: "it has no effect".to_owned(),
            hint: instead.clone(),
        }));
    }
    let mut refuse = |keys: Vec<String>, problem: &str| {
        refused.extend(keys.into_iter().map(|key| Refusal {
            hint: hint(&key).unwrap_or("remove it").to_owned(),
            problem: problem.to_owned(),
            key,
        }));
    };
    refuse(is(values, "admission.cdi", |on| *on == true), "it has no effect");
    refuse(is(values, "binder.name", |name| name != "binder"), "it cannot be changed");
    refuse(is(values, "admission.name", |name| name != "kai-admission"), "it cannot be changed");
    if is_on(values, "kaiConfig.render", false) && is_on(values, "kaiConfigDeployer.enabled", true) {
        refused.push(Refusal {
            key: "kaiConfig.render".to_owned(),
            problem: "it excludes kaiConfigDeployer.enabled".to_owned(),
            hint: "set kaiConfigDeployer.enabled: false".to_owned(),
        });
    }
    refused
}

fn hint(key: &str) -> Option<&'static str> {
    let is_below = |known: &str| key == known || key.starts_with(&format!("{known}."));
    KNOWN.iter().find(|(known, _)| is_below(known)).map(|(_, hint)| *hint)
}

fn find<'a>(values: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(values, |at, name| at.get(name)).filter(|value| !value.is_null())
}

fn is(values: &Value, key: &str, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    find(values, key).filter(|value| holds(value)).map(|_| key.to_owned()).into_iter().collect()
}

/// Whether a value is more than an empty one, as templates judge it.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Keys that say where images come from: with values of KAI's installation, from KAI's registry.
pub fn image_sources(values: &Value) -> Vec<String> {
    let mut keys: Vec<String> = ["global.registry", "global.tag"]
        .into_iter()
        .filter(|key| find(values, key).is_some_and(is_set))
        .map(str::to_owned)
        .collect();
    for (section, map) in values.as_object().into_iter().flatten() {
        for (image, map) in map.as_object().into_iter().flatten() {
            let sources =
                ["registry", "tag"].into_iter().filter(|source| map.get(*source).is_some_and(is_set));
            keys.extend(sources.map(|source| format!("{section}.{image}.{source}")));
        }
    }
    keys
}

fn is_on(values: &Value, key: &str, default: bool) -> bool {
    find(values, key).and_then(Value::as_bool).unwrap_or(default)
}

fn any_set(values: &Value, keys: &[&str]) -> Vec<String> {
    keys.iter().filter(|key| find(values, key).is_some()).map(|key| (*key).to_owned()).collect()
}

/// Pull policies that are emptied, so that the global one is used.
fn empty_pull_policies(values: &Value) -> Vec<String> {
    let sections = values.as_object().into_iter().flatten();
    let images = sections.flat_map(|(section, map)| {
        map.as_object().into_iter().flatten().map(move |(image, map)| (format!("{section}.{image}"), map))
    });
    let emptied = images.filter(|(_, map)| map.get("pullPolicy").is_some_and(|policy| policy == ""));
    emptied.map(|(key, _)| format!("{key}.pullPolicy")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_refused_key_has_a_text() {
        let rows = REFUSED_KEYS.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(REFUSED.len(), rows);
        assert!(rows > 10);
    }

    #[test]
    fn keys_of_images_are_found_where_they_are_set() {
        let values = json!({
            "global": {"registry": "r", "tag": ""},
            "binder": {"image": {"tag": "v1", "name": "binder"}, "resourceReservationImage": {"registry": "r"}},
        });
        let keys = ["global.registry", "binder.image.tag", "binder.resourceReservationImage.registry"];
        assert_eq!(image_sources(&values), keys);
    }
}
