//! The whole life of an installation on a real node: its pods run as containers, with the accounts, probes, volumes and
//! security contexts that chart and operator gave them.

use crate::bad_times;
use crate::cluster::{Cluster, IMAGES_VARIABLE, NAMESPACE, chart};
use crate::footprint::{self, Footprint};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{ControlPlane, Programs};
use kai_kubetest::network::Network;
use kai_kubetest::node::{self, Node};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// From `helm install` to the first bound pod.
const FIRST_BIND: Duration = Duration::from_mins(1);
/// Bounds of the operator with ten shards: memory, and the part of a core at rest.
const OPERATOR_MEGABYTES: f64 = 30.0;
const OPERATOR_AT_REST: f64 = 0.01;
const MINUTE: Duration = Duration::from_mins(1);
/// Deployments that chart and operator create.
const DEPLOYMENTS: [&str; 7] = [
    "admission",
    "binder",
    "kai-operator",
    "kai-scheduler-default",
    "pod-grouper",
    "podgroup-controller",
    "queue-controller",
];
const SCHEDULER_PODS: &str = "--selector=app=kai-scheduler-default";
/// GPUs of the node.
const GPUS: u32 = 8;

/// What the cluster has before KAI can use it: the runtime class that NVIDIA's operator creates, and labels of its GPUs.
const PREPARATION: &str = "
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
";

const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: research}
spec:
  resources: &all
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: vision}
spec:
  parentQueue: research
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 8, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

/// A Job whose pods fail unless they see the GPUs that they asked for.
fn job(name: &str, pods: u32, gpus: u32) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: default
  labels: {{kai.scheduler/queue: vision}}
  annotations: {{kai.scheduler/batch-min-member: \"{pods}\"}}
spec:
  parallelism: {pods}
  completions: {pods}
  backoffLimit: 0
  template:
    metadata:
      labels: {{kai.scheduler/queue: vision}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers:
      - name: main
        image: {image}
        args: [work, \"{gpus}\", \"1\"]
        resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
",
        image = node::WORKLOAD_IMAGE
    )
}

/// A pod with half of a GPU.
fn half(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: default
  labels: {{kai.scheduler/queue: vision}}
  annotations: {{gpu-fraction: \"0.5\"}}
spec:
  schedulerName: kai-scheduler
  restartPolicy: Never
  containers:
  - {{name: main, image: {image}, args: [work, \"1\", \"5\"]}}
---",
        image = node::WORKLOAD_IMAGE
    )
}

/// Fields are dropped in order: pods before the API server, that before its network.
struct Installation {
    node: Node,
    cluster: Cluster,
    plane: ControlPlane,
    _network: Network,
}

impl Drop for Installation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for program in ["kubelet", "nodetool"] {
                println!("end of the log of {program}:\n{}", self.node.log(program));
            }
        }
    }
}

impl Installation {
    /// A cluster of one node with the images, and nothing installed.
    async fn prepare() -> Self {
        let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
        if let Some(why) = node::missing(&programs) {
            panic!("this test needs a real node: {why}");
        }
        let images = std::env::var_os(IMAGES_VARIABLE).map(PathBuf::from);
        let images = images
            .unwrap_or_else(|| panic!("`{IMAGES_VARIABLE}` names no archive; hint: `cargo xtask image`"));
        let network = Network::create().unwrap();
        let plane = ControlPlane::start_for_nodes(&programs, &network).await.unwrap();
        let node = Node::start(&programs, &plane, &network, 0, GPUS).await.unwrap();
        node.import(&images).unwrap();
        let cluster = Cluster::new(&programs, &plane);
        let this = Self { node, cluster, plane, _network: network };
        this.cluster
            .until("the node is registered", MINUTE, |cluster| {
                cluster.try_kubectl(&["get", "node", "node-0"]).is_ok()
            })
            .await;
        this.cluster.wait(&["node/node-0", "--for=condition=Ready"]);
        this.cluster.wait(&[
            "node/node-0",
            &format!("--for=jsonpath={{.status.allocatable.nvidia\\.com/gpu}}={GPUS}"),
        ]);
        let labels = ["nvidia.com/gpu.memory=81920", "nvidia.com/gpu.count=8"];
        this.cluster.kubectl(&[&["label", "node", "node-0"], &labels[..]].concat());
        this.cluster.apply(PREPARATION);
        this
    }

    fn install_or_upgrade(&self, command: &str, further: &[&str]) {
        let version = concat!("global.tag=", env!("CARGO_PKG_VERSION"));
        let chart = chart();
        let arguments = [command, "kai-scheduler", &chart, "--wait", "--timeout=3m", "--set", version];
        let sharing = ["--set", "global.gpuSharing=true"];
        self.cluster.helm(&[&arguments[..], &sharing, further].concat());
    }

    /// Waits until the installation says that it is ready, and checks that it tells the truth.
    ///
    /// Pods may become unready at any moment, as when a kubelet starts again. Then the conditions follow within seconds.
    fn ready(&self) {
        let watch = Stopwatch::start();
        loop {
            self.cluster.wait(&["config/kai-config", "--for=condition=Ready"]);
            self.cluster.wait(&["schedulingshard/default", "--for=condition=Ready"]);
            let deployments = self.cluster.get(&["deployments", "--namespace", NAMESPACE]);
            let deployments = deployments["items"].as_array().unwrap();
            let unready =
                deployments.iter().find(|one| one["status"]["readyReplicas"] != one["spec"]["replicas"]);
            let Some(unready) = unready else {
                let name = |one: &Value| one["metadata"]["name"].as_str().unwrap().to_owned();
                assert_eq!(deployments.iter().map(name).collect::<Vec<_>>(), DEPLOYMENTS);
                return;
            };
            assert!(watch.elapsed() < MINUTE, "ready, but: {unready:#}\n{}", self.cluster.state());
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Runs a Job to its end.
    fn run_job(&self, name: &str, pods: u32, gpus: u32) {
        self.cluster.apply(&job(name, pods, gpus));
        self.cluster.wait(&[&format!("job/{name}"), "--for=condition=Complete"]);
        self.cluster.kubectl(&["delete", "job", name]);
    }

    /// Runs two pods that share a GPU.
    async fn run_halves(&self) {
        self.cluster.apply(&(half("half-1") + &half("half-2")));
        for pod in ["pod/half-1", "pod/half-2"] {
            self.cluster.wait(&[pod, "--for=jsonpath={.status.phase}=Succeeded"]);
        }
        let [first, second] = ["half-1", "half-2"].map(|pod| self.cluster.kubectl(&["logs", pod]));
        assert!(first.contains("visible devices: GPU-node-0-"), "{first}");
        assert_eq!(first, second, "both halves are of one GPU");
        self.cluster.kubectl(&["delete", "pod", "half-1", "half-2"]);
        let reservations = ["pods", "--namespace=kai-resource-reservation"];
        let gone = |cluster: &Cluster| cluster.names(&reservations).is_empty();
        self.cluster.until("the reservation is gone", MINUTE, gone).await;
    }
}

/// What every CI run tests: the part of an installation's life that takes two minutes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real node, helm and images: `cargo xtask ci` runs it where a node can be started"]
async fn short_life_of_an_installation_on_a_real_node() {
    let installation = Installation::prepare().await;
    let watch = Stopwatch::start();
    let first_bind = workloads_run_on_a_new_installation(&installation, &watch).await;
    patches_of_the_shard_lose_no_cycle(&installation, 3).await;
    println!("shard patched after {:.1} s", watch.elapsed().as_secs_f64());
    uninstall_leaves_only_what_is_documented(&installation).await;
    println!("uninstalled after {:.1} s", watch.elapsed().as_secs_f64());
    assert!(first_bind < FIRST_BIND, "the first pod was bound only after {} s", first_bind.as_secs());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than six minutes: `cargo xtask ci --real-node` runs it in place of the short one"]
async fn installation_lives_and_leaves_nothing_on_a_real_node() {
    let mut installation = Installation::prepare().await;
    let watch = Stopwatch::start();
    let first_bind = workloads_run_on_a_new_installation(&installation, &watch).await;
    patches_of_the_shard_lose_no_cycle(&installation, 10).await;
    println!("shard patched after {:.1} s", watch.elapsed().as_secs_f64());
    installation.install_or_upgrade("upgrade", &["--set", "global.jsonLog=true"]);
    installation.ready();
    installation.run_job("after-upgrade", 1, 1);
    println!("upgraded after {:.1} s", watch.elapsed().as_secs_f64());
    installation.cluster.helm(&["rollback", "kai-scheduler", "1", "--wait", "--timeout=3m"]);
    installation.ready();
    println!("rolled back after {:.1} s", watch.elapsed().as_secs_f64());
    killed_pods_come_back(&installation);
    println!("pods killed after {:.1} s", watch.elapsed().as_secs_f64());
    operator_withstands_bad_times(&installation).await;
    println!("bad times over after {:.1} s", watch.elapsed().as_secs_f64());
    let Footprint { own_megabytes, at_rest, reconcile_seconds } =
        footprint::measure(&installation.cluster).await;
    println!(
        "operator with ten shards: {own_megabytes:.1} MB, {:.2} % of a core at rest, {:.0} ms of processor time to change all",
        at_rest * 100.0,
        reconcile_seconds * 1000.0
    );
    assert!(own_megabytes < OPERATOR_MEGABYTES, "{own_megabytes} MB");
    assert!(at_rest <= OPERATOR_AT_REST, "{at_rest} of a core");
    installation.ready();
    kubelet_comes_back(&mut installation).await;
    installation.cluster.helm(&["test", "kai-scheduler", "--timeout=2m"]);
    println!("kubelet killed and tested after {:.1} s", watch.elapsed().as_secs_f64());
    uninstall_leaves_only_what_is_documented(&installation).await;
    println!("uninstalled after {:.1} s", watch.elapsed().as_secs_f64());
    installation_can_be_repeated(&installation);
    println!("installed again after {:.1} s", watch.elapsed().as_secs_f64());
    assert!(first_bind < FIRST_BIND, "the first pod was bound only after {} s", first_bind.as_secs());
}

/// Installs, and runs a Job, a gang and two halves of a GPU; returns the time until the first pod was bound.
async fn workloads_run_on_a_new_installation(installation: &Installation, watch: &Stopwatch) -> Duration {
    installation.install_or_upgrade("install", &["--create-namespace"]);
    println!("helm install returned after {:.1} s", watch.elapsed().as_secs_f64());
    installation.cluster.apply(QUEUES);
    installation.cluster.apply(&job("first", 1, 2));
    let bound = |cluster: &Cluster| {
        let pods = cluster.get(&["pods", "--selector=job-name=first"]);
        pods["items"][0]["spec"]["nodeName"] == "node-0"
    };
    installation.cluster.until("the first pod is bound", MINUTE * 2, bound).await;
    let first_bind = watch.elapsed();
    println!("the first pod was bound after {:.1} s", first_bind.as_secs_f64());
    installation.ready();
    println!("ready after {:.1} s", watch.elapsed().as_secs_f64());
    installation.cluster.wait(&["job/first", "--for=condition=Complete"]);
    installation.run_job("gang", 2, 4);
    installation.run_halves().await;
    println!("workloads done after {:.1} s", watch.elapsed().as_secs_f64());
    first_bind
}

/// Pods keep being bound while the shard is changed.
async fn patches_of_the_shard_lose_no_cycle(installation: &Installation, patches: u32) {
    let pods = || installation.cluster.names(&["pods", "--namespace", NAMESPACE, SCHEDULER_PODS]);
    let before = pods();
    for round in 0..patches {
        let strategy = if round % 2 == 0 { "spread" } else { "binpack" };
        let patch = format!(
            "{{\"spec\":{{\"placementStrategy\":{{\"gpu\":\"{strategy}\",\"cpu\":\"{strategy}\"}}}}}}"
        );
        installation.cluster.kubectl(&[
            "patch",
            "schedulingshard",
            "default",
            "--type=merge",
            "--patch",
            &patch,
        ]);
        let name = format!("patched-{round}");
        installation.cluster.apply(&job(&name, 1, 1));
        let selector = format!("--selector=job-name={name}");
        let bound = |cluster: &Cluster| {
            let pods = cluster.get(&["pods", &selector]);
            pods["items"][0]["spec"]["nodeName"] == "node-0"
        };
        let took = installation.cluster.until("the pod is bound", MINUTE, bound).await;
        println!("bound {:.1} s after patch {round}", took.as_secs_f64());
    }
    for round in 0..patches {
        let name = format!("job/patched-{round}");
        installation.cluster.wait(&[&name, "--for=condition=Complete"]);
        installation.cluster.kubectl(&["delete", &name]);
    }
    installation.cluster.wait(&["schedulingshard/default", "--for=condition=Ready"]);
    assert_eq!(pods(), before, "the running scheduler takes over each change");
}

async fn operator_withstands_bad_times(installation: &Installation) {
    let (cluster, log) = (&installation.cluster, installation.plane.audit_file());
    let audit = bad_times::Audit(&log);
    bad_times::operator_at_rest_writes_nothing(&audit).await;
    bad_times::deleted_objects_come_back(cluster).await;
    bad_times::edits_are_reverted_once_a_second(cluster, &audit).await;
    bad_times::nonsense_is_reported_and_the_last_good_state_stays(cluster).await;
    bad_times::missing_right_is_reported(cluster).await;
    bad_times::two_operators_agree(cluster, &audit).await;
    installation.ready();
}

fn killed_pods_come_back(installation: &Installation) {
    for app in DEPLOYMENTS {
        let selector = format!("--selector=app={app}");
        let delete = ["delete", "pods", "--namespace", NAMESPACE, "--grace-period=0", "--force", &selector];
        installation.cluster.kubectl(&delete);
    }
    installation.cluster.wait(&[
        "deployments",
        "--all",
        "--namespace",
        NAMESPACE,
        "--for=condition=Available",
    ]);
    installation.ready();
    installation.run_job("after-kills", 1, 1);
}

/// Containers outlive their kubelet, and so does the installation.
async fn kubelet_comes_back(installation: &mut Installation) {
    installation.node.kill("kubelet").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let offers = |node: &Node| node.log("nodetool").matches("devices offered").count();
    let before = offers(&installation.node);
    let reported = |cluster: &Cluster| {
        let node = cluster.get(&["node", "node-0"]);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap();
        // Quantities are text.
        let gpus = node["status"]["allocatable"]["nvidia.com/gpu"].as_str().map(str::to_owned);
        (ready["lastHeartbeatTime"].clone(), gpus)
    };
    let (last_report, _) = reported(&installation.cluster);
    installation.node.start_again("kubelet").unwrap();
    // The API server still shows the GPUs of before, while the new kubelet rejects pods until it knows them.
    let offered = |_: &Cluster| offers(&installation.node) > before;
    installation.cluster.until("the GPUs are offered to the new kubelet", MINUTE, offered).await;
    let knows = |cluster: &Cluster| {
        let (time, gpus) = reported(cluster);
        time != last_report && gpus == Some(GPUS.to_string())
    };
    installation.cluster.until("the new kubelet reports the GPUs", MINUTE, knows).await;
    installation.run_job("after-kubelet", 2, 1);
    installation.ready();
}

/// `docs/installing.md` lists what stays: definitions, and objects of users.
async fn uninstall_leaves_only_what_is_documented(installation: &Installation) {
    let cluster = &installation.cluster;
    cluster.helm(&["uninstall", "kai-scheduler", "--wait", "--timeout=2m"]);
    let none = |what: &[&str]| {
        let what: Vec<String> = what.iter().map(|word| (*word).to_owned()).collect();
        move |cluster: &Cluster| {
            cluster.names(&what.iter().map(String::as_str).collect::<Vec<_>>()).is_empty()
        }
    };
    let namespaced = "deployments,daemonsets,replicasets,pods,services,secrets,endpointslices,jobs,leases,roles,rolebindings,poddisruptionbudgets";
    cluster.until("the namespace is empty", MINUTE, none(&[namespaced, "--namespace", NAMESPACE])).await;
    let others = |names: Vec<String>, kept: &[&str]| {
        names.into_iter().filter(|name| !kept.iter().any(|kept| name.ends_with(kept))).collect::<Vec<_>>()
    };
    let accounts = cluster.names(&["serviceaccounts", "--namespace", NAMESPACE]);
    assert_eq!(others(accounts, &["/default"]), [""; 0]);
    let maps = cluster.names(&["configmaps", "--namespace", NAMESPACE]);
    assert_eq!(others(maps, &["/kube-root-ca.crt"]), [""; 0]);
    let webhooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    assert_eq!(cluster.names(&[webhooks]), [""; 0]);
    let roles = cluster.names(&["clusterroles,clusterrolebindings"]);
    assert_eq!(roles.into_iter().filter(|name| name.contains("kai")).collect::<Vec<_>>(), [""; 0]);
    let classes = cluster.names(&["priorityclasses"]);
    assert_eq!(others(classes, &["/system-cluster-critical", "/system-node-critical"]), [""; 0]);
    assert_eq!(cluster.names(&["configs.kai.scheduler"]), [""; 0]);
    assert_eq!(cluster.names(&["schedulingshards"]), ["schedulingshard.kai.scheduler/default"]);
    let mut queues = cluster.names(&["queues"]);
    queues.sort();
    assert_eq!(queues.len(), 4, "{queues:?}");
    let namespaces = cluster.names(&["namespaces"]);
    assert!(namespaces.contains(&"namespace/kai-resource-reservation".to_owned()), "{namespaces:?}");
}

/// What an uninstallation or a deleted namespace leaves behind is taken over by the next installation.
fn installation_can_be_repeated(installation: &Installation) {
    installation.install_or_upgrade("install", &[]);
    installation.ready();
    installation.cluster.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=2m"]);
    installation.install_or_upgrade("install", &["--create-namespace"]);
    installation.ready();
    installation.run_job("after-all", 1, 1);
}
