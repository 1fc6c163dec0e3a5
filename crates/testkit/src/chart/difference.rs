//! Intended differences from KAI's chart, as rules over the values.
//!
//! `docs/differences.md` describes the same table. Every field that differs must be covered by a rule that holds.

use serde_json::Value;
use std::fmt;

/// A field that differs.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The object and the path of the field, or `rendering`.
    pub place: String,
    kai: String,
    ours: String,
}

impl Mismatch {
    pub(super) fn new(place: &str, kai: impl Into<String>, ours: impl Into<String>) -> Self {
        Self { place: place.to_owned(), kai: kai.into(), ours: ours.into() }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(300).collect::<String>();
        write!(f, "{}: KAI {}, here {}", self.place, short(&self.kai), short(&self.ours))
    }
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether values can show the difference.
    pub holds: fn(&Value) -> bool,
    /// Whether the difference can show in a place.
    pub covers: fn(&str) -> bool,
}

/// All differences that the values of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference { id: "H01", holds: refused, covers: |place| place == "rendering" },
    Difference {
        id: "H02",
        holds: |values| has(values, "/openshift", |on| *on == true),
        covers: |place| {
            place.ends_with(" global openshift")
                || place.starts_with("SecurityContextConstraints/")
                || place.starts_with("ClusterRoleBinding/kai-system-scc")
                || (place.starts_with("Job/")
                    && (place.contains(" template metadata ") || place.contains(" securityContext")))
        },
    },
    Difference {
        id: "H03",
        holds: |values| {
            ["topologyMigration", "postCleanup"]
                .iter()
                .any(|hook| is_set(values, &format!("/{hook}/image/registry")))
        },
        covers: |place| place.starts_with("Job/") && place.ends_with(" image"),
    },
    Difference {
        id: "H04",
        holds: empty_pull_policy,
        covers: |place| place.ends_with(" imagePullPolicy") || place.ends_with(" scalingPodImage pullPolicy"),
    },
    Difference {
        id: "H05",
        holds: |values| is_set(values, "/postCleanup/serviceAccountName"),
        covers: |place| {
            place.starts_with("ServiceAccount/")
                || place.starts_with("ClusterRoleBinding/post-delete-cleanup")
        },
    },
    Difference {
        id: "H06",
        holds: |values| {
            ["metricsBindAddress", "probeBindAddress"]
                .iter()
                .any(|address| is_set(values, &format!("/operator/{address}")))
        },
        covers: |place| {
            place.contains("/kai-operator ")
                && (place.ends_with(" containerPort") || place.ends_with(" httpGet port"))
        },
    },
    Difference {
        id: "H07",
        holds: |values| is_set(values, "/prometheus/externalPrometheusUrl"),
        covers: |place| place.contains(" spec prometheus"),
    },
    Difference {
        id: "H08",
        holds: |values| is_set(values, "/global/podSecurityContext"),
        covers: |place| place.contains("/kai-config-deployer spec template spec securityContext"),
    },
    Difference {
        id: "H09",
        holds: |values| {
            is_set(values, "/admission/gpuPodRuntimeClassName")
                || is_set(values, "/admission/queueLabelSelector")
                || is_set(values, "/global/daemonsetsTolerations")
                || is_set(values, "/global/fips")
        },
        covers: |place| {
            [
                "gpuPodRuntimeClassName",
                "queueLabelSelector",
                "daemonsetsTolerations",
                " tag",
                " image",
                " value",
            ]
            .iter()
            .any(|field| place.contains(field))
        },
    },
];

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(values: &Value, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let holding: Vec<&Difference> = DIFFERENCES.iter().filter(|rule| (rule.holds)(values)).collect();
    let rule = |mismatch: &Mismatch| holding.iter().find(|rule| (rule.covers)(&mismatch.place));
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    match mismatches.iter().find_map(rule) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
}

fn has(values: &Value, pointer: &str, holds: impl Fn(&Value) -> bool) -> bool {
    values.pointer(pointer).is_some_and(holds)
}

fn is_set(values: &Value, pointer: &str) -> bool {
    has(values, pointer, |value| !value.is_null())
}

/// Keys of the chart, of which a value is a map with other keys.
const SECTIONS: [&str; 20] = [
    "admission",
    "binder",
    "crdupgrader",
    "defaultPriorityClasses",
    "defaultQueue",
    "defaultShard",
    "global",
    "kaiConfig",
    "kaiConfigDeployer",
    "nodescaleadjuster",
    "numaPlacementExporter",
    "openshift",
    "operator",
    "podgroupcontroller",
    "podgrouper",
    "postCleanup",
    "prometheus",
    "queuecontroller",
    "scheduler",
    "topologyMigration",
];

/// The schema of the chart, or its validation, refuses the values.
fn refused(values: &Value) -> bool {
    let unknown =
        values.as_object().is_some_and(|map| map.keys().any(|key| !SECTIONS.contains(&key.as_str())));
    let renamed = [("/binder/name", "binder"), ("/admission/name", "kai-admission")]
        .iter()
        .any(|(pointer, name)| has(values, pointer, |value| value != name));
    let fips = has(values, "/global/fipsMode", |mode| mode != "on" && mode != "off");
    let number = has(values, "/scheduler/args", |args| {
        args.as_object().is_some_and(|args| args.values().any(|value| !value.is_string()))
    });
    let ratio = has(values, "/scheduler/goMemLimitRatio", |ratio| {
        ratio.as_f64().is_some_and(|ratio| ratio <= 0.0 || ratio > 1.0)
    });
    unknown
        || renamed
        || fips
        || number
        || ratio
        || has(values, "/admission/cdi", |on| *on == true)
        || unknown_below(values)
}

/// A section has a key that the chart does not know: nothing would read it.
fn unknown_below(values: &Value) -> bool {
    const SCHEMA: &str = include_str!("../../../../charts/kai-scheduler/values.schema.json");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
    let sections = values.as_object().into_iter().flatten();
    sections.into_iter().any(|(name, section)| {
        let known = schema.pointer(&format!("/properties/{name}/properties")).and_then(Value::as_object);
        let keys = section.as_object().into_iter().flat_map(|section| section.keys());
        known.is_some_and(|known| keys.into_iter().any(|key| !known.contains_key(key)))
    })
}

/// A pull policy is emptied, so that the global one is used.
fn empty_pull_policy(values: &Value) -> bool {
    let sections = values.as_object().into_iter().flat_map(|map| map.values());
    sections.into_iter().any(|section| {
        let images = section.as_object().into_iter().flat_map(|section| section.values());
        images.into_iter().any(|image| image.get("pullPolicy").is_some_and(|policy| policy == ""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_the_same_differences() {
        let known: Vec<&str> = DIFFERENCES.iter().filter_map(|d| d.id.strip_prefix('H')).collect();
        assert_eq!(crate::recorded::documented_rules('H'), known);
    }
}
