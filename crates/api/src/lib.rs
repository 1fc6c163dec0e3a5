//! The API types of the scheduler: its custom resources, pods as it reads them, and every name that other programs use.
//!
//! Each kind has a module with plain structs that mirror the JSON form; `well_known` holds labels, annotations,
//! environment variables and resource names; [`request`](fn@request) computes the resource request of a pod.
//! Invariant: decoding is lenient (absent, `null` and unknown fields are accepted, because one stored object must not
//! break a watch), encoding omits unset fields.
//! Not here: the interpretation of values. Durations stay text and quantities stay quantities; their users convert them.
// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]
#![warn(missing_docs)] // programmed against from outside the workspace

pub mod bind_request;
pub mod config;
pub mod crds;
pub mod implicit_group;
pub mod meta;
pub mod pod;
pub mod pod_group;
pub mod queue;
pub mod request;
pub mod selector;
pub mod shard;
pub mod share;
pub mod spelling;
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
