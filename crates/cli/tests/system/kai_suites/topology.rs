//! Jobs whose pods stay within a rack, a zone or a node.

use super::embedded;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label};
use kai_object as object;
use kai_runtime::kind::{JOB, NODE};
use kai_scheduler::resources::TOPOLOGY;
use kai_sim::NodeGroup;
use kai_sim::node::{RACK, ZONE};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Four racks of two nodes with two GPUs, in one zone.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { racks: 4, zones: 1, ..NodeGroup::gpu_nodes(8, 2) }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn jobs_are_placed_in_required_and_preferred_domains() {
    domains(&embedded("suite-topology", nodes()).await).await;
}

fn job(name: &str, pods: usize, gpus: u32, constraints: &[(&str, &str)]) -> Value {
    let mut annotations = json!({annotation::BATCH_MIN_MEMBER: pods.to_string()});
    for (constraint, level) in constraints {
        annotations[*constraint] = json!(level);
    }
    let mut template = PodBuilder::new(name, "a", gpus).template();
    template["spec"]["restartPolicy"] = json!("Never");
    let metadata = json!({"name": name, "labels": {label::QUEUE: "a"}, "annotations": annotations});
    json!({"metadata": metadata, "spec": {"parallelism": pods, "completions": pods, "template": template}})
}

/// The values of a node label where the pods of a Job are.
async fn places<B>(cluster: &TestCluster<B>, job: &str, level: &str) -> BTreeSet<String> {
    let used = cluster.nodes_of(job).await;
    let nodes = cluster.list(&NODE).await;
    let used = nodes.iter().filter(|node| used.contains(object::name(node)));
    used.map(|node| node["metadata"]["labels"][level].as_str().unwrap_or_default().to_owned()).collect()
}

/// Name, pods, GPUs of each, constraints; the level to look at, how many domains of it are used, how often it is tried.
type Case<'a> = (&'a str, usize, u32, &'a [(&'a str, &'a str)], &'a str, usize, usize);

/// topology-01 … 04, on [`nodes`]. The shard spreads pods, so that a constraint that is not read shows.
pub(crate) async fn domains<B>(cluster: &TestCluster<B>) {
    let levels = json!([{"nodeLabel": ZONE}, {"nodeLabel": RACK}, {"nodeLabel": label::HOSTNAME}]);
    // Several scenarios have a topology; it is named after the namespace.
    let topology = format!("tree-{}", cluster.namespace());
    cluster.create(&TOPOLOGY, json!({"metadata": {"name": topology}, "spec": {"levels": levels}})).await;
    cluster.create_queue("a", -1).await;
    let (required, preferred) = (annotation::TOPOLOGY_REQUIRED, annotation::TOPOLOGY_PREFERRED);
    let cases: [Case<'_>; 4] = [
        ("required", 2, 2, &[(required, RACK)], RACK, 1, 3),
        ("preferred", 2, 2, &[(preferred, RACK)], RACK, 1, 3),
        ("node", 2, 1, &[(required, RACK), (preferred, label::HOSTNAME)], label::HOSTNAME, 1, 3),
        ("zone", 4, 2, &[(required, ZONE), (preferred, RACK)], RACK, 2, 1),
    ];
    for (name, pods, gpus, constraints, level, domains, times) in cases {
        for time in 0..times {
            let name = format!("{name}-{time}");
            let mut job = job(&name, pods, gpus, constraints);
            job["metadata"]["annotations"][annotation::TOPOLOGY] = json!(topology);
            cluster.create(&JOB, job).await;
            cluster.settles(&name, pods, 0).await;
            let places = places(cluster, &name, level).await;
            assert_eq!(places.len(), domains, "{name}: {places:?}");
            cluster.clear().await;
        }
    }
}
