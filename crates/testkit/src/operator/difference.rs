//! Intended differences from KAI's operator, as rules over the input of a case.
//!
//! `docs/differences.md` describes the same table. Every field that differs must be covered by a rule that holds for the
//! input; predicates never read the id, the expectations or the result of a case.

use super::Input;
use super::cluster::Cluster;
use super::compare::Mismatch;
use kai_migrate::rules::installation::{self, Installation};
use kai_operator::ObjectKey;
use serde_json::Value;

/// The input of a case: its objects, and the settings after each step.
pub struct Facts {
    /// What the settings depend on, without the settings.
    surroundings: Installation,
    /// After each step.
    states: Vec<State>,
    /// Numbers of steps that set the Deployments to available.
    available: Vec<usize>,
}

/// The settings after a step.
struct State {
    settings: Installation,
    /// Names of shards that cannot be deployed with these settings.
    undeployable: Vec<String>,
    /// Whether an object goes to a namespace that does not exist.
    missing_namespace: bool,
}

impl Facts {
    pub(super) fn new(input: &Input) -> Self {
        let steps = input.steps.iter().enumerate();
        let available = steps.filter(|(_, step)| step.get("do").and_then(Value::as_str) == Some("available"));
        let autoscalers = input.third_party_crds.iter().any(|crd| crd.starts_with("verticalpodautoscalers."));
        let policies = input.existing.iter().filter(|object| kai_object::kind(object) == "ClusterPolicy");
        Self {
            surroundings: Installation {
                serves_autoscalers: Some(autoscalers),
                cluster_policies: policies.cloned().collect(),
                ..Installation::default()
            },
            states: Vec::new(),
            available: available.map(|(number, _)| number).collect(),
        }
    }

    pub(super) fn observe(&mut self, cluster: &Cluster) {
        let shards = cluster.objects.iter().filter(|(key, _)| key.kind == "SchedulingShard");
        let (desired, unreadable) = cluster.desired();
        let failed = desired.shards.iter().filter(|(_, operand)| operand.error.is_some());
        self.states.push(State {
            settings: Installation {
                config: cluster.objects.get(&ObjectKey::new("Config", "", "kai-config")).cloned(),
                shards: shards.map(|(_, shard)| shard.clone()).collect(),
                ..self.surroundings.clone()
            },
            undeployable: failed.map(|(name, _)| name.clone()).chain(unreadable.into_keys()).collect(),
            missing_namespace: desired.objects().any(|object| !cluster.has_namespace(object)),
        });
    }

    fn configs(&self) -> impl Iterator<Item = &Value> {
        self.states.iter().filter_map(|state| state.settings.config.as_ref())
    }
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether the difference can show in a place.
    pub covers: fn(&str) -> bool,
}

/// All differences that the input of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference { id: "O01", covers: |place| place.starts_with("condition SchedulingShard/") },
    Difference { id: "O02", covers: |place| place == "condition Config/kai-config Reconciling" },
    Difference { id: "O03", covers: |place| is_condition(place) || is_of_a_shard(place) },
    Difference {
        id: "O04",
        covers: |place| place.starts_with("Service/") && place.ends_with(" spec selector"),
    },
    Difference {
        id: "O05",
        covers: |place| {
            is_of_a_shard(place)
                && (is_condition(place) || is_whole_object(place) || place.starts_with("Service/"))
        },
    },
    Difference {
        id: "O06",
        covers: |place| {
            is_argument(place, "--webhook-bind-address") || place.contains("clientConfig service port")
        },
    },
    Difference {
        id: "O07",
        covers: |place| {
            ["--metrics-listen-address", "--listen-address"].iter().any(|flag| is_argument(place, flag))
                || (place.starts_with("Service/") && place.ends_with(" targetPort"))
                || (place.starts_with("EndpointSlice/") && place.contains(" ports "))
                || (place.starts_with("ServiceMonitor/") && place.ends_with(" port"))
        },
    },
    Difference { id: "O08", covers: |place| is_condition(place) || is_whole_object(place) },
    Difference {
        id: "O09",
        covers: |place| {
            place.starts_with("condition Config/")
                || ["Prometheus/", "ServiceMonitor/"].iter().any(|kind| place.starts_with(kind))
        },
    },
    Difference {
        id: "O10",
        covers: |place| place.starts_with("ConfigMap/") && place.contains("usageDBConfig"),
    },
    Difference {
        id: "O11",
        covers: |place| {
            is_condition(place) || is_whole_object(place) || place.contains(" containers 0 resources ")
        },
    },
    Difference {
        id: "O12",
        covers: |place| place.contains("numa-placement-exporter") || place.starts_with("condition Config/"),
    },
    Difference { id: "O13", covers: |place| is_argument(place, "--qps") || is_argument(place, "--burst") },
    Difference { id: "O14", covers: |place| place.contains(" spec template spec affinity") },
    Difference { id: "O15", covers: |place| is_argument(place, "--plugins") },
    Difference {
        id: "O16",
        covers: |place| is_of_a_shard(place) && (is_condition(place) || is_whole_object(place)),
    },
    Difference {
        id: "O17",
        covers: |place| {
            place.starts_with("condition ") && (place.ends_with(" Available") || place.ends_with(" Ready"))
        },
    },
    Difference { id: "O18", covers: is_of_hand_over },
];

/// Whether the input of a case can show the difference: the rules over settings at rest are those of `kai_migrate`, the
/// others are about a change, or about the state of a deployment.
fn holds(difference: &Difference, facts: &Facts) -> bool {
    match difference.id {
        "O01" => facts.states.iter().any(|state| !state.undeployable.is_empty()),
        "O02" => facts.states.iter().any(|state| state.missing_namespace),
        "O04" => fewer_schedulers(facts),
        "O09" => prometheus_no_longer_wanted(facts),
        "O18" => facts.states.iter().any(|state| !state.settings.shards.is_empty()),
        "O17" => facts.available.iter().any(|step| step + 1 < facts.states.len()),
        id => {
            let rule = installation::RULES.iter().find(|rule| rule.id == id);
            let mut settings = facts.states.iter().map(|state| &state.settings);
            rule.is_some_and(|rule| settings.any(|settings| !(rule.fields)(settings).is_empty()))
        }
    }
}

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(facts: &Facts, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let holding: Vec<&Difference> = DIFFERENCES.iter().filter(|rule| holds(rule, facts)).collect();
    let rule = |mismatch: &Mismatch| holding.iter().find(|rule| (rule.covers)(&mismatch.place));
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    // Every case with a shard shows O18: another rule says more about it.
    let says_more = |mismatch: &Mismatch| rule(mismatch).filter(|rule| rule.id != "O18");
    match mismatches.iter().find_map(says_more).or_else(|| mismatches.iter().find_map(rule)) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
}

fn is_condition(place: &str) -> bool {
    place.starts_with("condition ")
}

/// Whether one side lacks the object.
fn is_whole_object(place: &str) -> bool {
    !place.contains(' ')
}

fn is_argument(place: &str, flag: &str) -> bool {
    place.ends_with(&format!(" args {flag}")) || place.contains(&format!(" args {flag} "))
}

/// Fields of a scheduler's Deployment that decide whether and how its pod is replaced.
fn is_of_hand_over(place: &str) -> bool {
    let field = place.split_once(' ').map_or("", |(_, field)| field);
    place.starts_with("Deployment/")
        && is_of_a_shard(place)
        && (field.starts_with("spec strategy")
            || field.starts_with("spec template metadata annotations")
            || is_argument(place, "--scheduler-conf-map")
            || is_argument(place, "--leader-elect"))
}

/// Objects of shards are named after the scheduler, which no other component is.
fn is_of_a_shard(place: &str) -> bool {
    let object = place.split(' ').next().unwrap_or_default();
    let mut parts = object.split('/').skip(1);
    let name = parts.nth(1).unwrap_or_default();
    let kind = object.split('/').next().unwrap_or_default();
    place.starts_with("condition SchedulingShard/")
        || (["ConfigMap", "EndpointSlice"].contains(&kind))
        || (["Deployment", "Service", "PodDisruptionBudget", "VerticalPodAutoscaler"].contains(&kind)
            && ![
                "admission",
                "binder",
                "node-scale-adjuster",
                "pod-grouper",
                "podgroup-controller",
                "queue-controller",
                "usage-prometheus",
            ]
            .contains(&name))
}

fn scheduler_replicas(config: &Value) -> i64 {
    let number = |pointer: &str| config.pointer(pointer).and_then(Value::as_i64);
    number("/spec/scheduler/replicas").or_else(|| number("/spec/global/replicaCount")).unwrap_or(1)
}

/// The schedulers go from several replicas to one.
fn fewer_schedulers(facts: &Facts) -> bool {
    let replicas: Vec<i64> = facts.configs().map(scheduler_replicas).collect();
    replicas
        .iter()
        .enumerate()
        .any(|(step, count)| *count > 1 && replicas[step..].iter().any(|later| *later <= 1))
}

/// An own Prometheus was wanted, and later is not, or is external.
fn prometheus_no_longer_wanted(facts: &Facts) -> bool {
    let own: Vec<bool> = facts
        .states
        .iter()
        .map(|state| {
            let prometheus =
                state.settings.config.as_ref().and_then(|config| config.pointer("/spec/prometheus"));
            let enabled = prometheus.and_then(|prometheus| prometheus.get("enabled")?.as_bool());
            let url = prometheus.and_then(|prometheus| prometheus.get("externalPrometheusUrl")?.as_str());
            enabled == Some(true) && url.unwrap_or_default().is_empty()
        })
        .collect();
    own.iter().enumerate().any(|(step, wanted)| *wanted && own[step..].contains(&false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_the_same_differences() {
        let known: Vec<&str> = DIFFERENCES.iter().filter_map(|d| d.id.strip_prefix('O')).collect();
        assert_eq!(crate::recorded::documented_rules('O'), known);
    }
}
