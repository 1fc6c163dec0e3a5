//! The vocabulary of the scheduler: its custom resources, pods as it reads them, and every name it shares with the
//! outside.
//!
//! Each kind has a module with plain structs that mirror the JSON form; `well_known` holds labels, annotations,
//! environment variables and resource names; [`request`](fn@request) says what a pod asks for. Invariant: reading is lenient (absent, `null` and unknown fields
//! are fine, because a stored object must never stop a watch), writing omits whatever is unset.
//! Not here: what a value means. Durations stay text, quantities stay quantities; users convert them at the edge.
#![warn(missing_docs)] // programmed against from outside the workspace

pub mod bind_request;
pub mod config;
pub mod crds;
pub mod meta;
pub mod pod;
pub mod pod_group;
pub mod queue;
pub mod request;
pub mod selector;
pub mod shard;
pub mod share;
pub mod topology;
pub mod value;
pub mod well_known;

mod json;
mod optional;
mod schema;

pub use bind_request::{BindRequest, BindRequestSpec, BindRequestStatus};
pub use config::{Config, ConfigSpec, ConfigStatus};
pub use crds::{crd_file_name, crd_yaml, crds, crds_yaml};
pub use meta::Meta;
pub use pod::Pod;
pub use pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
pub use queue::{Queue, QueueSpec, QueueStatus};
pub use request::request;
pub use shard::{SchedulingShard, SchedulingShardSpec, SchedulingShardStatus};
pub use topology::{Topology, TopologySpec};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource name, as in `{"cpu": "2", "nvidia.com/gpu": "0.5"}`.
pub type ResourceAmounts = BTreeMap<String, Quantity>;
