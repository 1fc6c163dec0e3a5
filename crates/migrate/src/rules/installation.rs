//! What the operator does differently, as rules over the settings of an installation.

use kai_units::{Quantity, duration};
use serde_json::Value;

/// The settings of an installation, and what else of the cluster they depend on.
#[derive(Clone, Debug, Default)]
pub struct Installation {
    /// The `Config` with the name that counts.
    pub config: Option<Value>,
    /// All `SchedulingShard`s.
    pub shards: Vec<Value>,
    /// Whether the cluster serves vertical pod autoscalers; `None` where it is not known.
    pub serves_autoscalers: Option<bool>,
    /// `ClusterPolicy` objects of the GPU operator.
    pub cluster_policies: Vec<Value>,
}

pub struct Rule {
    /// The id in `docs/differences.md`.
    pub id: &'static str,
    /// The fields with which the difference shows, such as `Config spec.global.vpa`.
    pub fields: fn(&Installation) -> Vec<String>,
}

/// All differences that settings can show at rest.
pub const RULES: &[Rule] = &[
    Rule { id: "O03", fields: malformed_durations },
    Rule {
        id: "O05",
        fields: |all| all.config_field("/spec/scheduler/schedulerService/type", |kind| kind != "ClusterIP"),
    },
    Rule { id: "O06", fields: webhook_ports },
    Rule { id: "O07", fields: metrics_ports },
    Rule { id: "O08", fields: autoscaler_without_crd },
    Rule {
        id: "O10",
        fields: |all| {
            if all.config_field("/spec/prometheus/enabled", |on| *on == true).is_empty() {
                return Vec::new();
            }
            all.config_field("/spec/prometheus/externalPrometheusUrl", |url| url != "")
        },
    },
    Rule { id: "O11", fields: conflicting_resources },
    Rule {
        id: "O12",
        fields: |all| all.shard_fields("/spec/plugins/numa", |plugin| plugin.get("enabled").is_none()),
    },
    Rule { id: "O13", fields: client_limits },
    Rule {
        id: "O14",
        fields: |all| all.config_field("/spec/global/requireDefaultPodAntiAffinityTerm", |on| *on == true),
    },
    Rule { id: "O15", fields: version_without_letter },
    Rule { id: "O16", fields: same_partition },
    Rule { id: "O19", fields: disruption_budgets },
    Rule { id: "O20", fields: pull_policies },
];

impl Installation {
    /// The field of the `Config`, if it has a value for which the predicate holds.
    fn config_field(&self, pointer: &str, holds: impl Fn(&Value) -> bool) -> Vec<String> {
        let value = self.config.as_ref().and_then(|config| config.pointer(pointer));
        let value = value.filter(|value| !value.is_null() && holds(value));
        value.map(|_| format!("Config {}", path(pointer))).into_iter().collect()
    }

    fn shard_fields(&self, pointer: &str, holds: impl Fn(&Value) -> bool) -> Vec<String> {
        let shards = self.shards.iter().filter(|shard| shard.pointer(pointer).is_some_and(&holds));
        shards.map(|shard| format!("SchedulingShard {} {}", kai_object::name(shard), path(pointer))).collect()
    }

    /// Name and settings of each part of the `Config`.
    fn sections(&self) -> impl Iterator<Item = (&String, &Value)> {
        let spec = self.config.as_ref().and_then(|config| config.get("spec")?.as_object());
        spec.into_iter().flatten()
    }
}

fn path(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// Durations of a shard that KAI's types cannot hold.
fn malformed_durations(all: &Installation) -> Vec<String> {
    let malformed = |text: &Value| text.as_str().is_some_and(|text| duration::parse_go(text).is_err());
    let params = ["halfLifePeriod", "fetchInterval", "stalenessPeriod", "waitTimeout"];
    let budgets = ["maxJobSearchDuration", "minJobSearchDuration"];
    let maps = ["maxActionSearchDuration", "maxGeneratorSearchDuration"];
    let mut fields = Vec::new();
    for field in params {
        fields.extend(all.shard_fields(&format!("/spec/usageDBConfig/usageParams/{field}"), malformed));
    }
    for field in budgets {
        fields.extend(all.shard_fields(&format!("/spec/scenarioSearchBudgets/{field}"), malformed));
    }
    for field in maps {
        let in_map = |map: &Value| map.as_object().is_some_and(|map| map.values().any(malformed));
        fields.extend(all.shard_fields(&format!("/spec/scenarioSearchBudgets/{field}"), in_map));
    }
    fields
}

/// A webhook's port is not the default, or its process listens elsewhere.
fn webhook_ports(all: &Installation) -> Vec<String> {
    let mut fields = all.config_field("/spec/admission/webhook/port", |port| *port != 443);
    for controller in ["queueController", "podGroupController"] {
        let mapping = format!("/spec/{controller}/controllerService/webhook");
        fields.extend(all.config_field(&format!("{mapping}/port"), |port| *port != 443));
        fields.extend(all.config_field(&format!("{mapping}/targetPort"), |port| *port != 9443));
    }
    fields
}

/// The metrics of the queue controller or of schedulers have a port of their own.
fn metrics_ports(all: &Installation) -> Vec<String> {
    let mappings = ["/spec/scheduler/schedulerService", "/spec/queueController/controllerService/metrics"];
    let fields = mappings.iter().flat_map(|mapping| {
        ["port", "targetPort", "name"]
            .into_iter()
            .flat_map(move |field| all.config_field(&format!("{mapping}/{field}"), |_| true))
    });
    fields.collect()
}

fn autoscaler_without_crd(all: &Installation) -> Vec<String> {
    if all.serves_autoscalers != Some(false) {
        return Vec::new();
    }
    let enabled =
        all.sections().filter(|(_, section)| section.pointer("/vpa/enabled") == Some(&Value::Bool(true)));
    enabled.map(|(name, _)| format!("Config spec.{name}.vpa.enabled")).collect()
}

fn client_limits(all: &Installation) -> Vec<String> {
    let components = ["podGrouper", "scheduler", "nodeScaleAdjuster", "numaPlacementExporter"];
    let fields = components.iter().flat_map(|component| {
        all.config_field(&format!("/spec/{component}/service/k8sClientConfig"), |_| true)
    });
    fields.collect()
}

fn disruption_budgets(all: &Installation) -> Vec<String> {
    let components = ["binder", "queueController", "podGroupController"];
    let fields = components.iter().flat_map(|component| {
        let pointer = format!("/spec/{component}/service/podDisruptionBudget/enabled");
        all.config_field(&pointer, |on| *on == true)
    });
    fields.collect()
}

fn pull_policies(all: &Installation) -> Vec<String> {
    let images = ["/spec/binder/resourceReservation/image", "/spec/nodeScaleAdjuster/args/scalingPodImage"];
    let fields = images.iter().flat_map(|image| {
        all.config_field(&format!("{image}/pullPolicy"), |policy| *policy != "" && *policy != "IfNotPresent")
    });
    fields.collect()
}

fn version_without_letter(all: &Installation) -> Vec<String> {
    let unusual = all.cluster_policies.iter().filter(|policy| {
        let version = policy.pointer("/metadata/labels/app.kubernetes.io~1version").and_then(Value::as_str);
        version.is_some_and(|version| !version.starts_with('v'))
    });
    unusual.map(|policy| format!("ClusterPolicy {}", kai_object::name(policy))).collect()
}

/// A request exceeds a default limit, or a limit is below a default request.
fn conflicting_resources(all: &Installation) -> Vec<String> {
    // Default requests and limits of a component.
    let memory = |component: &str| match component {
        "binder" => ("200Mi", "200Mi"),
        "scheduler" => ("512Mi", "512Mi"),
        _ => ("256Mi", "512Mi"),
    };
    let cpu = |component: &str| if component == "scheduler" { ("250m", "700m") } else { ("50m", "100m") };
    let mut fields = Vec::new();
    for (component, section) in all.sections() {
        for (resource, defaults) in [("cpu", cpu(component)), ("memory", memory(component))] {
            let set = |list: &str| {
                section.pointer(&format!("/service/resources/{list}/{resource}")).and_then(quantity)
            };
            let (request, limit) = (set("requests"), set("limits"));
            let default = |text: &str| text.parse::<Quantity>().ok();
            let exceeds =
                |a: Option<Quantity>, b: Option<Quantity>| matches!((a, b), (Some(a), Some(b)) if a > b);
            if (limit.is_none() && exceeds(request, default(defaults.1)))
                || (request.is_none() && exceeds(default(defaults.0), limit))
            {
                fields.push(format!("Config spec.{component}.service.resources"));
            }
        }
    }
    fields.dedup();
    fields
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Shards whose node pool an earlier shard has.
fn same_partition(all: &Installation) -> Vec<String> {
    let pool = |shard: &Value| kai_object::str_at(shard, "/spec/partitionLabelValue").to_owned();
    let mut shards: Vec<&Value> = all.shards.iter().collect();
    shards.sort_by_key(|shard| kai_object::name(shard));
    let repeated = shards
        .iter()
        .enumerate()
        .filter(|(index, shard)| shards.iter().take(*index).any(|earlier| pool(earlier) == pool(shard)));
    repeated
        .map(|(_, shard)| format!("SchedulingShard {} spec.partitionLabelValue", kai_object::name(shard)))
        .collect()
}
