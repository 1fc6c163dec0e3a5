//! Third-party controllers as processes beside a control plane, with their own custom resource definitions: those of
//! workloads, and Karpenter.
//!
//! `cargo xtask kubernetes --with NAME,…` builds them from Go modules and copies their definitions beside them.

pub mod karpenter;

use crate::certificates::Certificates;
use crate::control_plane::process::Process;
use crate::control_plane::{ControlPlane, Error, free_port};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where a controller comes from.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    /// Its name in prose.
    pub title: &'static str,
    pub module: &'static str,
    /// The folder below `tests` whose `go.mod` names the version. Modules that need other versions of a library have their own.
    pub built_by: &'static str,
    /// The package of the program.
    pub package: &'static str,
    /// Custom resource definitions in the module: folders or files.
    pub crds: &'static [&'static str],
    /// Webhook configurations in the module, where pods or workloads are not complete without them.
    pub webhooks: Option<&'static str>,
    rotation: Option<Rotation>,
    arguments: fn(&Launch<'_>) -> Vec<String>,
}

/// Certificates of its webhooks that a controller writes into a Secret, and expects to find mounted.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    namespace: &'static str,
    secret: &'static str,
    /// The webhook configuration into which it writes the authority. Without webhooks in it, none are called.
    configuration: &'static str,
}

/// The folder of the controllers of workloads.
pub const WORKLOADS: &str = "workload-controllers";
/// The name of Karpenter, and its folder.
pub const KARPENTER: &str = "karpenter";

/// Where the controllers expect the Secret, whatever their flags.
const MOUNTED: &str = "/tmp/k8s-webhook-server/serving-certs";

/// What the arguments of a controller depend on.
struct Launch<'a> {
    kubeconfig: String,
    /// A folder with `tls.crt` and `tls.key`.
    folder: &'a Path,
    port: u16,
}

/// All controllers.
pub const DEFINITIONS: [Definition; 7] = [
    Definition {
        name: "jobset",
        title: "JobSet",
        module: "sigs.k8s.io/jobset",
        built_by: WORKLOADS,
        package: "sigs.k8s.io/jobset",
        crds: &["config/components/crd/bases"],
        webhooks: Some("config/components/webhook/manifests.yaml"),
        rotation: None,
        arguments: |launch| configured(launch, "config.jobset.x-k8s.io/v1alpha1"),
    },
    Definition {
        name: "lws",
        title: "LeaderWorkerSet",
        module: "sigs.k8s.io/lws",
        built_by: WORKLOADS,
        package: "sigs.k8s.io/lws/cmd",
        crds: &["config/crd/bases"],
        webhooks: Some("config/webhook/manifests.yaml"),
        rotation: None,
        arguments: |launch| configured(launch, "config.lws.x-k8s.io/v1alpha1"),
    },
    Definition {
        name: "kuberay",
        title: "KubeRay",
        module: "github.com/ray-project/kuberay/ray-operator",
        built_by: WORKLOADS,
        package: "github.com/ray-project/kuberay/ray-operator",
        crds: &["config/crd/bases"],
        webhooks: None,
        rotation: None,
        arguments: |launch| {
            let kubeconfig = format!("--kubeconfig={}", launch.kubeconfig);
            let ports = ["--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
            let fixed = ports.into_iter().chain(["--enable-leader-election=false"]).map(str::to_owned);
            fixed.chain([kubeconfig]).collect()
        },
    },
    Definition {
        name: "mpi-operator",
        title: "MPI operator",
        module: "github.com/kubeflow/mpi-operator",
        built_by: WORKLOADS,
        package: "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        crds: &["manifests/base/kubeflow.org_mpijobs.yaml"],
        webhooks: None,
        rotation: None,
        arguments: |launch| {
            vec![format!("--kubeConfig={}", launch.kubeconfig), "--lock-namespace=default".to_owned()]
        },
    },
    Definition {
        name: "training-operator",
        title: "Kubeflow training operator",
        module: "github.com/kubeflow/training-operator",
        built_by: WORKLOADS,
        package: "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        crds: &["manifests/base/crds"],
        webhooks: None,
        rotation: Some(Rotation {
            namespace: "kubeflow",
            secret: "training-operator-webhook-cert",
            configuration: "validator.training-operator.kubeflow.org",
        }),
        arguments: |launch| {
            // The MPI operator has another version of its MPIJobs.
            let kinds =
                ["pytorchjob", "tfjob", "xgboostjob", "jaxjob"].map(|kind| format!("--enable-scheme={kind}"));
            let mut arguments = vec![
                format!("--kubeconfig={}", launch.kubeconfig),
                format!("--webhook-server-port={}", launch.port),
                "--metrics-bind-address=127.0.0.1:0".to_owned(),
                "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            ];
            arguments.extend(kinds);
            arguments
        },
    },
    Definition {
        name: "trainer",
        title: "Kubeflow Trainer",
        module: "github.com/kubeflow/trainer/v2",
        built_by: WORKLOADS,
        package: "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        crds: &["manifests/base/crds"],
        webhooks: None,
        rotation: Some(Rotation {
            namespace: "kubeflow-system",
            secret: "kubeflow-trainer-webhook-cert",
            configuration: "validator.trainer.kubeflow.org",
        }),
        arguments: |launch| {
            vec![
                format!("--kubeconfig={}", launch.kubeconfig),
                format!("--webhook-server-port={}", launch.port),
                "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            ]
        },
    },
    karpenter::DEFINITION,
];

/// Writes a configuration of the form that JobSet and LeaderWorkerSet share, and names it.
fn configured(launch: &Launch<'_>, api_version: &str) -> Vec<String> {
    let configuration = json!({
        "apiVersion": api_version, "kind": "Configuration",
        "internalCertManagement": {"enable": false},
        "leaderElection": {"leaderElect": false},
        "webhook": {"host": "127.0.0.1", "port": launch.port, "certDir": launch.folder},
        "metrics": {"bindAddress": "127.0.0.1:0"}, "health": {"healthProbeBindAddress": "127.0.0.1:0"},
    });
    let file = launch.folder.join("configuration.yaml");
    // A missing file is reported by the program.
    let _ = std::fs::write(&file, configuration.to_string());
    vec![format!("--config={}", file.display()), format!("--kubeconfig={}", launch.kubeconfig)]
}

/// Where the built programs are, below the folder of the control plane's programs.
pub fn folder(programs: &Path) -> PathBuf {
    programs.join("third-party")
}

/// A running controller; dropping it stops it.
pub struct Controller {
    pub definition: Definition,
    pub version: String,
    process: Process,
    objects: Vec<Value>,
}

impl Controller {
    /// Starts a controller. Its [`objects`](Self::objects) must be created before it finds its kinds.
    pub fn start(definition: Definition, programs: &Path, plane: &ControlPlane) -> Result<Self, Error> {
        let built = folder(programs);
        let program = built.join(definition.name);
        if !program.is_file() {
            return Err(Error::Missing(program));
        }
        let system = |what: &str| {
            let what = format!("{what} of {}", definition.name);
            move |source| Error::System { what, source }
        };
        let files = built.join(format!("{}.files", definition.name));
        let version = std::fs::read_to_string(files.join("version")).map_err(system("read the version"))?;
        let folder = plane.folder().join(definition.name);
        std::fs::create_dir_all(&folder).map_err(system("create the folder"))?;
        let certificates = Certificates::for_loopback()?;
        std::fs::write(folder.join("tls.crt"), &certificates.leaf)
            .map_err(system("write the certificate"))?;
        std::fs::write(folder.join("tls.key"), &certificates.key).map_err(system("write the key"))?;
        let port = free_port()?;
        let mut objects = read(&files.join("crds"))?;
        if definition.webhooks.is_some() {
            objects.extend(webhooks(&files, definition.name, port, &certificates.authority)?);
        }
        if let Some(Rotation { namespace, secret, configuration }) = definition.rotation {
            objects.extend([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace}}),
                json!({
                    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": configuration}, "webhooks": [],
                }),
            ]);
        }
        let kubeconfig = plane.kubeconfig_file().display().to_string();
        let arguments = (definition.arguments)(&Launch { kubeconfig, folder: &folder, port });
        let environment = [("KUBECONFIG", plane.kubeconfig_file())];
        let process =
            Process::start_in(&environment, &program, &arguments, &folder).map_err(system("start"))?;
        Ok(Self { definition, version: version.trim().to_owned(), process, objects })
    }

    /// Custom resource definitions and webhook configurations.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Does what a kubelet does: starts it again if it has ended, since without its definitions a controller gives up, and
    /// mounts its certificates.
    pub async fn keep_running(&mut self, plane: &ControlPlane) -> Result<(), Error> {
        if let Some(Rotation { namespace, secret, .. }) = self.definition.rotation {
            let read = plane.get(&format!("/api/v1/namespaces/{namespace}/secrets/{secret}")).await?;
            let read: Value = serde_json::from_slice(&read.body).unwrap_or_default();
            mount(&read["data"])
                .map_err(|source| Error::System { what: format!("write to `{MOUNTED}`"), source })?;
        }
        if self.process.has_exited() {
            let what = format!("start {} again", self.definition.name);
            self.process.start_again().map_err(|source| Error::System { what, source })?;
        }
        Ok(())
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.process.tail()
    }
}

/// Writes the files of a Secret that have changed, each at once: programs watch them, and read what is there.
fn mount(data: &Value) -> std::io::Result<()> {
    use base64::Engine as _;
    std::fs::create_dir_all(MOUNTED)?;
    for (name, value) in data.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
        let file = Path::new(MOUNTED).join(name);
        if std::fs::read(&file).is_ok_and(|written| written == bytes) {
            continue;
        }
        let partial = Path::new(MOUNTED).join(format!(".{name}"));
        std::fs::write(&partial, bytes)?;
        std::fs::rename(partial, file)?;
    }
    Ok(())
}

/// All objects of the YAML files in a folder.
fn read(folder: &Path) -> Result<Vec<Value>, Error> {
    let failed = |source| Error::System { what: format!("read `{}`", folder.display()), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let read: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        objects.extend(
            read.into_iter().filter(|object| object["kind"].is_string() && object["metadata"].is_object()),
        );
    }
    Ok(objects)
}

/// The webhook configurations, which call the process instead of a Service.
fn webhooks(files: &Path, name: &str, port: u16, authority: &str) -> Result<Vec<Value>, Error> {
    use base64::Engine as _;
    let bundle = base64::engine::general_purpose::STANDARD.encode(authority);
    let mut objects = read(&files.join("webhooks"))?;
    for object in &mut objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        object["metadata"]["name"] = json!(format!("{name}-{kind}"));
        for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default().to_owned();
            webhook["clientConfig"] =
                json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": bundle});
            // Pods of others are not its business.
            if path.ends_with("-v1-pod") {
                let label = if name == "lws" {
                    "leaderworkerset.sigs.k8s.io/name"
                } else {
                    "jobset.sigs.k8s.io/jobset-name"
                };
                webhook["objectSelector"] =
                    json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
            }
        }
    }
    Ok(objects)
}
