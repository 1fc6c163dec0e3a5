//! The form of a recorded case.

use anyhow::{Result, bail};
use kai_admission::pod;
use kai_admission::queue::QuotaValidation;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(super) struct Case {
    pub(super) id: String,
    /// Says where the cluster is not the usual one.
    #[serde(default)]
    pub(super) note: String,
    pub(super) input: Input,
    pub(super) expect: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Input {
    pub(super) component: String,
    pub(super) flags: Vec<String>,
    pub(super) path: Option<String>,
    pub(super) operation: String,
    pub(super) namespace: Option<String>,
    pub(super) object: Value,
    pub(super) old_object: Value,
    /// Queues of the cluster.
    pub(super) cluster: Vec<Value>,
    pub(super) via: Option<String>,
    pub(super) operator_config_case: String,
    pub(super) namespace_labels: BTreeMap<String, String>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Step {
    pub(super) op: String,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) patch: Value,
}

impl Input {
    pub(super) fn is_direct(&self) -> bool {
        self.via.is_none()
    }

    /// The options that the flags of `kai admission` give.
    pub(super) fn pod_options(&self) -> Result<pod::Options> {
        let mut options = pod::Options::default();
        let (mut class, mut older) = (None, None);
        for (name, value) in self.flags() {
            match name {
                "gpu-sharing-enabled" => options.gpu_sharing = switch(value)?,
                "hami-core-enabled" => options.hami_core = switch(value)?,
                "block-nvidia-visible-devices" => options.block_visible_devices = switch(value)?,
                "scheduler-name" => value.unwrap_or_default().clone_into(&mut options.scheduler_name),
                "gpu-fraction-runtime-class-name" => class = value,
                "gpu-pod-runtime-class-name" => older = value,
                // Of the queue controller.
                "enable-quota-validation" => {}
                _ => bail!("flag `{name}` is unknown"),
            }
        }
        options.runtime_class = pod::runtime_class(class, older);
        Ok(options)
    }

    pub(super) fn quota_validation(&self) -> Result<QuotaValidation> {
        let given = self.flags().find(|(name, _)| *name == "enable-quota-validation");
        let enabled = given.map_or(Ok(false), |(_, value)| switch(value))?;
        Ok(if enabled { QuotaValidation::Enabled } else { QuotaValidation::Disabled })
    }

    fn flags(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.flags.iter().map(|flag| {
            let flag = flag.trim_start_matches('-');
            flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)))
        })
    }
}

fn switch(value: Option<&str>) -> Result<bool> {
    Ok(value.map_or(Ok(true), str::parse)?)
}
