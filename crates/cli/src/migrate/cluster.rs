//! Reads from a cluster what `kai migrate check` judges.

use crate::args::MigrateCheck;
use crate::view::connection::Connection;
use anyhow::Result;
use kai_api::well_known::name::NAMESPACE;
use kai_api::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology};
use kai_migrate::Input;
use kai_operator::Apis;
use kai_runtime::api::Api;
use kai_runtime::kind::{
    DEPLOYMENT, DEVICE_CLASS, NODE, NODE_RESOURCE_TOPOLOGY, POD, POD_DISRUPTION_BUDGET, RESOURCE_CLAIM,
    RESOURCE_SLICE, ResourceKind, group_path, untyped,
};
use serde_json::Value;

const CLUSTER_POLICY: ResourceKind = untyped("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies", false);
const RAY_CLUSTER: ResourceKind = untyped("ray.io", "v1", "RayCluster", "rayclusters", true);
const RAY_JOB: ResourceKind = untyped("ray.io", "v1", "RayJob", "rayjobs", true);
const RAY_SERVICE: ResourceKind = untyped("ray.io", "v1", "RayService", "rayservices", true);

/// Adds the objects of a cluster; returns what could not be read.
pub(super) async fn read(args: &MigrateCheck, input: &mut Input) -> Result<Vec<String>> {
    let connection = Connection::open(&args.kubeconfig).await?;
    let api = &connection.api;
    let mut warnings = Vec::new();
    let everywhere = [
        ResourceKind::of::<Config>(),
        ResourceKind::of::<SchedulingShard>(),
        ResourceKind::of::<Queue>(),
        ResourceKind::of::<PodGroup>(),
        ResourceKind::of::<BindRequest>(),
        ResourceKind::of::<Topology>(),
        NODE,
        POD,
        POD_DISRUPTION_BUDGET,
    ];
    for kind in &everywhere {
        list(api, kind, "", &mut input.objects, &mut warnings).await;
    }
    let optional = [
        RESOURCE_CLAIM,
        RESOURCE_SLICE,
        DEVICE_CLASS,
        NODE_RESOURCE_TOPOLOGY,
        CLUSTER_POLICY,
        RAY_CLUSTER,
        RAY_JOB,
        RAY_SERVICE,
    ];
    for kind in &optional {
        if is_served(api, kind).await {
            list(api, kind, "", &mut input.objects, &mut warnings).await;
        }
    }
    let configs = input.objects.iter().filter(|object| kai_object::kind(object) == "Config");
    let namespaces = configs.map(|config| kai_object::str_at(config, "/spec/namespace"));
    let namespace = namespaces.into_iter().find(|namespace| !namespace.is_empty()).unwrap_or(NAMESPACE);
    let namespace = namespace.to_owned();
    list(api, &DEPLOYMENT, &namespace, &mut input.objects, &mut warnings).await;
    input.apis = Some(Apis {
        prometheus: is_served(
            api,
            &untyped("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", true),
        )
        .await,
        service_monitor: is_served(
            api,
            &untyped("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", true),
        )
        .await,
        vertical_pod_autoscaler: is_served(
            api,
            &untyped("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", true),
        )
        .await,
    });
    Ok(warnings)
}

async fn list(
    api: &Api,
    kind: &ResourceKind,
    namespace: &str,
    objects: &mut Vec<Value>,
    warnings: &mut Vec<String>,
) {
    match api.list_dynamic(kind, namespace).await {
        Ok(list) => objects.extend(list.items.into_iter().map(|mut object| {
            // The items of a list do not repeat their kind.
            object["apiVersion"] = Value::from(kind.api_version());
            object["kind"] = Value::from(&*kind.kind);
            object
        })),
        Err(error) => warnings.push(format!("{} are left out: {}", kind.plural, error.message())),
    }
}

async fn is_served(api: &Api, kind: &ResourceKind) -> bool {
    let Ok(list) = api.send("GET", &group_path(&kind.group, &kind.version), None).await else { return false };
    let resources = list.get("resources").and_then(Value::as_array).into_iter().flatten();
    resources.into_iter().any(|resource| kai_object::str_at(resource, "/name") == kind.plural)
}
