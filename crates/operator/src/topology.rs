//! Which processes an installation consists of, and how it passes from one topology to the other.
//!
//! Schedulers are excluded from each other by their leases, and the other components may run beside their successors, as
//! during a rollout. The binder may not: with one replica it takes no lease, as in KAI, and two of them would reserve a GPU
//! twice. So one starts when the pods of the other have ended, and everything else serves until its successor is available.

use crate::facts::Facts;
use crate::plan::is_owned_by;
use crate::settings::Settings;
use crate::{Desired, ObjectKey, Operand, combined, shard, status};
use kai_api::well_known::{annotation, label};
use kai_api::{Config, SchedulingShard};
use serde_json::Value;

/// How the components are divided into processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Each component is a process of its own, as in KAI.
    Separate,
    /// One process runs them all: `kai all`.
    Combined,
}

/// What is deployed of the separate processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Separate {
    All,
    /// All but the binder, and why.
    WithoutBinder(String),
    /// Those that exist, until the combined process is available; the binder only where that cannot be deployed.
    Existing {
        with_binder: bool,
    },
    Nothing,
}

/// What is deployed of the combined process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Combined {
    Deployed,
    /// It is not deployed yet, and why.
    Withheld(String),
    /// It stays as it is, until the separate processes are available.
    Kept,
    Nothing,
}

/// A step on the way to a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) separate: Separate,
    pub(crate) combined: Combined,
}

impl Topology {
    /// What the annotation of a `Config` says. KAI's definition of the `Config` has no field for it, and an unknown field
    /// would be dropped.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let annotations = config.metadata.annotations.as_ref();
        match annotations.and_then(|all| all.get(annotation::PROCESS_TOPOLOGY)).map(String::as_str) {
            None | Some("separate") => Ok(Self::Separate),
            Some("combined") => Ok(Self::Combined),
            Some(other) => Err(format!(
                "annotation `{}`: `{other}` is no topology; hint: set `separate` or `combined`",
                annotation::PROCESS_TOPOLOGY
            )),
        }
    }
}

impl Stage {
    /// The step that follows from what runs. `wanted` are the objects of the separate topology.
    pub(crate) fn of(
        topology: Topology,
        wanted: &Desired,
        settings: &Settings,
        shards: &[SchedulingShard],
        facts: &Facts,
    ) -> Self {
        let current = Current { settings, facts };
        match topology {
            Topology::Separate => current.to_separate(wanted),
            Topology::Combined => current.to_combined(wanted, shards),
        }
    }
}

/// What runs at the moment.
#[derive(Clone, Copy)]
pub(crate) struct Current<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) facts: &'a Facts,
}

impl<'a> Current<'a> {
    pub(crate) fn key(self, kind: &str, name: &str) -> ObjectKey {
        ObjectKey::new(kind, &self.settings.namespace, name)
    }

    pub(crate) fn object(self, kind: &str, name: &str) -> Option<&'a Value> {
        self.facts.objects.get(&self.key(kind, name))
    }

    pub(crate) fn deployment(self, name: &str) -> Option<&'a Value> {
        self.object("Deployment", name)
    }

    fn is_available(self, name: &str) -> bool {
        self.deployment(name).is_some_and(status::is_available)
    }

    /// The pods of a component that have not ended.
    fn pods(self, name: &str) -> impl Iterator<Item = &'a str> {
        let (namespace, name) = (self.settings.namespace.clone(), name.to_owned());
        let pods = self.facts.objects.iter().filter(|(key, _)| key.kind == "Pod");
        pods.filter(move |(key, pod)| {
            let app = kai_object::meta(pod, "labels").and_then(|labels| labels.get(label::APP)?.as_str());
            key.namespace == namespace && app == Some(name.as_str()) && !kai_object::is_terminal(pod)
        })
        .map(|(key, _)| key.name.as_str())
    }

    pub(crate) fn has_pods(self, name: &str) -> bool {
        self.pods(name).next().is_some()
    }

    /// Whether a Deployment of this name belongs to the installation.
    fn is_own(self, name: &str) -> bool {
        self.deployment(name).is_some_and(|object| is_owned_by(object, "Config", &self.settings.name))
    }

    fn to_separate(self, wanted: &Desired) -> Stage {
        if !self.is_own(combined::NAME) && !self.has_pods(combined::NAME) {
            return Stage { separate: Separate::All, combined: Combined::Nothing };
        }
        let of_config = wanted.config.iter().filter(|operand| combined::is_part(operand));
        let parts: Vec<&Operand> =
            of_config.chain(wanted.shards.iter().map(|(_, operand)| operand)).collect();
        let has_error = parts.iter().any(|operand| operand.error.is_some());
        let objects = parts.iter().flat_map(|operand| &operand.objects);
        let deployments = objects.filter(|object| kai_object::kind(object) == "Deployment");
        let others = deployments.map(kai_object::name).filter(|name| *name != combined::BINDER);
        let awaited: Vec<&str> = others.filter(|name| !self.is_available(name)).collect();
        if self.is_own(combined::NAME) && (has_error || !awaited.is_empty()) {
            let why = match awaited.as_slice() {
                [] => "process `kai-all` stays until every component and shard can be deployed".to_owned(),
                awaited => format!("process `kai-all` stays until {} are available", awaited.join(", ")),
            };
            return Stage { separate: Separate::WithoutBinder(why), combined: Combined::Kept };
        }
        let pods: Vec<&str> = self.pods(combined::NAME).collect();
        let why = match pods.as_slice() {
            [] => "it starts when process `kai-all` is removed".to_owned(),
            pods => format!("it starts when pods of process `kai-all` have ended: {}", pods.join(", ")),
        };
        Stage { separate: Separate::WithoutBinder(why), combined: Combined::Nothing }
    }

    fn to_combined(self, wanted: &Desired, shards: &[SchedulingShard]) -> Stage {
        if self.is_available(combined::NAME) {
            return Stage { separate: Separate::Nothing, combined: Combined::Deployed };
        }
        // Once it is deployed, nothing takes it back: it waits for leases.
        if self.deployment(combined::NAME).is_some() {
            let separate = Separate::Existing { with_binder: false };
            return Stage { separate, combined: Combined::Deployed };
        }
        let schedulers = shards.iter().map(|shard| shard::workload_name(self.settings, shard));
        let schedulers: Vec<String> = schedulers.collect();
        if let Some(why) = self.hindrance(wanted, &schedulers) {
            let separate = Separate::Existing { with_binder: true };
            return Stage { separate, combined: Combined::Withheld(why) };
        }
        let mut remaining: Vec<&str> = self.pods(combined::BINDER).collect();
        // A scheduler without a Deployment may be KAI's, which takes no lease, on its way to end.
        for name in &schedulers {
            if self.deployment(name).is_none() || shard::takes_no_lease(name, self.settings, self.facts) {
                remaining.extend(self.pods(name));
            }
        }
        let combined = if !remaining.is_empty() {
            Combined::Withheld(format!("it starts when these pods have ended: {}", remaining.join(", ")))
        } else if self.deployment(combined::BINDER).is_some() {
            Combined::Withheld("it starts when the binder is removed".to_owned())
        } else {
            Combined::Deployed
        };
        Stage { separate: Separate::Existing { with_binder: false }, combined }
    }

    /// Why the combined process cannot take the place of the separate ones.
    fn hindrance(self, wanted: &Desired, schedulers: &[String]) -> Option<String> {
        let parts = wanted.config.iter().filter(|operand| combined::is_part(operand));
        let mut errors = parts.filter_map(|operand| Some((operand.name, operand.error.as_ref()?)));
        if let Some((name, _)) = errors.next() {
            return Some(format!("it starts when {name} can be deployed"));
        }
        // The process would run no scheduler for this shard, whose Deployment stays as it is.
        let operands = wanted.shards.iter().map(|(_, operand)| operand);
        let mut shards = schedulers.iter().zip(operands);
        let invalid =
            shards.find(|(name, operand)| operand.error.is_some() && self.deployment(name).is_some());
        let invalid = invalid.map(|(name, _)| format!("it starts when `{name}` can be deployed"));
        invalid.or_else(|| combined::port_conflict(self.settings))
    }
}
