//! The load: nodes, queues and pods by plain requests, and one watch that sees pods being bound.
//!
//! One watch with a field selector costs the server as little as a client can.

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use kai_clock::Stopwatch;
use kai_kubetest::client::{Client, Lines, Server};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where the pods go.
const NAMESPACE: &str = "bench";
/// How many requests of the load are under way at once.
const WORKERS: usize = 8;
/// How often a request is tried anew that the server has no time for.
const ATTEMPTS: usize = 20;
/// Nodes of a zone.
pub(super) const ZONE_NODES: usize = 128;
const MERGE: &str = "application/merge-patch+json";

/// A server to be filled.
#[derive(Clone)]
pub(super) struct Load {
    server: Server,
    token: String,
    /// The scheduler of the pods.
    scheduler: &'static str,
}

/// What came of filling it.
pub(super) struct Filled {
    pub(super) pods: usize,
    /// From the first pod's creation to the last one's binding.
    pub(super) seconds: f64,
    /// From the first pod's creation to the last one's.
    pub(super) creating_seconds: f64,
    /// From creation to binding, of each pod, ascending.
    pub(super) waits_ms: Vec<f64>,
}

/// One connection of the load.
pub(super) struct Connection<'a> {
    load: &'a Load,
    client: Client,
}

impl Load {
    pub(super) fn new(server: Server, token: &str) -> Self {
        Self { server, token: token.to_owned(), scheduler: "kai-scheduler" }
    }

    /// The same for pods of another scheduler.
    pub(super) fn for_scheduler(self, scheduler: &'static str) -> Self {
        Self { scheduler, ..self }
    }

    /// The server that a kubeconfig with a token names; nothing while there is no such file.
    pub(super) fn from_kubeconfig(path: &Path) -> Result<Option<Self>> {
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
        if text.is_empty() {
            return Ok(None);
        }
        let config: Value = serde_saphyr::from_str(&text).context("the kubeconfig is not YAML")?;
        let field = |pointer: &str| {
            config.pointer(pointer).and_then(Value::as_str).with_context(|| format!("`{pointer}` is missing"))
        };
        let address = field("/clusters/0/cluster/server")?.trim_start_matches("https://").parse();
        let authority = field("/clusters/0/cluster/certificate-authority-data")?;
        let authority = kai_kubetest::client::decode(authority).context("the certificate is not base64")?;
        let server = Server::new(address.context("the server has no plain address")?, &authority)?;
        Ok(Some(Self::new(server, field("/users/0/user/token")?)))
    }

    pub(super) fn connect(&self) -> Connection<'_> {
        Connection { load: self, client: Client::new(self.server.clone()) }
    }

    fn request(&self, method: &Method, path: &str, kind: &str, body: Option<&Value>) -> Request<Full<Bytes>> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.token))
            .header("user-agent", "bench-load")
            .header("content-type", kind)
            .body(Full::new(body))
            .expect("the parts of the request are plain text")
    }

    /// What the server answers as text.
    pub(super) async fn text(&self, path: &str) -> Result<String> {
        let mut client = Client::new(self.server.clone());
        let answer = client.send(self.request(&Method::GET, path, "text/plain", None)).await?;
        if !answer.status.is_success() {
            bail!("GET {path}: {}", answer.status);
        }
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Definitions, namespaces and priority classes.
    pub(super) async fn install(&self) -> Result<()> {
        let mut connection = self.connect();
        for definition in kai_api::crds::crds() {
            let definition = serde_json::to_value(&definition).context("a definition has only text keys")?;
            connection.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
        }
        for name in ["kai-scheduler", "kai-resource-reservation", "kai-scale-adjust"] {
            connection.namespace(name).await?;
        }
        for (name, value) in [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            connection.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        }
        for _ in 0..ATTEMPTS * 10 {
            let (status, _) =
                connection.send(&Method::GET, "/apis/scheduling.run.ai/v2/queues", "", None).await?;
            if status.is_success() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the definitions are never served")
    }

    /// The namespace of the pods.
    pub(super) async fn make_namespace(&self) -> Result<()> {
        self.connect().namespace(NAMESPACE).await
    }

    /// The namespace of the pods, and two queues that own half of all GPUs each.
    pub(super) async fn make_queues(&self, nodes: usize) -> Result<()> {
        let mut connection = self.connect();
        connection.namespace(NAMESPACE).await?;
        let free = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
        for (name, parent, gpus) in
            [("org", None, 8 * nodes), ("a", Some("org"), 4 * nodes), ("b", Some("org"), 4 * nodes)]
        {
            let gpu = json!({"quota": gpus, "overQuotaWeight": 1, "limit": -1});
            let mut queue = json!({
                "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
                "spec": {"resources": {"cpu": free, "memory": free, "gpu": gpu}},
            });
            if let Some(parent) = parent {
                queue["spec"]["parentQueue"] = Value::from(parent);
            }
            connection.post("/apis/scheduling.run.ai/v2/queues", &queue).await?;
        }
        Ok(())
    }

    /// Nodes without kubelets.
    pub(super) async fn make_nodes(&self, count: usize) -> Result<()> {
        self.many(count, |mut connection, number| async move {
            let name = format!("node-{number:05}");
            let mut labels = location(number);
            labels["kubernetes.io/hostname"] = Value::from(name.as_str());
            labels["nvidia.com/gpu.count"] = Value::from("8");
            labels["nvidia.com/gpu.memory"] = Value::from("81559");
            connection.post("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}})).await?;
            let has = json!({"cpu": "128", "memory": "1024Gi", "pods": "250", "nvidia.com/gpu": "8"});
            let ready = json!({"type": "Ready", "status": "True", "reason": "Up", "message": "up"});
            let status = json!({"status": {"capacity": has, "allocatable": has, "conditions": [ready]}});
            let path = format!("/api/v1/nodes/{name}/status");
            let (code, answer) = connection.send(&Method::PATCH, &path, MERGE, Some(&status)).await?;
            // Without a kubelet the not-ready taint is never removed.
            let untainted = json!({"spec": {"taints": null}});
            connection
                .send(&Method::PATCH, &format!("/api/v1/nodes/{name}"), MERGE, Some(&untainted))
                .await?;
            if code.is_success() { Ok(connection) } else { Err(anyhow!("{path}: {code} {answer}")) }
        })
        .await
    }

    /// Labels existing nodes with their location, in the order of the server.
    pub(super) async fn locate_nodes(&self) -> Result<()> {
        let listed: Value = serde_json::from_str(&self.text("/api/v1/nodes").await?)?;
        let nodes = listed["items"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> = nodes.iter().map(|node| kai_object::name(node).to_owned()).collect();
        let names = &names;
        self.many(names.len(), |mut connection, number| async move {
            let path = format!("/api/v1/nodes/{}", names[number]);
            let labels = json!({"metadata": {"labels": location(number)}});
            let (code, answer) = connection.send(&Method::PATCH, &path, MERGE, Some(&labels)).await?;
            if code.is_success() { Ok(connection) } else { Err(anyhow!("{path}: {code} {answer}")) }
        })
        .await
    }

    /// Makes pods one after another, each when the one before it is bound; how long each took, in milliseconds.
    pub(super) async fn one_by_one(&self, count: usize) -> Result<Vec<f64>> {
        let mut connection = self.connect();
        let mut watch = self.watch().await?;
        let mut waits = Vec::new();
        for number in 0..count {
            let name = format!("single-{number}");
            let time = Stopwatch::start();
            connection.post(&pods_path(), &self.pod(&name, number)).await?;
            while self.bound(&mut watch).await? != name {}
            waits.push(time.elapsed_ms());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.delete((0..count).map(|number| format!("single-{number}"))).await?;
        waits.sort_by(f64::total_cmp);
        Ok(waits)
    }

    /// Makes a gang several times on the idle cluster; from the creation of its last pod to the last binding, in
    /// milliseconds, ascending.
    pub(super) async fn gangs(&self, times: usize, pods: usize) -> Result<Vec<f64>> {
        let mut watch = self.watch().await?;
        let mut waits = Vec::new();
        for time in 0..times {
            let name = format!("gang-{time}");
            let group = json!({
                "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
                "metadata": {"name": name, "labels": {"kai.scheduler/queue": "a"}},
                "spec": {"minMember": pods, "queue": "a"},
            });
            self.connect().post(&groups_path(), &group).await?;
            let of_gang = |number: usize| format!("{name}-{number}");
            let creating = async {
                self.many(pods, |mut connection, number| {
                    let mut member = self.pod(&of_gang(number), 0);
                    kai_object::set(
                        &mut member,
                        &["metadata", "annotations"],
                        json!({"pod-group-name": name}),
                    );
                    async move {
                        connection.post(&pods_path(), &member).await?;
                        Ok(connection)
                    }
                })
                .await?;
                Ok::<_, anyhow::Error>(Stopwatch::start())
            };
            let binding = async {
                let mut bound = BTreeSet::new();
                while bound.len() < pods {
                    let pod = self.bound(&mut watch).await?;
                    if pod.starts_with(&format!("{name}-")) {
                        bound.insert(pod);
                    }
                }
                Ok(Stopwatch::start())
            };
            let (created, bound) = tokio::try_join!(creating, binding)?;
            waits.push((created.elapsed_ms() - bound.elapsed_ms()).max(0.0));
            self.delete((0..pods).map(of_gang)).await?;
        }
        waits.sort_by(f64::total_cmp);
        Ok(waits)
    }

    /// Deletes pods, and all pod groups where the server has them: without a garbage collector they would stay.
    async fn delete(&self, pods: impl Iterator<Item = String>) -> Result<()> {
        let mut connection = self.connect();
        for pod in pods {
            let path = format!("{}/{pod}?gracePeriodSeconds=0", pods_path());
            connection.send(&Method::DELETE, &path, "application/json", None).await?;
        }
        connection.send(&Method::DELETE, &groups_path(), "application/json", None).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    fn pod(&self, name: &str, number: usize) -> Value {
        let queue = if number.is_multiple_of(2) { "a" } else { "b" };
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}});
        json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {
                "schedulerName": self.scheduler, "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "x", "resources": resources}],
            },
        })
    }

    /// Makes pods as fast as the server takes them, and waits until all have a node.
    pub(super) async fn fill(&self, count: usize, patience: Duration) -> Result<Filled> {
        let mut watch = self.watch().await?;
        let time = Arc::new(Stopwatch::start());
        let made = Arc::new(parking_lot::Mutex::new(BTreeMap::new()));
        let load = self.clone();
        let (clock, seen) = (Arc::clone(&time), Arc::clone(&made));
        let creating = async move {
            load.many(count, |mut connection, number| {
                let (clock, seen) = (Arc::clone(&clock), Arc::clone(&seen));
                async move {
                    let name = format!("job-{number}");
                    connection.post(&pods_path(), &self.pod(&name, number)).await?;
                    let mut seen = seen.lock();
                    seen.insert(name, clock.elapsed_ms());
                    drop(seen);
                    Ok(connection)
                }
            })
            .await?;
            Ok::<_, anyhow::Error>(clock.elapsed().as_secs_f64())
        };
        let clock = Arc::clone(&time);
        let binding = async move {
            let mut nodes: BTreeMap<String, f64> = BTreeMap::new();
            while nodes.len() < count {
                let name = self.bound(&mut watch).await?;
                if name.starts_with("job-") {
                    nodes.entry(name).or_insert_with(|| clock.elapsed_ms());
                    if nodes.len().is_multiple_of(500) {
                        eprintln!(
                            "{:8.1} s: {} of {count} bound",
                            clock.elapsed().as_secs_f64(),
                            nodes.len()
                        );
                    }
                }
            }
            Ok::<_, anyhow::Error>(nodes)
        };
        let both = async { tokio::try_join!(creating, binding) };
        let (creating_seconds, nodes) =
            tokio::time::timeout(patience, both).await.context("not all pods were bound in time")??;
        let seconds = nodes.values().copied().fold(0.0, f64::max) / 1000.0;
        let made = made.lock();
        let mut waits_ms: Vec<f64> =
            nodes.iter().map(|(name, bound)| (bound - made.get(name).unwrap_or(bound)).max(0.0)).collect();
        waits_ms.sort_by(f64::total_cmp);
        Ok(Filled { pods: count, seconds, creating_seconds, waits_ms })
    }

    pub(super) async fn watch(&self) -> Result<Lines> {
        let path = format!("{}?watch=1&fieldSelector=spec.nodeName!=", pods_path());
        let watch = self.server.stream(self.request(&Method::GET, &path, "", None)).await?;
        if !watch.status.is_success() {
            bail!("the watch for bound pods: {}", watch.status);
        }
        Ok(watch)
    }

    /// The name of the next pod that has a node. A watch that ends is begun anew, and names all of them again.
    pub(super) async fn bound(&self, watch: &mut Lines) -> Result<String> {
        loop {
            let Ok(Some(line)) = watch.next().await else {
                *watch = self.watch().await?;
                continue;
            };
            let text = String::from_utf8_lossy(&line);
            if text.contains("\"ERROR\"") {
                bail!("the watch failed: {text}");
            }
            let Some((_, rest)) = text.split_once("\"name\":\"") else { continue };
            if let Some((name, _)) = rest.split_once('"') {
                return Ok(name.to_owned());
            }
        }
    }

    /// Does something for each number, some at a time.
    pub(super) async fn many<'a, F>(
        &'a self,
        count: usize,
        each: impl Fn(Connection<'a>, usize) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Connection<'a>>>,
    {
        let next = AtomicUsize::new(0);
        let worker = || async {
            let mut connection = self.connect();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, anyhow::Error>(());
                }
                connection = each(connection, number).await?;
            }
        };
        futures::future::try_join_all((0..WORKERS).map(|_| Box::pin(worker()))).await?;
        Ok(())
    }
}

impl Connection<'_> {
    pub(super) async fn send(
        &mut self,
        method: &Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String)> {
        for _ in 0..ATTEMPTS {
            let answer = self.client.send(self.load.request(method, path, kind, body)).await;
            let answer = answer.with_context(|| format!("{method} {path}"))?;
            if answer.status != StatusCode::TOO_MANY_REQUESTS {
                return Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        bail!("{method} {path}: the server has no time")
    }

    /// Makes an object; one that is there already will do.
    pub(super) async fn post(&mut self, path: &str, object: &Value) -> Result<()> {
        let (status, answer) = self.send(&Method::POST, path, "application/json", Some(object)).await?;
        if !status.is_success() && status != StatusCode::CONFLICT {
            bail!("POST {path}: {status} {answer}");
        }
        Ok(())
    }

    /// Makes a namespace with the service account that pods need.
    async fn namespace(&mut self, name: &str) -> Result<()> {
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.post(&path, &json!({"metadata": {"name": "default"}})).await
    }
}

/// Labels of a node: two nodes in a rack, eight racks in a block, eight blocks in a zone, as in KAI's scale tests.
fn location(number: usize) -> Value {
    let (rack, block, zone) = (number / 2, number / 16, number / ZONE_NODES);
    json!({
        "topology.kubernetes.io/rack": format!("rack-{rack}"),
        "topology.kubernetes.io/block": format!("block-{block}"),
        "topology.kubernetes.io/zone": format!("zone-{zone}"),
    })
}

pub(super) fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn groups_path() -> String {
    format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nodes_are_in_two_per_rack_eight_racks_per_block_and_eight_blocks_per_zone() {
        let locations: Vec<Value> = (0..512).map(location).collect();
        for (level, count) in [("rack", 256), ("block", 32), ("zone", 4)] {
            let label = format!("topology.kubernetes.io/{level}");
            let domains: BTreeSet<String> = locations.iter().map(|node| node[&label].to_string()).collect();
            assert_eq!(domains.len(), count, "{level}");
        }
    }
}
