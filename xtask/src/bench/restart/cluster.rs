//! The cluster whose components are restarted: full, with every pod grouped as the pod grouper does it.
//!
//! A hundred queues hold exactly their quota, half of it by Jobs of eight pods, half by single pods; further pods need no
//! GPU or belong to another scheduler. Created by plain requests, so that objects have defaults and managed fields.

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const TEAMS: usize = 100;
const GPUS: usize = 8;
/// Pods of this scheduler without GPUs on each node.
const PLAIN: usize = 7;
/// Pending pods, for which there is no capacity.
const PENDING: usize = 500;
const NAMESPACE: &str = "bench";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// The size of the cluster.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: usize,
    /// All pods, pending ones included.
    pub(super) pods: usize,
}

/// Creates all objects in a server with only its bootstrap objects.
pub(super) async fn create(service: &Router, size: Size) -> Result<()> {
    let creator = Creator { service };
    creator.install().await?;
    creator.queues(size).await?;
    for at in 0..size.nodes {
        creator.node(at).await?;
    }
    let mut job = None;
    for at in 0..size.pods {
        if at % 20_000 == 0 {
            eprintln!("{at} of {} pods are created", size.pods);
        }
        let place = Place::of(at, size);
        if place.first_of_job {
            job = Some(creator.job(at / GPUS).await?);
        }
        creator.pod(at, &place, job.as_ref().filter(|_| place.of_job)).await?;
    }
    Ok(())
}

/// What a pod is, by its number.
struct Place {
    node: Option<usize>,
    gpus: usize,
    ours: bool,
    of_job: bool,
    first_of_job: bool,
}

impl Place {
    fn of(at: usize, size: Size) -> Self {
        let on_gpu = size.nodes * GPUS;
        let of_job = at < on_gpu && (at / GPUS).is_multiple_of(2);
        let none =
            Self { node: None, gpus: 0, ours: true, of_job, first_of_job: of_job && at.is_multiple_of(GPUS) };
        if at < on_gpu {
            Self { node: Some(at / GPUS), gpus: 1, ..none }
        } else if at < on_gpu + PENDING {
            Self { gpus: 1, ..none }
        } else {
            let at = at - on_gpu - PENDING;
            Self { node: Some(at % size.nodes), ours: at < size.nodes * PLAIN, ..none }
        }
    }
}

struct Creator<'a> {
    service: &'a Router,
}

impl Creator<'_> {
    async fn send(&self, method: Method, path: &str, kind: &str, object: &Value) -> Result<Value> {
        let request = Request::builder().method(&method).uri(path).header("content-type", kind);
        let request = request.body(Body::from(object.to_string()))?;
        let response = self.service.clone().oneshot(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).with_context(|| format!("{method} {path} returned no JSON"))
    }

    async fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Method::POST, path, JSON, object).await
    }

    async fn install(&self) -> Result<()> {
        for definition in kai_api::crds::crds() {
            let definition = serde_json::to_value(&definition).context("a definition has only text keys")?;
            self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
        }
        for name in ["kai-scheduler", "kai-resource-reservation", "kai-scale-adjust", NAMESPACE] {
            self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
            let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
            self.post(&accounts, &json!({"metadata": {"name": "default"}})).await?;
        }
        for (name, value) in [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            self.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        }
        Ok(())
    }

    async fn queues(&self, size: Size) -> Result<()> {
        let free = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
        for at in 0..=TEAMS {
            let gpus = if at == 0 { size.nodes * GPUS } else { size.nodes * GPUS / TEAMS };
            let gpu = json!({"quota": gpus, "overQuotaWeight": 1, "limit": -1});
            let mut queue = json!({
                "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
                "metadata": {"name": if at == 0 { "org".to_owned() } else { team(at - 1) }},
                "spec": {"resources": {"cpu": free, "memory": free, "gpu": gpu}},
            });
            if at > 0 {
                queue["spec"]["parentQueue"] = Value::from("org");
            }
            self.post("/apis/scheduling.run.ai/v2/queues", &queue).await?;
        }
        Ok(())
    }

    async fn node(&self, at: usize) -> Result<()> {
        let name = node_name(at);
        let labels = json!({
            "kubernetes.io/hostname": name, "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559",
        });
        self.post("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}})).await?;
        let has = json!({"cpu": "128", "memory": "1024Gi", "pods": "250", "nvidia.com/gpu": "8"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "Up", "message": "up"});
        let status = json!({"status": {"capacity": has, "allocatable": has, "conditions": [ready]}});
        self.send(Method::PATCH, &format!("/api/v1/nodes/{name}/status"), MERGE, &status).await?;
        // Without a kubelet the not-ready taint is never removed.
        let untainted = json!({"spec": {"taints": null}});
        self.send(Method::PATCH, &format!("/api/v1/nodes/{name}"), MERGE, &untainted).await?;
        Ok(())
    }

    /// A Job with as many pods as a node has GPUs; returns an owner reference to it.
    async fn job(&self, at: usize) -> Result<Value> {
        let template = json!({
            "metadata": {"labels": {"kai.scheduler/queue": team(at)}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        });
        let job = json!({
            "metadata": {"name": format!("job-{at}"), "labels": {"kai.scheduler/queue": team(at)}},
            "spec": {"parallelism": GPUS, "completions": GPUS, "template": template},
        });
        let job = self.post(&format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs"), &job).await?;
        let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
        Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}))
    }

    async fn pod(&self, at: usize, place: &Place, job: Option<&Value>) -> Result<()> {
        let name = format!("pod-{at:06}");
        let mut requests = json!({"cpu": "500m", "memory": "1Gi"});
        if place.gpus > 0 {
            requests["nvidia.com/gpu"] = Value::from(place.gpus.to_string());
        }
        // The pods of a Job share its queue.
        let queue = if place.of_job { team(at / GPUS) } else { team(at) };
        let mut pod = json!({
            "metadata": {
                "name": name,
                "labels": {"app": format!("app-{}", at % 1000), "kai.scheduler/queue": queue},
                "ownerReferences": job.into_iter().collect::<Vec<_>>(),
            },
            "spec": {
                "schedulerName": if place.ours { "kai-scheduler" } else { "default-scheduler" },
                "containers": [{
                    "name": "main", "image": "busybox", "command": ["sh", "-c", "sleep infinity"],
                    "env": [{"name": "MODE", "value": "train"}],
                    "resources": {"requests": requests, "limits": requests},
                }],
            },
        });
        if let Some(node) = place.node {
            pod["spec"]["nodeName"] = Value::from(node_name(node));
        }
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        self.post(&pods, &pod).await?;
        if place.node.is_some() {
            let time = "2026-01-02T00:00:00Z";
            let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": time});
            let conditions = ["PodScheduled", "Ready", "ContainersReady", "Initialized"].map(condition);
            let status = json!({"status": {
                "phase": "Running", "startTime": time,
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "image": "busybox", "imageID": "busybox@sha256:0", "ready": true,
                    "restartCount": 0, "state": {"running": {"startedAt": time}},
                }],
            }});
            self.send(Method::PATCH, &format!("{pods}/{name}/status"), MERGE, &status).await?;
        }
        Ok(())
    }
}

fn team(at: usize) -> String {
    format!("team-{:02}", at % TEAMS)
}

fn node_name(at: usize) -> String {
    format!("node-{at:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_gpus_are_held_and_jobs_fill_every_other_node() {
        let size = Size { nodes: 4, pods: 700 };
        let places: Vec<Place> = (0..size.pods).map(|at| Place::of(at, size)).collect();
        let running = |place: &&Place| place.node.is_some();
        assert_eq!(places.iter().filter(running).map(|place| place.gpus).sum::<usize>(), 32);
        assert_eq!(places.iter().filter(|place| place.node.is_none()).count(), PENDING);
        assert_eq!(places.iter().filter(|place| place.first_of_job).count(), 2);
        assert!(
            places.iter().filter(|place| place.of_job).all(|place| place.node.is_some_and(|n| n % 2 == 0))
        );
    }
}
