//! Karpenter with its kwok provider, whose nodes exist in the API only: something else has to report them as ready.

use super::{Definition, KARPENTER, Launch};
use serde_json::json;

/// GPUs of a new node.
pub const GPUS: u32 = 2;

pub(super) const DEFINITION: Definition = Definition {
    name: KARPENTER,
    title: "Karpenter",
    module: "sigs.k8s.io/karpenter",
    built_by: KARPENTER,
    package: "sigs.k8s.io/karpenter/kwok",
    crds: &["pkg/apis/crds", "kwok/apis/crds"],
    webhooks: None,
    rotation: None,
    arguments,
};

/// The kubeconfig is in its environment: it has no flag for it.
fn arguments(launch: &Launch<'_>) -> Vec<String> {
    let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let zone = requirement("topology.kubernetes.io/zone", "zone-1");
    let capacity_type = requirement("karpenter.sh/capacity-type", "on-demand");
    let types = json!([{
        "name": "two-gpus", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {
            "cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "nvidia.com/gpu": GPUS.to_string(),
        },
        "offerings": [{"Price": 1.0, "Available": true, "Requirements": [zone, capacity_type]}],
    }]);
    let file = launch.folder.join("instance-types.json");
    // A missing file is reported by the program.
    let _ = std::fs::write(&file, types.to_string());
    let fixed = ["--disable-leader-election=true", "--metrics-port=0", "--health-probe-port=0"];
    let types = format!("--instance-types-file-path={}", file.display());
    fixed.into_iter().map(str::to_owned).chain([types]).collect()
}
