//! Tells users what became of a pod: the condition `PodBound` and events.
//!
//! That a pod is bound everybody sees on the pod itself; it is written again only where KAI's form is wanted, or where
//! a failure was reported before.

use crate::bind::Binder;
use crate::bind_target::BindTarget;
use crate::error::{Doing, Result};
use crate::informers::POD_BOUND;
use kai_object as object;
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is said about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    type_: EventType,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Said {
    fn bound(target: &BindTarget) -> Self {
        Self {
            type_: EventType::Normal,
            status: "True",
            reason: "Bound",
            message: format!("Pod bound successfully to node {}", target.node),
        }
    }

    fn failed(target: &BindTarget, error: &str) -> Self {
        Self {
            type_: EventType::Warning,
            status: "False",
            reason: "BindingError",
            message: format!("Failed to bind pod {} to node {}: {error}", target.pod, target.node),
        }
    }
}

/// The condition that says whether the pod is bound.
fn condition(pod: &Value) -> Option<&Value> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == POD_BOUND)
}

/// Says that the pod is bound, where anybody must be told.
pub(crate) async fn bound(
    binder: &Binder,
    recorder: &Recorder,
    target: &BindTarget,
    pod: &Value,
) -> Result<()> {
    if !binder.options.kai_events && condition(pod).is_none() {
        return Ok(());
    }
    let said = Said::bound(target);
    if binder.options.kai_events {
        record(recorder, target, pod, &said);
    }
    write(binder, target, pod, &said).await
}

/// Says that the pod could not be bound.
pub(crate) async fn failed(
    binder: &Binder,
    recorder: &Recorder,
    target: &BindTarget,
    pod: &Value,
    error: &str,
) -> Result<()> {
    let said = Said::failed(target, error);
    record(recorder, target, pod, &said);
    write(binder, target, pod, &said).await
}

fn record(recorder: &Recorder, target: &BindTarget, pod: &Value, said: &Said) {
    recorder.record(&Event {
        regarding: Regarding { kind: kind::POD, key: target.pod.clone(), uid: object::uid(pod).to_owned() },
        type_: said.type_,
        reason: said.reason,
        message: said.message.clone(),
        annotations: BTreeMap::new(),
    });
}

async fn write(binder: &Binder, target: &BindTarget, pod: &Value, said: &Said) -> Result<()> {
    let known = condition(pod);
    let same = known.is_some_and(|known| {
        known["status"] == said.status && known["reason"] == said.reason && known["message"] == said.message
    });
    if same {
        return Ok(());
    }
    let context = &binder.context;
    let stays = known.filter(|known| known["status"] == said.status);
    let since = stays.and_then(|known| known.get("lastTransitionTime")).cloned();
    let wanted = json!({
        "type": POD_BOUND, "status": said.status, "reason": said.reason, "message": said.message,
        "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| Value::from(context.clock.time())),
    });
    let patch = json!({"metadata": {"uid": object::uid(pod)}, "status": {"conditions": [wanted]}});
    let path = kind::POD.path_of(&target.pod) + "/status";
    // Only a strategic patch leaves the other conditions alone.
    let content_type = "application/strategic-merge-patch+json";
    let written = context.api.send("PATCH", &path, Some((content_type, &patch))).await;
    let written = written.doing(|| format!("write the status of pod `{}`", target.pod))?;
    context.informers.update_dynamic(&kind::POD, &written);
    Ok(())
}
