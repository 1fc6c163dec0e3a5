//! One bind attempt: the PreBind steps of the plugins, the Binding, and the rollback.
//!
//! Every step before the Binding is idempotent, and the Binding is the last one. An attempt may therefore end anywhere;
//! the next one, in this or another process, starts from the beginning.

use crate::bind_target::BindTarget;
use crate::concurrency_limit::Permit;
use crate::error::{ApiContext as _, Error, Result};
use crate::objects::{annotation, is_gpu_group_label, uid};
use crate::options::Options;
use crate::plugin::custom::{BindContext, PluginFailures, Step};
use crate::plugin::dynamic_resources::Claims;
use crate::plugin::{Plugin, gpu_sharing, hami_core, volume_binding};
use crate::reservation::Reservations;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::{annotation as annotations, label};
use kai_runtime::api::Part;
use kai_runtime::controller::Context;
use kai_runtime::kind::POD;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all bind attempts share.
#[derive(Debug)]
pub(crate) struct Binder {
    pub(crate) context: Context,
    pub(crate) options: Arc<Options>,
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) claims: Claims,
    pub(crate) plugin_failures: PluginFailures,
}

#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    binder: &'a Binder,
    target: &'a BindTarget,
    pod: Pod,
    node: &'a Arc<Node>,
    /// The reserved GPUs.
    devices: Vec<String>,
    /// The plugins whose PreBind step has started, in order. The rollback reverses them.
    started: Vec<&'a Plugin>,
}

/// Changes of labels: the new value, or none for a removed label.
type LabelChanges = BTreeMap<String, Option<String>>;

impl<'a> Attempt<'a> {
    pub(crate) fn new(binder: &'a Binder, target: &'a BindTarget, pod: Pod, node: &'a Arc<Node>) -> Self {
        Self { binder, target, pod, node, devices: Vec::new(), started: Vec::new() }
    }

    /// Runs the PreBind steps and binds the pod.
    pub(crate) async fn run(&mut self, permit: &mut Permit) -> Result<()> {
        let (binder, target) = (self.binder, self.target);
        if target.is_fraction() && target.gpu_groups().is_empty() {
            return Err(Error::NoGroups);
        }
        self.repair().await?;
        binder.reservations.sync_node(target, permit).await?;
        if target.is_fraction() || !target.claims.is_empty() {
            permit.release_during(binder.reservations.wait_for_scaling_pods(target)).await;
        }
        if target.is_fraction() {
            self.devices = self.reserve(permit).await?;
        }
        self.label().await?;
        for plugin in &binder.options.plugins {
            self.started.push(plugin);
            self.pre_bind(plugin, permit).await?;
        }
        let _node = if target.gpu_count() > 0 && !target.is_fraction() {
            Some(permit.release_during(binder.reservations.share_node(target.node())).await)
        } else {
            None
        };
        self.bind().await?;
        for plugin in &binder.options.plugins {
            if let Plugin::Custom(plugin) = plugin {
                // The pod is bound: a failure is counted and logged, and changes nothing.
                let _ = plugin.call(Step::PostBind, self.context(), &binder.plugin_failures).await;
            }
        }
        Ok(())
    }

    /// The attempt, as a plugin sees it.
    fn context(&self) -> Arc<BindContext> {
        let api = &self.binder.context.api;
        Arc::new(BindContext::new(api, self.target, &self.pod, self.node, &self.devices))
    }

    /// Adds the annotation of the admission webhook where it is missing, and refuses a pod whose containers would not see
    /// their GPU: that cannot be repaired.
    async fn repair(&mut self) -> Result<()> {
        let options = &self.binder.options;
        let exposes = options.plugins.iter().any(|plugin| matches!(plugin, Plugin::GpuSharing { .. }));
        if !self.target.is_fraction() || !exposes || options.allow_unmutated_pods {
            return Ok(());
        }
        let Some(prefix) = gpu_sharing::check_prepared(&self.pod)? else { return Ok(()) };
        let added = json!({annotations::SHARED_GPU_CONFIG_MAP: prefix});
        self.pod = self.write_metadata(&json!({"uid": uid(&self.pod), "annotations": added})).await?;
        Ok(())
    }

    /// Reserves the GPUs of all groups concurrently. Each group has its own lock and its own reservation pod. All
    /// reservations run to their end, so that a failed attempt leaves none in progress.
    async fn reserve(&self, permit: &mut Permit) -> Result<Vec<String>> {
        let (reservations, target, limit) = (&self.binder.reservations, self.target, permit.limit());
        let each = target.gpu_groups().iter().map(|group| {
            let limit = &limit;
            async move {
                let mut own = Permit::acquire(limit).await;
                reservations.reserve(target, &self.pod, group, &mut own).await
            }
        });
        permit.release_during(join_all(each)).await.into_iter().collect()
    }

    async fn pre_bind(&self, plugin: &Plugin, permit: &mut Permit) -> Result<()> {
        let (api, target, pod) = (&self.binder.context.api, self.target, &self.pod);
        match *plugin {
            Plugin::VolumeBinding { timeout } => {
                volume_binding::pre_bind(&self.binder.context, pod, self.node, timeout, permit).await
            }
            Plugin::DynamicResources { timeout } => {
                let claims = tokio::time::timeout(timeout, self.binder.claims.pre_bind(api, target, pod));
                let late =
                    Error::Timeout { step: "allocating the resource claims of the pod", limit: timeout };
                claims.await.unwrap_or(Err(late))
            }
            Plugin::GpuSharing { devices: names } if self.exposes_gpus() => {
                gpu_sharing::pre_bind(api, target, pod, names, &self.devices).await
            }
            Plugin::HamiCore if self.exposes_gpus() => hami_core::pre_bind(api, target, pod, self.node).await,
            Plugin::GpuSharing { .. } | Plugin::HamiCore => Ok(()),
            Plugin::Custom(ref plugin) => {
                let call = plugin.call(Step::PreBind, self.context(), &self.binder.plugin_failures);
                permit.release_during(call).await
            }
        }
    }

    /// Whether the containers of the pod get the config maps of a shared GPU.
    fn exposes_gpus(&self) -> bool {
        let mutated = !annotation(&self.pod, annotations::SHARED_GPU_CONFIG_MAP).is_empty();
        self.target.is_fraction() && (mutated || !self.binder.options.allow_unmutated_pods)
    }

    /// Reverses the steps of this attempt and of earlier ones, the last step first. Returns the first error.
    pub(crate) async fn rollback(&self, permit: &mut Permit) -> Result<()> {
        let (binder, target) = (self.binder, self.target);
        let api = &binder.context.api;
        let mut outcome = Ok(());
        for plugin in self.started.iter().rev() {
            let reversed = match plugin {
                Plugin::VolumeBinding { .. } => volume_binding::rollback(api, &self.pod, target.node()).await,
                Plugin::DynamicResources { .. } => binder.claims.rollback(api, target, &self.pod).await,
                Plugin::GpuSharing { .. } if target.is_fraction() => {
                    gpu_sharing::rollback(api, &self.pod).await
                }
                Plugin::GpuSharing { .. } | Plugin::HamiCore => Ok(()),
                Plugin::Custom(plugin) => {
                    let call = plugin.call(Step::Rollback, self.context(), &binder.plugin_failures);
                    permit.release_during(call).await
                }
            };
            outcome = outcome.and(reversed);
        }
        if target.is_fraction() {
            outcome = outcome.and(self.unlabel().await);
            for group in target.gpu_groups() {
                let sync = binder.reservations.sync_group(group, Some(&target.key));
                outcome = outcome.and(permit.release_during(sync).await);
            }
        }
        outcome
    }

    /// Sets the labels of the pod's GPU groups and removes those of other groups.
    async fn label(&mut self) -> Result<()> {
        let groups: &[String] = if self.target.is_fraction() { self.target.gpu_groups() } else { &[] };
        let Some(changes) = group_labels(&self.pod, groups) else { return Ok(()) };
        self.pod = self.write_labels(changes).await?;
        Ok(())
    }

    async fn unlabel(&self) -> Result<()> {
        let known = self.binder.context.informers.get::<Pod>(&self.target.pod);
        let known = known.filter(|known| uid(&**known) == uid(&self.pod));
        let Some(changes) = group_labels(known.as_deref().unwrap_or(&self.pod), &[]) else { return Ok(()) };
        match self.write_labels(changes).await {
            // The pod was deleted.
            Err(Error::Api { cause, .. }) if cause.is_not_found() => Ok(()),
            written => written.map(|_| ()),
        }
    }

    async fn write_labels(&self, changes: LabelChanges) -> Result<Pod> {
        self.write_metadata(&json!({"uid": uid(&self.pod), "labels": changes})).await
    }

    async fn write_metadata(&self, changes: &Value) -> Result<Pod> {
        let patch = json!({"metadata": changes});
        let context = &self.binder.context;
        let written = context.api.patch::<Pod>(&self.target.pod, Part::Main, &patch).await;
        let written = written.during(|| format!("label pod `{}`", self.target.pod))?;
        context.informers.store().update(written.clone());
        Ok(written)
    }

    /// Posts the Binding. Its annotations are copied to the pod by the API server, which saves a write.
    #[expect(clippy::expect_used, reason = "a binding has only text keys, so it always serialises")]
    async fn bind(&self) -> Result<()> {
        let (context, target) = (&self.binder.context, self.target);
        let request = context.informers.get::<crate::bind_target::StoredRequest>(&target.key);
        let is_current =
            request.is_some_and(|request| request.identity().uid == target.uid && !request.is_terminating());
        if !is_current {
            return Err(Error::Withdrawn);
        }
        let mut added = BTreeMap::from([(
            annotations::RECEIVED_RESOURCE_TYPE.to_owned(),
            target.spec.received_resource_type.clone(),
        )]);
        added.extend(target.numa_zones().map(|zones| (annotations::NUMA_PREDICTED.to_owned(), zones)));
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(target.pod.name.clone()),
                namespace: Some(target.pod.namespace.clone()),
                uid: Some(uid(&self.pod).to_owned()),
                annotations: Some(added),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(target.node().to_owned()),
                ..ObjectReference::default()
            },
        };
        let binding = serde_json::to_value(&binding).expect("a binding has only text keys");
        let path = POD.path_of(&target.pod) + "/binding";
        let sent = context.api.send("POST", &path, Some(("application/json", &binding))).await;
        sent.map(|_| ()).during(|| format!("bind pod `{}`", target.pod))
    }
}

/// The changes that give a pod the labels of exactly these GPU groups; none when it has them already.
///
/// As in KAI, a pod with a fraction of one GPU has one label with its group, a pod with fractions of several GPUs one
/// label for each group.
fn group_labels(pod: &Pod, groups: &[String]) -> Option<LabelChanges> {
    let devices = annotation(pod, annotations::GPU_FRACTION_NUM_DEVICES).parse::<u32>().unwrap_or(1);
    let several = devices > 1 || groups.len() > 1;
    let name = |group: &String| {
        if several { format!("{}{group}", label::GPU_GROUP_PREFIX) } else { label::GPU_GROUP.to_owned() }
    };
    let desired: BTreeMap<String, &String> = groups.iter().map(|group| (name(group), group)).collect();
    let known = pod.labels();
    let added = desired.iter().filter(|(name, group)| known.get(*name) != Some(**group));
    let removed = known.keys().filter(|name| is_gpu_group_label(name) && !desired.contains_key(*name));
    let changes: LabelChanges = added
        .map(|(name, group)| (name.clone(), Some((*group).clone())))
        .chain(removed.map(|name| (name.clone(), None)))
        .collect();
    (!changes.is_empty()).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_exactly_the_selected_gpu_groups() {
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
        for (labels, devices, groups, expected) in table {
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "labels": labels, "annotations": {annotations::GPU_FRACTION_NUM_DEVICES: devices},
            }}))
            .unwrap();
            let groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
            assert_eq!(group_labels(&pod, &groups).map(|changes| json!(changes)), expected, "{labels}");
        }
    }
}
