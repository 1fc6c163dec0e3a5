//! KAI's scale tests: large gangs, full clusters and reclaim, with KAI's published times beside ours.
//!
//! Pods are created directly, with a grace period of 0, so that the same load runs on a real kube-apiserver without kubelets.
//! Where KAI's tests switch the scheduler off until all objects exist, the scheduler's process is started then, and the clock
//! with it (scale-01, 02, 03 and 05). In the others the clock starts with the first object of the measured step.
//! A victim has no owner that would create it again.

use super::load::{Load, ZONE_NODES, pods_path};
use super::processes::{Binding, Child, Processes, Topology};
use super::{PATIENCE, Started, start_real, start_up};
use crate::bench::page::{self, Part};
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use http::Method;
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::ControlPlane;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Id, what is measured, and what KAI published for 500 nodes (main, 2026-07-03).
const SPECS: [(&str, &str, &str); 13] = [
    ("scale-01", "one gang, a pod of 2 GPUs per node, preferred rack", "48.7 s"),
    ("scale-02", "the same without topology", "49.4 s"),
    ("scale-03", "a single-GPU pod for every GPU", "6 min 38 s"),
    ("scale-04", "the same while the pods are created", "7 min 41 s"),
    ("scale-05", "scale-03 with 400 pods pending in a queue without quota", "6 min 38 s"),
    ("scale-06", "a gang of 10 × 8 GPUs that can never fit is reported, mean of ten", "249.5 s"),
    ("scale-07", "a gang of 8-GPU pods reclaims half of a cluster full of single-GPU pods", "102 s"),
    ("scale-08", "a single-GPU pod reclaims, mean of ten", "13.9 s"),
    ("scale-09", "a single-GPU pod for every GPU reclaims a full cluster", "11 min 34 s"),
    ("scale-10", "gangs of 10 × 5 GPUs, one for ten nodes, reclaim", "11 min 57 s"),
    ("scale-11", "gangs of 10 × 6 GPUs in a cluster of which 5 GPUs of each node are free", "7 min 36 s"),
    ("scale-12", "a gang of all GPUs reclaims a cluster full of 8-GPU pods", "85 s"),
    ("scale-13", "90 gangs each of 1, 2, 4 … 256 pods of 8 GPUs that end by themselves", "5099 s"),
];
/// These have one pod for each node of whole zones.
const WHOLE_ZONES: [&str; 2] = ["scale-01", "scale-02"];
const SCHEDULER: &str = "scheduler";
/// Longer than the pod grouper waits before it assigns pods to their groups.
const GROUPING: Duration = Duration::from_secs(20);
/// How often a state is polled.
const POLL: Duration = Duration::from_millis(50);

/// Options of `cargo xtask bench scale`.
#[derive(clap::Args)]
pub(in crate::bench) struct Args {
    /// Nodes of eight GPUs.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// On the embedded server, with simulated kubelets.
    #[arg(long)]
    embedded: bool,
    /// Only these; without it all but scale-13, which takes long and needs `--embedded`.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Gangs of each size in scale-13.
    #[arg(long, default_value_t = 90)]
    burst_gangs: usize,
    /// Take this binary, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
}

/// A running cluster and its size.
struct World {
    load: Load,
    nodes: usize,
    burst_gangs: usize,
    processes: tokio::sync::Mutex<Processes>,
    binary: PathBuf,
    kubeconfig: PathBuf,
    logs: PathBuf,
    _server: Server,
}

/// What the components are connected to.
enum Server {
    Real { _plane: Box<ControlPlane> },
    Embedded { _up: Child },
}

pub(in crate::bench) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => crate::bench::measure::Kai::build(repository, &target)?.binary().to_owned(),
    };
    let scratch = target.join("bench/scale");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make `{}`", scratch.display()))?;
    let is_selected = |id: &str| match args.only.as_slice() {
        [] => id != "scale-13",
        only => only.iter().any(|name| name == id),
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let measured = runtime.block_on(async {
        let mut measured = Vec::new();
        for (id, ..) in SPECS.iter().filter(|(id, ..)| is_selected(id)) {
            // A fresh cluster each: nothing of an earlier run counts.
            let world = World::start(repository, &binary, &scratch, args, id).await?;
            world.prepare().await?;
            let seconds = tokio::time::timeout(PATIENCE, world.measure(id)).await;
            let seconds = seconds.with_context(|| format!("{id} takes longer than {PATIENCE:?}"))??;
            eprintln!("{id}: {seconds:.2} s");
            measured.push((*id, seconds));
        }
        Ok::<_, anyhow::Error>(measured)
    })?;
    let text = report(&measured, args.nodes, args.embedded);
    println!("{text}");
    if args.write {
        let part = if args.embedded { Part::ScaleEmbedded } else { Part::Scale };
        page::write(repository, part, &text)?;
    }
    Ok(())
}

fn report(measured: &[(&str, f64)], nodes: usize, embedded: bool) -> String {
    let (server, flag) = if embedded { ("`kai up`", " --embedded") } else { ("a real kube-apiserver", "") };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let mut text = format!(
        "KAI's scale tests on {nodes} nodes of eight GPUs (scale-01 and 02 on whole zones of 128), on {server}; KAI's \
         published times are for 500 nodes on a real cluster. Two cores; the load of the machine was {load}. Written by `cargo xtask bench scale{flag} --nodes \
         {nodes} --write`.\n\n| id | measured | seconds | KAI |\n|---|---|---|---|\n"
    );
    for (id, seconds) in measured {
        let Some((_, what, kai)) = SPECS.iter().find(|(known, ..)| known == id) else { continue };
        writeln!(text, "| {id} | {what} | {seconds:.2} | {kai} |").expect("writing to a string");
    }
    text
}

impl World {
    async fn start(
        repository: &Repository,
        binary: &Path,
        logs: &Path,
        args: &Args,
        id: &str,
    ) -> Result<Self> {
        let nodes =
            if WHOLE_ZONES.contains(&id) { args.nodes.next_multiple_of(ZONE_NODES) } else { args.nodes };
        let (load, server, processes, kubeconfig) = if args.embedded {
            let kubeconfig = logs.join("kubeconfig");
            let (load, up) = start_up(binary, &kubeconfig, nodes, &["--no-scheduler"]).await?;
            load.locate_nodes().await?;
            let processes = Processes::start(binary, &kubeconfig, logs, Binding::Direct, Topology::Separate)?;
            processes.ready().await?;
            (load, Server::Embedded { _up: up }, processes, kubeconfig)
        } else {
            let (load, started) =
                start_real(repository, binary, logs, nodes, Binding::Direct, Topology::Separate).await?;
            let Started::Real(plane, processes) = started else { bail!("the components are processes") };
            let kubeconfig = plane.kubeconfig_file();
            (load, Server::Real { _plane: plane }, processes, kubeconfig)
        };
        Ok(Self {
            load,
            nodes,
            burst_gangs: args.burst_gangs,
            processes: tokio::sync::Mutex::new(processes),
            binary: binary.to_owned(),
            kubeconfig,
            logs: logs.to_owned(),
            _server: server,
        })
    }

    /// Queues: `filler` has no quota, `other` owns everything, `closed` may have nothing; `stubborn` is for scale-06.
    async fn prepare(&self) -> Result<()> {
        let all = 8 * self.nodes;
        let quotas = [
            ("filler", 0, -1),
            ("other", all as i64, -1),
            ("closed", 0, 0),
            ("stubborn", all as i64 - 79, -1),
        ];
        self.load.make_queues(self.nodes).await?;
        let mut connection = self.load.connect();
        let free = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
        for (name, quota, limit) in quotas {
            let gpu = json!({"quota": quota, "overQuotaWeight": 0, "limit": limit});
            let spec = json!({"parentQueue": "org", "resources": {"cpu": free, "memory": free, "gpu": gpu}});
            let queue = json!({
                "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
            });
            connection.post("/apis/scheduling.run.ai/v2/queues", &queue).await?;
        }
        let levels = [
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/block",
            "topology.kubernetes.io/rack",
            "kubernetes.io/hostname",
        ]
        .map(|label| json!({"nodeLabel": label}));
        let topology = json!({
            "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "racks"},
            "spec": {"levels": levels},
        });
        connection.post("/apis/kai.scheduler/v1alpha1/topologies", &topology).await
    }

    /// The seconds of one test.
    async fn measure(&self, id: &str) -> Result<f64> {
        let all = 8 * self.nodes;
        match id {
            "scale-01" | "scale-02" => {
                let topology = (id == "scale-01").then_some("racks");
                let gang = self.gang("gang", "other", self.nodes, 2, topology);
                self.timed_from_start("gang-", self.nodes, gang).await
            }
            "scale-03" => self.timed_from_start("job-", all, self.singles("job", "other", all, 1)).await,
            "scale-04" => self.timed("job-", all, self.singles("job", "other", all, 1)).await,
            "scale-05" => {
                self.singles("stuck", "closed", 400, 1).await?;
                self.timed_from_start("job-", all, self.singles("job", "other", all, 1)).await
            }
            "scale-06" => self.time_to_unschedulable().await,
            "scale-11" => self.fragmented().await,
            "scale-13" => self.burst().await,
            _ => self.reclaim(id).await,
        }
    }

    /// Reclaims from a full cluster.
    async fn reclaim(&self, id: &str) -> Result<f64> {
        let all = 8 * self.nodes;
        let (fillers, gpus) = if id == "scale-12" { (self.nodes, 8) } else { (all, 1) };
        self.timed("filler-", fillers, self.singles("filler", "filler", fillers, gpus)).await?;
        match id {
            "scale-07" => {
                self.timed("gang-", self.nodes / 2, self.gang("gang", "other", self.nodes / 2, 8, None)).await
            }
            "scale-08" => {
                let mut total = 0.0;
                for number in 0..10 {
                    let name = format!("single{number}");
                    total += self.timed(&format!("{name}-"), 1, self.singles(&name, "other", 1, 1)).await?;
                }
                Ok(total / 10.0)
            }
            "scale-09" => self.timed("job-", all, self.singles("job", "other", all, 1)).await,
            "scale-10" => self.gangs(self.nodes / 10, 10, 5).await,
            "scale-12" => {
                self.timed("gang-", self.nodes, self.gang("gang", "other", self.nodes, 8, None)).await
            }
            _ => bail!("there is no test `{id}`; hint: they are scale-01 to scale-13"),
        }
    }

    async fn time_to_unschedulable(&self) -> Result<f64> {
        let all = 8 * self.nodes;
        self.timed("filler-", all, self.singles("filler", "stubborn", all, 1)).await?;
        let mut total = 0.0;
        for number in 0..10 {
            let name = format!("huge{number}");
            let watch = Stopwatch::start();
            self.gang(&name, "other", 10, 8, None).await?;
            while !self.load.text(&group_path(&name)).await?.contains("UnschedulableOnNodePool") {
                tokio::time::sleep(POLL).await;
            }
            total += watch.elapsed().as_secs_f64();
        }
        Ok(total / 10.0)
    }

    /// Frees five GPUs of every node, and starts gangs that need six of a node.
    async fn fragmented(&self) -> Result<f64> {
        let all = 8 * self.nodes;
        self.timed("filler-", all, self.singles("filler", "filler", all, 1)).await?;
        let listed: Value = serde_json::from_str(&self.load.text(&pods_path()).await?)?;
        let mut freed: BTreeMap<String, usize> = BTreeMap::new();
        let mut ended = Vec::new();
        for pod in listed["items"].as_array().into_iter().flatten() {
            let count = freed.entry(kai_object::str_at(pod, "/spec/nodeName").to_owned()).or_default();
            if *count < 5 {
                *count += 1;
                ended.push(kai_object::name(pod).to_owned());
            }
        }
        let ended = &ended;
        self.load
            .many(ended.len(), |mut connection, number| async move {
                let path = format!("{}/{}", pods_path(), ended[number]);
                connection.send(&Method::DELETE, &path, "application/json", None).await?;
                Ok(connection)
            })
            .await?;
        self.gangs(5 * self.nodes / 60, 10, 6).await
    }

    /// Gangs that end by themselves; the embedded nodes end them.
    async fn burst(&self) -> Result<f64> {
        let watch = Stopwatch::start();
        let mut bound = self.load.watch().await?;
        let mut wanted = 0;
        for gang in 0..self.burst_gangs {
            for size in (0..9).map(|power| 1_usize << power) {
                self.gang_with(&format!("burst{gang}x{size}"), "other", size, 8, None, Some(20 + gang % 20))
                    .await?;
                wanted += size;
            }
        }
        self.wait(&mut bound, "burst", wanted).await?;
        Ok(watch.elapsed().as_secs_f64())
    }

    /// Gangs of the same size, all at once.
    async fn gangs(&self, count: usize, pods: usize, gpus: usize) -> Result<f64> {
        let create = async {
            for number in 0..count {
                self.gang(&format!("gang{number}"), "other", pods, gpus, None).await?;
            }
            Ok(())
        };
        self.timed("gang", count * pods, create).await
    }

    /// Seconds from the start of the scheduler until so many pods with this name prefix are bound. It does not run while
    /// `create` makes them, and the other components get the time to group them.
    async fn timed_from_start(
        &self,
        prefix: &str,
        count: usize,
        create: impl Future<Output = Result<()>>,
    ) -> Result<f64> {
        let mut processes = self.processes.lock().await;
        processes.end(SCHEDULER);
        create.await?;
        tokio::time::sleep(GROUPING).await;
        let mut watch = self.load.watch().await?;
        let time = Stopwatch::start();
        let start = processes.add(&self.binary, &self.kubeconfig, &self.logs, SCHEDULER, Binding::Direct);
        tokio::try_join!(start, self.wait(&mut watch, prefix, count))?;
        Ok(time.elapsed().as_secs_f64())
    }

    /// Seconds from the beginning of `create` until so many pods with this name prefix are bound.
    async fn timed(
        &self,
        prefix: &str,
        count: usize,
        create: impl Future<Output = Result<()>>,
    ) -> Result<f64> {
        let mut watch = self.load.watch().await?;
        let time = Stopwatch::start();
        tokio::try_join!(create, self.wait(&mut watch, prefix, count))?;
        Ok(time.elapsed().as_secs_f64())
    }

    async fn wait(&self, watch: &mut kai_kubetest::client::Lines, prefix: &str, count: usize) -> Result<()> {
        let mut bound = BTreeSet::new();
        while bound.len() < count {
            let name = self.load.bound(watch).await?;
            if name.starts_with(prefix) {
                bound.insert(name);
            }
        }
        Ok(())
    }

    async fn singles(&self, prefix: &str, queue: &str, count: usize, gpus: usize) -> Result<()> {
        self.load
            .many(count, |mut connection, number| async move {
                connection
                    .post(&pods_path(), &pod(&format!("{prefix}-{number}"), queue, gpus, None, None))
                    .await?;
                Ok(connection)
            })
            .await
    }

    async fn gang(
        &self,
        name: &str,
        queue: &str,
        pods: usize,
        gpus: usize,
        topology: Option<&str>,
    ) -> Result<()> {
        self.gang_with(name, queue, pods, gpus, topology, None).await
    }

    async fn gang_with(
        &self,
        name: &str,
        queue: &str,
        pods: usize,
        gpus: usize,
        topology: Option<&str>,
        ends_after: Option<usize>,
    ) -> Result<()> {
        let mut spec = json!({"minMember": pods, "queue": queue});
        if let Some(topology) = topology {
            spec["topologyConstraint"] =
                json!({"topology": topology, "preferredTopologyLevel": "topology.kubernetes.io/rack"});
        }
        let group = json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}}, "spec": spec,
        });
        self.load.connect().post(&group_path(""), &group).await?;
        self.load
            .many(pods, |mut connection, number| async move {
                let pod = pod(&format!("{name}-{number}"), queue, gpus, Some(name), ends_after);
                connection.post(&pods_path(), &pod).await?;
                Ok(connection)
            })
            .await
    }
}

fn group_path(name: &str) -> String {
    let path =
        pods_path().replace("/api/v1/", "/apis/scheduling.run.ai/v2alpha2/").replace("/pods", "/podgroups");
    if name.is_empty() { path } else { format!("{path}/{name}") }
}

fn pod(name: &str, queue: &str, gpus: usize, group: Option<&str>, ends_after: Option<usize>) -> Value {
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": gpus.to_string()}});
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}, "annotations": {}},
        "spec": {
            "schedulerName": "kai-scheduler", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": resources}],
        },
    });
    if let Some(group) = group {
        pod["metadata"]["annotations"]["pod-group-name"] = json!(group);
    }
    if let Some(seconds) = ends_after {
        pod["metadata"]["annotations"]["sim.kai.scheduler/run-for"] = json!(format!("{seconds}s"));
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_those_of_kai() {
        let text = report(&[("scale-02", 1.25)], 500, true);
        assert!(text.ends_with("| scale-02 | the same without topology | 1.25 | 49.4 s |\n"), "{text}");
    }

    #[test]
    fn pod_groups_are_beside_the_pods() {
        assert_eq!(group_path("g"), "/apis/scheduling.run.ai/v2alpha2/namespaces/bench/podgroups/g");
    }
}
