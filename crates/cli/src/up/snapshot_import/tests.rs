//! Imports snapshots with objects of all kinds, and reads them through the API.

use super::*;
use kai_cache::snapshot::Limits;
use std::io::Cursor;

const SNAPSHOT: &str = r#"
config: {actions: allocate, tiers: []}
schedulerParams: {schedulerName: kai-scheduler, partitionParams: {NodePoolLabelKey: kai.scheduler/node-pool, NodePoolLabelValue: ""}}
rawObjects:
  nodes:
  - metadata: {name: a, uid: node-a, creationTimestamp: "2026-01-01T00:00:00Z", labels: {rack: r1}}
    status: {allocatable: {cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}
  - metadata: {name: b}
    status: {allocatable: {cpu: "8"}, conditions: [{type: Ready, status: "False"}]}
  queues:
  - {metadata: {name: team, creationTimestamp: "2026-01-01T00:00:01.5Z"}, spec: {resources: {gpu: {quota: 4}}}}
  priorityClasses:
  - {metadata: {name: train}, value: 50}
  podGroups:
  - {metadata: {name: g, namespace: lab, uid: group-g}, spec: {queue: team, minMember: 2}}
  pods:
  - metadata: {name: runs, namespace: lab, uid: pod-runs, annotations: {pod-group-name: g},
      ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: job-j}]}
    spec: {nodeName: a, schedulerName: kai-scheduler, priorityClassName: train, priority: 50,
      containers: [{name: c, resources: {requests: {cpu: "1", nvidia.com/gpu: "2"}}}]}
    status: {phase: Running, qosClass: Guaranteed}
  - metadata: {name: waits, namespace: lab}
    spec: {priorityClassName: gone, containers: [{resources: {limits: {nvidia.com/gpu: "1"}}}]}
    status: {phase: Pending}
  - {metadata: {name: done, namespace: lab}, status: {phase: Succeeded}}
  - metadata: {name: going, namespace: lab, deletionTimestamp: "2026-01-01T00:00:00Z"}
    spec: {containers: [{name: c}]}
replay:
  podDisruptionBudgets: [{metadata: {name: p, namespace: lab}}]
"#;

/// One object of every kind beyond those above.
const RARE: &str = r#"
config: {actions: allocate, tiers: []}
schedulerParams: {schedulerName: kai-scheduler, partitionParams: {NodePoolLabelKey: kai.scheduler/node-pool, NodePoolLabelValue: ""}}
rawObjects:
  nodes: [{metadata: {name: a}, status: {allocatable: {cpu: "8"}}}]
  topologies: [{metadata: {name: racks}, spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}}]
  configMaps: [{metadata: {name: settings, namespace: lab}}]
  storageClasses: [{metadata: {name: fast}, provisioner: disks.example.com, volumeBindingMode: WaitForFirstConsumer}]
  csiDrivers: [{metadata: {name: disks.example.com}, spec: {storageCapacity: true}}]
  csiStorageCapacities:
  - {metadata: {name: there, namespace: lab}, storageClassName: fast, capacity: 1Ti, nodeTopology: {matchLabels: {rack: r1}}}
  persistentVolumes:
  - metadata: {name: disk}
    spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: fast,
      claimRef: {namespace: lab, name: data, uid: claim-data}, csi: {driver: disks.example.com}}
    status: {phase: Bound}
  - {metadata: {name: path}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}, status: {phase: Available}}
  persistentVolumeClaims:
  - metadata: {name: data, namespace: lab, uid: claim-data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: disk, resources: {requests: {storage: 1Gi}}}
    status: {phase: Bound}
  deviceClasses: [{metadata: {name: gpu.example.com}, spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}}]
  resourceSlices:
  - metadata: {name: a-gpus}
    spec: {driver: gpu.example.com, nodeName: a, pool: {name: a, generation: 1, resourceSliceCount: 1},
      devices: [{name: gpu-0, attributes: {model: {string: x}}, capacity: {memory: {value: 80Gi}}}]}
  resourceClaims:
  - metadata: {name: one-gpu, namespace: lab, ownerReferences: [{apiVersion: v1, kind: Pod, name: rare, uid: pod-rare}]}
    spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, allocationMode: ExactCount, count: 1}}]}}
    status:
      allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: a, device: gpu-0}]}}
      reservedFor: [{resource: pods, name: rare, uid: pod-rare}]
  nodeResourceTopologies:
  - metadata: {name: a}
    zones: [{name: node-0, type: Node, resources: [{name: cpu, capacity: "8", allocatable: "8", available: "8"}]}]
  pods:
  - metadata: {name: rare, namespace: lab, uid: pod-rare}
    spec:
      nodeName: a
      containers: [{name: c, resources: {requests: {cpu: 100m}}, volumeMounts: [{name: data}]}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]
      tolerations: [{operator: Exists}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:
        [{matchExpressions: [{key: rack, operator: Exists}]}]}}}
    status: {phase: Running, resourceClaimStatuses: [{name: gpu, resourceClaimName: one-gpu}]}
  bindRequests:
  - metadata: {name: rare, namespace: lab}
    spec: {podName: rare, selectedNode: a, receivedResourceType: Regular}
replay:
  csiNodes: [{metadata: {name: a}, spec: {drivers: [{name: disks.example.com, allocatable: {count: 4}}]}}]
  namespaces: [{metadata: {name: lab, labels: {team: x}}}]
"#;

async fn imported(text: &str) -> (Api, String) {
    let snapshot =
        snapshot::read("test.yaml", Cursor::new(text), Limits::default()).expect("it is a snapshot");
    let imported = import(&snapshot, 1).await.expect("it can be imported");
    let options = Options::new(2, Clock::system());
    let server = ApiServer::load(&options, imported.state.as_slice()).expect("it is a state");
    (Api::new(kube::Client::new(server.service(), "default"), USER_AGENT), imported.report.text("test.yaml"))
}

#[tokio::test]
async fn uids_and_creation_timestamps_are_restored() {
    let (api, report) = imported(SNAPSHOT).await;
    let pods = object::resource(Kind::Pod).expect("pods are imported");
    let runs = api.get_dynamic(&pods, &Key::new("lab", "runs")).await.expect(&report);
    assert_eq!((&runs["metadata"]["uid"], &runs["spec"]["nodeName"]), (&json!("pod-runs"), &json!("a")));
    assert_eq!(
        runs["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "1", "nvidia.com/gpu": "2"})
    );
    assert_eq!(runs["metadata"]["annotations"]["pod-group-name"], "g");
    let owners = runs["metadata"]["ownerReferences"].as_array();
    assert!(owners.is_none_or(Vec::is_empty), "the garbage collector would delete it");
    let waits = api.get_dynamic(&pods, &Key::new("lab", "waits")).await.expect(&report);
    assert_eq!(
        (&waits["status"]["phase"], &waits["spec"]["priorityClassName"]),
        (&json!("Pending"), &Value::Null)
    );
    let node = api.get_dynamic(&kind::NODE, &Key::new("", "a")).await.expect(&report);
    assert_eq!(
        (&node["metadata"]["uid"], &node["metadata"]["labels"]["rack"]),
        (&json!("node-a"), &json!("r1"))
    );
    assert_eq!(node["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let queue = object::resource(Kind::Queue).expect("queues are imported");
    let queue = api.get_dynamic(&queue, &Key::new("", "team")).await.expect(&report);
    assert_eq!(queue["metadata"]["creationTimestamp"], "2026-01-01T00:00:01Z");
    assert_eq!(queue["spec"]["resources"]["gpu"]["quota"].as_f64(), Some(4.0));
}

#[tokio::test]
async fn excluded_objects_are_reported() {
    let (_, report) = imported(SNAPSHOT).await;
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[0], "imported from test.yaml: 2 Pod, 2 Node, 1 Queue, 1 PodGroup, 1 PriorityClass");
    assert_eq!(
        lines[1..4],
        [
            "left out: 1 Pod (completed)",
            "left out: 1 Pod (terminating)",
            "left out: 1 PodDisruptionBudget (snapshots do not contain their spec)",
        ]
    );
    assert!(lines[4].starts_with("snapshots do not contain "), "{report}");
}

#[tokio::test]
async fn every_kind_is_imported() {
    let (api, report) = imported(RARE).await;
    assert!(!report.contains("left out"), "{report}");
    for kind in object::ORDER.iter().filter(|kind| RARE.contains(&format!("  {}:", kind.list_key()))) {
        assert!(report.contains(&format!(" {kind}")), "{kind}: {report}");
    }
    let get = |kind: Kind, name: &str| {
        let resource = object::resource(kind).expect("it is imported");
        let key = Key::new(if resource.namespaced { "lab" } else { "" }, name);
        let api = api.clone();
        async move { api.get_dynamic(&resource, &key).await.expect("it exists") }
    };
    let claim = get(Kind::ResourceClaim, "one-gpu").await;
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "pod-rare");
    assert_eq!(claim["status"]["reservedFor"][0]["uid"], "pod-rare");
    let pod = get(Kind::Pod, "rare").await;
    assert_eq!(pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"], "one-gpu");
    assert_eq!(get(Kind::PersistentVolumeClaim, "data").await["status"]["phase"], "Bound");
    let space = api.get_dynamic(&kind::NAMESPACE, &Key::new("", "lab")).await.expect("it exists");
    assert_eq!(space["metadata"]["labels"]["team"], "x");
}

#[test]
fn kinds_without_import_are_known() {
    for kind in Kind::ALL {
        let is_excluded = matches!(kind, Kind::Namespace | Kind::PodDisruptionBudget);
        assert_eq!(object::resource(*kind).is_none(), is_excluded, "{kind}");
    }
}
