//! The webhooks on a real control plane: over TLS, by URL, with a load balancer in front of the replicas of each component.
//!
//! `kai admission` creates its certificate and registers its webhooks itself. Those of the queue and pod group controllers
//! get both from the test, as from an operator.

use super::control_plane::{NAMESPACE, Plane, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::node::v1::RuntimeClass;
use kai_admission::certificate::{self, Lifetime};
use kai_admission::registration::{self, Endpoint};
use kai_clock::Clock;
use kai_kubetest::balancer::Balancer;
use kai_runtime::api::Api;
use kai_runtime::kind::{Key, POD, ResourceKind, SERVICE_ACCOUNT, VALIDATING_WEBHOOK_CONFIGURATION, builtin};
use kai_scheduler::resources::{POD_GROUP, QUEUE, TOPOLOGY};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Serves the webhooks of pods and topologies.
pub(super) const ADMISSION: &str = "admission";
/// Its second replica: both serve, and one maintains the certificate.
pub(super) const ADMISSION_2: &str = "admission-2";
/// Components with webhooks.
const COMPONENTS: [&str; 3] = [ADMISSION, "queue-controller", "podgroup-controller"];
/// The Secret of `kai admission`.
pub(super) const CERTIFICATE: &str = "kai-admission-webhook-tls-secret";
pub(super) const SECRET: ResourceKind = builtin::<Secret>();

/// A load balancer for each component with webhooks, and the certificate of those that get theirs from a folder.
pub(super) struct Webhooks {
    balancers: BTreeMap<&'static str, Balancer>,
    certificates: PathBuf,
    authority: String,
}

impl Webhooks {
    pub(super) async fn start(folder: &Path, clock: Clock) -> Self {
        let mut balancers = BTreeMap::new();
        for component in COMPONENTS {
            balancers.insert(component, Balancer::start().await.unwrap());
        }
        let certificates = folder.join("certificates");
        std::fs::create_dir_all(&certificates).unwrap();
        let made = certificate::create("127.0.0.1", clock.now(), Lifetime::default()).unwrap();
        std::fs::write(certificates.join("tls.crt"), &made.certificate).unwrap();
        std::fs::write(certificates.join("tls.key"), &made.key).unwrap();
        Self { balancers, certificates, authority: made.certificate }
    }

    fn authority_of(&self, component: &str) -> String {
        self.balancers[component].address().to_string()
    }

    /// Where the API server reaches the webhooks of `kai admission`.
    pub(super) fn admission(&self) -> &Balancer {
        &self.balancers[ADMISSION]
    }

    /// The flags of the webhooks of one process; each process listens on its own port.
    pub(super) fn flags(&self, component: &str) -> Vec<String> {
        let Some(balancer) = self.balancers.get(component) else { return Vec::new() };
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        balancer.add(free);
        let folder = self.certificates.display();
        if component == ADMISSION {
            return vec![
                format!("--webhook-addr={free}"),
                format!("--webhook-host={}", self.authority_of(ADMISSION)),
                format!("--webhook-cert-dir={folder}/none"),
            ];
        }
        vec![format!("--webhook-bind-address=127.0.0.1:{free}"), format!("--webhook-cert-dir={folder}")]
    }

    /// Registers the webhooks of the controllers, and waits until all webhooks answer.
    pub(super) async fn register(&self, api: &Api) {
        let endpoint = |component: &str| Endpoint::Url { authority: self.authority_of(component) };
        let authority = STANDARD.encode(&self.authority);
        for configuration in [
            registration::queues(&endpoint("queue-controller"), &authority),
            registration::pod_groups(&endpoint("podgroup-controller"), &authority),
        ] {
            api.ensure_dynamic(&VALIDATING_WEBHOOK_CONFIGURATION, "", &configuration).await.unwrap();
        }
        wait_until("all webhooks answer", || all_answer(api)).await;
    }
}

/// Objects that pods need besides: a runtime class, which the webhook sets, and the account of the probing pod.
pub(super) async fn prepare(api: &Api) {
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
    });
    api.ensure_dynamic(&builtin::<RuntimeClass>(), "", &class).await.unwrap();
    let account = Key::new("default", "default");
    wait_until("the namespace is ready", || async {
        api.get_dynamic(&SERVICE_ACCOUNT, &account).await.is_ok()
    })
    .await;
}

/// Creates an object as a dry run.
pub(super) async fn dry_run(
    api: &Api,
    kind: &ResourceKind,
    namespace: &str,
    mut object: Value,
) -> kai_runtime::api::Result<Value> {
    object["apiVersion"] = Value::from(kind.api_version());
    object["kind"] = Value::from(&*kind.kind);
    // The path of an object without its name.
    let path = kind.path_of(&Key::new(namespace, "x"));
    let path = path.strip_suffix("/x").unwrap_or(&path).to_owned() + "?dryRun=All";
    api.send("POST", &path, Some(("application/json", &object))).await
}

/// A pod of the scheduler that requests half of a GPU.
pub(super) fn half(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
    })
}

/// A topology that only the webhook refuses.
pub(super) fn invalid_topology() -> Value {
    json!({"metadata": {"name": "probe"}, "spec": {"levels": [{"nodeLabel": "zone", "alias": "zone"}]}})
}

async fn all_answer(api: &Api) -> bool {
    let prepared = dry_run(api, &POD, "default", half("probe"))
        .await
        .is_ok_and(|pod| pod.pointer("/metadata/annotations/runai~1shared-gpu-configmap").is_some());
    let group = json!({"metadata": {"name": "probe"}, "spec": {"minMember": 1, "minSubGroup": 1}});
    let queue = json!({"metadata": {"name": "probe"}, "spec": {}});
    let mut refused = 0;
    for (kind, namespace, object) in
        [(&*TOPOLOGY, "", invalid_topology()), (&*POD_GROUP, "default", group), (&*QUEUE, "", queue)]
    {
        let answer = dry_run(api, kind, namespace, object).await;
        refused += usize::from(answer.is_err_and(|error| error.message().contains("admission webhook")));
    }
    prepared && refused == 3
}

/// Waits until a certificate has been replaced.
pub(super) async fn wait_until_rotated(plane: &Plane) {
    wait_until("the certificate of the webhooks is rotated", || async {
        let secret = plane.api().get_dynamic(&SECRET, &Key::new(NAMESPACE, CERTIFICATE)).await.unwrap();
        secret["data"]["previous.crt"].is_string()
    })
    .await;
}
