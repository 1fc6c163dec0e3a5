//! Certificates in the cluster: the embedded API server calls the webhooks over TLS while they are rotated.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kai_admission::certificate::{self, Certificate, Lifetime};
use kai_admission::managed::{self, Options};
use kai_admission::registration::{self, Endpoint, PodScope};
use kai_admission::server::{self, SecretSource};
use kai_admission::topology;
use kai_kubetest::balancer::Balancer;
use kai_kubetest::client::{Client, Server};
use kai_runtime::api::{Api, Part};
use kai_runtime::health::Health;
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, NAMESPACE, VALIDATING_WEBHOOK_CONFIGURATION, builtin};
use kai_runtime::{Key, Process, ResourceKind};
use kai_sim::Cluster;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

const SECRET: ResourceKind = builtin::<Secret>();

/// The code of the answer to a topology whose alias is a node label, which only the webhook refuses.
async fn create_invalid_topology(api: &Api, number: usize) -> u16 {
    let kind = ResourceKind::of::<kai_api::Topology>();
    let topology = json!({
        "apiVersion": kind.api_version(), "kind": "Topology", "metadata": {"name": format!("t-{number}")},
        "spec": {"levels": [{"nodeLabel": "zone", "alias": "zone"}]},
    });
    api.create_dynamic(&kind, "", &topology).await.map_or_else(|error| error.code(), |_| 201)
}

async fn stored_certificate(api: &Api, secret: &Key) -> String {
    let secret = api.get_dynamic(&SECRET, secret).await.unwrap();
    secret["data"]["tls.crt"].as_str().unwrap_or_default().to_owned()
}

async fn cluster() -> Cluster {
    let cluster = Cluster::builder().seed(1).without_controllers().start().await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai-scheduler"}});
    cluster.api().create_dynamic(&NAMESPACE, "", &namespace).await.unwrap();
    for definition in kai_api::crds().into_iter().filter(|crd| crd.spec.names.kind == "Topology") {
        let definition = serde_json::to_value(definition).unwrap();
        cluster.api().create_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &definition).await.unwrap();
    }
    cluster
}

/// Waits until an invalid topology is refused; returns the number of attempts.
async fn until_refused(api: &Api) -> usize {
    for number in 1..600 {
        // Until the webhook is registered the topology is created; until it serves, the call fails.
        if create_invalid_topology(api, number).await == 403 {
            return number;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the webhook never answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_created_trusted_and_rotated_without_a_failed_call() {
    let cluster = cluster().await;
    let api = cluster.api();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let authority = format!("127.0.0.1:{port}");
    let secret = Key::new("kai-scheduler", "kai-admission-webhook-tls-secret");
    let options = Options {
        secret: secret.clone(),
        host: "127.0.0.1".to_owned(),
        endpoint: Endpoint::Url { authority: authority.clone() },
        scope: PodScope::default(),
        lifetime: Lifetime::default(),
    };
    let health = Health::default();
    let source = SecretSource {
        api: api.clone(),
        secret: secret.clone(),
        reload_interval: options.lifetime.reload_interval(),
        health: health.watch("webhook certificates"),
    };
    assert!(!health.problems().is_empty(), "without a certificate, it is not ready");
    let serving = server::serve_from_secret(&authority, source, topology::router());
    let serving = tokio::spawn(serving.await.unwrap());
    let lead = || {
        let process = Process::start(api.clone(), cluster.clock(), "admission");
        tokio::spawn(managed::run(process, options.clone()))
    };
    let leader = lead();
    let mut number = until_refused(api).await;
    leader.abort();
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    let first = stored_certificate(api, &secret).await;
    let soon =
        json!({"metadata": {"annotations": {"kai.scheduler/certificate-expires": "2020-01-01T00:00:00Z"}}});
    api.patch_dynamic(&SECRET, &secret, Part::Main, &soon).await.unwrap();
    let configuration = || async {
        let key = Key::new("", registration::VALIDATING);
        api.get_dynamic(&VALIDATING_WEBHOOK_CONFIGURATION, &key).await.unwrap()
    };
    let trusted_before = configuration().await;
    let leader = lead();
    while configuration().await == trusted_before {
        number += 1;
        assert!(number < 1200, "the next certificate is never trusted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stored_certificate(api, &secret).await, first, "it is not promoted in the same check");
    // A new leader begins with the next check.
    leader.abort();
    let leader = lead();
    while stored_certificate(api, &secret).await == first {
        number += 1;
        assert!(number < 1200, "the certificate is never rotated");
        assert_eq!(create_invalid_topology(api, number).await, 403);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        create_invalid_topology(api, number + 1).await,
        403,
        "the served certificate is still trusted"
    );
    let configuration = configuration().await;
    let decode = |text: &Value| String::from_utf8(STANDARD.decode(text.as_str().unwrap()).unwrap()).unwrap();
    let bundle = decode(&configuration["webhooks"][1]["clientConfig"]["caBundle"]);
    for trusted in [first, stored_certificate(api, &secret).await] {
        assert!(bundle.contains(&decode(&Value::from(trusted))));
    }
    leader.abort();
    serving.abort();
}

/// Two replicas behind a load balancer, one of which leads.
struct Replicas {
    balancer: Balancer,
    _tasks: tokio::task::JoinSet<()>,
}

impl Replicas {
    async fn start(cluster: &Cluster, secret: &Key, lifetime: Lifetime) -> Self {
        let balancer = Balancer::start().await.unwrap();
        let options = Options {
            secret: secret.clone(),
            host: "127.0.0.1".to_owned(),
            endpoint: Endpoint::Url { authority: balancer.address().to_string() },
            scope: PodScope::default(),
            lifetime,
        };
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let source = SecretSource {
                api: cluster.api().clone(),
                secret: secret.clone(),
                reload_interval: lifetime.reload_interval(),
                health: Health::default().watch("webhook certificates"),
            };
            let address = format!("127.0.0.1:{port}");
            let serving = server::serve_from_secret(&address, source, topology::router()).await.unwrap();
            balancer.add(port);
            tasks.spawn(async move { serving.await.unwrap() });
        }
        let process = Process::start(cluster.api().clone(), cluster.clock(), "admission");
        tasks.spawn(managed::run(process, options));
        Self { balancer, _tasks: tasks }
    }

    /// Calls a webhook on a new connection that trusts what the API server trusts.
    async fn call(&self, api: &Api) -> Result<u16, kai_kubetest::client::Error> {
        let key = Key::new("", registration::VALIDATING);
        let configuration = api.get_dynamic(&VALIDATING_WEBHOOK_CONFIGURATION, &key).await.unwrap();
        let bundle = configuration["webhooks"][1]["clientConfig"]["caBundle"].as_str().unwrap();
        let bundle = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
        let review = json!({"request": {"uid": "u", "operation": "DELETE"}}).to_string();
        let request = axum::http::Request::post(topology::PATH).header("host", "127.0.0.1");
        let mut client = Client::new(Server::new(self.balancer.address(), &bundle).unwrap());
        Ok(client.send(request.body(review.into()).unwrap()).await?.status.as_u16())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_two_replicas_expire_under_load_without_a_failed_call() {
    let cluster = cluster().await;
    let api = cluster.api();
    let secret = Key::new("kai-scheduler", "kai-admission-webhook-tls-secret");
    let replicas = Replicas::start(&cluster, &secret, Lifetime::new(Lifetime::MIN).unwrap()).await;
    let mut number = 0;
    while create_invalid_topology(api, number).await != 403 {
        number += 1;
        assert!(number < 600, "the webhook never answers");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut served = std::collections::BTreeSet::new();
    let begun = tokio::time::Instant::now();
    // Every certificate but the last two has expired then.
    while served.len() < 4 {
        assert!(begun.elapsed() < Duration::from_mins(2), "{} certificates were served", served.len());
        number += 1;
        assert_eq!(create_invalid_topology(api, number).await, 403, "call {number}");
        let code = replicas.call(api).await;
        assert!(matches!(code, Ok(200)), "connection {number}: {code:?}");
        served.insert(stored_certificate(api, &secret).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() > Lifetime::MIN * 2, "certificates have expired: {:?}", begun.elapsed());
}

/// Replaces the files of a mounted Secret at once, as the kubelet does.
fn mount(directory: &Path, version: &str, certificate: &Certificate) {
    let data = directory.join(version);
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("tls.crt"), &certificate.certificate).unwrap();
    std::fs::write(data.join("tls.key"), &certificate.key).unwrap();
    let link = directory.join("..data_tmp");
    symlink(version, &link).unwrap();
    std::fs::rename(&link, directory.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        let _ = symlink(Path::new("..data").join(file), directory.join(file));
    }
}

/// The operator renews the Secret, and the kubelet the files of it that are mounted.
#[tokio::test(flavor = "current_thread")]
async fn renewed_certificate_of_a_mounted_secret_is_served_without_a_restart() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mounted-secret");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let now = cluster().await.clock().now();
    let make = || certificate::create("127.0.0.1", now, Lifetime::default()).unwrap();
    let (first, second) = (make(), make());
    mount(&directory, "v1", &first);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
    let serving = server::serve(&address.to_string(), &directory, topology::router()).await.unwrap();
    let serving = tokio::spawn(serving);
    let answers = async |trusted: &Certificate| {
        let review = json!({"request": {"uid": "u", "operation": "DELETE"}}).to_string();
        let request = axum::http::Request::post(topology::PATH).header("host", "127.0.0.1");
        let mut client = Client::new(Server::new(address, &trusted.certificate).unwrap());
        client.send(request.body(review.into()).unwrap()).await.is_ok_and(|answer| answer.status == 200)
    };
    assert!(answers(&first).await && !answers(&second).await);
    mount(&directory, "v2", &second);
    // The files are read once a minute.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let mut attempts = 0;
    while !answers(&second).await {
        attempts += 1;
        assert!(attempts < 500, "the renewed certificate is never served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!answers(&first).await, "one certificate is served");
    serving.abort();
}
