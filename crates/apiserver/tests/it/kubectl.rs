//! `kubectl` against the server: the installed version, and the one of the recorded kube-apiserver.

use crate::server;
use kai_apiserver::Listening;
use kai_kubetest::kubectl::Kubectl as Program;
use std::process::Output;

struct Kubectl {
    _listening: Listening,
    program: Program,
}

impl Kubectl {
    /// One server for each `kubectl`.
    fn each(name: &str) -> Vec<Self> {
        let programs = Program::required().into_iter().enumerate();
        programs
            .map(|(number, path)| {
                let home = format!("kai-kubectl-{}-{name}-{number}", std::process::id());
                let home = std::env::temp_dir().join(home);
                let program = Program::new(&home, &home.join("kubeconfig")).with_program(&path);
                let listening = server().listen("127.0.0.1:0".parse().unwrap()).unwrap();
                listening.write_kubeconfig(&home.join("kubeconfig")).unwrap();
                Self { _listening: listening, program }
            })
            .collect()
    }

    async fn run(&self, arguments: &str, input: &str) -> String {
        self.program.run_blocking(arguments, input).await
    }

    async fn try_run(&self, arguments: &str, input: &str) -> Output {
        self.program.output_blocking(arguments, input).await
    }

    /// Standard error of a failing command.
    async fn refused(&self, arguments: &str, input: &str) -> String {
        let output = self.try_run(arguments, input).await;
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

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: busybox}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_creates_reads_updates_and_deletes() {
    for kubectl in Kubectl::each("crud") {
        assert_eq!(kubectl.run("create -f -", POD).await, "pod/web created\n");
        assert_eq!(kubectl.run("get pod web -o jsonpath={.status.phase}", "").await, "Pending");
        assert_eq!(kubectl.run("label pod web tier=front", "").await, "pod/web labeled\n");
        assert_eq!(kubectl.run("annotate pod web note=a", "").await, "pod/web annotated\n");
        assert_eq!(kubectl.run("get pods -l tier=front -o name", "").await, "pod/web\n");
        assert_eq!(kubectl.run("get pods --field-selector status.phase=Running -o name", "").await, "");
        has(&kubectl.run("get po web -o yaml", "").await, &["tier: front", "kind: Pod", "phase: Pending"]);
        kubectl.run("create configmap m --from-literal=a=b", "").await;
        let other =
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "c"}}"#;
        assert_eq!(kubectl.run("replace -f -", other).await, "configmap/m replaced\n");
        assert!(kubectl.run("delete pod web --wait", "").await.starts_with("pod \"web\" deleted"));
        assert_eq!(
            kubectl.refused("get pod web", "").await,
            "Error from server (NotFound): pods \"web\" not found\n"
        );
        assert_eq!(
            kubectl.refused("get nonsense", "").await,
            "error: the server doesn't have a resource type \"nonsense\"\n"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_api_resources_and_explain() {
    for kubectl in Kubectl::each("explain") {
        let resources = kubectl.run("api-resources -o wide", "").await;
        has(&resources, &["poddisruptionbudgets", "pdb", "resourceclaims", "customresourcedefinitions"]);
        has(&resources, &["crd,crds", "NAMESPACED", "VERBS"]);
        let namespaced = kubectl.run("api-resources --namespaced=false -o name", "").await;
        assert!(namespaced.contains("nodes\n") && !namespaced.contains("pods\n"), "{namespaced}");
        has(&kubectl.run("api-versions", "").await, &["apps/v1\n", "batch/v1\n", "v1\n"]);
        let explained = kubectl.run("explain pod.spec.containers.image", "").await;
        has(&explained, &["KIND:       Pod", "VERSION:    v1", "FIELD: image <string>"]);
        let tree = kubectl.run("explain deployment.spec.strategy --recursive", "").await;
        has(&tree, &["GROUP:      apps", "rollingUpdate", "maxSurge", "<IntOrString>"]);
        has(&kubectl.refused("explain pod.spec.nothing", "").await, &["does not exist"]);
        assert!(kubectl.run("get --raw /readyz", "").await.starts_with("ok"));
        has(&kubectl.run("version", "").await, &["Server Version: v1.36"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_commands_with_typed_clients() {
    for kubectl in Kubectl::each("typed") {
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
        let image = "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}";
        assert_eq!(kubectl.run(image, "").await, "busybox");
        assert_eq!(
            kubectl.run("scale deployment web --replicas=2", "").await,
            "deployment.apps/web scaled\n"
        );
        assert!(kubectl.run("auth whoami", "").await.contains("kubernetes-admin"));
        assert_eq!(kubectl.run("create token default", "").await.split('.').count(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_auth_can_i_warns_that_rbac_is_not_enforced() {
    for kubectl in Kubectl::each("rights") {
        for question in ["create pods", "delete nodes --as=alice", "get /healthz", "patch deployments/scale"]
        {
            let answer = kubectl.try_run(&format!("auth can-i {question}"), "").await;
            let (said, warned) =
                (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
            assert!(answer.status.success(), "{question}: {warned}");
            assert!(said.starts_with("yes"), "{question}: {said}");
            assert!(warned.contains("not enforced"), "{question}: {warned}");
        }
        has(&kubectl.run("auth can-i --list", "").await, &["Resources", "*.*", "[*]"]);
    }
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
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_apply_client_side_and_server_side() {
    for kubectl in Kubectl::each("apply") {
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
        let typo = DEPLOYMENT.replace("replicas: 2", "replica: 2");
        has(&kubectl.refused("apply -f -", &typo).await, &["unknown field \"spec.replica\""]);
        assert_eq!(
            kubectl.run("apply --dry-run=server -f -", DEPLOYMENT).await,
            "deployment.apps/web configured (server dry run)\n"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn server_side_apply_conflict_names_the_manager() {
    for kubectl in Kubectl::each("owners") {
        kubectl.run("apply --server-side --field-manager=one -f -", DEPLOYMENT).await;
        let four = DEPLOYMENT.replace("replicas: 2", "replicas: 4");
        let conflict = kubectl.refused("apply --server-side --field-manager=two -f -", &four).await;
        has(&conflict, &["Apply failed with 1 conflict: conflict with \"one\"", ".spec.replicas"]);
        kubectl.run("apply --server-side --field-manager=two --force-conflicts -f -", &four).await;
        assert_eq!(kubectl.run("get deploy web -o jsonpath={.spec.replicas}", "").await, "4");
        let fields = kubectl.run("get deploy web -o yaml --show-managed-fields", "").await;
        has(&fields, &["manager: one", "manager: two", "f:replicas: {}", "operation: Apply"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_edit_and_patch() {
    for kubectl in Kubectl::each("edit") {
        kubectl.run("create -f -", DEPLOYMENT).await;
        let editor = kubectl.program.clone().with_editor("sed -i 's/replicas: 2/replicas: 5/' \"$1\"");
        let edited = editor.run_blocking("edit deployment web", "").await;
        assert_eq!(edited, "deployment.apps/web edited\n");
        let size = "get deploy web -o jsonpath={.spec.replicas}";
        assert_eq!(kubectl.run(size, "").await, "5");
        let idle = kubectl.program.clone().with_editor("true");
        let output = idle.output_blocking("edit deployment web", "").await;
        has(&String::from_utf8_lossy(&output.stderr), &["Edit cancelled, no changes made."]);
        for (how, patch, wanted) in [
            ("strategic", r#"{"spec":{"replicas":6}}"#, "6"),
            ("merge", r#"{"spec":{"replicas":7}}"#, "7"),
            ("json", r#"[{"op":"replace","path":"/spec/replicas","value":8}]"#, "8"),
        ] {
            let done = kubectl.run(&format!("patch deployment web --type={how} -p {patch}"), "").await;
            assert_eq!(done, "deployment.apps/web patched\n");
            assert_eq!(kubectl.run(size, "").await, wanted, "{how}");
        }
        let container = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"b"}]}}}}"#;
        kubectl.run(&format!("patch deployment web -p {container}"), "").await;
        let names = "get deploy web -o jsonpath={.spec.template.spec.containers[*].name}";
        assert_eq!(kubectl.run(names, "").await, "side main", "lists are merged by name");
        let scale = r#"patch deployment web --subresource=scale --type=merge -p {"spec":{"replicas":1}}"#;
        kubectl.run(scale, "").await;
        assert_eq!(kubectl.run(size, "").await, "1");
        let wrong = r#"patch deployment web -p {"spec":{"replicas":-1}}"#;
        has(&kubectl.refused(wrong, "").await, &["spec.replicas: Invalid value: -1"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_get_prints_tables() {
    for kubectl in Kubectl::each("tables") {
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
        let watched = kubectl.run("get pods -w --request-timeout=5s", "").await;
        assert!(watched.contains("web    0/1     Pending"), "{watched}");
        let described = kubectl.run("describe pod web", "").await;
        assert!(described.starts_with("Name:") && described.contains("busybox"), "{described}");
        let columns = "get pods -o custom-columns=N:.metadata.name,I:.spec.containers[0].image --no-headers";
        assert_eq!(kubectl.run(columns, "").await.split_whitespace().collect::<Vec<_>>(), ["web", "busybox"]);
        let labels = kubectl.run("get pods --show-labels -L app --sort-by=.metadata.name", "").await;
        has(&labels, &["LABELS", "APP", "app=web"]);
        let waited = kubectl.run("wait --for=jsonpath={.status.phase}=Pending pod/web", "").await;
        assert_eq!(waited, "pod/web condition met\n");
        let late = kubectl.refused("wait --for=condition=Ready pod/web --timeout=1s", "").await;
        has(&late, &["timed out waiting for the condition on pods/web"]);
    }
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What a widget is to be.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              colour: {type: string, default: red}
          status:
            type: object
            properties:
              phase: {type: string}
";

const WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: a}
spec: {size: 3}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_handles_custom_resources() {
    for kubectl in Kubectl::each("custom") {
        kubectl.run("apply -f -", DEFINITION).await;
        let established = "wait --for=condition=Established crd/widgets.example.com --timeout=120s";
        has(&kubectl.run(established, "").await, &["condition met"]);
        has(&kubectl.run("api-resources --api-group=example.com", "").await, &["widgets", "wd", "Widget"]);
        assert_eq!(kubectl.run("apply -f -", WIDGET).await, "widget.example.com/a created\n");
        assert_eq!(kubectl.run("apply -f -", WIDGET).await, "widget.example.com/a unchanged\n");
        let table = kubectl.run("get widgets", "").await;
        assert!(table.starts_with("NAME   SIZE\na      3\n"), "{table}");
        has(&kubectl.run("get wd a -o wide", "").await, &["COLOUR", "red"]);
        has(&kubectl.run("get all", "").await, &["widget.example.com/a"]);
        let described = kubectl.run("describe widget a", "").await;
        has(
            &described,
            &["Name:         a", "Kind:         Widget", "Colour:  red", "Size:    3", "Events:"],
        );
        let explained = kubectl.run("explain widget.spec", "").await;
        has(
            &explained,
            &["GROUP:      example.com", "What a widget is to be.", "size\t<integer> -required-"],
        );
        let editor = kubectl.program.clone().with_editor("sed -i 's/size: 3/size: 4/' \"$1\"");
        assert_eq!(editor.run_blocking("edit widget a", "").await, "widget.example.com/a edited\n");
        assert_eq!(kubectl.run("get widget a -o jsonpath={.spec.size}", "").await, "4");
        let phase = r#"patch widget a --subresource=status --type=merge -p {"status":{"phase":"Done"}}"#;
        kubectl.run(phase, "").await;
        let waited =
            kubectl.run("wait --for=jsonpath={.status.phase}=Done widget/a --timeout=120s", "").await;
        assert_eq!(waited, "widget.example.com/a condition met\n");
        let five = WIDGET.replace('3', "5");
        assert_eq!(kubectl.run("apply -f -", &five).await, "widget.example.com/a configured\n");
        has(&kubectl.refused("apply -f -", &WIDGET.replace('3', "0")).await, &["should be greater than"]);
        has(&kubectl.run("delete widget a --wait", "").await, &["widget.example.com \"a\" deleted"]);
        assert_eq!(kubectl.run("get widgets -o name", "").await, "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn kubectl_delete_waits_for_finalizers() {
    for kubectl in Kubectl::each("finalizers") {
        let held = "
apiVersion: v1
kind: ConfigMap
metadata: {name: held, finalizers: [example.com/hold]}
";
        kubectl.run("create -f -", held).await;
        let late = kubectl.refused("delete cm held --wait --timeout=1s", "").await;
        has(&late, &["timed out waiting for the condition"]);
        let gone = kubectl.program.clone();
        let waiting =
            tokio::spawn(
                async move { gone.run_blocking("wait --for=delete cm/held --timeout=120s", "").await },
            );
        let release = r#"{"metadata":{"finalizers":null}}"#;
        kubectl.run(&format!("patch cm held --type=merge -p {release}"), "").await;
        waiting.await.unwrap();
        assert_eq!(kubectl.run("get cm held --ignore-not-found -o name", "").await, "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn missing_definition_is_named_and_the_rest_of_the_file_is_applied() {
    for kubectl in Kubectl::each("missing-definition") {
        let manifest = "
apiVersion: example.com/v1
kind: Gadget
metadata: {name: a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: after}
";
        let error = kubectl.refused("apply -f -", manifest).await;
        has(
            &error,
            &["no matches for kind \"Gadget\" in version \"example.com/v1\"", "ensure CRDs are installed"],
        );
        assert_eq!(kubectl.run("get cm after -o name", "").await, "configmap/after\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: cargo xtask ci runs it"]
async fn commands_that_need_a_container_say_that_there_is_none() {
    for kubectl in Kubectl::each("containers") {
        kubectl.run("create -f -", POD).await;
        let running = r#"{"status":{"phase":"Running"}}"#;
        kubectl.run(&format!("patch pod web --subresource=status --type=merge -p {running}"), "").await;
        for command in ["exec web -- ls", "attach web", "port-forward web :80"] {
            has(&kubectl.refused(command, "").await, &["pod `web` is simulated and runs no container"]);
        }
    }
}
