//! `kubectl` against a simulated cluster over HTTPS, in real time: the installed one, and that of the built control plane.

use crate::{TestCluster, builder};
use kai_kubetest::kubectl::Kubectl as Program;
use kai_sim::{NodeGroup, kubelet};
use std::path::Path;
use std::time::Duration;

struct Kubectl {
    cluster: TestCluster,
    program: Program,
}

impl Kubectl {
    /// Starts a cluster and writes its kubeconfig.
    async fn start(name: &str, program: &Path) -> Self {
        let number = usize::from(program != Path::new("kubectl"));
        let home = std::env::temp_dir().join(format!("kai-sim-{}-{name}-{number}", std::process::id()));
        let program = Program::new(&home, &home.join("kubeconfig")).with_program(program);
        let options = kubelet::Options {
            start_delay: Duration::from_millis(100),
            stop_delay: Duration::from_millis(100),
            ..kubelet::Options::default()
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let cluster = TestCluster::from_builder(
            builder().nodes([NodeGroup::gpu_nodes(2, 8)]).kubelet(options).listen(address),
        )
        .await;
        cluster.inner.listening().unwrap().write_kubeconfig(&home.join("kubeconfig")).unwrap();
        Self { cluster, program }
    }

    async fn run(&self, arguments: &str, input: &str) -> String {
        self.program.run_blocking(arguments, input).await
    }

    /// Repeats a command until its output contains a text, and returns the output.
    async fn run_until(&self, arguments: &str, part: &str) -> String {
        for _ in 0..500 {
            let output = self.run(arguments, "").await;
            if output.contains(part) {
                return output;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("the output of kubectl {arguments} never contains {part}");
    }

    /// The error output of a command that fails.
    async fn run_failing(&self, arguments: &str) -> String {
        let output = self.program.output_blocking(arguments, "").await;
        assert!(!output.status.success(), "kubectl {arguments} succeeds");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata: {annotations: {sim.kai.scheduler/run-for: 1s}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: busybox
        resources: {limits: {nvidia.com/gpu: 2}}
";

const SETS: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: busybox}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: busybox}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn rollout_and_wait_commands_complete() {
    for program in Program::required() {
        let kubectl = Kubectl::start("rollout", &program).await;
        kubectl.run("create deployment web --image=busybox --replicas=3", "").await;
        let status = kubectl.run("rollout status deployment/web --timeout=300s", "").await;
        assert!(status.ends_with("deployment \"web\" successfully rolled out\n"), "{status}");
        kubectl.run("set image deployment/web busybox=other", "").await;
        kubectl.run("rollout status deployment/web --timeout=300s", "").await;
        let pods = kubectl.run("get pods -o jsonpath={.items[*].spec.containers[0].image}", "").await;
        assert!(pods.split(' ').filter(|image| *image == "other").count() == 3, "{pods}");
        let history = kubectl.run("rollout history deployment/web", "").await;
        assert!(history.contains('1') && history.contains('2'), "{history}");
        kubectl.run("rollout undo deployment/web", "").await;
        kubectl.run("rollout status deployment/web --timeout=300s", "").await;
        kubectl.run("rollout restart deployment/web", "").await;
        kubectl.run("rollout status deployment/web --timeout=300s", "").await;
        kubectl.run("delete deployment web --cascade=foreground --wait --timeout=300s", "").await;
        assert!(!kubectl.run("get pods -o name", "").await.contains("pod/web"));

        kubectl.run("apply -f -", SETS).await;
        let status = kubectl.run("rollout status statefulset/db --timeout=300s", "").await;
        has(&status, &["partitioned roll out complete: 2 new pods have been updated..."]);
        let status = kubectl.run("rollout status daemonset/agent --timeout=300s", "").await;
        has(&status, &["daemon set \"agent\" successfully rolled out"]);
        kubectl.run("wait --for=condition=Ready pod -l app=db --timeout=300s", "").await;
        kubectl.cluster.inner.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn jobs_are_applied_awaited_logged_and_deleted() {
    for program in Program::required() {
        let kubectl = Kubectl::start("jobs", &program).await;
        kubectl.run("apply --server-side -f -", JOB).await;
        kubectl.run("wait --for=condition=complete job/train --timeout=300s", "").await;
        let table = kubectl.run("get pods -l job-name=train", "").await;
        has(&table, &["Completed", "0/1"]);
        let devices = "get pods -l job-name=train -o jsonpath={.items[0].metadata.annotations}";
        has(&kubectl.run(devices, "").await, &["GPU-node-1-"]);
        let logs = kubectl.run("logs job/train", "").await;
        assert!(!logs.is_empty(), "the kubelet returns generated logs");
        assert_eq!(kubectl.run("logs job/train -c main --tail=1", "").await.lines().count(), 1);
        let pod = kubectl.run("get pods -l job-name=train -o name", "").await;
        has(&kubectl.run(&format!("logs {} --timestamps", pod.trim()), "").await, &["2026-01-01T"]);
        assert_eq!(kubectl.run(&format!("logs -f {}", pod.trim()), "").await, logs);
        has(&kubectl.run_failing(&format!("logs {} -c missing", pod.trim())).await, &["missing"]);
        let jobs = kubectl.run("get jobs", "").await;
        has(&jobs, &["NAME    STATUS     COMPLETIONS   DURATION   AGE", "train   Complete   1/1"]);
        kubectl.run("delete job train --wait --timeout=300s", "").await;
        kubectl.run("wait --for=delete pod -l job-name=train --timeout=300s", "").await;
        assert_eq!(kubectl.run("get pods -o name", "").await, "");
        kubectl.cluster.inner.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn pods_and_nodes_are_listed_and_described() {
    for program in Program::required() {
        let kubectl = Kubectl::start("describe", &program).await;
        kubectl.run("run web --image=busybox --labels=app=web", "").await;
        kubectl.run("wait --for=condition=Ready pod/web --timeout=300s", "").await;
        let node = kubectl.run("get pod web -o jsonpath={.spec.nodeName}", "").await;
        let wide = kubectl.run("get pod web -o wide", "").await;
        has(&wide, &["1/1", "Running", &node, "IP", "NOMINATED NODE"]);
        let yaml = kubectl.run("get pod web -o yaml", "").await;
        has(&yaml, &["kind: Pod", "phase: Running", "podIP: ", "qosClass: BestEffort", "nodeName: "]);
        let described = kubectl.run("describe pod web", "").await;
        has(&described, &["Name:             web", "Node:             node-", "Status:           Running"]);
        has(&described, &["Ready:          True", "State:          Running", "Labels:           app=web"]);
        has(&described, &["QoS Class:                   BestEffort", "Conditions:", "PodScheduled"]);
        let events = kubectl.run_until("describe pod web", "Started container").await;
        has(&events, &["Events:", "Pulled", "Created container: web", "kubelet", "Started container web"]);
        has(&kubectl.run("events --for=pod/web", "").await, &["LAST SEEN", "Started container web"]);
        has(&kubectl.run("get cm kube-root-ca.crt -o jsonpath={.data}", "").await, &["BEGIN CERTIFICATE"]);

        let nodes = kubectl.run("get nodes", "").await;
        assert_eq!(nodes.matches(" Ready ").count(), 2, "{nodes}");
        let wide = kubectl.run("get nodes -o wide", "").await;
        has(&wide, &["INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"]);
        let described = kubectl.run(&format!("describe node {node}"), "").await;
        has(&described, &["Name:               node-", "Taints:             <none>", "nvidia.com/gpu:"]);
        has(&described, &["Non-terminated Pods:", "web", "Allocated resources:", "KubeletReady"]);
        has(&described, &["Lease:", "HolderIdentity:  node-", "Kubelet Version:"]);
        let gpus = "get nodes -o jsonpath={.items[*].status.allocatable.nvidia\\.com/gpu}";
        assert_eq!(kubectl.run(gpus, "").await, "8 8");
        assert_eq!(kubectl.run(&format!("cordon {node}"), "").await, format!("node/{node} cordoned\n"));
        has(&kubectl.run("get nodes", "").await, &["Ready,SchedulingDisabled"]);
        kubectl.run(&format!("drain {node} --force --timeout=300s"), "").await;
        assert_eq!(kubectl.run("get pods -o name", "").await, "");
        kubectl.run(&format!("uncordon {node}"), "").await;
        kubectl.cluster.inner.stop().await;
    }
}
