//! Every process accepts the arguments that the operator gives to it.

use clap::{Command, FromArgMatches as _, Subcommand as _};
use kai_components::COMPONENTS;
use kai_components::command::{ComponentCommand, adapt};
use kai_operator::{Certificate, Desired, Facts, Images, read};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Settings that add arguments.
fn config() -> Value {
    let limits = json!({"k8sClientConfig": {"qps": 20, "burst": 100}, "enabled": true});
    json!({"metadata": {"name": "kai-config", "uid": "c"}, "spec": {
        "global": {"jsonLog": true, "replicaCount": 2},
        "binder": {"service": limits, "maxConcurrentReconciles": 3, "resourceReservation": {"allocationTimeout": 9}},
        "podGrouper": {"service": limits}, "queueController": {"service": limits},
        "podGroupController": {"service": limits}, "admission": {"service": limits},
        "nodeScaleAdjuster": {"service": limits, "args": {"gpuMemoryToFractionRatio": 0.25}},
        "numaPlacementExporter": {"service": limits, "pollInterval": "2s", "driftResyncInterval": "30s"},
    }})
}

#[test]
fn every_process_accepts_the_arguments_that_the_operator_gives() {
    let config = read::config(&config()).expect("the Config is valid");
    let shard = json!({"metadata": {"name": "default", "uid": "s"}, "spec": {"plugins": {"numa": {"enabled": true}}}});
    let shard = read::shard(&shard).expect("the shard is valid");
    let secrets =
        ["kai-admission-webhook-tls-secret", "queue-webhook-tls-secret", "podgroup-webhook-tls-secret"];
    let certificate = Certificate { certificate: "c".to_owned(), key: "k".to_owned(), trusted: None };
    let facts = Facts {
        images: Images { repository: "registry".to_owned(), tag: "v1".to_owned() },
        certificates: secrets.map(|name| (name.to_owned(), certificate.clone())).into(),
        ..Facts::default()
    };
    let mut combined = config.clone();
    let topology = ("kai.scheduler/process-topology".to_owned(), "combined".to_owned());
    combined.metadata.annotations = Some([topology].into());
    let desired = [config, combined]
        .map(|config| kai_operator::desired(Some(&config), std::slice::from_ref(&shard), &facts));
    let mut started = BTreeSet::new();
    for object in desired.iter().flat_map(Desired::objects) {
        let Some(args) = object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array)
        else {
            continue;
        };
        let name = kai_object::name(object);
        // Each shard has its own scheduler.
        let spec =
            COMPONENTS.iter().find(|spec| name == spec.name || name.starts_with(&format!("{}-", spec.name)));
        let spec = spec.unwrap_or_else(|| panic!("no component is named {name}"));
        let typed = ["kai", spec.command].into_iter().chain(args.iter().filter_map(Value::as_str));
        let command = ComponentCommand::augment_subcommands(Command::new("kai"));
        let (command, typed) = adapt(command, typed.map(OsString::from).collect());
        let parsed = command.try_get_matches_from(typed).unwrap_or_else(|error| panic!("{name}: {error}"));
        if object["kind"] == "Deployment" {
            let checked = kai_components::check::check(object, &kai_components::Extensions::default());
            assert_eq!(checked, Ok(()), "{name}");
        }
        ComponentCommand::from_arg_matches(&parsed).unwrap_or_else(|error| panic!("{name}: {error}"));
        started.insert(spec.command);
    }
    let expected: BTreeSet<&str> = COMPONENTS.iter().map(|spec| spec.command).collect();
    let missing: Vec<_> = expected.difference(&started).collect();
    assert_eq!(missing, [&"operator", &"reservation"], "the operator starts all others");
}
