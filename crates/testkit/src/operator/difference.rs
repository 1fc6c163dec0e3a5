//! Intended differences from KAI's operator, as rules over the input of a case.
//!
//! `docs/differences.md` describes the same table. Every field that differs must be covered by a rule that holds for the
//! input; predicates never read the id, the expectations or the result of a case.

use super::Input;
use super::cluster::Cluster;
use super::compare::Mismatch;
use kai_migrate::rules::installation::{self, Installation};
use kai_operator::ObjectKey;
use serde_json::{Value, json};

/// Kinds of the objects of a shard.
const SHARD_KINDS: [&str; 6] =
    ["ConfigMap", "Deployment", "EndpointSlice", "PodDisruptionBudget", "Service", "VerticalPodAutoscaler"];

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

    pub(super) fn observe(&mut self, cluster: &Cluster<'_>) {
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

    /// The state after the step of a mismatch.
    fn after(&self, mismatch: &Mismatch) -> &State {
        &self.states[mismatch.step]
    }

    /// Whether an object is of a shard: those are named after the scheduler and the shard.
    fn is_of_a_shard(&self, mismatch: &Mismatch) -> bool {
        SHARD_KINDS.contains(&mismatch.kind())
            && self.states.iter().any(|state| {
                let config = state.settings.config.as_ref();
                let scheduler =
                    config.and_then(|config| config.pointer("/spec/global/schedulerName")?.as_str());
                let scheduler = scheduler.unwrap_or("kai-scheduler");
                state.settings.shards.iter().any(|shard| {
                    let name = format!("{scheduler}-{}", kai_object::name(shard));
                    mismatch.name() == name || mismatch.name() == format!("{name}-leader")
                })
            })
    }
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether the difference can show in a field, with these values. Settings are those after the step, or before it.
    covers: fn(&Facts, &Mismatch) -> bool,
}

/// All differences that the input of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "O01",
        covers: |facts, m| {
            let undeployable = &facts.after(m).undeployable;
            m.reports_failure()
                && is_condition_of(m, "SchedulingShard", |name| undeployable.iter().any(|one| one == name))
        },
    },
    Difference {
        id: "O02",
        covers: |_, m| m.place == "condition Config/kai-config Reconciling" && m.reports_failure(),
    },
    Difference { id: "O03", covers: |facts, m| m.condition_of().is_some() || facts.is_of_a_shard(m) },
    Difference {
        id: "O04",
        covers: |facts, m| {
            m.kind() == "Service" && facts.is_of_a_shard(m) && m.field() == "spec selector" && m.kai.is_null()
        },
    },
    Difference {
        id: "O05",
        covers: |facts, m| {
            let is_service = m.kind() == "Service" && ["spec type", "spec clusterIP"].contains(&m.field());
            is_condition_of(m, "SchedulingShard", |_| true)
                || (facts.is_of_a_shard(m) && (m.is_only_here() || is_service))
        },
    },
    Difference {
        id: "O06",
        covers: |_, m| {
            is_argument(m, "--webhook-bind-address") || m.field().ends_with("clientConfig service port")
        },
    },
    Difference {
        id: "O07",
        covers: |facts, m| {
            let is_monitor = m.kind() == "ServiceMonitor" && m.field().ends_with(" port");
            let port = (m.kind() == "Service" && m.field().ends_with(" targetPort"))
                || (m.kind() == "EndpointSlice" && m.field().starts_with("ports "))
                || ["--metrics-listen-address", "--listen-address"].iter().any(|flag| is_argument(m, flag));
            is_monitor || (port && (m.name() == "queue-controller" || facts.is_of_a_shard(m)))
        },
    },
    Difference { id: "O08", covers: |_, m| m.condition_of().is_some() || m.is_only_here() },
    Difference {
        id: "O09",
        covers: |_, m| {
            is_condition_of(m, "Config", |_| true)
                || (["Prometheus", "ServiceMonitor"].contains(&m.kind()) && m.is_only_here())
        },
    },
    Difference {
        id: "O10",
        covers: |facts, m| {
            facts.is_of_a_shard(m)
                && m.kind() == "ConfigMap"
                && m.field().ends_with(" usageDBConfig connectionString")
        },
    },
    Difference {
        id: "O11",
        covers: |_, m| {
            m.condition_of().is_some() || m.is_only_here() || m.field().contains(" containers 0 resources ")
        },
    },
    Difference {
        id: "O12",
        covers: |_, m| {
            (m.name().contains("numa-placement-exporter") && m.is_only_here())
                || is_condition_of(m, "Config", |_| true)
        },
    },
    Difference { id: "O13", covers: |_, m| is_argument(m, "--qps") || is_argument(m, "--burst") },
    Difference {
        id: "O14",
        covers: |_, m| m.field().starts_with("spec template spec affinity") && m.kai.is_null(),
    },
    Difference {
        id: "O15",
        covers: |_, m| m.field().ends_with(" args --plugins gpusharing arguments cdiEnabled"),
    },
    Difference {
        id: "O16",
        covers: |facts, m| {
            let undeployable = &facts.after(m).undeployable;
            (facts.is_of_a_shard(m) && m.is_only_there())
                || (m.reports_failure()
                    && is_condition_of(m, "SchedulingShard", |name| {
                        undeployable.iter().any(|one| one == name)
                    }))
        },
    },
    Difference {
        id: "O17",
        covers: |_, m| {
            m.reports_failure() && (m.place.ends_with(" Available") || m.place.ends_with(" Ready"))
        },
    },
    Difference { id: "O18", covers: |facts, m| facts.is_of_a_shard(m) && is_of_hand_over(m) },
    Difference { id: "O19", covers: |_, m| m.kind() == "PodDisruptionBudget" && m.is_only_here() },
    Difference {
        id: "O20",
        covers: |_, m| {
            let flags = ["--resource-reservation-pod-image-pull-policy", "--scaling-pod-image-pull-policy"];
            flags.iter().any(|flag| is_argument(m, flag))
        },
    },
    Difference {
        id: "O21",
        covers: |_, m| {
            m.kind() == "Deployment"
                && m.name() == "pod-grouper"
                && is_argument(m, "--assign-at-binding")
                && m.kai.is_null()
                && m.ours == "false"
        },
    },
];

/// Whether the input of a case can show the difference until a step: the rules over settings at rest are those of
/// `kai_migrate`, the others are about a change, or about the state of a deployment.
fn holds(difference: &Difference, facts: &Facts, step: usize) -> bool {
    let states = facts.states.get(..=step).unwrap_or(&facts.states);
    match difference.id {
        "O01" => states.iter().any(|state| !state.undeployable.is_empty()),
        "O02" => states.iter().any(|state| state.missing_namespace),
        "O04" => fewer_schedulers(states),
        "O09" => prometheus_no_longer_wanted(states),
        "O21" => states.iter().any(|state| state.settings.config.is_some()),
        "O18" => states.iter().any(|state| !state.settings.shards.is_empty()),
        "O17" => facts.available.iter().any(|available| *available < step),
        id => {
            let rule = installation::RULES.iter().find(|rule| rule.id == id);
            let mut settings = states.iter().map(|state| &state.settings);
            rule.is_some_and(|rule| settings.any(|settings| !(rule.fields)(settings).is_empty()))
        }
    }
}

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(facts: &Facts, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let rule = |mismatch: &Mismatch| {
        let mut rules = DIFFERENCES.iter();
        rules.find(|rule| holds(rule, facts, mismatch.step) && (rule.covers)(facts, mismatch))
    };
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    // Every case with a shard shows O18: another rule says more about it.
    let says_more = |mismatch: &Mismatch| rule(mismatch).filter(|rule| rule.id != "O18");
    match mismatches.iter().find_map(says_more).or_else(|| mismatches.iter().find_map(rule)) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
}

fn is_condition_of(mismatch: &Mismatch, kind: &str, named: impl Fn(&str) -> bool) -> bool {
    mismatch.condition_of().is_some_and(|(owner, name)| owner == kind && named(name))
}

fn is_argument(mismatch: &Mismatch, flag: &str) -> bool {
    mismatch.field().ends_with(&format!(" args {flag}"))
}

/// What a scheduler's Deployment says about whether and how its pod is replaced.
fn is_of_hand_over(mismatch: &Mismatch) -> bool {
    let Mismatch { kai, ours, .. } = mismatch;
    let version = |value: &Value| value.as_object().is_some_and(|map| map.keys().eq(["configMapVersion"]));
    mismatch.kind() == "Deployment"
        && match mismatch.field() {
            "spec strategy type" => *kai == "Recreate" && *ours == "RollingUpdate",
            "spec strategy rollingUpdate" => {
                kai.is_null() && *ours == json!({"maxSurge": 1, "maxUnavailable": 0})
            }
            "spec template metadata annotations" => version(kai) && ours.is_null(),
            "spec template metadata annotations configMapVersion" => kai.is_string() && ours.is_null(),
            "spec template spec containers 0 args --scheduler-conf-map" => {
                kai.is_null() && *ours == mismatch.name()
            }
            "spec template spec containers 0 args --leader-elect" => kai.is_null() && *ours == "true",
            _ => false,
        }
}

fn scheduler_replicas(config: &Value) -> i64 {
    let number = |pointer: &str| config.pointer(pointer).and_then(Value::as_i64);
    number("/spec/scheduler/replicas").or_else(|| number("/spec/global/replicaCount")).unwrap_or(1)
}

/// The schedulers go from several replicas to one.
fn fewer_schedulers(states: &[State]) -> bool {
    let configs = states.iter().filter_map(|state| state.settings.config.as_ref());
    let replicas: Vec<i64> = configs.map(scheduler_replicas).collect();
    replicas
        .iter()
        .enumerate()
        .any(|(step, count)| *count > 1 && replicas[step..].iter().any(|later| *later <= 1))
}

/// An own Prometheus was wanted, and later is not, or is external.
fn prometheus_no_longer_wanted(states: &[State]) -> bool {
    let own: Vec<bool> = states
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

    const CONFIG: &str =
        r#"{"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}}"#;

    /// Facts after the creation of a Config with a shard.
    fn facts(shard: &Value) -> Facts {
        let step =
            json!({"do": "create", "objects": [shard, serde_json::from_str::<Value>(CONFIG).unwrap()]});
        let input = json!({"operator": {"env": {}}, "thirdPartyCRDs": [], "existing": [], "steps": [step]});
        let input: Input = serde_json::from_value(input).unwrap();
        let admit = |object: &Value| Ok(Ok(object.clone()));
        let mut cluster = Cluster::new(&input, &admit).unwrap();
        assert_eq!(cluster.step(&input.steps[0]).unwrap(), None);
        let mut facts = Facts::new(&input);
        facts.observe(&cluster);
        facts
    }

    fn explained(facts: &Facts, place: &str, kai: Value, ours: Value) -> Option<&'static str> {
        explain(facts, &[Mismatch { place: place.to_owned(), step: 0, kai, ours }]).ok()
    }

    fn shard(spec: &Value) -> Value {
        json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn hand_over_covers_only_what_the_operator_writes_for_it() {
        let facts = facts(&shard(&json!({})));
        let strategy = |name: &str| format!("Deployment/kai-scheduler/{name} spec strategy type");
        let rolling = |place: &str| explained(&facts, place, json!("Recreate"), json!("RollingUpdate"));
        assert_eq!(rolling(&strategy("kai-scheduler-a")), Some("O18"));
        assert_eq!(rolling(&strategy("binder")), None);
        assert_eq!(rolling(&strategy("kai-scheduler-b")), None, "there is no such shard");
        let place = strategy("kai-scheduler-a");
        assert_eq!(explained(&facts, &place, json!("RollingUpdate"), json!("Recreate")), None);
    }

    #[test]
    fn condition_of_a_broken_shard_must_say_that_it_is_broken() {
        let facts = facts(&shard(&json!({"goMemLimit": "0"})));
        let place = "condition SchedulingShard/a Ready";
        let (good, bad) = (json!({"status": "True"}), json!({"status": "False"}));
        assert_eq!(explained(&facts, place, good.clone(), bad.clone()), Some("O01"));
        assert_eq!(explained(&facts, place, bad.clone(), good.clone()), None);
        assert_eq!(explained(&facts, "condition SchedulingShard/b Ready", good, bad), None);
    }

    #[test]
    fn refused_settings_change_nothing() {
        let input = json!({"operator": {"env": {}}, "thirdPartyCRDs": [], "existing": [], "steps": []});
        let input: Input = serde_json::from_value(input).unwrap();
        let admit = |_: &Value| Ok(Err("spec.nodePool: unknown".to_owned()));
        let mut cluster = Cluster::new(&input, &admit).unwrap();
        let refused = cluster.step(&json!({"do": "create", "objects": [shard(&json!({}))]})).unwrap();
        assert_eq!(refused.as_deref(), Some("spec.nodePool: unknown"));
        assert!(cluster.objects.is_empty());
    }
}
