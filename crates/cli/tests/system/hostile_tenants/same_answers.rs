//! Which generated objects a real kube-apiserver accepts, and whether the embedded one agrees.

use super::{create_namespace, key, resource_kind};
use crate::fault_injection::seeds_from;
use kai_components::install;
use kai_kubetest::control_plane::{ControlPlane, Controllers, Programs};
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::connect;
use kai_sim::Cluster;
use kai_testkit::hostile::{self, HostileObject};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Path of this test: `cargo xtask ci` runs it where there is a real control plane.
mod real_control_plane {
    #[test]
    #[ignore = "needs a real control plane: cargo xtask ci runs it"]
    fn both_api_servers_accept_the_same_hostile_objects() {
        let programs = super::Programs::required(env!("CARGO_TARGET_TMPDIR"));
        tokio::runtime::Runtime::new().unwrap().block_on(super::compare(&programs));
    }
}

async fn compare(programs: &Programs) {
    let plane = ControlPlane::start(programs, Controllers::None).await.unwrap();
    let config = connect::config(Some(plane.kubeconfig_file()), None).await.unwrap();
    let real = Api::new(connect::client(config).unwrap(), "test");
    // The API server serves a CRD some time after it is created.
    while install::install(&real).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Without nodes and controllers, nothing but these requests changes an object.
    let embedded = Cluster::builder().without_controllers().start().await.unwrap();
    install::install(embedded.api()).await.unwrap();
    let mut differences = Vec::new();
    let mut answers: BTreeMap<(&str, u16, String), usize> = BTreeMap::new();
    for api in [&real, embedded.api()] {
        create_namespace(api).await;
        // Pods need the service account of their namespace, which a controller would create.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let _ = api.create_dynamic(&kai_runtime::kind::SERVICE_ACCOUNT, hostile::NAMESPACE, &account).await;
    }
    for seed in seeds_from("KAI_HOSTILE_SEEDS", 0..20) {
        for one in hostile::generate(seed).objects {
            let (theirs, ours) = (write(&real, &one).await, write(embedded.api(), &one).await);
            // The part that does not name the object.
            let why = theirs.1.split_once(" is invalid: ").map_or(theirs.1.as_str(), |(_, why)| why);
            let why: String = why.chars().take(100).collect();
            *answers.entry((one.resource.kind, theirs.0, why)).or_default() += 1;
            if theirs.0 != ours.0 {
                differences.push(format!(
                    "seed {seed}: {} {}\n  kube-apiserver: {} {}\n  embedded:       {} {}",
                    one.resource.kind,
                    object::name(&one.object),
                    theirs.0,
                    theirs.1,
                    ours.0,
                    ours.1
                ));
            }
        }
    }
    for ((kind, code, why), count) in &answers {
        eprintln!("{kind}: {code} {count} times {why}");
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// Creates an object and writes its status, then deletes it. Returns the status code of the first rejection, or 201.
async fn write(api: &Api, one: &HostileObject) -> (u16, String) {
    let kind = resource_kind(one);
    let answer = async {
        api.create_dynamic(&kind, object::namespace(&one.object), &one.object).await?;
        if let Some(status) = &one.status {
            api.patch_dynamic(&kind, &key(one), Part::Status, &json!({"status": status})).await?;
        }
        Ok::<_, kai_runtime::api::Error>(())
    };
    let answer = match answer.await {
        Ok(()) => (201, String::new()),
        Err(error) => (error.code(), error.message().chars().take(400).collect()),
    };
    let _ = api.patch_dynamic(&kind, &key(one), Part::Main, &json!({"metadata": {"finalizers": null}})).await;
    let how = kai_runtime::api::DeleteOptions::default().immediately().propagate("Background");
    let _ = api.delete_dynamic(&kind, &key(one), &how).await;
    answer
}
