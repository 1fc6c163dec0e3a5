//! What an installation consists of, as a function of its settings, and how far the cluster is from it.
//!
//! [`desired`] turns the `Config` and the `SchedulingShard`s into objects, one operand (component with everything around
//! it) at a time; [`plan`](plan::plan) compares them with the objects of the cluster; [`status`] turns both into conditions.
//! None of these waits, writes or reads a clock. [`process`] is the operator itself: it watches, asks them, and writes.
//! One operand or shard with invalid settings does not affect the others.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

mod affinity;
mod combined;
pub mod facts;
mod inherit;
pub mod key;
pub mod merge;
mod operand;
pub mod plan;
pub mod process;
pub mod read;
mod resources;
mod settings;
mod shard;
pub mod status;
mod topology;
pub mod unread;
mod workload;

pub use facts::{Apis, Certificate, CertificateRequest, Facts, Images, LeaderEndpoint};
pub use key::ObjectKey;

use kai_api::{Config, SchedulingShard};
use serde_json::Value;
use settings::Settings;

/// An object as the operator applies it: the fields that it decides.
pub type Object = Value;

/// The objects of one operand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operand {
    /// KAI's name of the operand in conditions.
    pub name: &'static str,
    pub objects: Vec<Object>,
    /// What the cluster lacks for the operand, such as a CRD.
    pub missing: Vec<String>,
    /// Settings that have no effect, each with the reason.
    pub notices: Vec<String>,
    /// Why the objects could not be determined. What is deployed then stays as it is.
    pub error: Option<String>,
    /// What is deployed later, and what it waits for.
    pub waiting: Option<String>,
    /// The Deployment of another owner that runs the component.
    pub runs_in: Option<ObjectKey>,
}

/// Everything that should exist.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// Operands of the `Config`, in the order in which they are deployed.
    pub config: Vec<Operand>,
    /// One operand per shard, by the name of the shard.
    pub shards: Vec<(String, Operand)>,
    /// Whether a conversion webhook of the Queue CRD, which versions of KAI before 0.9 installed, is removed.
    pub drop_queue_conversion: bool,
}

impl Desired {
    /// Leaves a process that runs all components as it is, where the settings of a shard cannot be read.
    pub fn withhold_combined(&mut self, why: &str) {
        combined::withhold(self, why);
    }

    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        let shards = self.shards.iter().map(|(_, operand)| operand);
        self.config.iter().chain(shards).flat_map(|operand| &operand.objects)
    }
}

/// The objects of an installation.
///
/// Without a `Config` there are none, and every shard says so.
pub fn desired(config: Option<&Config>, shards: &[SchedulingShard], facts: &Facts) -> Desired {
    desired_checked(config, shards, facts, |_| {})
}

/// As [`desired`]. `check` takes out what would not run, one operand at a time, before one process is made of several.
pub fn desired_checked(
    config: Option<&Config>,
    shards: &[SchedulingShard],
    facts: &Facts,
    check: impl FnOnce(&mut Desired),
) -> Desired {
    let Some(config) = config else {
        let shards = shards.iter().map(|shard| (shard::name(shard), shard::without_config()));
        return Desired { shards: shards.collect(), ..Desired::default() };
    };
    let settings = Settings::new(config);
    let mut separate = Desired {
        config: operand::all(&settings, shards, facts),
        shards: shards
            .iter()
            .map(|shard| (shard::name(shard), shard::operand(&settings, shard, shards, facts)))
            .collect(),
        drop_queue_conversion: settings::enabled(settings.queue_controller.service.as_ref()),
    };
    check(&mut separate);
    combined::divided(separate, &settings, shards, facts)
}

/// The webhook certificates that [`desired`] needs in [`Facts::certificates`].
pub fn certificates(config: &Config) -> Vec<CertificateRequest> {
    operand::certificates(&Settings::new(config))
}
