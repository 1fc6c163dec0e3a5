//! Builds pod statuses as the kubelet does.

use super::pod_lifecycle::ContainerExit;
use crate::controllers::{annotation, int_at, set_condition};
use crate::node::address;
use crate::well_known;
use kai_object as object;
use serde_json::{Value, json};

fn condition(pod: &mut Value, name: &str, holds: bool, reason: &str, time: &str) {
    let status = if holds { "True" } else { "False" };
    let mut condition = json!({
        "type": name, "status": status, "lastProbeTime": null, "lastTransitionTime": time,
    });
    if !reason.is_empty() {
        condition["reason"] = Value::from(reason);
        if reason == "ContainersNotReady" {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let names: Vec<&str> = containers.map(|container| object::str_at(container, "/name")).collect();
            condition["message"] =
                Value::from(format!("containers with unready status: [{}]", names.join(" ")));
        }
    }
    set_condition(&mut pod["status"], condition);
}

fn readiness(pod: &mut Value, ready: bool, reason: &str, time: &str) {
    condition(pod, "Ready", ready, reason, time);
    condition(pod, "ContainersReady", ready, reason, time);
}

/// The statuses of the pod's containers, all in the same state.
fn containers(pod: &mut Value, state: &Value, last: &Value, restarts: i64) {
    let running = state.get("running").is_some();
    let uid = object::uid(pod).to_owned();
    let devices = annotation(pod, well_known::GPU_DEVICES).to_owned();
    let status = |container: &Value| {
        let name = object::str_at(container, "/name");
        let image = object::str_at(container, "/image");
        let mut status = json!({
            "name": name, "image": image, "imageID": "", "ready": running, "started": running,
            "restartCount": restarts, "state": state, "lastState": last,
        });
        if state.get("waiting").is_none() || restarts > 0 {
            status["imageID"] = Value::from(format!("sim://{image}"));
            status["containerID"] = Value::from(format!("sim://{uid}/{name}/{restarts}"));
        }
        let wanted = container["resources"]["limits"].as_object().into_iter().flatten();
        let gpu = wanted.map(|(resource, _)| resource).find(|resource| resource.ends_with("/gpu"));
        if let (Some(resource), false) = (gpu, devices.is_empty()) {
            let resources: Vec<Value> =
                devices.split(',').map(|uuid| json!({"resourceID": uuid, "health": "Healthy"})).collect();
            status["allocatedResourcesStatus"] = json!([{"name": resource, "resources": resources}]);
        }
        status
    };
    let statuses: Vec<Value> =
        pod["spec"]["containers"].as_array().into_iter().flatten().map(status).collect();
    pod["status"]["containerStatuses"] = Value::from(statuses);
}

/// Init containers complete when the pod starts; sidecars keep running.
fn init_containers(pod: &mut Value, time: &str, done: bool) {
    let Some(list) = pod["spec"]["initContainers"].as_array().filter(|list| !list.is_empty()) else { return };
    let uid = object::uid(pod);
    let statuses: Vec<Value> = list
        .iter()
        .map(|container| {
            let name = object::str_at(container, "/name");
            let sidecar = container["restartPolicy"] == "Always";
            let id = format!("sim://{uid}/{name}/0");
            let state = match (done, sidecar) {
                (false, _) => json!({"waiting": {"reason": "PodInitializing"}}),
                (true, true) => json!({"running": {"startedAt": time}}),
                (true, false) => json!({"terminated": {
                    "exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time, "containerID": id,
                }}),
            };
            json!({
                "name": name, "image": object::str_at(container, "/image"), "imageID": "", "ready": done,
                "started": done && sidecar, "restartCount": 0, "state": state, "lastState": {},
            })
        })
        .collect();
    pod["status"]["initContainerStatuses"] = Value::from(statuses);
}

/// Admitted; containers are being created.
pub(super) fn creating(pod: &mut Value, node: &Value, time: &str) {
    object::map_mut(pod, "status");
    let host = host(node);
    pod["status"]["phase"] = Value::from("Pending");
    pod["status"]["startTime"] = Value::from(time);
    pod["status"]["hostIPs"] = json!([{"ip": host}]);
    pod["status"]["hostIP"] = host;
    condition(pod, "PodReadyToStartContainers", false, "", time);
    let init = pod["spec"]["initContainers"].as_array().is_some_and(|list| !list.is_empty());
    condition(pod, "Initialized", !init, if init { "ContainersNotInitialized" } else { "" }, time);
    readiness(pod, false, "ContainersNotReady", time);
    condition(pod, "PodScheduled", true, "", time);
    let reason = if init { "PodInitializing" } else { "ContainerCreating" };
    containers(pod, &json!({"waiting": {"reason": reason}}), &json!({}), 0);
    init_containers(pod, time, false);
}

/// The address of a node. One that another program has created may have none, and the API server refuses an empty one.
fn host(node: &Value) -> Value {
    let reported = node.pointer("/status/addresses/0/address").cloned();
    reported.unwrap_or_else(|| Value::from(address(object::name(node))))
}

/// First start of the containers.
pub(super) fn running(pod: &mut Value, node: &Value, time: &str, restarts: i64) {
    let ip =
        if pod["spec"]["hostNetwork"] == true { host(node) } else { Value::from(address(object::uid(pod))) };
    pod["status"]["podIPs"] = json!([{"ip": ip}]);
    pod["status"]["podIP"] = ip;
    condition(pod, "PodReadyToStartContainers", true, "", time);
    condition(pod, "Initialized", true, "", time);
    init_containers(pod, time, true);
    restarted(pod, time, restarts);
}

/// Containers run, possibly after restarts.
pub(super) fn restarted(pod: &mut Value, time: &str, restarts: i64) {
    pod["status"]["phase"] = Value::from("Running");
    let last = pod.pointer("/status/containerStatuses/0/lastState").cloned().unwrap_or_else(|| json!({}));
    containers(pod, &json!({"running": {"startedAt": time}}), &last, restarts);
    readiness(pod, true, "", time);
}

/// Ready again after the node was not ready.
pub(super) fn ready_again(pod: &mut Value, time: &str) {
    readiness(pod, true, "", time);
}

fn terminated_state(pod: &Value, exit: ContainerExit, time: &str) -> Value {
    let container = pod.pointer("/status/containerStatuses/0").unwrap_or(&Value::Null);
    let started = container.pointer("/state/running/startedAt").cloned().unwrap_or_else(|| Value::from(time));
    let id = container.get("containerID").cloned().unwrap_or_else(|| json!(""));
    json!({"terminated": {
        "exitCode": exit.code, "reason": exit.reason, "startedAt": started, "finishedAt": time, "containerID": id,
    }})
}

/// Containers have exited and are restarted after the backoff.
pub(super) fn back_off(pod: &mut Value, exit: ContainerExit, time: &str) {
    let last = terminated_state(pod, exit, time);
    let restarts = int_at(pod, "/status/containerStatuses/0/restartCount", 0);
    let name = object::name(pod).to_owned();
    let waiting = json!({"waiting": {
        "reason": "CrashLoopBackOff",
        "message": format!("back-off restarting failed container of pod {name}"),
    }});
    containers(pod, &waiting, &last, restarts);
    readiness(pod, false, "ContainersNotReady", time);
}

/// Containers have exited and are not restarted.
pub(super) fn terminated(pod: &mut Value, exit: ContainerExit, time: &str) {
    object::map_mut(pod, "status");
    let state = terminated_state(pod, exit, time);
    let last = pod.pointer("/status/containerStatuses/0/lastState").cloned().unwrap_or_else(|| json!({}));
    let restarts = int_at(pod, "/status/containerStatuses/0/restartCount", 0);
    let (phase, reason) =
        if exit.code == 0 { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    pod["status"]["phase"] = Value::from(phase);
    containers(pod, &state, &last, restarts);
    condition(pod, "PodReadyToStartContainers", false, "", time);
    readiness(pod, false, reason, time);
}

/// `activeDeadlineSeconds` has passed.
pub(super) fn deadline_exceeded(pod: &mut Value, time: &str) {
    terminated(pod, ContainerExit { code: 137, reason: "Error" }, time);
    pod["status"]["reason"] = Value::from("DeadlineExceeded");
    pod["status"]["message"] = Value::from("Pod was active on the node longer than the specified deadline");
}

/// Rejected by admission.
pub(super) fn rejected(pod: &mut Value, reason: &str, message: &str, time: &str) {
    object::map_mut(pod, "status");
    pod["status"]["phase"] = Value::from("Failed");
    pod["status"]["reason"] = Value::from(reason);
    pod["status"]["message"] = Value::from(message);
    pod["status"]["startTime"] = Value::from(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_on_a_node_without_addresses_has_a_valid_one() {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}});
        creating(&mut pod, &json!({"metadata": {"name": "scaled"}}), "2026-01-01T00:00:00Z");
        let host: Option<std::net::IpAddr> = object::str_at(&pod, "/status/hostIP").parse().ok();
        assert!(host.is_some(), "{pod}");
        assert_eq!(pod["status"]["hostIPs"][0]["ip"], pod["status"]["hostIP"]);
    }
}
