//! The EndpointSlice that makes the metrics Service of several replicas reach the leader.

use crate::Object;
use crate::facts::LeaderEndpoint;
use crate::settings::Settings;
use kai_api::SchedulingShard;
use kai_api::well_known::{label, label_value};
use serde_json::{Value, json};

pub(super) fn lease_name(settings: &Settings, shard: &SchedulingShard) -> String {
    super::lease_name(
        &settings.scheduler_name,
        shard.spec.partition_label_value.as_deref().unwrap_or_default(),
    )
}

pub(super) fn endpoint_slice(
    settings: &Settings,
    name: &str,
    owner: &Value,
    port: i64,
    leader: Option<&LeaderEndpoint>,
) -> Object {
    let endpoints = leader.into_iter().map(|leader| {
        json!({
            "addresses": [leader.address],
            "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "namespace": leader.namespace, "name": leader.pod, "uid": leader.uid},
        })
    });
    // An EndpointSlice holds addresses of one family; it is empty, hence either, without a leader.
    let family = match leader {
        Some(leader) if leader.address.contains(':') => "IPv6",
        _ => "IPv4",
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-leader"),
            "namespace": settings.namespace,
            "labels": {
                label::ENDPOINT_SLICE_MANAGED_BY: label_value::KAI_OPERATOR,
                label::SERVICE_NAME: name,
            },
            "ownerReferences": owner,
        },
        "addressType": family,
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": super::METRICS_PORT_NAME, "protocol": "TCP", "port": port}],
    })
}
