//! Which intended differences from KAI's chart explain a case: the rules over its values are those of `kai_migrate`.
//!
//! Every field that differs must be covered by a rule that holds.

use kai_migrate::rules::chart;
use serde_json::Value;
use std::fmt;

/// In place of an error, where the values render.
pub(super) const RENDERS: &str = "renders";

/// A field that differs.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The object and the path of the field, or `rendering`.
    place: String,
    kai: Value,
    ours: Value,
}

impl Mismatch {
    pub(super) fn new(place: &str, kai: &Value, ours: &Value) -> Self {
        Self { place: place.to_owned(), kai: kai.clone(), ours: ours.clone() }
    }

    /// Whether the place is in an object of this kind and name, in whatever namespace.
    fn is_of(&self, kind: &str, name: &str) -> bool {
        let object = self.place.split(' ').next().unwrap_or_default();
        object.split('/').next() == Some(kind) && object.rsplit('/').next() == Some(name)
    }

    /// The path of the field; empty for a whole object.
    fn field(&self) -> &str {
        self.place.split_once(' ').map_or("", |(_, field)| field)
    }

    /// Whether our list has all that KAI's has, and more.
    fn has_more(&self) -> bool {
        let (Some(kai), Some(ours)) = (self.kai.as_array(), self.ours.as_array()) else { return false };
        kai.len() < ours.len() && kai.iter().all(|item| ours.contains(item))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |value: &Value| value.to_string().chars().take(300).collect::<String>();
        write!(f, "{}: KAI {}, here {}", self.place, short(&self.kai), short(&self.ours))
    }
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether the difference can show in a field, with these values of the chart.
    covers: fn(&Value, &Mismatch) -> bool,
}

/// All differences that the values of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference { id: "H01", covers: is_refused },
    Difference { id: "H02", covers: |_, m| is_of_openshift(m) },
    Difference {
        id: "H03",
        covers: |_, m| {
            ["topology-migration", "post-delete-cleanup"].iter().any(|job| m.is_of("Job", job))
                && m.field() == "spec template spec containers 0 image"
        },
    },
    Difference {
        id: "H04",
        covers: |values, m| {
            let is_policy = [" imagePullPolicy", " pullPolicy"].iter().any(|end| m.field().ends_with(end));
            let global = values.pointer("/global/imagePullPolicy");
            let default = Value::from("IfNotPresent");
            // Of KAI's images, each has a policy of its own by default.
            is_policy && m.ours == *global.unwrap_or(&default) && (m.kai.is_null() || m.kai == default)
        },
    },
    Difference {
        id: "H05",
        covers: |values, m| {
            let set = values.pointer("/postCleanup/serviceAccountName").and_then(Value::as_str);
            let is_account =
                [Some(CLEANUP), set].iter().flatten().any(|name| m.is_of("ServiceAccount", name));
            (is_account && m.field().is_empty())
                || (m.is_of("ClusterRoleBinding", CLEANUP) && m.ours.as_str() == set)
        },
    },
    Difference {
        id: "H06",
        covers: |_, m| {
            m.is_of("Deployment", "kai-operator")
                && (m.field().ends_with(" containerPort") || m.field().ends_with(" httpGet port"))
        },
    },
    Difference {
        id: "H07",
        covers: |_, m| {
            m.field().ends_with("spec prometheus")
                && m.kai.is_null()
                && m.ours.as_object().is_some_and(|fields| fields.keys().eq(["externalPrometheusUrl"]))
        },
    },
    Difference {
        id: "H08",
        covers: |_, m| {
            m.is_of("Job", "kai-config-deployer")
                && m.field() == "spec template spec securityContext"
                && m.kai.is_null()
        },
    },
    Difference { id: "H09", covers: takes_effect },
    Difference { id: "H10", covers: is_own_affinity },
];

/// The account, role binding and Job of the hook that cleans up.
const CLEANUP: &str = "post-delete-cleanup";

/// The values render with KAI's chart, and ours refuses them with a sentence that names the key.
fn is_refused(values: &Value, mismatch: &Mismatch) -> bool {
    let sentence = mismatch.ours.as_str().unwrap_or_default();
    let names = |key: &str| key.rsplit('.').next().is_some_and(|last| sentence.contains(last));
    mismatch.place == "rendering"
        && mismatch.kai == RENDERS
        && chart::refusals(values).iter().any(|refusal| names(&refusal.key))
}

/// What OpenShift needs and KAI leaves out: the mode in the Config, accounts, labels of hook pods, and the context of the
/// hook that cleans up.
fn is_of_openshift(mismatch: &Mismatch) -> bool {
    let template = mismatch.field().strip_prefix("spec template ").unwrap_or_default();
    let is_job = mismatch.place.starts_with("Job/");
    (mismatch.field().ends_with(" global openshift") && mismatch.kai.is_null() && mismatch.ours == true)
        || (mismatch.is_of("SecurityContextConstraints", "kai-system")
            && (mismatch.field() == "volumes" || (mismatch.field() == "users" && mismatch.has_more())))
        || (mismatch.is_of("ClusterRoleBinding", "kai-system-scc") && mismatch.has_more())
        || (is_job && template == "metadata labels" && mismatch.kai.is_null())
        || (mismatch.is_of("Job", CLEANUP)
            && (template.starts_with("metadata ")
                || template.starts_with("spec containers 0 securityContext")))
}

/// A key that KAI's chart does not read is in the object to which it belongs.
fn takes_effect(values: &Value, mismatch: &Mismatch) -> bool {
    let is_set = |pointer: &str| values.pointer(pointer).is_some_and(|value| mismatch.ours == *value);
    let fips = values.pointer("/global/fips").is_some();
    let field = mismatch.field();
    (field.ends_with("gpuPodRuntimeClassName") && is_set("/admission/gpuPodRuntimeClassName"))
        || (field.contains("queueLabelSelector") && is_set("/admission/queueLabelSelector"))
        || (field.contains("daemonsetsTolerations") && is_set("/global/daemonsetsTolerations"))
        || (fips && [" tag", " image", " value"].iter().any(|end| field.ends_with(end)))
}

/// Operator and hooks run where their own affinity says.
fn is_own_affinity(values: &Value, mismatch: &Mismatch) -> bool {
    let sections = [
        ("Deployment", "kai-operator", "operator"),
        ("Job", "crd-upgrader", "crdupgrader"),
        ("Job", "kai-config-deployer", "kaiConfigDeployer"),
        ("Job", "topology-migration", "topologyMigration"),
        ("Job", "post-delete-cleanup", "postCleanup"),
    ];
    let section = sections.iter().find(|(kind, name, _)| mismatch.is_of(kind, name));
    let own = section.and_then(|(.., section)| values.get(*section)?.get("affinity"));
    let (Some(own), Some(path)) = (own, mismatch.field().strip_prefix("spec template spec affinity")) else {
        return false;
    };
    *own.pointer(&path.replace(' ', "/")).unwrap_or(&Value::Null) == mismatch.ours
}

/// Whether values can show the difference.
fn holds(difference: &Difference, values: &Value) -> bool {
    let rule = chart::RULES.iter().find(|rule| rule.id == difference.id);
    rule.is_some_and(|rule| !(rule.keys)(values).is_empty())
}

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(values: &Value, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let holding: Vec<&Difference> = DIFFERENCES.iter().filter(|rule| holds(rule, values)).collect();
    let rule = |mismatch: &Mismatch| holding.iter().find(|rule| (rule.covers)(values, mismatch));
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    match mismatches.iter().find_map(rule) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documentation_lists_the_same_differences() {
        let known: Vec<&str> = DIFFERENCES.iter().filter_map(|d| d.id.strip_prefix('H')).collect();
        assert_eq!(crate::recorded::documented_rules('H'), known);
    }

    fn explained(values: &Value, place: &str, kai: &Value, ours: &Value) -> Option<&'static str> {
        explain(values, &[Mismatch::new(place, kai, ours)]).ok()
    }

    #[test]
    fn refusal_is_a_difference_only_if_it_names_the_key() {
        let values = json!({"admission": {"cdi": true}});
        let refused = |why: &str| explained(&values, "rendering", &RENDERS.into(), &why.into());
        assert_eq!(refused("admission.cdi has no effect: set binder.cdiEnabled"), Some("H01"));
        assert_eq!(refused("template: kai-scheduler: nil pointer"), None);
        assert_eq!(explained(&values, "rendering", &"an error".into(), &RENDERS.into()), None);
    }

    #[test]
    fn difference_covers_no_other_value_of_its_field() {
        let openshift = json!({"openshift": true});
        let users = "SecurityContextConstraints/kai-system users";
        assert_eq!(explained(&openshift, users, &json!(["a"]), &json!(["a", "b"])), Some("H02"));
        assert_eq!(explained(&openshift, users, &json!(["a"]), &json!(["b", "c"])), None);
        let image = "Job/kai-scheduler/crd-upgrader spec template spec containers 0 image";
        let registry = json!({"postCleanup": {"image": {"registry": "other"}}});
        assert_eq!(explained(&registry, image, &json!("a"), &json!("b")), None);
        let runtime_class = "Config/kai-config spec admission gpuPodRuntimeClassName";
        let set = json!({"admission": {"gpuPodRuntimeClassName": "old"}});
        assert_eq!(explained(&set, runtime_class, &Value::Null, &json!("old")), Some("H09"));
        assert_eq!(explained(&set, runtime_class, &Value::Null, &json!("new")), None);
        let own = json!({"operator": {"affinity": {"nodeAffinity": {"a": 1}}}});
        let affinity = "Deployment/kai-scheduler/kai-operator spec template spec affinity";
        assert_eq!(explained(&own, affinity, &Value::Null, &own["operator"]["affinity"]), Some("H10"));
        assert_eq!(explained(&own, affinity, &Value::Null, &json!({"other": 1})), None);
    }
}
