//! The settings of an installation with their defaults filled in.

use crate::Images;
use crate::topology::Topology;
use kai_api::config::service::{Image, Service, Vpa, VpaUpdateMode, VpaUpdatePolicy};
use kai_api::config::{self, Global};
use kai_api::well_known::{label, name};
use kai_api::{Config, ConfigSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DEFAULT_USER: i64 = 10_000;
const PULL_POLICY: &str = "IfNotPresent";

/// A `Config` with the defaults that several operands share.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) scheduler_name: String,
    pub(crate) queue_label_key: String,
    pub(crate) node_pool_label_key: String,
    pub(crate) namespace_labels: BTreeMap<String, String>,
    pub(crate) pod_labels: BTreeMap<String, String>,
    pub(crate) json_log: bool,
    /// How the components are divided into processes, or why that is not known.
    pub(crate) topology: Result<Topology, String>,
    pub(crate) global: Global,
    pub(crate) pod_grouper: config::PodGrouper,
    pub(crate) binder: config::Binder,
    pub(crate) admission: config::Admission,
    pub(crate) scheduler: config::Scheduler,
    pub(crate) queue_controller: config::QueueController,
    pub(crate) pod_group_controller: config::PodGroupController,
    pub(crate) node_scale_adjuster: config::NodeScaleAdjuster,
    pub(crate) numa_placement_exporter: config::NumaPlacementExporter,
    pub(crate) prometheus: config::Prometheus,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Self {
        let ConfigSpec {
            namespace,
            global,
            pod_grouper,
            binder,
            admission,
            scheduler,
            queue_controller,
            pod_group_controller,
            node_scale_adjuster,
            numa_placement_exporter,
            prometheus,
        } = config.spec.clone();
        let global = global.unwrap_or_default();
        Self {
            name: config.metadata.name.clone().unwrap_or_default(),
            uid: config.metadata.uid.clone().unwrap_or_default(),
            namespace: namespace.unwrap_or_else(|| name::NAMESPACE.to_owned()),
            scheduler_name: global.scheduler_name.clone().unwrap_or_else(|| name::SCHEDULER.to_owned()),
            queue_label_key: global.queue_label_key.clone().unwrap_or_else(|| label::QUEUE.to_owned()),
            node_pool_label_key: global
                .node_pool_label_key
                .clone()
                .unwrap_or_else(|| label::NODE_POOL.to_owned()),
            namespace_labels: global.namespace_label_selector.clone().unwrap_or_default(),
            pod_labels: global.pod_label_selector.clone().unwrap_or_default(),
            json_log: global.json_log.unwrap_or(false),
            topology: Topology::of(config),
            global,
            pod_grouper: pod_grouper.unwrap_or_default(),
            binder: binder.unwrap_or_default(),
            admission: admission.unwrap_or_default(),
            scheduler: scheduler.unwrap_or_default(),
            queue_controller: queue_controller.unwrap_or_default(),
            pod_group_controller: pod_group_controller.unwrap_or_default(),
            node_scale_adjuster: node_scale_adjuster.unwrap_or_default(),
            numa_placement_exporter: numa_placement_exporter.unwrap_or_default(),
            prometheus: prometheus.unwrap_or_default(),
        }
    }

    /// The `Config` as the only owner of an object.
    pub(crate) fn owner(&self) -> Value {
        owner("Config", &self.name, &self.uid)
    }

    pub(crate) fn replicas(&self, own: Option<i32>) -> i32 {
        own.or(self.global.replica_count).unwrap_or(1)
    }

    /// Names of pull secrets without duplicates; the deprecated single one comes last.
    pub(crate) fn pull_secrets(&self) -> Vec<String> {
        let mut names = Vec::new();
        let listed = self.global.additional_image_pull_secrets.iter().flatten();
        for name in listed.chain(&self.global.images_pull_secret) {
            if !name.is_empty() && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The security context of containers, filled up field by field; `None` where the platform chooses it.
    pub(crate) fn security_context(&self) -> Option<Value> {
        if self.global.openshift.unwrap_or(false) {
            return None;
        }
        let own = self.global.security_context.clone().unwrap_or_default();
        let mut context = serde_json::to_value(own).unwrap_or_default();
        let defaults = [
            ("allowPrivilegeEscalation", Value::from(false)),
            ("runAsNonRoot", Value::from(true)),
            ("runAsUser", Value::from(DEFAULT_USER)),
        ];
        for (field, value) in defaults {
            if context.get(field).is_none() {
                kai_object::set(&mut context, &[field], value);
            }
        }
        if context.pointer("/capabilities/drop").is_none() {
            kai_object::map_mut(&mut context, "capabilities").insert("drop".to_owned(), json!(["all"]));
        }
        Some(context)
    }

    /// [`Self::security_context`] with what our programs can do without besides, as the restricted Pod Security Standard wants it.
    /// Reservation pods have none of this: container runtimes write links to the driver's libraries into them.
    pub(crate) fn restricted_security_context(&self) -> Option<Value> {
        let mut context = self.security_context()?;
        for (field, value) in
            [("readOnlyRootFilesystem", json!(true)), ("seccompProfile", json!({"type": "RuntimeDefault"}))]
        {
            if context.get(field).is_none() {
                kai_object::set(&mut context, &[field], value);
            }
        }
        // As the standard spells it.
        if context.pointer("/capabilities/drop") == Some(&json!(["all"])) {
            kai_object::map_mut(&mut context, "capabilities").insert("drop".to_owned(), json!(["ALL"]));
        }
        Some(context)
    }

    /// The vertical scaling of a component: its own setting, else the global one; `None` when it is off.
    ///
    /// Only the global one has a default update mode; a component's own leaves it to the autoscaler.
    pub(crate) fn vpa(&self, own: Option<&Vpa>) -> Option<Vpa> {
        let vpa = own.cloned().or_else(|| {
            let mut vpa = self.global.vpa.clone()?;
            let by_default = VpaUpdatePolicy {
                update_mode: Some(VpaUpdateMode::InPlaceOrRecreate),
                ..VpaUpdatePolicy::default()
            };
            vpa.update_policy.get_or_insert(by_default);
            Some(vpa)
        })?;
        vpa.enabled.unwrap_or(false).then_some(vpa)
    }
}

/// The reference to the only owner of an object.
pub(crate) fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "kai.scheduler/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

pub(crate) fn enabled(service: Option<&Service>) -> bool {
    service.and_then(|service| service.enabled).unwrap_or(true)
}

/// `REPOSITORY/NAME:TAG`.
pub(crate) fn image(image: Option<&Image>, name: &str, defaults: &Images) -> String {
    let field = |pick: fn(&Image) -> Option<&String>, default: &str| {
        image.and_then(pick).map_or_else(|| default.to_owned(), Clone::clone)
    };
    let repository = field(|image| image.repository.as_ref(), &defaults.repository);
    let name = field(|image| image.name.as_ref(), name);
    let tag = field(|image| image.tag.as_ref(), &defaults.tag);
    format!("{repository}/{name}:{tag}")
}

/// The pull policy of an image of pods that a component makes, where it is not the default.
pub(crate) fn unusual_pull_policy(image: Option<&Image>) -> Option<String> {
    image
        .and_then(|image| image.pull_policy.clone())
        .filter(|policy| !policy.is_empty() && policy != PULL_POLICY)
}

pub(crate) fn pull_policy(image: Option<&Image>) -> String {
    image.and_then(|image| image.pull_policy.clone()).unwrap_or_else(|| PULL_POLICY.to_owned())
}
