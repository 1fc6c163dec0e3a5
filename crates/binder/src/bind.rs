//! One attempt to bind one pod: what is done, in which order, and how it is undone.
//!
//! Everything before the binding itself can be done twice without harm, and the binding comes last. So an attempt may
//! end anywhere, and the next one, here or in another process, simply begins anew.

use crate::bind_target::BindTarget;
use crate::concurrency_limit::Permit;
use crate::error::{Doing, Error, Result};
use crate::informers::{BIND_REQUEST, annotation_of};
use crate::options::Options;
use crate::plugin::dynamic_resources::Claims;
use crate::plugin::{Plugin, gpu_sharing, hami_core, volume_binding};
use crate::reservation::Reservations;
use futures::future::join_all;
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::controller::Context;
use kai_runtime::kind;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What all attempts share.
#[derive(Debug)]
pub(crate) struct Binder {
    pub(crate) context: Context,
    pub(crate) options: Arc<Options>,
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) claims: Claims,
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    binder: &'a Binder,
    target: &'a BindTarget,
    pod: Value,
    node: &'a Value,
    /// What is to be undone if this fails, the first step first.
    taken: Vec<Plugin>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(binder: &'a Binder, target: &'a BindTarget, pod: Value, node: &'a Value) -> Self {
        Self { binder, target, pod, node, taken: Vec::new() }
    }

    /// Binds the pod.
    pub(crate) async fn run(&mut self, permit: &mut Permit) -> Result<()> {
        let (binder, target) = (self.binder, self.target);
        if target.is_fraction() && target.groups.is_empty() {
            return Err(Error::NoGroups);
        }
        binder.reservations.settle_node(target, permit).await?;
        let devices = if target.is_fraction() { self.reserve(permit).await? } else { Vec::new() };
        self.label().await?;
        for plugin in &binder.options.plugins {
            self.taken.push(*plugin);
            self.prepare(*plugin, &devices, permit).await?;
        }
        self.bind().await
    }

    /// Reserves the GPUs of all groups side by side: none waits until the node has answered for another. Each group has
    /// its own lock and its own reservation pod, and all are seen to their end, so that an attempt that fails leaves
    /// nothing under way.
    async fn reserve(&self, permit: &mut Permit) -> Result<Vec<String>> {
        let (reservations, target, limit) = (&self.binder.reservations, self.target, permit.limit());
        let each = target.groups.iter().map(|group| {
            let limit = &limit;
            async move {
                let mut own = Permit::acquire(limit).await;
                reservations.reserve(target, &self.pod, group, &mut own).await
            }
        });
        permit.release_during(join_all(each)).await.into_iter().collect()
    }

    async fn prepare(&self, plugin: Plugin, devices: &[String], permit: &mut Permit) -> Result<()> {
        let (api, target, pod) = (&self.binder.context.api, self.target, &self.pod);
        match plugin {
            Plugin::VolumeBinding { timeout } => {
                volume_binding::prepare(api, pod, self.node, timeout, permit).await
            }
            Plugin::DynamicResources { timeout } => {
                let claims = tokio::time::timeout(timeout, self.binder.claims.prepare(api, target, pod));
                let late = Error::Timeout { step: "claiming the devices of the pod", limit: timeout };
                claims.await.unwrap_or(Err(late))
            }
            Plugin::GpuSharing { devices: names } if self.tells_gpus() => {
                gpu_sharing::prepare(api, target, pod, names, devices).await
            }
            Plugin::HamiCore if self.tells_gpus() => hami_core::prepare(api, target, pod, self.node).await,
            Plugin::GpuSharing { .. } | Plugin::HamiCore => Ok(()),
        }
    }

    /// Whether containers of the pod are to be told about a shared GPU.
    fn tells_gpus(&self) -> bool {
        let prepared = !annotation_of(&self.pod, annotation::SHARED_GPU_CONFIG_MAP).is_empty();
        self.target.is_fraction() && (prepared || !self.binder.options.unprepared_pods)
    }

    /// Undoes what this attempt, or one before it, may have done: the last step first. Says what went wrong first.
    pub(crate) async fn undo(&self, permit: &mut Permit) -> Result<()> {
        let (binder, target) = (self.binder, self.target);
        let api = &binder.context.api;
        let mut outcome = Ok(());
        for plugin in self.taken.iter().rev() {
            let undone = match plugin {
                Plugin::VolumeBinding { .. } => volume_binding::undo(api, &self.pod, &target.node).await,
                Plugin::DynamicResources { .. } => binder.claims.undo(api, target, &self.pod).await,
                Plugin::GpuSharing { .. } if target.is_fraction() => gpu_sharing::undo(api, &self.pod).await,
                Plugin::GpuSharing { .. } | Plugin::HamiCore => Ok(()),
            };
            outcome = outcome.and(undone);
        }
        if target.is_fraction() {
            outcome = outcome.and(self.unlabel().await);
            for group in &target.groups {
                let settled =
                    permit.release_during(binder.reservations.settle(group, Some(&target.key))).await;
                outcome = outcome.and(settled);
            }
        }
        outcome
    }

    /// Marks the pod with the groups it uses, and with no others.
    async fn label(&mut self) -> Result<()> {
        let groups: &[String] = if self.target.is_fraction() { &self.target.groups } else { &[] };
        let Some(labels) = group_labels(&self.pod, groups) else { return Ok(()) };
        self.pod = self.write_labels(labels).await?;
        Ok(())
    }

    async fn unlabel(&self) -> Result<()> {
        let known = self.binder.context.informers.dynamic(&kind::POD).get(&self.target.pod);
        let known = known.filter(|known| object::uid(known) == object::uid(&self.pod));
        let Some(labels) = group_labels(known.as_deref().unwrap_or(&self.pod), &[]) else { return Ok(()) };
        match self.write_labels(labels).await {
            // The pod went, and its labels with it.
            Err(Error::Api { refusal, .. }) if refusal.is_not_found() => Ok(()),
            written => written.map(|_| ()),
        }
    }

    async fn write_labels(&self, labels: Map<String, Value>) -> Result<Value> {
        let patch = json!({"metadata": {"uid": object::uid(&self.pod), "labels": labels}});
        let context = &self.binder.context;
        let written = context.api.patch_dynamic(&kind::POD, &self.target.pod, Part::Main, &patch).await;
        let written = written.doing(|| format!("label pod `{}`", self.target.pod))?;
        context.informers.update_dynamic(&kind::POD, &written);
        Ok(written)
    }

    /// Puts the pod on its node. What the binder has to say about it goes along, so that it costs no write of its own.
    async fn bind(&self) -> Result<()> {
        let (context, target) = (&self.binder.context, self.target);
        let request = context.informers.dynamic(&BIND_REQUEST).get(&target.key);
        let stands = request
            .is_some_and(|request| object::uid(&request) == target.uid && !object::is_deleting(&request));
        if !stands {
            return Err(Error::Withdrawn);
        }
        let mut annotations = json!({annotation::RECEIVED_RESOURCE_TYPE: target.resource_type});
        if let Some(zones) = target.numa_zones() {
            annotations[annotation::NUMA_PREDICTED] = Value::from(zones);
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {
                "name": target.pod.name, "namespace": target.pod.namespace, "uid": object::uid(&self.pod),
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": target.node},
        });
        let path = kind::POD.path_of(&target.pod) + "/binding";
        let sent = context.api.send("POST", &path, Some(("application/json", &binding))).await;
        sent.map(|_| ()).doing(|| format!("bind pod `{}`", target.pod))
    }
}

/// What must change about the labels of a pod that uses these groups; nothing when it has them already.
///
/// A pod with a part of one GPU carries its group in one label, a pod with parts of several a label for each.
fn group_labels(pod: &Value, groups: &[String]) -> Option<Map<String, Value>> {
    let devices = annotation_of(pod, annotation::GPU_FRACTION_NUM_DEVICES).parse::<u32>().unwrap_or(1);
    let several = devices > 1 || groups.len() > 1;
    let name = |group: &String| {
        if several { format!("{}{group}", label::GPU_GROUP_PREFIX) } else { label::GPU_GROUP.to_owned() }
    };
    let wanted: Map<String, Value> =
        groups.iter().map(|group| (name(group), Value::from(group.as_str()))).collect();
    let known = object::meta(pod, "labels").and_then(Value::as_object);
    let known = known.into_iter().flatten();
    let stale =
        known.filter(|(name, _)| *name == label::GPU_GROUP || name.starts_with(label::GPU_GROUP_PREFIX));
    let mut changes = wanted.clone();
    for (name, value) in stale {
        match wanted.get(name) {
            Some(wanted) if wanted == value => changes.remove(name),
            Some(_) => None,
            None => changes.insert(name.clone(), Value::Null),
        };
    }
    (!changes.is_empty()).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_the_groups_in_use_and_no_others() {
        let table = [
            (json!({}), "", vec![], None),
            (json!({"app": "x"}), "", vec!["a"], Some(json!({"runai-gpu-group": "a"}))),
            (json!({"runai-gpu-group": "a"}), "", vec!["a"], None),
            (json!({"runai-gpu-group": "b"}), "1", vec!["a"], Some(json!({"runai-gpu-group": "a"}))),
            (json!({"runai-gpu-group": "b"}), "", vec![], Some(json!({"runai-gpu-group": null}))),
            (
                json!({"runai-gpu-group/a": "a", "runai-gpu-group/old": "old"}),
                "2",
                vec!["a", "b"],
                Some(json!({"runai-gpu-group/b": "b", "runai-gpu-group/old": null})),
            ),
            (json!({}), "2", vec!["a"], Some(json!({"runai-gpu-group/a": "a"}))),
        ];
        for (labels, devices, groups, wanted) in table {
            let pod = json!({"metadata": {
                "labels": labels, "annotations": {annotation::GPU_FRACTION_NUM_DEVICES: devices},
            }});
            let groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
            assert_eq!(group_labels(&pod, &groups).map(Value::Object), wanted, "{labels}");
        }
    }
}
