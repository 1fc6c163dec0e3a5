//! `helm upgrade` from a release of KAI to ours, `helm rollback`, and `helm upgrade` back, by real helm on a real API server.
//!
//! KAI's release is a chart of the objects that KAI's own chart renders with its own values, and of these values. There is no
//! node, so hooks, which are Jobs, are left out: other tests run what they do.

use crate::cluster::{Cluster, NAMESPACE, chart};
use kai_kubetest::control_plane::{ControlPlane, Controllers, Programs};
use kai_testkit::chart::values_of_kai;
use kai_testkit::installed;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const RELEASE: &str = "kai-scheduler";
/// What all of KAI's releases have, and ours too; queues and shard are settings of the user.
const KINDS: &str = "clusterrolebindings,rolebindings,serviceaccounts,deployments,priorityclasses,namespaces,queues,schedulingshards";

/// `group/resource[name]:verb` as a rule.
fn rule(permission: &str) -> Value {
    let (group, rest) = permission.split_once('/').unwrap();
    let (resource, verb) = rest.rsplit_once(':').unwrap();
    let (resource, name) = match resource.split_once('[') {
        Some((resource, name)) => (resource, Some(name.trim_end_matches(']'))),
        None => (resource, None),
    };
    let group = if group == "core" { "" } else { group };
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

/// What KAI's chart renders at an installation only, or while it does not exist.
fn is_of_installation(object: &Value) -> bool {
    let is_reservation = object["metadata"]["name"] == "kai-resource-reservation";
    match object["kind"].as_str().unwrap() {
        "Queue" => true,
        "Namespace" | "ServiceAccount" => is_reservation,
        _ => false,
    }
}

/// A chart that renders what KAI's does, at an installation or at an upgrade.
fn chart_of_kai(folder: &Path, installs: bool) {
    let _ = std::fs::remove_dir_all(folder);
    let ours = PathBuf::from(chart());
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    std::fs::create_dir_all(folder.join("crds")).unwrap();
    for entry in std::fs::read_dir(ours.join("crds")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.join("crds").join(path.file_name().unwrap())).unwrap();
    }
    let about = json!({"apiVersion": "v2", "name": RELEASE, "version": "0.17.0", "appVersion": "v0.17.0"});
    std::fs::write(folder.join("Chart.yaml"), about.to_string()).unwrap();
    let values = std::fs::read_to_string(ours.join("values.yaml")).unwrap();
    let values = values_of_kai(&serde_saphyr::from_str(&values).unwrap());
    std::fs::write(folder.join("values.yaml"), values.to_string()).unwrap();
    let mut text = String::new();
    for mut object in installed::chart_objects().unwrap() {
        if !object["metadata"]["annotations"]["helm.sh/hook"].is_null()
            || (is_of_installation(&object) && !installs)
        {
            continue;
        }
        let fields = object.as_object_mut().unwrap();
        if let Some(permissions) = fields.remove("$permissions") {
            let rules = permissions.as_array().unwrap().iter().map(|one| rule(one.as_str().unwrap()));
            fields.insert("rules".to_owned(), rules.collect());
        }
        writeln!(text, "---\n{object}").unwrap();
    }
    std::fs::write(folder.join("templates/objects.yaml"), text).unwrap();
}

/// The objects of the release: their uids, by kind and name.
fn uids(cluster: &Cluster) -> BTreeMap<String, String> {
    let list = cluster.get(&[KINDS, "--all-namespaces"]);
    let ours = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|object| object["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ours.map(|object| {
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text).join("/");
        (key, text(&metadata["uid"]))
    })
    .collect()
}

fn assert_kept(cluster: &Cluster, before: &BTreeMap<String, String>, step: &str) {
    let now = uids(cluster);
    for (key, uid) in before {
        assert_eq!(now.get(key), Some(uid), "{step}: {key} was deleted or replaced");
    }
}

#[tokio::test]
#[ignore = "needs a real control plane and helm"]
async fn helm_moves_from_kai_and_back_on_a_real_control_plane() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    let plane = ControlPlane::start(&programs, Controllers::None).await.unwrap();
    let cluster = Cluster::new(&programs, &plane);
    let folder = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let [theirs, again] = [("chart-of-kai", true), ("chart-of-kai-again", false)].map(|(name, installs)| {
        chart_of_kai(&folder(name), installs);
        folder(name).display().to_string()
    });
    let ours = chart();
    let helm = |arguments: &[&str]| cluster.helm(&[arguments, &["--no-hooks"]].concat());
    helm(&["install", RELEASE, &theirs, "--create-namespace"]);
    let before = uids(&cluster);
    for key in [
        "ClusterRoleBinding//kai-queuecontroller",
        "RoleBinding/kai-resource-reservation/kai-resource-reservation",
        "Deployment/kai-scheduler/kai-operator",
        "ServiceAccount/kai-resource-reservation/kai-resource-reservation",
        "Namespace//kai-resource-reservation",
        "Queue//default-queue",
        "SchedulingShard//default",
    ] {
        assert!(before.contains_key(key), "{key} is not in {before:?}");
    }

    let registry = ["--set", "global.registry=registry.example/ours,global.tag=v1"];
    let image = |cluster: &Cluster| {
        let operator = cluster.get(&["deployment", "kai-operator", "--namespace", NAMESPACE]);
        operator["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    // With the values of the page; all values of KAI are kept.
    helm(&[&["upgrade", RELEASE, &ours, "--reuse-values"], &registry[..]].concat());
    assert_kept(&cluster, &before, "the upgrade to ours");
    assert_eq!(image(&cluster), "registry.example/ours/operator:v1");
    let roles = cluster.names(&["roles", "--namespace", NAMESPACE]);
    assert!(!roles.is_empty(), "ours has roles in its namespace");

    helm(&["rollback", RELEASE, "1"]);
    assert_kept(&cluster, &before, "the rollback to KAI");
    assert_eq!(cluster.names(&["roles", "--namespace", NAMESPACE]), Vec::<String>::new());
    assert_eq!(image(&cluster), "registry.example/kai/operator:0.0.0");

    helm(&[&["upgrade", RELEASE, &ours, "--reset-then-reuse-values"], &registry[..]].concat());
    assert_kept(&cluster, &before, "the second upgrade to ours");
    helm(&["upgrade", RELEASE, &again, "--reset-values"]);
    assert_kept(&cluster, &before, "the upgrade back to KAI");
    assert_eq!(image(&cluster), "registry.example/kai/operator:0.0.0");
}
