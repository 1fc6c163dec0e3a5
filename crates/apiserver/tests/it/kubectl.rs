//! `kubectl` against the server, as people use it.

use crate::server;
use kai_apiserver::Listening;
use kai_kubetest::kubectl::Kubectl as Program;
use std::process::Output;

struct Kubectl {
    _listening: Listening,
    program: Program,
}

impl Kubectl {
    /// A server and the way to reach it; nothing where `kubectl` is not installed.
    fn start(name: &str) -> Option<Self> {
        if !Program::is_installed() {
            return None;
        }
        let home = std::env::temp_dir().join(format!("kai-kubectl-{}-{name}", std::process::id()));
        let program = Program::new(&home, &home.join("kubeconfig"));
        let listening = server().listen("127.0.0.1:0".parse().unwrap()).unwrap();
        listening.write_kubeconfig(&home.join("kubeconfig")).unwrap();
        Some(Self { _listening: listening, program })
    }

    async fn run(&self, arguments: &str, input: &str) -> String {
        self.program.run_beside(arguments, input).await
    }

    async fn try_run(&self, arguments: &str, input: &str) -> Output {
        self.program.output_beside(arguments, input).await
    }
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: busybox}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_made_read_changed_and_deleted() {
    let Some(kubectl) = Kubectl::start("crud") else { return };
    assert_eq!(kubectl.run("create -f -", POD).await, "pod/web created\n");
    assert_eq!(kubectl.run("get pod web -o jsonpath={.status.phase}", "").await, "Pending");
    assert_eq!(kubectl.run("label pod web tier=front", "").await, "pod/web labeled\n");
    assert_eq!(kubectl.run("get pods -l tier=front -o name", "").await, "pod/web\n");
    assert!(kubectl.run("get po web -o yaml", "").await.contains("tier: front"));
    assert!(kubectl.run("delete pod web --wait", "").await.starts_with("pod \"web\" deleted"));
    let missing = kubectl.try_run("get pod web", "").await;
    assert_eq!(
        String::from_utf8_lossy(&missing.stderr),
        "Error from server (NotFound): pods \"web\" not found\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_are_listed_and_explained() {
    let Some(kubectl) = Kubectl::start("explain") else { return };
    let resources = kubectl.run("api-resources -o wide", "").await;
    for word in ["poddisruptionbudgets", "pdb", "resourceclaims", "customresourcedefinitions", "crd,crds"] {
        assert!(resources.contains(word), "{word} in {resources}");
    }
    let explained = kubectl.run("explain pod.spec.containers.image", "").await;
    assert!(explained.contains("FIELD: image <string>"), "{explained}");
    assert!(kubectl.run("get --raw /readyz", "").await.starts_with("ok"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_with_typed_clients_work() {
    let Some(kubectl) = Kubectl::start("typed") else { return };
    assert_eq!(kubectl.run("create namespace team", "").await, "namespace/team created\n");
    assert_eq!(
        kubectl.run("create configmap m --from-literal=a=b -n team", "").await,
        "configmap/m created\n"
    );
    assert_eq!(kubectl.run("get cm m -n team -o jsonpath={.data.a}", "").await, "b");
    assert_eq!(
        kubectl.run("create deployment web --image=busybox --replicas=3", "").await,
        "deployment.apps/web created\n"
    );
    assert_eq!(
        kubectl.run("get deploy web -o jsonpath={.spec.template.spec.containers[0].image}", "").await,
        "busybox"
    );
    assert_eq!(kubectl.run("scale deployment web --replicas=2", "").await, "deployment.apps/web scaled\n");
    let answer = kubectl.try_run("auth can-i create pods", "").await;
    assert!(answer.status.success());
    assert!(String::from_utf8_lossy(&answer.stdout).starts_with("yes"));
    assert!(String::from_utf8_lossy(&answer.stderr).contains("not enforced"));
    assert!(kubectl.run("auth whoami", "").await.contains("kubernetes-admin"));
    assert_eq!(kubectl.run("create token default", "").await.split('.').count(), 3);
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox, ports: [{containerPort: 80}]}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_are_applied_by_client_and_by_server() {
    let Some(kubectl) = Kubectl::start("apply") else { return };
    assert_eq!(kubectl.run("apply -f -", DEPLOYMENT).await, "deployment.apps/web created\n");
    assert_eq!(kubectl.run("apply -f -", DEPLOYMENT).await, "deployment.apps/web unchanged\n");
    let three = DEPLOYMENT.replace("replicas: 2", "replicas: 3");
    assert_eq!(kubectl.run("apply -f -", &three).await, "deployment.apps/web configured\n");
    assert_eq!(kubectl.run("get deploy web -o jsonpath={.spec.replicas}", "").await, "3");
    let applied = kubectl.run("apply --server-side -f -", &three).await;
    assert_eq!(applied, "deployment.apps/web serverside-applied\n");
    assert!(kubectl.run("diff -f -", &three).await.is_empty());
    kubectl.run("set image deployment/web main=other", "").await;
    let image = "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.run(image, "").await, "other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_look_as_people_expect() {
    let Some(kubectl) = Kubectl::start("tables") else { return };
    kubectl.run("create -f -", POD).await;
    let pods = kubectl.run("get pods", "").await;
    assert!(
        pods.starts_with("NAME   READY   STATUS    RESTARTS   AGE\nweb    0/1     Pending   0          "),
        "{pods}"
    );
    let wide = kubectl.run("get pods -A -o wide", "").await;
    assert!(wide.contains("NOMINATED NODE   READINESS GATES"), "{wide}");
    let namespaces = kubectl.run("get ns default", "").await;
    assert!(namespaces.starts_with("NAME      STATUS   AGE\ndefault   Active   "), "{namespaces}");
    let watched = kubectl.run("get pods -w --request-timeout=1s", "").await;
    assert!(watched.contains("web    0/1     Pending"), "{watched}");
    let described = kubectl.run("describe pod web", "").await;
    assert!(described.starts_with("Name:") && described.contains("busybox"), "{described}");
    assert!(
        kubectl
            .run("wait --for=jsonpath={.status.phase}=Pending pod/web", "")
            .await
            .contains("condition met")
    );
}
