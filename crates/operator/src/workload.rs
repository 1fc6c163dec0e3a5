//! The objects around a component: Deployment, ServiceAccount, Service, PodDisruptionBudget, VerticalPodAutoscaler.

use crate::affinity::affinity;
use crate::facts::Facts;
use crate::resources::{Defaults, canonical, resources};
use crate::settings::{Settings, image, pull_policy};
use crate::{Object, Operand};
use kai_api::config::service::{PodDisruptionBudget, Service, Vpa};
use kai_api::well_known::{label, label_value};
use serde_json::{Map, Value, json};

/// What the operands say about a VPA that cannot be created.
pub(crate) const VPA_MISSING: &str = "the VerticalPodAutoscaler CRD";

/// A component that runs as a Deployment.
pub(crate) struct Workload<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: Value,
    pub(crate) account: &'a str,
    pub(crate) service: Option<&'a Service>,
    /// Image name when the `Config` has none.
    pub(crate) image: &'a str,
    pub(crate) defaults: Defaults,
    pub(crate) args: Vec<String>,
    pub(crate) replicas: i32,
    /// How pods are replaced, where that is not left to the API server.
    pub(crate) strategy: Option<Value>,
    /// Further fields of the container.
    pub(crate) container: Value,
    pub(crate) volumes: Vec<Value>,
    pub(crate) template: Value,
}

impl Workload<'_> {
    pub(crate) fn deployment(&self, settings: &Settings, facts: &Facts) -> Object {
        let mut spec = json!({
            "replicas": self.replicas,
            "selector": {"matchLabels": {label::APP: self.name}},
            "template": self.template(settings, facts),
        });
        if let Some(strategy) = &self.strategy {
            kai_object::set(&mut spec, &["strategy"], strategy.clone());
        }
        let mut metadata = metadata(self.name, &settings.namespace, &self.owner);
        kai_object::set(
            &mut metadata,
            &["labels", label::MANAGED_BY],
            Value::from(label_value::KAI_OPERATOR),
        );
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    }

    fn template(&self, settings: &Settings, facts: &Facts) -> Value {
        let service_image = self.service.and_then(|service| service.image.as_ref());
        let mut container = self.container.clone();
        let fields = json!({
            "name": self.name,
            "image": image(service_image, self.image, &facts.images),
            "imagePullPolicy": pull_policy(service_image),
            "args": self.args,
            "resources": resources(self.service.and_then(|service| service.resources.as_ref()), &self.defaults),
        });
        extend(&mut container, fields);
        if let Some(context) = settings.restricted_security_context() {
            kai_object::set(&mut container, &["securityContext"], context);
        }
        let mut spec = pod_spec(settings, self.account);
        kai_object::set(&mut spec, &["containers"], json!([container]));
        if !self.volumes.is_empty() {
            kai_object::set(&mut spec, &["volumes"], Value::from(self.volumes.clone()));
        }
        let own = self.service.and_then(|service| service.affinity.as_ref());
        if let Some(affinity) = affinity(settings, own, self.name) {
            kai_object::set(&mut spec, &["affinity"], affinity);
        }
        set_list(&mut spec, "tolerations", settings.global.tolerations.as_deref());
        if let Some(selector) = settings.global.node_selector.as_ref().filter(|map| !map.is_empty()) {
            kai_object::set(&mut spec, &["nodeSelector"], json!(selector));
        }
        let mut template = self.template.clone();
        kai_object::map_mut(&mut template, "metadata")
            .insert("labels".to_owned(), json!({label::APP: self.name}));
        kai_object::set(&mut template, &["spec"], spec);
        template
    }

    /// The budget of a component with several replicas.
    pub(crate) fn disruption_budget(&self, settings: &Settings) -> Option<Object> {
        let budget = self.service.and_then(|service| service.pod_disruption_budget.clone());
        let PodDisruptionBudget { enabled, max_unavailable } = budget?;
        if !enabled.unwrap_or(false) || self.replicas <= 1 {
            return None;
        }
        Some(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": metadata(self.name, &settings.namespace, &self.owner),
            "spec": {
                "maxUnavailable": max_unavailable.unwrap_or(1),
                "selector": {"matchLabels": {label::APP: self.name}},
            },
        }))
    }

    /// Adds the autoscaler of the Deployment, or says what it needs.
    pub(crate) fn scale(&self, settings: &Settings, own: Option<&Vpa>, facts: &Facts, operand: &mut Operand) {
        let Some(vpa) = settings.vpa(own) else { return };
        if !facts.apis.vertical_pod_autoscaler {
            operand.missing.push(VPA_MISSING.to_owned());
            return;
        }
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name});
        let mut spec = json!({"targetRef": target});
        if let Some(policy) = vpa.update_policy {
            kai_object::set(&mut spec, &["updatePolicy"], serde_json::to_value(policy).unwrap_or_default());
        }
        if let Some(policy) = vpa.resource_policy {
            let mut policy = serde_json::to_value(policy).unwrap_or_default();
            let containers = policy.pointer_mut("/containerPolicies").and_then(Value::as_array_mut);
            for bounds in containers.into_iter().flatten() {
                for amounts in ["minAllowed", "maxAllowed"] {
                    let amounts = bounds.get_mut(amounts).and_then(Value::as_object_mut);
                    for amount in amounts.into_iter().flat_map(|map| map.values_mut()) {
                        *amount = canonical(amount.as_str().unwrap_or_default());
                    }
                }
            }
            kai_object::set(&mut spec, &["resourcePolicy"], policy);
        }
        let mut metadata = metadata(self.name, &settings.namespace, &self.owner);
        remove(&mut metadata, "labels");
        operand.objects.push(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": metadata, "spec": spec,
        }));
    }
}

/// The fields of a pod that all components share.
pub(crate) fn pod_spec(settings: &Settings, account: &str) -> Value {
    let mut spec = json!({"serviceAccountName": account});
    if let Some(class) = settings.global.priority_class_name.as_ref().filter(|class| !class.is_empty()) {
        kai_object::set(&mut spec, &["priorityClassName"], Value::from(class.as_str()));
    }
    let secrets = secret_references(&settings.pull_secrets());
    if !secrets.is_empty() {
        kai_object::set(&mut spec, &["imagePullSecrets"], Value::from(secrets));
    }
    spec
}

pub(crate) fn secret_references(names: &[String]) -> Vec<Value> {
    names.iter().map(|name| json!({"name": name})).collect()
}

/// Metadata of a namespaced object with the label `app`.
pub(crate) fn metadata(name: &str, namespace: &str, owner: &Value) -> Value {
    json!({"name": name, "namespace": namespace, "labels": {label::APP: name}, "ownerReferences": owner})
}

/// Metadata of a cluster-wide object with the label `app`.
pub(crate) fn cluster_metadata(name: &str, app: &str, owner: &Value) -> Value {
    json!({"name": name, "labels": {label::APP: app}, "ownerReferences": owner})
}

pub(crate) fn service_account(name: &str, namespace: &str, owner: &Value) -> Object {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, namespace, owner)})
}

/// A Service in front of the pods with the same `app` label.
pub(crate) fn service(name: &str, namespace: &str, owner: &Value, ports: &[Port<'_>]) -> Object {
    let ports = ports.iter().map(
        |port| json!({"name": port.name, "port": port.number, "targetPort": port.target, "protocol": "TCP"}),
    );
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(name, namespace, owner),
        "spec": {
            "type": "ClusterIP",
            "selector": {label::APP: name},
            "ports": ports.collect::<Vec<_>>(),
        },
    })
}

pub(crate) struct Port<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: i64,
    pub(crate) target: i64,
}

/// Sets a list field unless it is absent or empty.
pub(crate) fn set_list<T: serde::Serialize>(object: &mut Value, field: &str, items: Option<&[T]>) {
    if let Some(items) = items.filter(|items| !items.is_empty()) {
        kai_object::set(object, &[field], json!(items));
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn extend(object: &mut Value, fields: Value) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}
