//! Applies the manifests of the documentation, page by page, and checks what the page says about them.
//!
//! Every YAML block of a page counts, in order. A comment after a block says what is expected of the cluster:
//!
//! ```text
//! <!-- cluster: 2 nodes of 8 GPUs in racks a,b -->   before the first block; one node of 8 GPUs without it
//! <!-- expect: running PREFIX COUNT -->              pods with this name prefix run
//! <!-- expect: pending PREFIX COUNT -->              they are not bound, 30 seconds later
//! <!-- expect: gone PREFIX -->                       there are none
//! <!-- expect: one KEY of PREFIX -->                 all their nodes have the same label
//! <!-- expect: group PREFIX FIELD VALUE -->          a field of the spec of the pod group
//! <!-- expect: claim PREFIX TEXT -->                 the allocation of a claim contains the text
//! <!-- expect: refused TEXT -->                      the API server refuses the block with this text
//! ```
//!
//! Documents without a kind are values of the chart, and must be supported; a Config or SchedulingShard must be deployable,
//! a shard with the Config before it. A ServiceMonitor must select a Service of the installation with the port that it names.

use crate::test_cluster::TestCluster;
use kai_api::{Config, SchedulingShard, Topology};
use kai_cli::embedded::admission::pod_options;
use kai_engine::plugin::PluginSet;
use kai_migrate::Level;
use kai_object as object;
use kai_operator::{Certificate, Facts, read};
use kai_runtime::kind::{self, NODE, POD, ResourceKind};
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Pages with manifests, and how many blocks of YAML each has at least: a page without them would pass silently.
const PAGES: [(&str, usize); 16] = [
    ("docs/queues.md", 2),
    ("docs/implicit-groups.md", 2),
    ("docs/fairness.md", 2),
    ("docs/priority.md", 2),
    ("docs/time-limits.md", 1),
    ("docs/gangs.md", 3),
    ("docs/gpu-sharing.md", 3),
    ("docs/topology.md", 2),
    ("docs/dra.md", 1),
    ("docs/node-pools.md", 2),
    ("docs/autoscaling.md", 1),
    ("docs/usage-ledger.md", 1),
    ("docs/high-availability.md", 1),
    ("docs/monitoring.md", 1),
    ("docs/upgrading.md", 1),
    ("tests/documented-by-kai.md", 23),
];

#[derive(Debug, PartialEq)]
enum Part {
    Block(String),
    Expectation(String),
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            Some(yaml) if line.trim() == "```" => {
                parts.push(Part::Block(std::mem::take(yaml)));
                block = None;
            }
            Some(yaml) => *yaml = format!("{yaml}{line}\n"),
            None if line.trim() == "```yaml" => block = Some(String::new()),
            None => {
                let comment =
                    line.trim().strip_prefix("<!-- expect: ").and_then(|rest| rest.strip_suffix(" -->"));
                parts.extend(comment.map(|text| Part::Expectation(text.to_owned())));
            }
        }
    }
    parts
}

/// `2 nodes of 8 GPUs in racks a,b`
fn nodes(text: &str) -> (usize, u32, Vec<String>) {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("<!-- cluster: ")?.strip_suffix(" -->"));
    let words: Vec<&str> = line.unwrap_or("1 nodes of 8 GPUs").split(' ').collect();
    let racks = words.iter().position(|word| *word == "racks").and_then(|at| words.get(at + 1));
    let racks = racks.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default();
    (words[0].parse().unwrap(), words[3].parse().unwrap(), racks)
}

fn kind_of(object: &Value) -> ResourceKind {
    let known = [
        POD,
        kind::JOB,
        kind::DEPLOYMENT,
        kind::CONFIG_MAP,
        kind::NAMESPACE,
        kind::PRIORITY_CLASS,
        kind::POD_DISRUPTION_BUDGET,
        kind::RESOURCE_CLAIM,
        kind::RESOURCE_CLAIM_TEMPLATE,
        kind::RESOURCE_SLICE,
        kind::DEVICE_CLASS,
        kind::SERVICE_ACCOUNT,
        kind::CLUSTER_ROLE,
        kind::CLUSTER_ROLE_BINDING,
        kind::CUSTOM_RESOURCE_DEFINITION,
        kind::untyped("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains", true),
        QUEUE.clone(),
        POD_GROUP.clone(),
        ResourceKind::of::<Topology>(),
    ];
    let name = object::kind(object);
    let found =
        known.into_iter().find(|kind| kind.kind == name && kind.api_version() == object::api_version(object));
    found.unwrap_or_else(|| panic!("the test does not know {} {name}", object::api_version(object)))
}

fn documents(yaml: &str) -> Vec<Value> {
    let parts = yaml.split("\n---\n").filter(|part| !part.trim().is_empty());
    parts.map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}\n{part}"))).collect()
}

async fn apply(cluster: &TestCluster, document: &Value, config: &mut Config) -> Result<(), String> {
    match object::kind(document) {
        "" => {
            let input =
                kai_migrate::Input { values: vec![document.clone()], ..kai_migrate::Input::default() };
            let findings = kai_migrate::check(&input, &PluginSet::builtin());
            let refused: Vec<_> = findings.iter().filter(|one| one.level == Level::Unsupported).collect();
            assert!(refused.is_empty(), "{refused:?}");
        }
        "Config" => {
            *config = read::config(document).unwrap();
            deploy(config, &[]);
        }
        "SchedulingShard" => deploy(config, &[read::shard(document).unwrap()]),
        "ServiceMonitor" => assert_selects_a_service(config, document),
        // It exists already, as in a cluster with an installation.
        "Namespace" if object::name(document) == "kai-scheduler" => {
            cluster.api().ensure_dynamic(&kind::NAMESPACE, "", document).await.map_err(|e| e.message())?;
        }
        _ => {
            let kind = kind_of(document);
            let namespace = match object::namespace(document) {
                "" if kind.namespaced => "default",
                namespace => namespace,
            };
            let created = cluster.api().create_dynamic(&kind, namespace, document).await;
            return created.map(drop).map_err(|error| error.message());
        }
    }
    Ok(())
}

/// The operator would deploy the settings, and none of them is without effect.
fn deploy(config: &Config, shards: &[SchedulingShard]) {
    let desired = kai_operator::desired(Some(config), shards, &Facts::default());
    for operand in desired.config.iter().chain(desired.shards.iter().map(|(_, operand)| operand)) {
        let error = operand.error.as_deref().filter(|error| !error.contains("certificate"));
        assert_eq!(error, None, "{}", operand.name);
        assert_eq!(operand.notices, Vec::<String>::new(), "{}", operand.name);
    }
}

/// A Service of the installation has the labels and the port of a monitor.
fn assert_selects_a_service(config: &Config, monitor: &Value) {
    let shard = json!({"metadata": {"name": "default", "uid": "s"}, "spec": {}});
    let certificate = Certificate { certificate: "c".to_owned(), key: "k".to_owned(), trusted: None };
    let requests = kai_operator::certificates(config);
    let certificates =
        requests.iter().map(|request| (request.secret.to_owned(), certificate.clone())).collect();
    let facts = Facts { certificates, ..Facts::default() };
    let desired = kai_operator::desired(Some(config), &[read::shard(&shard).unwrap()], &facts);
    let labels = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let port = &monitor["spec"]["endpoints"][0]["port"];
    let selects = |service: &Value| {
        object::kind(service) == "Service"
            && labels.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value)
            && service["spec"]["ports"].as_array().unwrap().iter().any(|one| one["name"] == *port)
    };
    assert!(desired.objects().any(selects), "{} selects no Service", object::name(monitor));
}

async fn expect(cluster: &TestCluster, text: &str) {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["running", prefix, count] => cluster.wait_for_running(prefix, count.parse().unwrap()).await,
        ["pending", prefix, count] => {
            cluster.sleep(Duration::from_secs(30)).await;
            let all = cluster.list(&POD).await;
            let ours = all.iter().filter(|pod| object::name(pod).starts_with(prefix));
            let unbound = ours.filter(|pod| object::str_at(pod, "/spec/nodeName").is_empty()).count();
            assert_eq!(unbound, count.parse::<usize>().unwrap(), "{text}\n{}", cluster.dump().await);
        }
        ["gone", prefix] => {
            let none =
                async || cluster.list(&POD).await.iter().all(|pod| !object::name(pod).starts_with(prefix));
            cluster.wait_until(text, none).await;
        }
        ["one", key, "of", prefix] => {
            let mut values = BTreeSet::new();
            for node in cluster.nodes_of(prefix).await {
                let node = cluster.get(&NODE, &node).await.unwrap();
                values.insert(node["metadata"]["labels"][key].clone().to_string());
            }
            assert_eq!(values.len(), 1, "{text}: {values:?}");
        }
        ["group", prefix, field, value] => {
            let groups = cluster.list(&POD_GROUP).await;
            let group = groups.iter().find(|group| object::name(group).starts_with(&format!("pg-{prefix}")));
            let group = group.unwrap_or_else(|| panic!("{text}: no such group"));
            let found = &group["spec"][field];
            let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            assert_eq!(found, value, "{text}: {}", group["spec"]);
        }
        ["claim", prefix, text] => {
            let claims = cluster.list(&kind::RESOURCE_CLAIM).await;
            let claim = claims.iter().find(|claim| object::name(claim).starts_with(prefix));
            let claim = claim.unwrap_or_else(|| panic!("{prefix} has no claim"));
            let allocation = claim["status"]["allocation"].to_string();
            assert!(allocation.contains(text), "{text} is not in {allocation}");
        }
        _ => panic!("unknown expectation `{text}`"),
    }
}

async fn check(page: &str, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    // A horizontal rule begins a new cluster.
    for section in text.split("\n***\n") {
        check_section(page, section).await;
    }
    let blocks = parts(&text).iter().filter(|part| matches!(part, Part::Block(_))).count();
    assert!(blocks >= least, "{page} has {blocks} blocks of YAML, not {least}");
}

async fn check_section(page: &str, text: &str) {
    let parts = parts(text);
    if parts.is_empty() {
        return;
    }
    let (count, gpus, racks) = nodes(text);
    let cluster = TestCluster::with_admission_of(count, gpus, pod_options()).await;
    for (index, rack) in racks.iter().enumerate() {
        let labels =
            ["topology.kubernetes.io/rack", "topology.test/rack-domain", "topology.test/zone-domain"];
        let labels: BTreeMap<&str, &str> = labels.into_iter().map(|label| (label, rack.as_str())).collect();
        let labels = json!({"metadata": {"labels": labels}});
        cluster.patch(&NODE, &format!("node-{}", index + 1), &labels).await;
    }
    let mut config = Config::default();
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Block(yaml) => {
                let refused = match parts.get(index + 1) {
                    Some(Part::Expectation(text)) => text.strip_prefix("refused "),
                    Some(Part::Block(_)) | None => None,
                };
                let mut answers = Vec::new();
                for document in documents(yaml) {
                    answers.push(apply(&cluster, &document, &mut config).await);
                }
                let errors: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
                match refused {
                    Some(text) => {
                        assert!(errors.iter().any(|error| error.contains(text)), "{page}: {errors:?}");
                    }
                    None => assert_eq!(errors, Vec::<String>::new(), "{page}\n{yaml}"),
                }
            }
            Part::Expectation(text) if text.starts_with("refused ") => {}
            Part::Expectation(text) => expect(&cluster, text).await,
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn manifests_of_the_documentation_do_what_the_pages_say() {
    for (page, least) in PAGES {
        Box::pin(check(page, least)).await;
    }
}
