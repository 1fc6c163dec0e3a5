//! `kai migrate check` as a process: files, a cluster, formats and exit codes.

use super::{assert_rejected, kai, scratch, stderr, stdout};
use kai_runtime::kind::ResourceKind;
use kai_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[test]
fn migrate_check_exits_with_1_on_what_is_not_supported() {
    let sound = scratch("migrate-sound.yaml", "global:\n  gpuSharing: true\n");
    let output = kai(&["migrate", "check", "-f", &sound]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("0 not supported, 0 differences"), "{}", stdout(&output));
    let differs = scratch("migrate-differs.yaml", "openshift: true\n");
    let output = kai(&["migrate", "check", "-f", &sound, "-f", &differs]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("H02"), "{}", stdout(&output));
    let refused = scratch("migrate-refused.yaml", "queuecontroller:\n  certSecretName: mine\n");
    let output = kai(&["migrate", "check", "-f", &refused, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["findings"][0]["level"], "unsupported");
    assert_eq!(json["findings"][0]["subject"], "values: queuecontroller.certSecretName");
}

#[test]
fn migrate_check_rejects_what_it_cannot_read() {
    assert_rejected(&kai(&["migrate", "check", "-f", "/nowhere.yaml"]), &["cannot read `/nowhere.yaml`"]);
    let text = scratch("migrate-text.yaml", "just text\n");
    assert_rejected(
        &kai(&["migrate", "check", "-f", &text]),
        &["neither a values file nor an object", "hint:"],
    );
    assert_rejected(&kai(&["migrate", "check", "--kubeconfig", "/nowhere"]), &["hint:"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_check_reads_a_cluster() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let cluster =
        Cluster::builder().nodes([NodeGroup::gpu_nodes(1, 8)]).listen(address).start().await.unwrap();
    kai_components::install::install(cluster.api()).await.unwrap();
    let shards = ResourceKind::of::<kai_api::SchedulingShard>();
    let shard = json!({
        "apiVersion": shards.api_version(), "kind": "SchedulingShard", "metadata": {"name": "broken"},
        "spec": {"goMemLimit": "-1"},
    });
    cluster.api().create_dynamic(&shards, "", &shard).await.unwrap();
    let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("migrate.kubeconfig");
    cluster.listening().unwrap().write_kubeconfig(&kubeconfig).unwrap();
    let path = kubeconfig.to_str().unwrap().to_owned();
    let run = move || kai(&["migrate", "check", "--kubeconfig", &path, "--json"]);
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found = json["findings"].as_array().unwrap();
    assert!(
        found.iter().any(|one| one["rule"] == "O01" && one["subject"] == "SchedulingShard broken"),
        "{json:#}"
    );
    assert!(json["read"]["objects"].as_u64().unwrap() >= 4, "nodes, queues and the shard: {json:#}");
}
