//! A cluster with 10,000 pending pod groups is read with few requests, and explained.

use kai_components::install;
use kai_engine::input::Key;
use kai_engine::plugin::PluginSet;
use kai_runtime::api::Api;
use kai_runtime::kind::POD;
use kai_scheduler::resources::{POD_GROUP, discover};
use kai_sim::{Cluster, NodeGroup};
use kai_view::why::{GroupExplanation, Wanted, WhyView, explain};
use kai_view::{ClusterReader, groups};
use serde_json::json;

const GROUPS: usize = 10_000;
const CLIENT: &str = "reader";
/// Of one kind; a list of the server has up to 500 objects.
const LISTS_MAX: usize = GROUPS / 500 + 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_pending_groups_are_read_in_pages_and_explained() {
    let cluster = Cluster::builder().seed(1).nodes([NodeGroup::gpu_nodes(2, 4)]).keep_lines().start();
    let cluster = cluster.await.expect("the cluster starts");
    install::install(cluster.api()).await.expect("it is installed");
    for number in 0..GROUPS {
        let name = format!("g{number}");
        // Nothing but a queue helps the last one.
        let queue = if number + 1 == GROUPS { "nowhere" } else { "default-queue" };
        let spec = json!({"minMember": 1, "queue": queue});
        let group = json!({
            "apiVersion": POD_GROUP.api_version(), "kind": "PodGroup", "metadata": {"name": name}, "spec": spec,
        });
        let container = json!({"name": "main", "image": "a", "resources": {"limits": {"nvidia.com/gpu": 5}}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"pod-group-name": name}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
        });
        for (kind, object) in [(&*POD_GROUP, group), (&POD, pod)] {
            cluster.api().create_dynamic(kind, "default", &object).await.expect("the server takes it");
        }
    }
    let api = Api::new(cluster.client(CLIENT), CLIENT);
    let offered = discover(&api).await.expect("it can be asked");
    let options = kai_scheduler::Options::default();
    let opened = ClusterReader::open(&api, offered, options, &PluginSet::builtin()).await;
    let mut reader = opened.expect("it can be read");
    let all = groups::all(reader.view());
    assert_eq!(all.groups.len(), GROUPS);
    assert!(all.groups.iter().all(|group| group.reason.is_some() && group.counts.pending == 1));
    let wanted = Wanted::Groups(vec![Key::new("default", format!("g{}", GROUPS - 1))]);
    let why = explain(&mut reader, &api, &wanted).await.expect("it can be explained");
    let WhyView::Groups { groups, .. } = &why else { panic!("it is a group: {why:?}") };
    let [GroupExplanation::Group(explained)] = groups.as_slice() else {
        panic!("it is one group: {groups:?}")
    };
    assert_eq!(explained.group.reason.as_deref(), Some("queue `nowhere` does not exist"));
    let lines = cluster.journal().lines();
    let is_request = |line: &&String| line.split(' ').skip(1).take(2).eq([CLIENT, "request"]);
    let requests: Vec<&String> = lines.iter().filter(is_request).collect();
    let of_groups = requests.iter().filter(|line| line.contains("/podgroups")).count();
    assert!((1..=LISTS_MAX).contains(&of_groups), "{of_groups} requests for pod groups");
    assert!(requests.len() <= 2 * LISTS_MAX + 60, "{} requests: {requests:#?}", requests.len());
}
