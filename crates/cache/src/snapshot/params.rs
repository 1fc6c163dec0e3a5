//! The small members of a snapshot: process parameters, API discovery, and the input of a replay.

use crate::config_file::{ConfigError, Fields};
use crate::object::Objects;
use crate::object::value::{List, Stamp, Text, null_is_empty};
use crate::settings::Settings;
use crate::store::Store;
use kai_api::well_known::{label, label_value, name};
use kai_engine::outcome::Cycle;
use kai_engine::policy::Params;
use kai_units::Span;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Process parameters of the scheduler that wrote the snapshot. Absent members are empty, 0 or false.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub struct SchedulerParams {
    pub scheduler_name: String,
    /// Only nodes with a worker label are used.
    pub restrict_nodes: bool,
    pub node_pool_key: String,
    pub node_pool_value: String,
    /// Limit of victim groups of a consolidation; negative is unlimited.
    pub max_consolidation_victims: i64,
    pub csi_storage: bool,
    /// Skip groups with the scheduling signature of one that failed.
    pub use_signatures: bool,
    pub full_hierarchy_fairness: bool,
    /// Victims that are placed on another node do not count as reclaimed.
    pub allow_consolidating_reclaim: bool,
    pub detailed_fit_errors: bool,
    pub update_pod_eviction_condition: bool,
    pub status_workers: i64,
    pub staleness_grace: Span,
    pub schedule_period: Span,
    /// When a terminating pod counts as stuck.
    pub stuck_threshold: Span,
    pub queue_label_key: String,
}

impl Default for SchedulerParams {
    /// The defaults of the scheduler's command line.
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            restrict_nodes: false,
            node_pool_key: label::NODE_POOL.to_owned(),
            node_pool_value: String::new(),
            max_consolidation_victims: 16,
            csi_storage: false,
            use_signatures: true,
            full_hierarchy_fairness: true,
            allow_consolidating_reclaim: true,
            detailed_fit_errors: false,
            update_pod_eviction_condition: false,
            status_workers: 5,
            staleness_grace: Span::from_secs(60),
            schedule_period: Span::from_secs(1),
            stuck_threshold: Span::from_secs(120),
            queue_label_key: label::QUEUE.to_owned(),
        }
    }
}

impl SchedulerParams {
    /// The parameters of a running scheduler; those that do not affect decisions have defaults.
    pub fn of(settings: &Settings, params: &Params) -> Self {
        Self {
            scheduler_name: settings.scheduler_name.clone(),
            restrict_nodes: settings.restrict_nodes,
            node_pool_key: settings.node_pool_key.clone(),
            node_pool_value: settings.node_pool_value.clone(),
            max_consolidation_victims: params.max_consolidation_victims.map_or(-1, i64::from),
            csi_storage: params.csi_storage,
            use_signatures: params.use_signatures,
            full_hierarchy_fairness: settings.full_hierarchy_fairness,
            allow_consolidating_reclaim: params.allow_consolidating_reclaim,
            staleness_grace: params.staleness_grace,
            stuck_threshold: params.stuck_threshold,
            queue_label_key: settings.queue_label_key.clone(),
            ..Self::default()
        }
    }

    pub(super) fn read(value: &Value) -> Result<Self, ConfigError> {
        const NANOS: &str = "write whole nanoseconds as a number";
        let fields = Fields::of(value, "schedulerParams")?;
        let text = |name: &str| fields.text(name).map(|text| text.unwrap_or_default().to_owned());
        let span = |name: &str| fields.integer(name, NANOS).map(|nanos| Span(nanos / 1000));
        let Some(partition) = fields.get("partitionParams") else {
            return Err(ConfigError::Value {
                field: "schedulerParams.partitionParams".to_owned(),
                problem: "it is missing".to_owned(),
                hint: "write {\"NodePoolLabelKey\": \"kai.scheduler/node-pool\", \"NodePoolLabelValue\": \"\"}",
            });
        };
        let partition = Fields::of(partition, "schedulerParams.partitionParams")?;
        let pool = |name: &str| partition.text(name).map(|text| text.unwrap_or_default().to_owned());
        Ok(Self {
            scheduler_name: text("schedulerName")?,
            restrict_nodes: fields.truth("restrictSchedulingNodes")?,
            node_pool_key: pool("NodePoolLabelKey")?,
            node_pool_value: pool("NodePoolLabelValue")?,
            max_consolidation_victims: fields
                .integer("maxNumberConsolidationPreemptees", "write a number")?,
            csi_storage: fields.truth("scheduleCSIStorage")?,
            use_signatures: fields.truth("useSchedulingSignatures")?,
            full_hierarchy_fairness: fields.truth("fullHierarchyFairness")?,
            allow_consolidating_reclaim: fields.truth("allowConsolidatingReclaim")?,
            detailed_fit_errors: fields.truth("detailedFitErrors")?,
            update_pod_eviction_condition: fields.truth("updatePodEvictionCondition")?,
            status_workers: fields.integer("numOfStatusRecordingWorkers", "write a number")?,
            staleness_grace: span("globalDefaultStalenessGracePeriod")?,
            schedule_period: span("schedulePeriod")?,
            stuck_threshold: span("stuckInReleasingThreshold")?,
            queue_label_key: text("queueLabelKey")?,
        })
    }

    #[expect(clippy::indexing_slicing, reason = "fields of an object that is made here")]
    pub(super) fn value(&self) -> Value {
        let nanos = |span: Span| span.0.saturating_mul(1000);
        let mut all = json!({
            "schedulerName": self.scheduler_name,
            "restrictSchedulingNodes": self.restrict_nodes,
            "maxNumberConsolidationPreemptees": self.max_consolidation_victims,
            "scheduleCSIStorage": self.csi_storage,
            "useSchedulingSignatures": self.use_signatures,
            "fullHierarchyFairness": self.full_hierarchy_fairness,
            "allowConsolidatingReclaim": self.allow_consolidating_reclaim,
            "detailedFitErrors": self.detailed_fit_errors,
            "updatePodEvictionCondition": self.update_pod_eviction_condition,
            "numOfStatusRecordingWorkers": self.status_workers,
            "globalDefaultStalenessGracePeriod": nanos(self.staleness_grace),
            "schedulePeriod": nanos(self.schedule_period),
            "stuckInReleasingThreshold": nanos(self.stuck_threshold),
            "queueLabelKey": self.queue_label_key,
        });
        if let Value::Object(map) = &mut all {
            let kept: Map<String, Value> = std::mem::take(map)
                .into_iter()
                .filter(|(_, v)| *v != json!(false) && *v != json!(0) && *v != json!(""))
                .collect();
            *map = kept;
        }
        all["partitionParams"] =
            json!({ "NodePoolLabelKey": self.node_pool_key, "NodePoolLabelValue": self.node_pool_value });
        all
    }
}

/// The API server's discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Discovery {
    pub server_version: Option<ServerVersion>,
    pub resources: List<GroupVersion>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerVersion {
    pub major: Text,
    /// Minor version, possibly with a suffix.
    pub minor: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub git_version: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupVersion {
    /// Such as `resource.k8s.io/v1`.
    pub group_version: Text,
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: List<ApiResource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiResource {
    pub name: Text,
    pub singular_name: Text,
    #[serde(deserialize_with = "null_is_empty")]
    pub namespaced: bool,
    pub kind: Text,
    pub verbs: List<Text>,
}

impl Discovery {
    /// The discovery of a server that serves these objects.
    pub fn of(objects: &Objects) -> Self {
        let device = !objects.resource_claims.is_empty()
            || !objects.resource_slices.is_empty()
            || !objects.device_classes.is_empty();
        let numa = !objects.node_resource_topologies.is_empty();
        let group = |group_version: &str, kinds: &[(&str, &str, bool)]| GroupVersion {
            group_version: group_version.into(),
            resources: kinds
                .iter()
                .map(|(name, kind, namespaced)| ApiResource {
                    name: (*name).into(),
                    kind: (*kind).into(),
                    namespaced: *namespaced,
                    verbs: ["list", "watch"].map(Text::from).into_iter().collect(),
                    ..ApiResource::default()
                })
                .collect(),
        };
        let mut resources = Vec::new();
        if device {
            let kinds = [
                ("resourceclaims", "ResourceClaim", true),
                ("resourceslices", "ResourceSlice", false),
                ("deviceclasses", "DeviceClass", false),
            ];
            resources.push(group("resource.k8s.io/v1", &kinds));
        }
        if numa {
            let kinds = [("noderesourcetopologies", "NodeResourceTopology", false)];
            resources.push(group("topology.node.k8s.io/v1alpha2", &kinds));
        }
        let version = ServerVersion { major: "1".into(), minor: "32".into(), git_version: "v1.32.0".into() };
        Self { server_version: (device || numa).then_some(version), resources: resources.into() }
    }

    /// As in KAI, from server 1.26 and `resource.k8s.io/v1beta1` on.
    pub fn serves_device_claims(&self) -> bool {
        let number = |text: &str| -> u32 {
            let digits = text.split(|c: char| !c.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let version = self.server_version.as_ref().map(|v| (number(&v.major), number(&v.minor)));
        let versions = self.resources.iter().filter_map(|r| r.group_version.strip_prefix("resource.k8s.io/"));
        version.is_some_and(|v| v >= (1, 26)) && versions.into_iter().any(|v| !v.contains("alpha"))
    }

    pub fn serves_numa_zones(&self) -> bool {
        self.resources.iter().any(|r| r.group_version.starts_with("topology.node.k8s.io/"))
    }
}

/// Input of a cycle beyond KAI's content. The lists of disruption budgets, CSI nodes and namespaces beside these members
/// are kept with the other objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replay {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Names that KAI keeps outside of snapshots.
    #[serde(deserialize_with = "null_is_empty")]
    pub params: Names,
    /// Historical usage by queue: cpu, memory and gpu as fractions of the cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub usage: BTreeMap<String, [f64; 3]>,
    /// Assumed decisions that the objects do not reflect yet.
    #[serde(skip_serializing_if = "Assumed::is_empty", deserialize_with = "null_is_empty")]
    pub assumed: Assumed,
}

impl Replay {
    pub fn of(store: &Store, cycle: Cycle) -> Self {
        let settings = store.settings();
        let evictions = store.evictions().iter().map(|(key, eviction)| AssumedEviction {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: eviction.uid.clone(),
            since: Stamp(eviction.since),
        });
        Self {
            now: Some(Stamp(cycle.now)),
            seed: Some(cycle.seed),
            params: Names {
                reservation_app: settings.reservation_app.clone(),
                cpu_worker_label: settings.cpu_worker_label.clone(),
                gpu_worker_label: settings.gpu_worker_label.clone(),
                mig_label: settings.mig_label.clone(),
            },
            usage: store.usage().clone(),
            assumed: Assumed { evictions: evictions.collect() },
        }
    }
}

/// Names that KAI keeps outside of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Names {
    /// Value of the label `app` on reservation pods.
    pub reservation_app: String,
    pub cpu_worker_label: String,
    pub gpu_worker_label: String,
    pub mig_label: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            reservation_app: label_value::RESOURCE_RESERVATION.to_owned(),
            cpu_worker_label: label::CPU_WORKER.to_owned(),
            gpu_worker_label: label::GPU_WORKER.to_owned(),
            mig_label: label::MIG_ENABLED.to_owned(),
        }
    }
}

/// Assumed decisions that the objects do not reflect yet. Assumed bindings are in the list of bind requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assumed {
    #[serde(deserialize_with = "null_is_empty")]
    pub evictions: Vec<AssumedEviction>,
}

impl Assumed {
    fn is_empty(&self) -> bool {
        self.evictions.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssumedEviction {
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub since: Stamp,
}
