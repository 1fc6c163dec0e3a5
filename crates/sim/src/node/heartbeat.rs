//! Node heartbeats: renews the node lease, and posts the node status at a lower rate.

use super::objects::conditions;
use crate::controllers::node_lifecycle::LEASE_NAMESPACE;
use crate::controllers::{annotation, set_condition};
use crate::well_known;
use kai_object as object;
use kai_runtime::api::{Part, Result};
use kai_runtime::controller::Context;
use kai_runtime::kind::{self, Key};
use serde_json::{Value, json};
use std::time::Duration;

/// Heartbeats per status update: 5 minutes at the default period, as `nodeStatusReportFrequency`.
const STATUS_EVERY: u64 = 30;
/// Duration of the lease in heartbeats: 40 seconds at the default period.
const LEASE_HEARTBEATS: u64 = 4;

/// Failure mode of a simulated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No heartbeats; containers keep running.
    Unreachable,
    /// No heartbeats; containers are dead.
    Down,
    /// Reports `Ready=False`.
    NotReady,
}

impl Failure {
    /// The value of the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Down => "down",
            Self::NotReady => "not-ready",
        }
    }

    /// The failure mode of a node; `None` where it works.
    pub fn of(node: &Value) -> Option<Self> {
        match annotation(node, well_known::FAILURE) {
            "" => None,
            "down" => Some(Self::Down),
            "not-ready" => Some(Self::NotReady),
            // Unknown values also make the node fail.
            _ => Some(Self::Unreachable),
        }
    }
}

pub(crate) fn is_simulated(node: &Value) -> bool {
    annotation(node, well_known::SIMULATED) == "true"
}

/// Sends the heartbeats of a simulated node while it exists. Never returns.
pub(crate) async fn run(context: &Context, node: &str, period: Duration) {
    let key = Key::new("", node);
    let mut beat: u64 = 0;
    loop {
        let found = context.informers.dynamic(&kind::NODE).get(&key).filter(|node| is_simulated(node));
        if let Some(found) = found
            && let Err(error) = heartbeat(context, &found, beat, period).await
        {
            tracing::debug!(node, error = &error as &dyn std::error::Error, "heartbeat failed");
        }
        beat += 1;
        tokio::time::sleep(period).await;
    }
}

async fn heartbeat(context: &Context, node: &Value, beat: u64, period: Duration) -> Result<()> {
    let failure = Failure::of(node);
    if matches!(failure, Some(Failure::Unreachable | Failure::Down)) {
        return Ok(());
    }
    renew(context, node, period).await?;
    let ready = if failure == Some(Failure::NotReady) { "False" } else { "True" };
    let reported = crate::controllers::condition(node, "Ready").map(|ready| object::str_at(ready, "/status"));
    if reported == Some(ready) && !beat.is_multiple_of(STATUS_EVERY) {
        return Ok(());
    }
    let mut new = node.clone();
    for condition in conditions(&context.clock.time(), ready).as_array().into_iter().flatten() {
        set_condition(&mut new["status"], condition.clone());
    }
    context.patch_difference_dynamic(&kind::NODE, Part::Status, node, &new).await?;
    Ok(())
}

async fn renew(context: &Context, node: &Value, period: Duration) -> Result<()> {
    let name = object::name(node);
    let time = context.clock.micro_time();
    let key = Key::new(LEASE_NAMESPACE, name);
    if let Some(lease) = context.informers.dynamic(&kind::LEASE).get(&key) {
        let mut new = (*lease).clone();
        new["spec"]["renewTime"] = Value::from(time);
        match context.patch_difference_dynamic(&kind::LEASE, Part::Main, &lease, &new).await {
            Err(error) if error.is_not_found() => context.informers.remove_dynamic(&kind::LEASE, &lease),
            written => {
                written?;
            }
        }
        return Ok(());
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": object::uid(node),
        }]},
        "spec": {
            "holderIdentity": name, "renewTime": time,
            "leaseDurationSeconds": (period.as_secs() * LEASE_HEARTBEATS).max(1),
        },
    });
    match context.create_dynamic(&kind::LEASE, LEASE_NAMESPACE, &lease).await {
        Err(error) if error.is_conflict() => Ok(()),
        created => created.map(|_| ()),
    }
}
