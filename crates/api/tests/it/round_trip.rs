//! Objects keep their content when they are read and written again.

use kai_api::{
    BindRequest, BindRequestSpec, Config, ConfigSpec, PodGroup, PodGroupSpec, Queue, QueueSpec,
    SchedulingShard, SchedulingShardSpec, Topology, TopologySpec,
    pod_group::{Preemptibility, SchedulingCondition},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Reads `object`, writes it, and expects the same JSON.
#[track_caller]
fn same<T: Serialize + DeserializeOwned>(object: &Value) -> T {
    let read: T = serde_json::from_value(object.clone()).expect("the object can be read");
    assert_eq!(serde_json::to_value(&read).expect("the object can be written"), *object);
    read
}

fn amounts() -> Value {
    json!({"cpu": "2500m", "memory": "1Gi", "nvidia.com/gpu": "500m"})
}

#[test]
fn queue_keeps_its_content() {
    let queue: Queue = same(&json!({
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team-a", "labels": {"kai.scheduler/node-pool": "blue"}},
        "spec": {
            "displayName": "Team A",
            "parentQueue": "research",
            "priority": 200,
            "preemptMinRuntime": "1h30m0s",
            "reclaimMinRuntime": "45s",
            "resources": {
                "gpu": {"quota": 4.5, "overQuotaWeight": 2.0, "limit": -1.0},
                "cpu": {"quota": -1.0, "limit": 0.0},
                "memory": {"quota": 1000.0},
            },
        },
        "status": {
            "conditions": [{
                "type": "OverQuota", "status": "True",
                "lastProbeTime": "2025-03-01T10:00:00Z", "lastTransitionTime": "2025-03-01T09:00:00Z",
                "reason": "Why", "message": "because",
            }],
            "childQueues": ["a", "b"],
            "allocated": amounts(),
            "allocatedNonPreemptible": amounts(),
            "requested": amounts(),
        },
    }));
    let resources = queue.spec.resources.expect("the queue has resources");
    assert_eq!(resources.gpu.and_then(|gpu| gpu.quota), Some(4.5));
    assert_eq!(resources.cpu.and_then(|cpu| cpu.limit), Some(0.0), "zero is kept");
    assert_eq!(resources.memory.and_then(|memory| memory.limit), None, "absent is not zero");
}

#[test]
fn queue_amounts_may_be_whole_numbers() {
    let queue: Queue = serde_json::from_value(
        json!({"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": 8}}}}),
    )
    .unwrap();
    assert_eq!(queue.spec.resources.unwrap().gpu.unwrap().quota, Some(8.0));
}

#[test]
fn pod_group_keeps_its_content() {
    let group: PodGroup = same(&json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {
            "minMember": 0,
            "minSubGroup": 1,
            "queue": "team-a",
            "priorityClassName": "train",
            "preemptibility": "non-preemptible",
            "topologyConstraint": {
                "topology": "dc", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "host",
            },
            "subGroups": [
                {"name": "workers", "minSubGroup": 1},
                {"name": "half", "parent": "workers", "minMember": 4, "topologyConstraint": {"topology": "dc"}},
            ],
            "markUnschedulable": false,
            "schedulingBackoff": -1,
            "preemptionDelay": "5m0s",
            "stalenessGracePeriod": "-1s",
        },
        "status": {
            "conditions": [{
                "type": "t", "status": "True", "transitionID": "3",
                "lastTransitionTime": "2025-03-01T10:00:00Z", "reason": "r", "message": "m",
            }],
            "schedulingConditions": [{
                "type": "UnschedulableOnNodePool", "nodePool": "default", "reason": "Unschedulable",
                "message": "m", "transitionID": "4", "lastTransitionTime": "2025-03-01T10:00:00Z",
                "status": "True",
                "reasons": [{"reason": "OverLimit", "message": "m", "details": {"queueDetails": {
                    "name": "team-a",
                    "queueRequestedResources": amounts(),
                    "queueDeservedResources": amounts(),
                    "queueAllocatedResources": amounts(),
                    "queueAllocatedNonPreemptibleResources": amounts(),
                    "queueResourceLimits": amounts(),
                    "podGroupRequestedResources": amounts(),
                    "podGroupRequestedNonPreemptibleResources": amounts(),
                }}}],
            }],
            "resourcesStatus": {
                "allocated": amounts(), "allocatedNonPreemptible": amounts(), "requested": amounts(),
            },
        },
    }));
    assert_eq!(group.spec.preemptibility, Some(Preemptibility::NonPreemptible));
    assert_eq!(
        group.status.unwrap().scheduling_conditions[0].type_,
        SchedulingCondition::UNSCHEDULABLE_ON_NODE_POOL
    );
}

#[test]
fn bind_request_keeps_its_content() {
    let allocation = json!({
        "devices": {"results": [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "request": "r"}]},
    });
    let request: BindRequest = same(&json!({
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": "p", "namespace": "team-a"},
        "spec": {
            "podName": "p",
            "selectedNode": "n1",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 2, "portion": "0.50"},
            "selectedGPUGroups": ["g1", "g2"],
            "resourceClaimAllocations": [{"name": "gpu", "allocation": allocation}],
            "extendedResourceClaimAllocation": {
                "allocation": allocation,
                "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
                "containerMappings": [
                    {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"},
                ],
            },
            "predictedNUMAZones": [{"zone": "node-0", "amount": amounts()}],
            "backoffLimit": 3,
        },
        "status": {"phase": "Failed", "reason": "no", "failedAttempts": 1},
    }));
    assert_eq!(request.spec.received_gpu.unwrap().portion, "0.50");
}

#[test]
fn topology_keeps_its_content() {
    let topology: Topology = same(&json!({
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [
            {"nodeLabel": "example.com/rack", "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"},
        ]},
    }));
    assert_eq!(topology.spec.levels[0].alias, "rack");
}

#[test]
fn objects_without_a_spec_can_be_read() {
    let bare = json!({"metadata": {"name": "bare"}});
    assert_eq!(serde_json::from_value::<Queue>(bare.clone()).unwrap().spec, QueueSpec::default());
    assert_eq!(serde_json::from_value::<PodGroup>(bare.clone()).unwrap().spec, PodGroupSpec::default());
    assert_eq!(serde_json::from_value::<BindRequest>(bare.clone()).unwrap().spec, BindRequestSpec::default());
    assert_eq!(serde_json::from_value::<Topology>(bare.clone()).unwrap().spec, TopologySpec::default());
    assert_eq!(serde_json::from_value::<Config>(bare.clone()).unwrap().spec, ConfigSpec::default());
    assert_eq!(serde_json::from_value::<SchedulingShard>(bare).unwrap().spec, SchedulingShardSpec::default());
}

#[test]
fn null_lists_and_maps_are_empty() {
    let queue: Queue = serde_json::from_value(json!({
        "metadata": {"name": "q", "creationTimestamp": null},
        "spec": {"resources": null},
        "status": {"childQueues": null, "conditions": null, "requested": null},
    }))
    .unwrap();
    assert!(queue.status.unwrap().child_queues.is_empty());
    let group: PodGroup =
        serde_json::from_value(json!({"metadata": {}, "spec": {"subGroups": null, "minMember": null}}))
            .unwrap();
    assert!(group.spec.sub_groups.is_empty());
}

#[test]
fn unknown_fields_and_enumeration_values_are_accepted() {
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"name": "g"}, "spec": {"preemptibility": "sometimes", "futureField": {"a": 1}},
    }))
    .unwrap();
    assert_eq!(group.spec.preemptibility, None);
}
