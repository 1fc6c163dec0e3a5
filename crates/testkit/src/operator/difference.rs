//! Intended differences from KAI's operator, as rules over the input of a case.
//!
//! `docs/differences.md` describes the same table. Every field that differs must be covered by a rule that holds for the
//! input; predicates never read the id, the expectations or the result of a case.

use super::Input;
use super::cluster::Cluster;
use super::compare::Mismatch;
use kai_operator::ObjectKey;
use kai_units::{Quantity, duration};
use serde_json::Value;

/// The input of a case: its objects, and the settings after each step.
pub struct Facts {
    third_party_crds: Vec<String>,
    existing: Vec<Value>,
    /// After each step.
    states: Vec<Settings>,
    /// Numbers of steps that set the Deployments to available.
    available: Vec<usize>,
}

/// The settings after a step.
struct Settings {
    config: Option<Value>,
    shards: Vec<Value>,
    /// Names of shards that cannot be deployed with these settings.
    undeployable: Vec<String>,
    /// Whether an object goes to a namespace that does not exist.
    missing_namespace: bool,
}

impl Facts {
    pub(super) fn new(input: &Input) -> Self {
        let steps = input.steps.iter().enumerate();
        let available = steps.filter(|(_, step)| step.get("do").and_then(Value::as_str) == Some("available"));
        Self {
            third_party_crds: input.third_party_crds.clone(),
            existing: input.existing.clone(),
            states: Vec::new(),
            available: available.map(|(number, _)| number).collect(),
        }
    }

    pub(super) fn observe(&mut self, cluster: &Cluster) {
        let shards = cluster.objects.iter().filter(|(key, _)| key.kind == "SchedulingShard");
        let (desired, unreadable) = cluster.desired();
        let failed = desired.shards.iter().filter(|(_, operand)| operand.error.is_some());
        self.states.push(Settings {
            config: cluster.objects.get(&ObjectKey::new("Config", "", "kai-config")).cloned(),
            shards: shards.map(|(_, shard)| shard.clone()).collect(),
            undeployable: failed.map(|(name, _)| name.clone()).chain(unreadable.into_keys()).collect(),
            missing_namespace: desired.objects().any(|object| !cluster.has_namespace(object)),
        });
    }

    fn configs(&self) -> impl Iterator<Item = &Value> {
        self.states.iter().filter_map(|state| state.config.as_ref())
    }

    fn shards(&self) -> impl Iterator<Item = &Value> {
        self.states.iter().flat_map(|state| &state.shards)
    }

    /// A field of the `Config` in some step.
    fn config_has(&self, pointer: &str, holds: impl Fn(&Value) -> bool) -> bool {
        self.configs().any(|config| config.pointer(pointer).is_some_and(&holds))
    }

    fn shard_has(&self, pointer: &str, holds: impl Fn(&Value) -> bool) -> bool {
        self.shards().any(|shard| shard.pointer(pointer).is_some_and(&holds))
    }
}

pub struct Difference {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// Whether the input of a case can show the difference.
    pub holds: fn(&Facts) -> bool,
    /// Whether the difference can show in a place.
    pub covers: fn(&str) -> bool,
}

/// All differences that the input of a recorded case can show.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "O01",
        holds: |facts| facts.states.iter().any(|state| !state.undeployable.is_empty()),
        covers: |place| place.starts_with("condition SchedulingShard/"),
    },
    Difference {
        id: "O02",
        holds: |facts| facts.states.iter().any(|state| state.missing_namespace),
        covers: |place| place == "condition Config/kai-config Reconciling",
    },
    Difference { id: "O03", holds: malformed_duration, covers: |_| true },
    Difference {
        id: "O04",
        holds: fewer_schedulers,
        covers: |place| place.starts_with("Service/") && place.ends_with(" spec selector"),
    },
    Difference {
        id: "O05",
        holds: |facts| facts.config_has("/spec/scheduler/schedulerService/type", |kind| kind != "ClusterIP"),
        covers: is_of_a_shard,
    },
    Difference {
        id: "O06",
        holds: webhook_ports,
        covers: |place| {
            is_argument(place, "--webhook-bind-address") || place.contains("clientConfig service port")
        },
    },
    Difference {
        id: "O07",
        holds: metrics_ports,
        covers: |place| {
            ["--metrics-listen-address", "--listen-address"].iter().any(|flag| is_argument(place, flag))
                || (place.starts_with("Service/") && place.ends_with(" targetPort"))
                || (place.starts_with("EndpointSlice/") && place.contains(" ports "))
                || (place.starts_with("ServiceMonitor/") && place.ends_with(" port"))
        },
    },
    Difference { id: "O08", holds: autoscaler_without_crd, covers: |_| true },
    Difference {
        id: "O09",
        holds: prometheus_no_longer_wanted,
        covers: |place| {
            place.starts_with("condition Config/")
                || ["Prometheus/", "ServiceMonitor/"].iter().any(|kind| place.starts_with(kind))
        },
    },
    Difference {
        id: "O10",
        holds: |facts| {
            facts.config_has("/spec/prometheus/externalPrometheusUrl", |url| url != "")
                && facts.config_has("/spec/prometheus/enabled", |on| *on == true)
        },
        covers: |place| place.starts_with("ConfigMap/") && place.contains("usageDBConfig"),
    },
    Difference { id: "O11", holds: conflicting_resources, covers: |_| true },
    Difference {
        id: "O12",
        holds: |facts| facts.shard_has("/spec/plugins/numa", |plugin| plugin.get("enabled").is_none()),
        covers: |place| place.contains("numa-placement-exporter") || place.starts_with("condition Config/"),
    },
    Difference {
        id: "O13",
        holds: |facts| {
            ["podGrouper", "scheduler", "nodeScaleAdjuster", "numaPlacementExporter"].iter().any(
                |component| {
                    facts.config_has(&format!("/spec/{component}/service/k8sClientConfig"), |limits| {
                        limits != &Value::Null
                    })
                },
            )
        },
        covers: |place| is_argument(place, "--qps") || is_argument(place, "--burst"),
    },
    Difference {
        id: "O14",
        holds: |facts| facts.config_has("/spec/global/requireDefaultPodAntiAffinityTerm", |on| *on == true),
        covers: |place| place.contains(" spec template spec affinity"),
    },
    Difference {
        id: "O15",
        holds: |facts| {
            facts.existing.iter().filter(|object| kai_object::kind(object) == "ClusterPolicy").any(|policy| {
                let version =
                    policy.pointer("/metadata/labels/app.kubernetes.io~1version").and_then(Value::as_str);
                version.is_some_and(|version| !version.starts_with('v'))
            })
        },
        covers: |place| is_argument(place, "--plugins"),
    },
    Difference { id: "O16", holds: same_partition, covers: is_of_a_shard },
    Difference {
        id: "O17",
        holds: |facts| facts.available.iter().any(|step| step + 1 < facts.states.len()),
        covers: |place| {
            place.starts_with("condition ") && (place.ends_with(" Available") || place.ends_with(" Ready"))
        },
    },
];

/// The id of the first rule that explains a mismatch, if rules explain all of them; else those without a rule.
pub(super) fn explain(facts: &Facts, mismatches: &[Mismatch]) -> Result<&'static str, Vec<Mismatch>> {
    let holding: Vec<&Difference> = DIFFERENCES.iter().filter(|rule| (rule.holds)(facts)).collect();
    let rule = |mismatch: &Mismatch| holding.iter().find(|rule| (rule.covers)(&mismatch.place));
    let unexplained: Vec<Mismatch> = mismatches.iter().filter(|m| rule(m).is_none()).cloned().collect();
    match mismatches.iter().find_map(rule) {
        Some(rule) if unexplained.is_empty() => Ok(rule.id),
        _ => Err(unexplained),
    }
}

fn is_argument(place: &str, flag: &str) -> bool {
    place.contains(&format!(" args {flag}")) || place.ends_with(" args")
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

/// A shard has a duration that KAI's types cannot hold.
fn malformed_duration(facts: &Facts) -> bool {
    let malformed = |text: &Value| text.as_str().is_some_and(|text| duration::parse_go(text).is_err());
    let params = ["halfLifePeriod", "fetchInterval", "stalenessPeriod", "waitTimeout"];
    let budgets = ["maxJobSearchDuration", "minJobSearchDuration"];
    let maps = ["maxActionSearchDuration", "maxGeneratorSearchDuration"];
    params.iter().any(|field| facts.shard_has(&format!("/spec/usageDBConfig/usageParams/{field}"), malformed))
        || budgets
            .iter()
            .any(|field| facts.shard_has(&format!("/spec/scenarioSearchBudgets/{field}"), malformed))
        || maps.iter().any(|field| {
            facts.shard_has(&format!("/spec/scenarioSearchBudgets/{field}"), |map| {
                map.as_object().is_some_and(|map| map.values().any(malformed))
            })
        })
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

/// A webhook's port is not the default, or its process listens elsewhere.
fn webhook_ports(facts: &Facts) -> bool {
    facts.config_has("/spec/admission/webhook/port", |port| *port != 443)
        || ["queueController", "podGroupController"].iter().any(|controller| {
            let mapping = format!("/spec/{controller}/controllerService/webhook");
            facts.config_has(&format!("{mapping}/port"), |port| *port != 443)
                || facts.config_has(&format!("{mapping}/targetPort"), |port| *port != 9443)
        })
}

/// The metrics of the queue controller or of schedulers have a port of their own.
fn metrics_ports(facts: &Facts) -> bool {
    ["/spec/scheduler/schedulerService", "/spec/queueController/controllerService/metrics"].iter().any(
        |mapping| {
            ["port", "targetPort", "name"]
                .iter()
                .any(|field| facts.config_has(&format!("{mapping}/{field}"), |_| true))
        },
    )
}

fn autoscaler_without_crd(facts: &Facts) -> bool {
    let served = facts.third_party_crds.iter().any(|crd| crd.starts_with("verticalpodautoscalers."));
    let enabled = facts.configs().any(|config| {
        let sections = config.get("spec").and_then(Value::as_object);
        let mut sections = sections.into_iter().flat_map(|sections| sections.values());
        sections.any(|section| section.pointer("/vpa/enabled").and_then(Value::as_bool) == Some(true))
    });
    enabled && !served
}

/// An own Prometheus was wanted, and later is not, or is external.
fn prometheus_no_longer_wanted(facts: &Facts) -> bool {
    let own: Vec<bool> = facts
        .states
        .iter()
        .map(|state| {
            let prometheus = state.config.as_ref().and_then(|config| config.pointer("/spec/prometheus"));
            let enabled = prometheus.and_then(|prometheus| prometheus.get("enabled")?.as_bool());
            let url = prometheus.and_then(|prometheus| prometheus.get("externalPrometheusUrl")?.as_str());
            enabled == Some(true) && url.unwrap_or_default().is_empty()
        })
        .collect();
    own.iter().enumerate().any(|(step, wanted)| *wanted && own[step..].contains(&false))
}

/// A request exceeds a default limit, or a limit is below a default request.
fn conflicting_resources(facts: &Facts) -> bool {
    // Components, and their default requests and limits.
    let memory = |component: &str| match component {
        "binder" => ("200Mi", "200Mi"),
        "scheduler" => ("512Mi", "512Mi"),
        _ => ("256Mi", "512Mi"),
    };
    let cpu = |component: &str| if component == "scheduler" { ("250m", "700m") } else { ("50m", "100m") };
    facts.configs().any(|config| {
        let sections = config.get("spec").and_then(Value::as_object).into_iter().flatten();
        sections.into_iter().any(|(component, section)| {
            [("cpu", cpu(component)), ("memory", memory(component))].iter().any(|(resource, defaults)| {
                let set = |list: &str| {
                    section.pointer(&format!("/service/resources/{list}/{resource}")).and_then(quantity)
                };
                let (request, limit) = (set("requests"), set("limits"));
                let default = |text: &str| text.parse::<Quantity>().ok();
                let exceeds =
                    |a: Option<Quantity>, b: Option<Quantity>| matches!((a, b), (Some(a), Some(b)) if a > b);
                (limit.is_none() && exceeds(request, default(defaults.1)))
                    || (request.is_none() && exceeds(default(defaults.0), limit))
            })
        })
    })
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Two shards have the same node pool.
fn same_partition(facts: &Facts) -> bool {
    facts.states.iter().any(|state| {
        let mut partitions: Vec<&str> = state
            .shards
            .iter()
            .map(|shard| {
                shard.pointer("/spec/partitionLabelValue").and_then(Value::as_str).unwrap_or_default()
            })
            .collect();
        let count = partitions.len();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.len() < count
    })
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
