//! `SchedulingShard` (`kai.scheduler/v1`): one scheduler for one node pool, with its own policy.

use crate::{optional::all_optional, schema::custom_resource_schema, value::null_is_empty};
use k8s_openapi::{
    apimachinery::pkg::api::resource::Quantity,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

all_optional! {
    /// Node pool and policy of a shard. Fields follow KAI's `SchedulingShardSpec`.
    #[derive(CustomResource)]
    #[kube(
        group = "kai.scheduler",
        version = "v1",
        kind = "SchedulingShard",
        plural = "schedulingshards",
        doc = "A scheduling shard: one scheduler for the nodes, queues and pod groups of one node pool.",
        status = "SchedulingShardStatus",
        schema = "disabled",
        derive = "Default",
        derive = "PartialEq",
        // Accepts an object without a spec; kube takes serde attributes in no other form.
        attr = "cfg_attr(all(), serde(default))"
    )]
    pub struct SchedulingShardSpec {
        /// More command line options of the scheduler, by name.
        pub args: BTreeMap<String, String>,
        /// Part of the container's memory limit that the scheduler aims to stay below; 0.9 when absent.
        #[schemars(extend("minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1))]
        pub go_mem_limit_ratio: f64,
        /// Memory that the scheduler aims to stay below, instead of a part of its limit.
        pub go_mem_limit: Quantity,
        /// The node pool; empty for objects without a node-pool label.
        pub partition_label_value: String,
        /// How pods are spread over nodes and devices.
        pub placement_strategy: PlacementStrategy,
        /// Maximum number of pod groups of each queue that an action tries, by action.
        pub queue_depth_per_action: BTreeMap<String, i64>,
        /// Minimum runtime before eviction, for queues without their own setting.
        pub min_runtime: MinRuntime,
        /// Weight of historical usage in the fair share.
        pub k_value: f64,
        /// Where past usage is read from.
        #[serde(rename = "usageDBConfig")]
        pub usage_db_config: UsageDbConfig,
        /// Time budgets of the eviction search.
        pub scenario_search_budgets: ScenarioSearchBudgets,
        /// Changes to the built-in list of plugins, by name.
        pub plugins: BTreeMap<String, Plugin>,
        /// Changes to the built-in list of actions, by name.
        pub actions: BTreeMap<String, Action>,
    }

    /// How pods are spread: `binpack` fills nodes one by one, `spread` uses as many as possible.
    pub struct PlacementStrategy {
        /// Strategy of pods with GPUs.
        pub gpu: String,
        /// Strategy of pods without GPUs.
        pub cpu: String,
    }

    /// How long work runs before it may be evicted, as durations such as `10m`.
    pub struct MinRuntime {
        /// Before it may be preempted.
        pub preempt_min_runtime: String,
        /// Before it may be reclaimed.
        pub reclaim_min_runtime: String,
    }

    /// Time budgets of the eviction search, as durations such as `4m`; `0s` is unlimited.
    pub struct ScenarioSearchBudgets {
        /// For a whole action, by action; `default` for the others.
        pub max_action_search_duration: BTreeMap<String, String>,
        /// For one pod group.
        pub max_job_search_duration: String,
        /// For one pod group even where the action's time is up.
        pub min_job_search_duration: String,
        /// For one way to search, by name; `default` for the others.
        pub max_generator_search_duration: BTreeMap<String, String>,
    }

    /// One plugin of the scheduler.
    pub struct Plugin {
        /// Whether it is used.
        pub enabled: bool,
        /// Plugins with a higher value come first.
        pub priority: i64,
        /// Settings of the plugin; given, they replace the built-in ones as a whole.
        pub arguments: BTreeMap<String, String>,
    }

    /// One action of the scheduler.
    pub struct Action {
        /// Whether it is taken.
        pub enabled: bool,
        /// Actions with a higher value come first.
        pub priority: i64,
    }

    /// How past usage is measured; lengths of time are durations such as `1m`.
    pub struct UsageParams {
        /// After how long usage counts half; for ever in full when absent.
        pub half_life_period: String,
        /// How far back usage counts, such as `1w`.
        #[schemars(regex(
            pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
        ))]
        pub window_size: String,
        /// How the window moves: `sliding`, `tumbling` or `cron`.
        pub window_type: String,
        /// When the first tumbling window starts.
        pub tumbling_window_start_time: Time,
        /// When cron windows start.
        pub cron_string: String,
        /// How often usage is read.
        pub fetch_interval: String,
        /// Age after which usage data is reported as stale; it is still used.
        pub staleness_period: String,
        /// How long the scheduler waits for the first usage data.
        pub wait_timeout: String,
        /// Settings of the kind of database.
        pub extra_params: BTreeMap<String, String>,
    }
}

/// Where past usage is read from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageDbConfig {
    /// Kind of database: `prometheus`, or `ledger` for the scheduler's own records.
    pub client_type: String,
    /// Address of the database.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub connection_string: String,
    /// Environment variable with the address of the database.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub connection_string_env_var: String,
    /// How usage is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_params: Option<UsageParams>,
}

/// Status of a shard, written by the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingShardStatus {
    /// Conditions of the deployment of the shard.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub conditions: Vec<Condition>,
}

custom_resource_schema!(
    SchedulingShard,
    "A scheduling shard: one scheduler for the nodes, queues and pod groups of one node pool.",
    { spec: optional SchedulingShardSpec, status: SchedulingShardStatus }
);
