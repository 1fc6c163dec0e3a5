//! Reports the result of a bind attempt on the pod: the condition `PodBound` and events.
//!
//! A successful bind is visible on the pod itself. It is reported only where KAI's form is configured, or where an earlier
//! failure was reported.

use crate::bind::Binder;
use crate::bind_target::BindTarget;
use crate::error::{ApiContext as _, Result};
use crate::informers::POD_BOUND;
use crate::objects::uid;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::kind::POD;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
struct BindResult {
    type_: EventType,
    status: &'static str,
    reason: &'static str,
    message: String,
}

// Reasons and messages are KAI's.
impl BindResult {
    fn bound(target: &BindTarget) -> Self {
        Self {
            type_: EventType::Normal,
            status: "True",
            reason: "Bound",
            message: format!("Pod bound successfully to node {}", target.node()),
        }
    }

    fn failed(target: &BindTarget, error: &str) -> Self {
        Self {
            type_: EventType::Warning,
            status: "False",
            reason: "BindingError",
            message: format!("Failed to bind pod {} to node {}: {error}", target.pod, target.node()),
        }
    }
}

/// What to tell the user of a bound pod that the admission webhook would have given a runtime class, which cannot be added
/// later; none where it has one, or where the cluster's own default is configured.
fn missing_runtime_class(binder: &Binder, target: &BindTarget, pod: &Pod) -> Option<String> {
    let wanted = Some(binder.options.runtime_class_name.as_str()).filter(|class| !class.is_empty())?;
    let own = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default();
    (target.is_fraction() && own.is_empty()).then(|| {
        format!(
            "the pod requests a part of a GPU, but has no runtime class, which its containers may need to see it; hint: if \
             they do not, delete the pod and create it again while the admission webhooks are served, or with \
             `runtimeClassName: {wanted}`"
        )
    })
}

fn condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == POD_BOUND)
}

/// Reports a successful bind, where it has to be reported.
pub(crate) async fn bound(
    binder: &Binder,
    recorder: &Recorder,
    target: &BindTarget,
    pod: &Pod,
) -> Result<()> {
    if let Some(message) = missing_runtime_class(binder, target, pod) {
        recorder.record(&Event {
            regarding: Regarding::of(pod),
            type_: EventType::Warning,
            reason: "NoRuntimeClass",
            message,
            annotations: BTreeMap::new(),
        });
    }
    if !binder.options.kai_events && condition(pod).is_none() {
        return Ok(());
    }
    let result = BindResult::bound(target);
    if binder.options.kai_events {
        record(recorder, pod, &result);
    }
    write(binder, target, pod, &result).await
}

/// Reports a failed bind attempt.
pub(crate) async fn failed(
    binder: &Binder,
    recorder: &Recorder,
    target: &BindTarget,
    pod: &Pod,
    error: &str,
) -> Result<()> {
    let result = BindResult::failed(target, error);
    record(recorder, pod, &result);
    write(binder, target, pod, &result).await
}

fn record(recorder: &Recorder, pod: &Pod, result: &BindResult) {
    recorder.record(&Event {
        regarding: Regarding::of(pod),
        type_: result.type_,
        reason: result.reason,
        message: result.message.clone(),
        annotations: BTreeMap::new(),
    });
}

async fn write(binder: &Binder, target: &BindTarget, pod: &Pod, result: &BindResult) -> Result<()> {
    let known = condition(pod);
    let same = known.is_some_and(|known| {
        known.status == result.status
            && known.reason.as_deref() == Some(result.reason)
            && known.message.as_deref() == Some(result.message.as_str())
    });
    if same {
        return Ok(());
    }
    let context = &binder.context;
    let unchanged = known.filter(|known| known.status == result.status);
    let since = unchanged.and_then(|known| serde_json::to_value(known.last_transition_time.as_ref()?).ok());
    let condition = json!({
        "type": POD_BOUND, "status": result.status, "reason": result.reason, "message": result.message,
        "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| Value::from(context.clock.time())),
    });
    let patch = json!({"metadata": {"uid": uid(pod)}, "status": {"conditions": [condition]}});
    let path = POD.path_of(&target.pod) + "/status";
    // A strategic merge patch keeps the other conditions.
    let content_type = "application/strategic-merge-patch+json";
    let written = context.api.send("PATCH", &path, Some((content_type, &patch))).await;
    let written = written.during(|| format!("write the status of pod `{}`", target.pod))?;
    if let Ok(written) = Pod::deserialize(written) {
        context.informers.store().update(written);
    }
    Ok(())
}
