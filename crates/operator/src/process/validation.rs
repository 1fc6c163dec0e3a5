//! Settings that a process would refuse: the last good state stays, instead of one that exits at once.

use crate::{Desired, Images, Object, Operand};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Checked = dyn Fn(&Object) -> Result<(), String> + Send + Sync;

/// Why the process of a Deployment or DaemonSet would not start, or would refuse its ConfigMap. The default accepts all.
#[derive(Clone)]
pub struct Check(Arc<Checked>);

impl Check {
    pub fn new(check: impl Fn(&Object) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl Default for Check {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// Flags, and the settings that they follow from.
const FLAGS: &[(&str, &str)] = &[
    ("--plugins", "spec.binder.plugins"),
    ("--resource-reservation-allocation-timeout", "spec.binder.resourceReservation.allocationTimeout"),
    ("--resource-reservation-pod-image-pull-policy", "spec.binder.resourceReservation.image.pullPolicy"),
    ("--poll-interval", "spec.numaPlacementExporter.pollInterval"),
    ("--drift-resync-interval", "spec.numaPlacementExporter.driftResyncInterval"),
    ("--gpu-memory-to-fraction-ratio", "spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio"),
    ("--scaling-pod-image-pull-policy", "spec.nodeScaleAdjuster.args.scalingPodImage.pullPolicy"),
    ("--metrics-namespace", "spec.queueController.metricsNamespace"),
    ("--queue-label-to-metric-label", "spec.queueController.queueLabelToMetricLabel"),
    ("--queue-label-to-default-metric-value", "spec.queueController.queueLabelToDefaultMetricValue"),
    ("--max-concurrent-reconciles", "maxConcurrentReconciles of the component"),
    ("--qps", "service.k8sClientConfig.qps of the component"),
    ("--burst", "service.k8sClientConfig.burst of the component"),
];

/// Checks objects; each is checked again only when it has changed.
#[derive(Debug, Default)]
pub(super) struct Validation {
    check: Check,
    known: BTreeMap<crate::ObjectKey, (Value, Result<(), String>)>,
}

impl Validation {
    pub(super) fn new(check: Check) -> Self {
        Self { check, known: BTreeMap::new() }
    }

    /// Takes out the operands whose process would not start. Other images than those of the operator are not judged: they
    /// may have plugins of their own.
    pub(super) fn withhold(&mut self, desired: &mut Desired, images: &Images) {
        for operand in &mut desired.config {
            self.check_operand(operand, images, |error| of_config(&error));
        }
        for (_, operand) in &mut desired.shards {
            self.check_operand(operand, images, |error| of_shard(&error));
        }
    }

    fn check_operand(&mut self, operand: &mut Operand, images: &Images, text: impl Fn(String) -> String) {
        if !operand.objects.iter().any(|object| has_image_of(object, images)) {
            return;
        }
        let errors: Vec<String> =
            operand.objects.iter().filter_map(|object| self.check_object(object).err()).map(text).collect();
        if !errors.is_empty() {
            operand.objects.clear();
            let kept = "hint: until this is corrected, what is deployed stays as it is";
            operand.error = Some(format!("{}\n{kept}", errors.join("\n")));
        }
    }

    fn check_object(&mut self, object: &Object) -> Result<(), String> {
        let input = match kai_object::kind(object) {
            "Deployment" | "DaemonSet" => object.pointer("/spec/template/spec/containers/0/args"),
            "ConfigMap" => object.get("data"),
            _ => None,
        };
        let Some(input) = input else { return Ok(()) };
        let key = crate::ObjectKey::of(object);
        if let Some((known, result)) = self.known.get(&key)
            && known == input
        {
            return result.clone();
        }
        let result = (self.check.0)(object);
        self.known.insert(key, (input.clone(), result.clone()));
        result
    }
}

fn has_image_of(object: &Object, images: &Images) -> bool {
    let image = kai_object::str_at(object, "/spec/template/spec/containers/0/image");
    let of_tag = image.strip_suffix(&images.tag).and_then(|rest| rest.strip_suffix(':'));
    let of_repository = of_tag.and_then(|rest| rest.strip_prefix(&images.repository));
    of_repository.is_some_and(|name| name.starts_with('/'))
}

/// The error with the setting that it is about.
fn of_config(error: &str) -> String {
    // The longest first: some flags begin with others.
    let mut flags: Vec<_> = FLAGS.iter().filter(|(flag, _)| error.contains(flag)).collect();
    flags.sort_by_key(|(flag, _)| std::cmp::Reverse(flag.len()));
    flags.first().map_or_else(|| error.to_owned(), |(_, setting)| format!("{setting}: {error}"))
}

fn of_shard(error: &str) -> String {
    if error.starts_with("spec.") { error.to_owned() } else { format!("spec.args: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn operand(image: &str) -> Operand {
        let container = json!({"image": image, "args": ["--plugins", "{}"]});
        let template = json!({"spec": {"containers": [container]}});
        let deployment = json!({
            "kind": "Deployment", "metadata": {"name": "binder"}, "spec": {"template": template},
        });
        Operand { name: "Binder", objects: vec![deployment], ..Operand::default() }
    }

    #[test]
    fn only_images_of_the_operator_are_judged_and_the_setting_is_named() {
        let images = Images { repository: "registry".to_owned(), tag: "v1".to_owned() };
        let mut validation =
            Validation::new(Check::new(|_| Err("invalid `--plugins`: there is no plugin `mine`".to_owned())));
        let judged = |validation: &mut Validation, image: &str| {
            let mut desired = Desired { config: vec![operand(image)], ..Desired::default() };
            validation.withhold(&mut desired, &images);
            desired.config.remove(0)
        };
        let ours = judged(&mut validation, "registry/binder:v1");
        assert!(ours.objects.is_empty());
        let error = ours.error.unwrap();
        assert!(
            error.starts_with("spec.binder.plugins: invalid `--plugins`: there is no plugin `mine`"),
            "{error}"
        );
        for other in ["mine/binder:v1", "registry/binder:v2", "registry-two/binder:v1"] {
            assert_eq!(judged(&mut validation, other), operand(other), "{other}");
        }
    }
}
