//! The measured cluster: full, idle, with some pending pods that do not fit.
//!
//! A hundred queues are allocated exactly their quota, half of it by gangs of one node, half by single pods. Beside them
//! run pods without GPUs, of this scheduler and of others. Pending pods have a lower priority than running ones, and their
//! queues are at their quota, so that no victims exist for them. With [`Quotas::Half`] the same queues hold twice their
//! quota, and one further queue holds nothing, so that every running group is a candidate for its reclaim.

use serde_json::{Value, json};

const TEAMS: usize = 100;
const GPUS: usize = 8;
/// Pods of this scheduler without GPUs on each node.
const OURS: usize = 7;
const NAMESPACE: &str = "team";
/// The queue that holds nothing.
const STARVED: &str = "starved";

/// How the quotas of the queues compare with what they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quotas {
    /// Equal.
    Exact,
    /// Half of it.
    Half,
}

/// The size of the cluster.
pub(crate) struct BenchCluster {
    pub(crate) nodes: usize,
    /// All pods, pending ones included.
    pub(crate) pods: usize,
    pub(crate) pending: usize,
    pub(crate) quotas: Quotas,
}

impl BenchCluster {
    pub(crate) fn count(&self, resource: &str) -> usize {
        match resource {
            "nodes" => self.nodes,
            "queues" => TEAMS + 2,
            "priorityclasses" => PRIORITIES.len(),
            "podgroups" => self.nodes.div_ceil(2) + self.nodes / 2 * GPUS + self.nodes * OURS + self.pending,
            "pods" => self.pods,
            _ => 0,
        }
    }

    /// The object at an index of its list.
    pub(crate) fn listed(&self, resource: &str, at: usize) -> Value {
        match resource {
            "nodes" => node(at),
            "queues" => self.queue(at),
            "priorityclasses" => priority_class(at),
            "podgroups" => self.group_at(at),
            _ => self.pod_at(at),
        }
    }

    fn queue(&self, at: usize) -> Value {
        let free = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
        let held = self.nodes * GPUS / TEAMS;
        let (name, parent, share) = match at {
            0 => ("org".to_owned(), "", self.nodes * GPUS),
            1..=TEAMS if self.quotas == Quotas::Half => (team(at - 1), "org", held / 2),
            1..=TEAMS => (team(at - 1), "org", held),
            _ => (STARVED.to_owned(), "org", held),
        };
        let gpu = json!({"quota": share, "overQuotaWeight": 1, "limit": -1});
        json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta("", &name),
            "spec": {"parentQueue": parent, "resources": {"cpu": free, "memory": free, "gpu": gpu}},
        })
    }

    fn group_at(&self, at: usize) -> Value {
        let (gangs, singles) = (self.nodes.div_ceil(2), self.nodes / 2 * GPUS);
        let (name, team, members) = if at < gangs {
            (gang(at), at, GPUS)
        } else if at < gangs + singles {
            (single(at - gangs), at - gangs, 1)
        } else if at < gangs + singles + self.nodes * OURS {
            (plain(at - gangs - singles), at, 1)
        } else {
            return pending_group(at - gangs - singles - self.nodes * OURS);
        };
        let mut group = group(&name, team, members, "build-preemptible");
        group["metadata"]["annotations"] =
            json!({"kai.scheduler/last-start-timestamp": "2026-01-02T00:00:00Z"});
        group
    }

    fn pod_at(&self, at: usize) -> Value {
        let (gpu, ours) = (self.nodes * GPUS, self.nodes * OURS);
        if at < gpu {
            return gpu_pod(at);
        }
        let at = at - gpu;
        if at < ours {
            return running(pod(&plain(at), at, &plain(at), 0, "build-preemptible"), at % self.nodes);
        }
        let at = at - ours;
        if at < self.pending {
            return pending_pod(at);
        }
        let at = at - self.pending;
        let mut foreign = pod(&format!("other-{at}"), at, "", 0, "train");
        foreign["spec"]["schedulerName"] = Value::from("default-scheduler");
        foreign["metadata"]["annotations"] = json!({});
        running(foreign, at % self.nodes)
    }
}

/// A running pod with one GPU.
pub(crate) fn gpu_pod(at: usize) -> Value {
    let (node, place) = (at / GPUS, at % GPUS);
    let (group, team) = if node.is_multiple_of(2) {
        (gang(node / 2), node / 2)
    } else {
        let number = node / 2 * GPUS + place;
        (single(number), number)
    };
    running(pod(&format!("run-{node}-{place}"), team, &group, 1, "build-preemptible"), node)
}

/// The group of a pending pod.
pub(crate) fn pending_group(at: usize) -> Value {
    group(&wait(at), at, 1, "train")
}

pub(crate) fn pending_pod(at: usize) -> Value {
    pod(&wait(at), at, &wait(at), 1 << (at / TEAMS % 4), "train")
}

/// The group of a pod of the queue that holds nothing.
pub(crate) fn reclaiming_group(at: usize) -> Value {
    let mut group = group(&reclaim(at), 0, 1, "train");
    group["spec"]["queue"] = Value::from(STARVED);
    group
}

/// A pending pod of that queue, with one GPU.
pub(crate) fn reclaiming_pod(at: usize) -> Value {
    let mut pod = pod(&reclaim(at), 0, &reclaim(at), 1, "train");
    pod["metadata"]["labels"]["kai.scheduler/queue"] = Value::from(STARVED);
    pod
}

/// The running pod with one GPU that has a name.
pub(crate) fn named(name: &str) -> Value {
    let mut parts = name.split('-').skip(1).map(|part| part.parse::<usize>().expect("a number"));
    let mut next = || parts.next().expect("the name of a running pod has two numbers");
    let (node, place) = (next(), next());
    gpu_pod(node * GPUS + place)
}

/// A pod in the phase `Running` on a node.
pub(crate) fn running(mut pod: Value, node: usize) -> Value {
    pod["spec"]["nodeName"] = Value::from(node_name(node));
    pod["status"] = json!({
        "phase": "Running", "startTime": "2026-01-02T00:00:00Z",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    });
    pod
}

const PRIORITIES: [(&str, i32); 4] =
    [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)];

fn priority_class(at: usize) -> Value {
    let (name, value) = PRIORITIES[at];
    json!({"metadata": meta("", name), "value": value})
}

fn node(at: usize) -> Value {
    let name = node_name(at);
    let has = json!({"cpu": "128", "memory": "1024Gi", "pods": "250", "nvidia.com/gpu": GPUS.to_string()});
    let mut node = json!({
        "metadata": meta("", &name),
        "spec": {},
        "status": {"capacity": has, "allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    node["metadata"]["labels"] = json!({
        "kubernetes.io/hostname": name, "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559",
    });
    node
}

fn group(name: &str, at: usize, members: usize, priority: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta(NAMESPACE, name),
        "spec": {"queue": team(at), "minMember": members, "priorityClassName": priority},
        "status": {},
    })
}

fn pod(name: &str, at: usize, group: &str, gpus: usize, priority: &str) -> Value {
    let mut requests = json!({"cpu": "500m", "memory": "1Gi"});
    if gpus > 0 {
        requests["nvidia.com/gpu"] = Value::from(gpus.to_string());
    }
    let mut pod = json!({
        "metadata": meta(NAMESPACE, name),
        "spec": {
            "schedulerName": "kai-scheduler", "priorityClassName": priority,
            "containers": [{
                "name": "main", "image": "x", "resources": {"requests": requests, "limits": requests},
            }],
        },
        "status": {"phase": "Pending"},
    });
    pod["metadata"]["labels"] = json!({"kai.scheduler/queue": team(at), "app": format!("app-{}", at % 1000)});
    pod["metadata"]["annotations"] = json!({"pod-group-name": group});
    pod
}

fn meta(namespace: &str, name: &str) -> Value {
    json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{name}"),
        "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1",
    })
}

fn team(at: usize) -> String {
    format!("team-{:02}", at % TEAMS)
}

fn node_name(at: usize) -> String {
    format!("node-{at:05}")
}

fn gang(at: usize) -> String {
    format!("gang-{at}")
}

fn single(at: usize) -> String {
    format!("single-{at}")
}

/// The smallest requests come first by name, so that a deleted pod is replaced by one of the same size.
fn wait(at: usize) -> String {
    format!("wait-{at:05}")
}

fn reclaim(at: usize) -> String {
    format!("reclaim-{at}")
}

fn plain(at: usize) -> String {
    format!("plain-{at}")
}
