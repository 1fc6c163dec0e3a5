//! Table rows and columns, case by case.

#![expect(clippy::needless_pass_by_value, reason = "literals read better without borrows")]

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn cells(api_version: &str, kind: &str, mut object: Value) -> Vec<Value> {
    object["kind"] = json!(kind);
    let metadata = object.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
    if metadata.get("name").is_none() {
        metadata["name"] = json!("x");
    }
    metadata["creationTimestamp"] = json!("2026-01-01T00:55:00Z");
    let printer = Printer::built_in(api_version, kind);
    let row = printer.row(&object, IncludeObject::None, now());
    let cells = row["cells"].as_array().unwrap().clone();
    assert_eq!(cells.len(), printer.headers.len(), "{kind} has a cell for every column");
    cells
}

/// The Status, Ready and Restarts columns of a pod.
fn pod(spec: Value, status: Value) -> [String; 3] {
    let row = cells("v1", "Pod", json!({"spec": spec, "status": status}));
    [2, 1, 3].map(|index| row[index].as_str().unwrap().to_owned())
}

#[test]
fn pod_status_column_follows_kubectl() {
    let one = json!({"containers": [{"name": "c"}]});
    let status = |phase: &str, containers: Value| json!({"phase": phase, "containerStatuses": containers});
    let cases = [
        (json!({"phase": "Pending"}), ["Pending", "0/1", "0"]),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            ["SchedulingGated", "0/1", "0"],
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), ["Evicted", "0/1", "0"]),
        (
            status("Pending", json!([{"state": {"waiting": {"reason": "ContainerCreating"}}}])),
            ["ContainerCreating", "0/1", "0"],
        ),
        (
            status("Running", json!([{"ready": true, "restartCount": 2, "state": {"running": {}}}])),
            ["Running", "1/1", "2"],
        ),
        (
            status(
                "Running",
                json!([{"restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}}]),
            ),
            ["CrashLoopBackOff", "0/1", "5 (2m ago)"],
        ),
        (
            status("Succeeded", json!([{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}])),
            ["Completed", "0/1", "0"],
        ),
        (status("Failed", json!([{"state": {"terminated": {"exitCode": 3}}}])), ["ExitCode:3", "0/1", "0"]),
        (
            status("Failed", json!([{"state": {"terminated": {"signal": 9, "exitCode": 137}}}])),
            ["Signal:9", "0/1", "0"],
        ),
    ];
    for (status, expected) in cases {
        assert_eq!(pod(one.clone(), status.clone()), expected, "{status}");
    }
}

#[test]
fn init_containers_precede_containers_in_the_status_column() {
    let spec = json!({"initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}], "containers": [{"name": "c"}]});
    let status = |statuses: Value| json!({"phase": "Pending", "initContainerStatuses": statuses});
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    let cases = [
        (json!([{"name": "i", "state": {"running": {}}}]), ["Init:0/2", "0/2", "0"]),
        (
            json!([{"name": "i", "state": {"terminated": {"exitCode": 1}}, "restartCount": 1}]),
            ["Init:ExitCode:1", "0/2", "1"],
        ),
        (
            json!([{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]),
            ["Init:Error", "0/2", "0"],
        ),
        (
            json!([{"name": "i", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
            ["Init:ImagePullBackOff", "0/2", "0"],
        ),
        (
            json!([done, {"name": "side", "state": {"waiting": {"reason": "PodInitializing"}}}]),
            ["Init:1/2", "0/2", "0"],
        ),
        (
            json!([done, {"name": "side", "started": true, "ready": true, "state": {"running": {}}}]),
            ["Pending", "1/2", "0"],
        ),
    ];
    for (statuses, expected) in cases {
        assert_eq!(pod(spec.clone(), status(statuses.clone())), expected, "{statuses}");
    }
}

#[test]
fn deleted_pods_are_terminating() {
    let terminating = |status: Value| {
        let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"}, "spec": {"containers": [{}]}, "status": status});
        cells("v1", "Pod", object)[2].clone()
    };
    assert_eq!(terminating(json!({"phase": "Running"})), "Terminating");
    assert_eq!(terminating(json!({"phase": "Running", "reason": "NodeLost"})), "Unknown");
    assert_eq!(terminating(json!({"phase": "Succeeded"})), "Succeeded");
}

#[test]
fn completed_container_next_to_a_running_one() {
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let statuses = json!([{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}, {"ready": true, "state": {"running": {}}}]);
    let status = |ready: &str| json!({"phase": "Running", "containerStatuses": statuses, "conditions": [{"type": "Ready", "status": ready}]});
    assert_eq!(pod(two.clone(), status("True"))[0], "Running");
    assert_eq!(pod(two, status("False"))[0], "NotReady");
}

#[test]
fn wide_columns_of_pods() {
    let row = cells(
        "v1",
        "Pod",
        json!({
            "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}], "containers": []},
            "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]},
        }),
    );
    assert_eq!(row[4..], [json!("5m"), json!("10.0.0.1"), json!("n1"), json!("<none>"), json!("1/2")]);
}

#[test]
fn node_columns() {
    let row = cells(
        "v1",
        "Node",
        json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "x"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3", "kernelVersion": "6.1", "architecture": "amd64"}},
        }),
    );
    assert_eq!(
        row,
        [
            "n",
            "Ready,SchedulingDisabled",
            "gpu,worker,x",
            "5m",
            "v1.36.3",
            "1.2.3.4",
            "<none>",
            "<unknown>",
            "6.1 (amd64)",
            "<unknown>"
        ]
    );
    assert_eq!(cells("v1", "Node", json!({}))[1..3], ["Unknown", "<none>"]);
}

#[test]
fn workload_columns() {
    let template =
        json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
    let row = cells(
        "apps/v1",
        "Deployment",
        json!({
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
        }),
    );
    assert_eq!(
        row,
        [
            json!("x"),
            json!("2/3"),
            json!(3),
            json!(2),
            json!("5m"),
            json!("a,b"),
            json!("i,j"),
            json!("app=x")
        ]
    );
    assert_eq!(cells("apps/v1", "StatefulSet", json!({"spec": {"replicas": 1}}))[1], "0/1");
    assert_eq!(
        cells("apps/v1", "ReplicaSet", json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}))[1..4],
        [1, 1, 0]
    );
    let set = cells("apps/v1", "DaemonSet", json!({"status": {"desiredNumberScheduled": 4}}));
    assert_eq!((set[1].clone(), set[6].clone()), (json!(4), json!("<none>")));
}

#[test]
fn job_columns() {
    let job = |spec: Value, status: Value| {
        cells("batch/v1", "Job", json!({"spec": spec, "status": status}))[1..4].to_vec()
    };
    assert_eq!(
        job(json!({"completions": 3}), json!({"succeeded": 1, "startTime": "2026-01-01T00:59:00Z"})),
        ["Running", "1/3", "60s"]
    );
    assert_eq!(
        job(
            json!({"completions": 1}),
            json!({"succeeded": 1, "startTime": "2026-01-01T00:50:00Z", "completionTime": "2026-01-01T00:55:30Z",
            "conditions": [{"type": "Complete", "status": "True"}]})
        ),
        ["Complete", "1/1", "5m30s"]
    );
    assert_eq!(
        job(json!({"parallelism": 4}), json!({"conditions": [{"type": "Suspended", "status": "True"}]})),
        ["Suspended", "0/1 of 4", ""]
    );
    let cron = cells(
        "batch/v1",
        "CronJob",
        json!({"spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}]}}),
    );
    assert_eq!(cron[1..6], [json!("* * * * *"), json!("<none>"), json!("False"), json!(1), json!("<none>")]);
}

#[test]
fn service_columns() {
    let service = |spec: Value, status: Value| {
        cells("v1", "Service", json!({"spec": spec, "status": status}))[1..5].to_vec()
    };
    assert_eq!(
        service(
            json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "nodePort": 30000, "protocol": "UDP"}]}),
            json!({})
        ),
        ["ClusterIP", "10.0.0.1", "<none>", "80/TCP,81:30000/UDP"]
    );
    assert_eq!(service(json!({"type": "LoadBalancer"}), json!({}))[2], "<pending>");
    assert_eq!(
        service(json!({"type": "LoadBalancer"}), json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}))
            [2],
        "1.1.1.1"
    );
    assert_eq!(
        service(json!({"type": "ExternalName", "externalName": "a.b"}), json!({}))[1..],
        ["<none>", "a.b", "<none>"]
    );
}

#[test]
fn event_columns() {
    let row = cells(
        "v1",
        "Event",
        json!({
            "type": "Warning", "reason": "Failed", "message": " it failed\n", "count": 3, "lastTimestamp": "2026-01-01T00:59:00Z",
            "firstTimestamp": "2026-01-01T00:50:00Z", "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"},
        }),
    );
    assert_eq!(
        row,
        [
            json!("60s"),
            json!("Warning"),
            json!("Failed"),
            json!("pod/p"),
            json!(""),
            json!("kubelet, n"),
            json!("it failed"),
            json!("10m"),
            json!(3),
            json!("x")
        ]
    );
    let row = cells(
        "events.k8s.io/v1",
        "Event",
        json!({
            "eventTime": "2026-01-01T00:59:30.000000Z", "regarding": {"kind": "Pod", "name": "p"}, "note": "n", "reportingController": "c",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T00:59:50.000000Z"},
        }),
    );
    assert_eq!(
        (row[0].clone(), row[5].clone(), row[7].clone(), row[8].clone()),
        (json!("10s"), json!("c"), json!("30s"), json!(7))
    );
}

#[test]
fn storage_columns() {
    let volume = cells(
        "v1",
        "PersistentVolume",
        json!({
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "n", "name": "c"}, "storageClassName": "fast"}, "status": {"phase": "Bound"},
        }),
    );
    assert_eq!(volume[1..9], ["1Gi", "RWO,RWX", "Delete", "Bound", "n/c", "fast", "<unset>", ""]);
    let claim = json!({"spec": {"volumeName": "v", "storageClassName": "fast"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
    assert_eq!(cells("v1", "PersistentVolumeClaim", claim)[1..6], ["Bound", "v", "1Gi", "RWO", "fast"]);
    assert_eq!(
        cells("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Pending"}}))[1..5],
        ["Pending", "", "", ""]
    );
    let class = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"});
    assert_eq!(
        cells("storage.k8s.io/v1", "StorageClass", class)[..5],
        [json!("x (default)"), json!("p"), json!("Delete"), json!("Immediate"), json!(false)]
    );
}

#[test]
fn resource_claim_and_slice_columns() {
    let claim =
        |status: Value| cells("resource.k8s.io/v1", "ResourceClaim", json!({"status": status}))[1].clone();
    assert_eq!(claim(json!({})), "pending");
    assert_eq!(claim(json!({"allocation": {}})), "allocated");
    assert_eq!(claim(json!({"allocation": {}, "reservedFor": [{}]})), "allocated,reserved");
    let slice = json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}});
    assert_eq!(cells("resource.k8s.io/v1", "ResourceSlice", slice)[1..4], ["n", "d", "p"]);
}

#[test]
fn columns_of_small_kinds() {
    assert_eq!(cells("v1", "ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"b": "2"}}))[1], 2);
    assert_eq!(
        cells("v1", "Secret", json!({"type": "Opaque", "data": {"a": "1"}}))[1..3],
        [json!("Opaque"), json!(1)]
    );
    assert_eq!(cells("v1", "Namespace", json!({"status": {"phase": "Active"}}))[1], "Active");
    assert_eq!(cells("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "me"}}))[1], "me");
    assert_eq!(
        cells("policy/v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%"}}))[1..4],
        [json!("50%"), json!("N/A"), json!(0)]
    );
    assert_eq!(
        cells("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 7}))[1..3],
        [json!(7), json!(false)]
    );
    assert_eq!(cells("rbac.authorization.k8s.io/v1", "ClusterRole", json!({}))[1], "2026-01-01T00:55:00Z");
    let binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]});
    assert_eq!(
        cells("rbac.authorization.k8s.io/v1", "RoleBinding", binding)[1..],
        ["Role/r", "5m", "u", "", "n/s"]
    );
}

#[test]
fn empty_objects_fill_every_column() {
    for (api_version, kind) in [
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ("v1", "ServiceAccount"),
        ("apps/v1", "ControllerRevision"),
        ("autoscaling/v1", "Scale"),
        ("storage.k8s.io/v1", "VolumeAttributesClass"),
        ("storage.k8s.io/v1", "VolumeAttachment"),
        ("storage.k8s.io/v1", "CSINode"),
        ("storage.k8s.io/v1", "CSIDriver"),
        ("storage.k8s.io/v1", "CSIStorageCapacity"),
        ("node.k8s.io/v1", "RuntimeClass"),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("resource.k8s.io/v1", "DeviceClass"),
        ("x/v1", "Unknown"),
    ] {
        cells(api_version, kind, json!({}));
    }
}

#[test]
fn column_descriptions_come_from_the_types() {
    let headers = Printer::built_in("v1", "Pod").headers.to_vec();
    assert_eq!(headers[0]["format"], "name");
    assert_eq!((headers[6]["name"].clone(), headers[6]["priority"].clone()), (json!("Node"), json!(1)));
    assert!(headers[6]["description"].as_str().unwrap().starts_with("NodeName "));
}

#[test]
fn custom_resources_use_additional_printer_columns() {
    let columns = [
        json!({"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}),
        json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1, "description": "How many."}),
        json!({"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"}),
        json!({"name": "On", "type": "boolean", "jsonPath": ".spec.on"}),
        json!({"name": "Since", "type": "date", "jsonPath": ".status.since"}),
        json!({"name": "Map", "type": "string", "jsonPath": ".spec.map"}),
        json!({"name": "Missing", "type": "string", "jsonPath": ".spec.missing"}),
    ];
    let printer = Printer::custom(&columns);
    let object = json!({
        "metadata": {"name": "x"}, "spec": {"size": 3, "ratio": 1, "on": true, "map": {"a": 1}},
        "status": {"since": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let row = printer.row(&object, IncludeObject::Metadata, now());
    assert_eq!(row["cells"], json!(["x", "True", 3, 1.0, true, "60m", "{\"a\":1}", null]));
    assert_eq!(
        row["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}})
    );
    assert_eq!(
        printer.headers[2],
        json!({"name": "Size", "type": "integer", "format": "", "description": "How many.", "priority": 1})
    );
    assert_eq!(
        printer.headers[1]["description"],
        "Custom resource definition column (in JSONPath format): .status.conditions[?(@.type==\"Ready\")].status"
    );
    let plain = Printer::custom(&[]);
    let aged = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:59:00Z"}});
    assert_eq!(plain.row(&aged, IncludeObject::None, now())["cells"], json!(["x", "60s"]));
}

#[test]
fn include_object_determines_the_row_object() {
    let printer = Printer::built_in("v1", "Pod");
    let pod = json!({"kind": "Pod", "metadata": {"name": "x"}, "status": {"phase": "Succeeded"}});
    let list = json!({"resourceVersion": "7", "continue": "c", "remainingItemCount": 2});
    let table = printer.table([&pod], &list, IncludeObject::Object, Headers::Send, now());
    assert_eq!(
        (&table["kind"], &table["apiVersion"], &table["metadata"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"), &list)
    );
    assert_eq!(table["rows"][0]["object"], pod);
    assert_eq!(table["rows"][0]["conditions"][0]["reason"], "Succeeded");
    let table = printer.table([&pod], &json!({}), IncludeObject::None, Headers::Omit, now());
    assert_eq!((&table["columnDefinitions"], &table["rows"][0]["object"]), (&Value::Null, &Value::Null));
    assert_eq!(partial_list([&pod], &list)["items"][0]["metadata"], json!({"name": "x"}));
    assert_eq!(IncludeObject::parse(Some("Object")), Ok(IncludeObject::Object));
    assert!(IncludeObject::parse(Some("Half")).is_err());
}
