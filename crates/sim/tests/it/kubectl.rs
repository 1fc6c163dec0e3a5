//! `kubectl` against a whole cluster over HTTPS, in real time.

use crate::{World, builder};
use kai_kubetest::kubectl::Kubectl as Program;
use kai_sim::{NodeGroup, kubelet};
use std::time::Duration;

struct Kubectl {
    world: World,
    program: Program,
}

impl Kubectl {
    /// A cluster and the way to reach it; nothing where `kubectl` is not installed.
    async fn start(name: &str) -> Option<Self> {
        if !Program::is_installed() {
            return None;
        }
        let home = std::env::temp_dir().join(format!("kai-sim-{}-{name}", std::process::id()));
        let program = Program::new(&home, &home.join("kubeconfig"));
        let options = kubelet::Options {
            start_delay: Duration::from_millis(100),
            stop_delay: Duration::from_millis(100),
            ..kubelet::Options::default()
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let world =
            World::of(builder().nodes([NodeGroup::gpu_nodes(2, 8)]).kubelet(options).listen(address)).await;
        world.cluster.listening().unwrap().write_kubeconfig(&home.join("kubeconfig")).unwrap();
        Some(Self { world, program })
    }

    async fn run(&self, arguments: &str, input: &str) -> String {
        self.program.run_beside(arguments, input).await
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_end_and_waits_are_over() {
    let Some(kubectl) = Kubectl::start("rollout").await else { return };
    kubectl.run("create deployment web --image=busybox --replicas=3", "").await;
    let status = kubectl.run("rollout status deployment/web --timeout=60s", "").await;
    assert!(status.ends_with("deployment \"web\" successfully rolled out\n"), "{status}");
    kubectl.run("set image deployment/web busybox=other", "").await;
    kubectl.run("rollout status deployment/web --timeout=60s", "").await;
    let pods = kubectl.run("get pods -o jsonpath={.items[*].spec.containers[0].image}", "").await;
    assert!(pods.split(' ').filter(|image| *image == "other").count() == 3, "{pods}");
    let history = kubectl.run("rollout history deployment/web", "").await;
    assert!(history.contains('1') && history.contains('2'), "{history}");
    kubectl.run("rollout undo deployment/web", "").await;
    kubectl.run("rollout status deployment/web --timeout=60s", "").await;

    kubectl.run("apply -f -", JOB).await;
    kubectl.run("wait --for=condition=complete job/train --timeout=60s", "").await;
    let table = kubectl.run("get pods -l job-name=train", "").await;
    assert!(table.contains("Completed") && table.contains("0/1"), "{table}");
    let devices = "get pods -l job-name=train -o jsonpath={.items[0].metadata.annotations}";
    assert!(kubectl.run(devices, "").await.contains("GPU-node-1-"));
    let nodes = kubectl.run("get nodes", "").await;
    assert_eq!(nodes.matches(" Ready ").count(), 2, "{nodes}");
    kubectl.run("delete deployment web --cascade=foreground --wait --timeout=60s", "").await;
    assert!(!kubectl.run("get pods -o name", "").await.contains("pod/web"));
    kubectl.world.cluster.stop().await;
}
