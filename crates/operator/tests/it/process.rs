//! The operator on the embedded API server with simulated nodes, in virtual time.

mod bad_times;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kai_api::{Config, SchedulingShard};
use kai_object as object;
use kai_operator::Images;
use kai_operator::process::{self, Check, Options};
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::process::Process;
use kai_sim::{Builder, Cluster, NodeGroup, Outage};
use serde_json::{Value, json};
use std::time::Duration;

const OPERATOR: &str = "kai-operator";
const NAMESPACE: &str = "kai-scheduler";
const SECRET: ResourceKind = kind::untyped("", "v1", "Secret", "secrets", true);
/// Time limit of all waits, in virtual time.
const TIMEOUT: Duration = Duration::from_mins(10);

struct Installation {
    cluster: Cluster,
}

impl Installation {
    /// A cluster with the CRDs, a `Config`, a shard and a running operator.
    async fn new(config: &Value) -> Self {
        Self::with(config, Cluster::builder(), Check::default()).await
    }

    /// With an operator that does not deploy what is refused.
    async fn checked(config: &Value, check: Check) -> Self {
        Self::with(config, Cluster::builder(), check).await
    }

    /// With a journal of all requests.
    async fn recorded(config: &Value) -> Self {
        Self::with(config, Cluster::builder().keep_lines(), Check::default()).await
    }

    async fn with(config: &Value, builder: Builder, check: Check) -> Self {
        let builder = builder.seed(1).starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let mut cluster = builder.nodes([NodeGroup::gpu_nodes(1, 8)]).start().await.unwrap();
        for definition in kai_api::crds() {
            let definition = serde_json::to_value(&definition).unwrap();
            cluster.api().create_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &definition).await.unwrap();
        }
        for name in [NAMESPACE, "kai-resource-reservation", "kai-scale-adjust", "kai-two"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.api().create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
        }
        let clock = cluster.clock();
        cluster.run("placer", |client| place_pods(Api::new(client, "placer")));
        cluster.run(OPERATOR, move |client| {
            let process = Process::start(Api::new(client, OPERATOR), clock, OPERATOR);
            let images = Images { repository: "registry".to_owned(), tag: "v1".to_owned() };
            let options = Options { namespace: NAMESPACE.to_owned(), images };
            process::run_checked(process, options, check.clone())
        });
        let installation = Self { cluster };
        installation.create(&ResourceKind::of::<SchedulingShard>(), "default", &json!({})).await;
        installation.create(&ResourceKind::of::<Config>(), "kai-config", config).await;
        installation
    }

    fn api(&self) -> &Api {
        self.cluster.api()
    }

    async fn create(&self, kind: &ResourceKind, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "spec": spec,
        });
        self.api().create_dynamic(kind, "", &object).await.unwrap();
    }

    async fn patch_config(&self, spec: &Value) {
        let key = Key::new("", "kai-config");
        let patch = json!({"spec": spec});
        self.api().patch_dynamic(&ResourceKind::of::<Config>(), &key, Part::Main, &patch).await.unwrap();
    }

    async fn get(&self, kind: &ResourceKind, name: &str) -> Option<Value> {
        let namespace = if kind.namespaced { NAMESPACE } else { "" };
        self.api().get_dynamic(kind, &Key::new(namespace, name)).await.ok()
    }

    async fn condition(&self, kind: &ResourceKind, name: &str, type_: &str) -> (String, String) {
        let owner = self.get(kind, name).await.unwrap_or_default();
        let generation = object::generation(&owner);
        let list = owner.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let current = |condition: &&Value| {
            condition["type"] == type_ && condition["observedGeneration"] == json!(generation)
        };
        let found = list.iter().find(current).cloned().unwrap_or_default();
        (object::str_at(&found, "/status").to_owned(), object::str_at(&found, "/message").to_owned())
    }

    async fn is_ready(&self) -> bool {
        let config = self.condition(&ResourceKind::of::<Config>(), "kai-config", "Ready").await;
        let shard = self.condition(&ResourceKind::of::<SchedulingShard>(), "default", "Ready").await;
        config.0 == "True" && shard.0 == "True"
    }

    async fn wait_until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "{what}: not within {TIMEOUT:?}");
    }

    async fn ready(&self) {
        let waiting = async {
            while !self.is_ready().await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
            let config = self.get(&ResourceKind::of::<Config>(), "kai-config").await.unwrap_or_default();
            let shard = self.get(&ResourceKind::of::<SchedulingShard>(), "default").await.unwrap_or_default();
            panic!("the installation is not ready: {:#} {:#}", config["status"], shard["status"]);
        }
    }

    /// Resource versions of everything that the operator writes.
    async fn versions(&self) -> Vec<String> {
        let kinds = [
            ResourceKind::of::<Config>(),
            ResourceKind::of::<SchedulingShard>(),
            kind::DEPLOYMENT,
            kind::CONFIG_MAP,
            SECRET,
            kind::SERVICE_ACCOUNT,
            kind::VALIDATING_WEBHOOK_CONFIGURATION,
            kind::MUTATING_WEBHOOK_CONFIGURATION,
        ];
        let mut versions = Vec::new();
        for kind in &kinds {
            let items = self.api().list_dynamic(kind, "").await.unwrap().items;
            versions.extend(items.iter().map(|item| {
                format!("{} {} {}", kind.kind, object::name(item), object::meta_str(item, "resourceVersion"))
            }));
        }
        versions
    }

    async fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api().list_dynamic(&kind::EVENT, "").await.unwrap().items;
        let wanted = events.iter().filter(|event| object::str_at(event, "/reason") == reason);
        wanted.map(|event| object::str_at(event, "/message").to_owned()).collect()
    }
}

/// Binds every pod to the node: there is no scheduler for the components in this cluster.
async fn place_pods(api: Api) {
    loop {
        let pods = api.list_dynamic(&kind::POD, "").await.map(|list| list.items).unwrap_or_default();
        for pod in pods.iter().filter(|pod| object::str_at(pod, "/spec/nodeName").is_empty()) {
            let key = kai_runtime::key_of(pod);
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": key.name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            });
            let path = format!("{}/binding", kind::POD.path_of(&key));
            let _ = api.send("POST", &path, Some(("application/json", &binding))).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn in_virtual_time(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test());
}

#[test]
fn installation_becomes_ready_and_then_nothing_is_written() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        for name in ["pod-grouper", "binder", "queue-controller", "podgroup-controller", "admission"] {
            let deployment = installation.get(&kind::DEPLOYMENT, name).await;
            assert!(deployment.is_some(), "there is no Deployment {name}");
        }
        assert!(installation.get(&kind::DEPLOYMENT, "kai-scheduler-default").await.is_some());
        let secret = installation.get(&SECRET, "kai-admission-webhook-tls-secret").await.unwrap();
        let webhooks =
            installation.get(&kind::VALIDATING_WEBHOOK_CONFIGURATION, "validating-kai-admission").await;
        assert_eq!(
            object::str_at(&webhooks.unwrap(), "/webhooks/0/clientConfig/caBundle"),
            object::str_at(&secret, "/data/tls.crt"),
        );
        tokio::time::sleep(Duration::from_secs(30)).await;
        let before = installation.versions().await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(installation.versions().await, before, "something was written at rest");
    });
}

#[test]
fn changes_of_others_are_reverted_at_a_bounded_rate_with_an_event() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let key = Key::new(NAMESPACE, "binder");
        let before = object::generation(&installation.get(&kind::DEPLOYMENT, "binder").await.unwrap());
        let mut edits = 0;
        for _ in 0..50 {
            let patch = json!({"spec": {"replicas": 5}});
            let edited =
                installation.api().patch_dynamic(&kind::DEPLOYMENT, &key, Part::Main, &patch).await.unwrap();
            edits = object::generation(&edited) - before;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        installation
            .wait_until("one replica", async || {
                let deployment = installation.get(&kind::DEPLOYMENT, "binder").await.unwrap();
                deployment["spec"]["replicas"] == 1
            })
            .await;
        // Every edit that had an effect follows a restoration.
        assert!(edits / 2 <= 11, "{edits} generations in ten seconds");
        let events = installation.events("ChangeReverted").await;
        assert!(events.iter().any(|event| event.contains("Deployment/kai-scheduler/binder")), "{events:?}");
    });
}

#[test]
fn deleted_objects_are_restored_and_disabled_operands_removed() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let secret = "queue-webhook-tls-secret";
        let options = DeleteOptions::default();
        installation.api().delete_dynamic(&SECRET, &Key::new(NAMESPACE, secret), &options).await.unwrap();
        let webhook = Key::new("", "validating-kai-admission");
        let kind = kind::VALIDATING_WEBHOOK_CONFIGURATION;
        installation.api().delete_dynamic(&kind, &webhook, &options).await.unwrap();
        installation
            .wait_until("both are back", async || {
                installation.get(&SECRET, secret).await.is_some()
                    && installation.get(&kind, &webhook.name).await.is_some()
            })
            .await;
        let trusted = async || {
            let secret = installation.get(&SECRET, secret).await.unwrap();
            let certificate = object::str_at(&secret, "/data/tls.crt");
            let all = installation.api().list_dynamic(&kind, "").await.unwrap().items;
            all.iter().any(|one| object::str_at(one, "/webhooks/0/clientConfig/caBundle") == certificate)
        };
        installation.wait_until("the new certificate is trusted", trusted).await;
        installation.patch_config(&json!({"podGrouper": {"service": {"enabled": false}}})).await;
        installation
            .wait_until("the pod grouper is gone", async || {
                installation.get(&kind::DEPLOYMENT, "pod-grouper").await.is_none()
            })
            .await;
        installation.ready().await;
    });
}

#[test]
fn shard_that_cannot_be_deployed_says_so_and_affects_no_other() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        let shards = ResourceKind::of::<SchedulingShard>();
        installation
            .create(&shards, "broken", &json!({"partitionLabelValue": "b", "goMemLimit": "-1"}))
            .await;
        installation.ready().await;
        installation
            .wait_until("the broken shard says why", async || {
                let (status, message) = installation.condition(&shards, "broken", "Reconciling").await;
                status == "True" && message.contains("goMemLimit")
            })
            .await;
        assert_eq!(installation.condition(&shards, "broken", "Ready").await.0, "False");
        assert!(installation.get(&kind::DEPLOYMENT, "kai-scheduler-broken").await.is_none());
        let events = installation.events("ReconcileFailed").await;
        assert!(events.iter().any(|event| event.contains("goMemLimit")), "{events:?}");
    });
}

#[test]
fn installation_moves_to_another_namespace() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        installation.patch_config(&json!({"namespace": "kai-two"})).await;
        let moved = async || {
            let key = Key::new("kai-two", "binder");
            installation.api().get_dynamic(&kind::DEPLOYMENT, &key).await.is_ok()
                && installation.get(&kind::DEPLOYMENT, "binder").await.is_none()
        };
        installation.wait_until("the binder has moved", moved).await;
        installation.ready().await;
    });
}

#[test]
fn operator_that_crashes_between_any_two_requests_completes_the_installation() {
    in_virtual_time(async || {
        // Every third request keeps the test short; the steps between them are alike.
        for requests in (0..).step_by(3) {
            let installation = Installation::new(&json!({})).await;
            installation.cluster.faults().crash_after(OPERATOR, requests);
            installation.ready().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            if installation.cluster.faults().counts(OPERATOR).crashes == 0 {
                assert!(requests > 30, "{requests} requests are too few");
                return;
            }
        }
    });
}

#[test]
fn expiring_certificate_is_served_only_when_the_webhook_configurations_trust_the_next_one() {
    in_virtual_time(async || {
        const NAME: &str = "kai-admission-webhook-tls-secret";
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let data = async |key: &str| {
            let secret = installation.get(&SECRET, NAME).await.unwrap();
            secret["data"][key].as_str().unwrap_or_default().to_owned()
        };
        let first = data("tls.crt").await;
        installation.cluster.faults().set_outage(OPERATOR, Outage::storage_full("webhookconfigurations"));
        let soon = json!({"metadata": {"annotations": {
            "kai.scheduler/certificate-expires": "2026-01-02T00:00:00Z",
        }}});
        let key = Key::new(NAMESPACE, NAME);
        installation.api().patch_dynamic(&SECRET, &key, Part::Main, &soon).await.unwrap();
        installation
            .wait_until("the next certificate is stored", async || !data("next.crt").await.is_empty())
            .await;
        let next = data("next.crt").await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(data("tls.crt").await, first, "the API server does not trust the next one yet");
        installation.cluster.faults().heal(OPERATOR);
        installation.wait_until("the next one is served", async || data("tls.crt").await == next).await;
        for (kind, name) in [
            (kind::VALIDATING_WEBHOOK_CONFIGURATION, "validating-kai-admission"),
            (kind::MUTATING_WEBHOOK_CONFIGURATION, "mutating-kai-admission"),
        ] {
            let decode = |text: &str| String::from_utf8(STANDARD.decode(text).unwrap()).unwrap();
            let configuration = installation.get(&kind, name).await.unwrap();
            let bundle = decode(object::str_at(&configuration, "/webhooks/0/clientConfig/caBundle"));
            assert!([&first, &next].iter().all(|of| bundle.contains(&decode(of))), "{name} trusts both");
        }
        let leftover = data("next.crt").await;
        assert!(leftover.is_empty(), "the rotation is complete");
    });
}

#[test]
fn further_pull_secret_reaches_every_deployment() {
    in_virtual_time(async || {
        let installation =
            Installation::new(&json!({"global": {"additionalImagePullSecrets": ["first"]}})).await;
        installation.ready().await;
        let secrets = json!({"global": {"additionalImagePullSecrets": ["first", "second"]}});
        installation.patch_config(&secrets).await;
        installation.ready().await;
        for type_ in ["Deployed", "Available", "DependenciesFulfilled"] {
            let config = installation.condition(&ResourceKind::of::<Config>(), "kai-config", type_).await;
            assert_eq!(config.0, "True", "{type_}: {}", config.1);
        }
        let deployments = installation.api().list_dynamic(&kind::DEPLOYMENT, NAMESPACE).await.unwrap().items;
        assert!(deployments.len() >= 6, "{}", deployments.len());
        for deployment in &deployments {
            let listed = &deployment["spec"]["template"]["spec"]["imagePullSecrets"];
            assert_eq!(
                listed,
                &json!([{"name": "first"}, {"name": "second"}]),
                "{}",
                object::name(deployment)
            );
        }
    });
}

/// Writes the lease of the scheduler as its leader does.
async fn lead(installation: &Installation, pod: &str) {
    let key = Key::new(NAMESPACE, "kai-scheduler");
    let spec = json!({"holderIdentity": format!("{pod}_1"), "leaseDurationSeconds": 15});
    let metadata = json!({"name": key.name, "namespace": NAMESPACE});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    if installation.api().create_dynamic(&kind::LEASE, NAMESPACE, &lease).await.is_err() {
        let patch = json!({"spec": spec});
        installation.api().patch_dynamic(&kind::LEASE, &key, Part::Main, &patch).await.unwrap();
    }
}

#[test]
fn metrics_service_follows_the_leading_scheduler() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({"scheduler": {"replicas": 2}})).await;
        installation.ready().await;
        let slices = kind::untyped("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true);
        let schedulers = async || {
            let pods = installation.api().list_dynamic(&kind::POD, NAMESPACE).await.unwrap().items;
            let ours = |pod: &Value| {
                object::name(pod).starts_with("kai-scheduler-default-")
                    && !object::is_deleting(pod)
                    && !object::str_at(pod, "/status/podIP").is_empty()
            };
            pods.into_iter().filter(ours).collect::<Vec<_>>()
        };
        // The leader is the first pod; when it is deleted, another one leads.
        for _ in 0..2 {
            let leader = schedulers().await.swap_remove(0);
            lead(&installation, object::name(&leader)).await;
            let expected = json!([object::str_at(&leader, "/status/podIP")]);
            let leads_since = tokio::time::Instant::now();
            installation
                .wait_until("the leader is the only endpoint", async || {
                    let slice =
                        installation.get(&slices, "kai-scheduler-default-leader").await.unwrap_or_default();
                    let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
                    endpoints.len() == 1 && endpoints[0]["addresses"] == expected
                })
                .await;
            assert!(leads_since.elapsed() < Duration::from_mins(1), "{:?}", leads_since.elapsed());
            let key = kai_runtime::key_of(&leader);
            let now = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
            installation.api().delete_dynamic(&kind::POD, &key, &now).await.unwrap();
        }
    });
}

#[test]
fn numa_exporter_is_deployed_while_a_shard_or_the_config_wants_it() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let shard = async |is_enabled: bool| {
            let patch = json!({"spec": {"plugins": {"numa": {"enabled": is_enabled}}}});
            let kind = ResourceKind::of::<SchedulingShard>();
            installation
                .api()
                .patch_dynamic(&kind, &Key::new("", "default"), Part::Main, &patch)
                .await
                .unwrap();
        };
        let exists = async |wanted: bool| {
            let what = format!("the exporter exists: {wanted}");
            let is_there =
                async || installation.get(&kind::DAEMON_SET, "numa-placement-exporter").await.is_some();
            installation.wait_until(&what, async || is_there().await == wanted).await;
        };
        exists(false).await;
        shard(true).await;
        exists(true).await;
        shard(false).await;
        exists(false).await;
        let service = |value: Value| json!({"numaPlacementExporter": {"service": {"enabled": value}}});
        installation.patch_config(&service(json!(true))).await;
        exists(true).await;
        installation.patch_config(&service(Value::Null)).await;
        exists(false).await;
    });
}
