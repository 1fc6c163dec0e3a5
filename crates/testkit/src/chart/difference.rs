//! Which intended differences from KAI's chart explain a case: the rules over its values are those of `kai_migrate`.
//!
//! Every field that differs must be covered by a rule that holds.

use kai_migrate::rules::chart;
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
    /// Whether the difference can show in a place.
    pub covers: fn(&str) -> bool,
}

/// All differences that the values of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference { id: "H01", covers: |place| place == "rendering" },
    Difference {
        id: "H02",
        covers: |place| {
            place.ends_with(" global openshift")
                || place.starts_with("SecurityContextConstraints/")
                || place.starts_with("ClusterRoleBinding/kai-system-scc")
                || (place.starts_with("Job/")
                    && (place.contains(" template metadata ") || place.contains(" securityContext")))
        },
    },
    Difference { id: "H03", covers: |place| place.starts_with("Job/") && place.ends_with(" image") },
    Difference {
        id: "H04",
        covers: |place| place.ends_with(" imagePullPolicy") || place.ends_with(" scalingPodImage pullPolicy"),
    },
    Difference {
        id: "H05",
        covers: |place| {
            (place.starts_with("ServiceAccount/") && !place.contains(' '))
                || place.starts_with("ClusterRoleBinding/post-delete-cleanup")
        },
    },
    Difference {
        id: "H06",
        covers: |place| {
            place.contains("/kai-operator ")
                && (place.ends_with(" containerPort") || place.ends_with(" httpGet port"))
        },
    },
    Difference { id: "H07", covers: |place| place.contains(" spec prometheus") },
    Difference {
        id: "H08",
        covers: |place| place.contains("/kai-config-deployer spec template spec securityContext"),
    },
    Difference {
        id: "H09",
        covers: |place| {
            ["gpuPodRuntimeClassName", "queueLabelSelector", "daemonsetsTolerations"]
                .iter()
                .any(|field| place.contains(field))
                || [" tag", " image", " value"].iter().any(|field| place.ends_with(field))
        },
    },
];

/// Whether values can show the difference.
fn holds(difference: &Difference, values: &Value) -> bool {
    let rule = chart::RULES.iter().find(|rule| rule.id == difference.id);
    rule.is_some_and(|rule| !(rule.keys)(values).is_empty())
}

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(values: &Value, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let holding: Vec<&Difference> = DIFFERENCES.iter().filter(|rule| holds(rule, values)).collect();
    let rule = |mismatch: &Mismatch| holding.iter().find(|rule| (rule.covers)(&mismatch.place));
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    match mismatches.iter().find_map(rule) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
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
