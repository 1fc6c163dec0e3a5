//! The NUMA placement exporter, which runs on every node with several NUMA zones.

use super::{LIMITED_BY_FLAGS, client_limits, limits_of, without_budget};
use crate::facts::Facts;
use crate::settings::{Settings, image, pull_policy};
use crate::workload::{metadata, pod_spec, service_account, set_list};
use crate::{Operand, resources};
use kai_api::SchedulingShard;
use kai_api::config::NumaPlacementExporter;
use kai_api::well_known::{env, label};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NAME: &str = "numa-placement-exporter";
const PLUGIN: &str = "numa";
const POD_RESOURCES: &str = "/var/lib/kubelet/pod-resources";
const SYSFS: &str = "/sys";
const SYSFS_MOUNT: &str = "/host/sys";

pub(super) fn operand(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> Operand {
    let exporter = &settings.numa_placement_exporter;
    let mut operand = Operand { name: "NumaPlacementExporter", ..Operand::default() };
    let set = exporter.service.as_ref().and_then(|service| service.enabled);
    if !set.unwrap_or_else(|| shards.iter().any(uses_numa)) {
        return operand;
    }
    let why = "it runs on every node, and draining a node does not evict it";
    operand.notices.extend(without_budget("numaPlacementExporter", exporter.service.as_ref(), why));
    let owner = settings.owner();
    let selector = json!({label::APP: NAME});
    operand.objects.extend([
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": metadata(NAME, &settings.namespace, &owner),
            "spec": {
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": selector}, "spec": pod(settings, facts)},
            },
        }),
        service_account(NAME, &settings.namespace, &owner),
    ]);
    operand
}

/// Whether the scheduler of a shard reads what the exporter writes: an entry without `enabled` counts as enabled there.
fn uses_numa(shard: &SchedulingShard) -> bool {
    let plugin = shard.spec.plugins.as_ref().and_then(|plugins| plugins.get(PLUGIN));
    plugin.is_some_and(|plugin| plugin.enabled.unwrap_or(true))
}

fn pod(settings: &Settings, facts: &Facts) -> Value {
    let exporter = &settings.numa_placement_exporter;
    let service = exporter.service.as_ref();
    let service_image = service.and_then(|service| service.image.as_ref());
    let host_path = exporter.pod_resources_host_path.as_deref().unwrap_or(POD_RESOURCES);
    let sysfs = exporter.sysfs_host_path.as_deref().unwrap_or(SYSFS);
    let container = json!({
        "name": NAME,
        "image": image(service_image, NAME, &facts.images),
        "imagePullPolicy": pull_policy(service_image),
        "args": arguments(exporter),
        "env": [{"name": env::NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": resources::resources(
            service.and_then(|service| service.resources.as_ref()),
            &resources::COMPONENT,
        ),
        "volumeMounts": [
            {"name": "podresources", "mountPath": host_path, "readOnly": true},
            {"name": "sysfs", "mountPath": SYSFS_MOUNT, "readOnly": true},
        ],
        // The folder of the kubelet's socket belongs to root.
        "securityContext": {
            "runAsUser": 0, "runAsNonRoot": false, "readOnlyRootFilesystem": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let mut spec = pod_spec(settings, NAME);
    kai_object::set(&mut spec, &["containers"], json!([container]));
    kai_object::set(
        &mut spec,
        &["volumes"],
        json!([
            {"name": "podresources", "hostPath": {"path": host_path, "type": "Directory"}},
            {"name": "sysfs", "hostPath": {"path": sysfs, "type": "Directory"}},
        ]),
    );
    let selector = exporter.node_selector.clone().filter(|selector| !selector.is_empty());
    let selector =
        selector.unwrap_or_else(|| BTreeMap::from([(label::NUMA_NODE.to_owned(), "true".to_owned())]));
    kai_object::set(&mut spec, &["nodeSelector"], json!(selector));
    if let Some(affinity) = service.and_then(|service| service.affinity.as_ref()) {
        kai_object::set(&mut spec, &["affinity"], json!(affinity));
    }
    let global = settings.global.daemonsets_tolerations.iter().flatten();
    let tolerations: Vec<_> = global.chain(exporter.tolerations.iter().flatten()).collect();
    set_list(&mut spec, "tolerations", Some(&tolerations));
    spec
}

fn arguments(exporter: &NumaPlacementExporter) -> Vec<String> {
    let NumaPlacementExporter { service, poll_interval, drift_resync_interval, pod_resources_socket, .. } =
        exporter;
    let default_socket = format!("{POD_RESOURCES}/kubelet.sock");
    let socket = pod_resources_socket.as_deref().unwrap_or(&default_socket);
    let mut args = vec![format!("--podresources-socket={socket}"), format!("--sysfs-root={SYSFS_MOUNT}")];
    if let Some(interval) = poll_interval {
        args.push(format!("--poll-interval={}", go_duration(interval)));
    }
    if let Some(interval) = drift_resync_interval {
        args.push(format!("--drift-resync-interval={}", go_duration(interval)));
    }
    args.extend(client_limits(&limits_of(service.as_ref()), LIMITED_BY_FLAGS));
    args
}

/// A duration as Go writes it; other text is kept for the process to refuse.
fn go_duration(text: &str) -> String {
    kai_units::duration::parse_go(text).map_or_else(|_| text.to_owned(), kai_units::duration::format_go)
}
