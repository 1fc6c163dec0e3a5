//! What an installation consists of, for settings that KAI's operator handles differently, and as a whole.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod combined;
mod conditions;
mod installation;
mod operands;
mod process;
mod shards;

use kai_operator::{Certificate, Desired, Facts, Images, ObjectKey, read};
use serde_json::{Value, json};

/// A cluster with nothing in it.
fn facts() -> Facts {
    let secrets =
        ["kai-admission-webhook-tls-secret", "queue-webhook-tls-secret", "podgroup-webhook-tls-secret"];
    let certificate =
        Certificate { certificate: "certificate".to_owned(), key: "key".to_owned(), trusted: None };
    Facts {
        images: Images { repository: "registry".to_owned(), tag: "v1".to_owned() },
        certificates: secrets.into_iter().map(|name| (name.to_owned(), certificate.clone())).collect(),
        ..Facts::default()
    }
}

/// The installation with a `Config` and shards of these names and specs.
fn desired(config: &Value, shards: &[(&str, Value)], facts: &Facts) -> Desired {
    let config =
        read::config(&json!({"metadata": {"name": "kai-config", "uid": "c"}, "spec": config})).unwrap();
    let shards: Vec<_> = shards
        .iter()
        .map(|(name, spec)| {
            read::shard(&json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
        })
        .collect();
    kai_operator::desired(Some(&config), &shards, facts)
}

fn find<'a>(desired: &'a Desired, kind: &str, name: &str) -> Option<&'a Value> {
    desired.objects().find(|object| kai_object::kind(object) == kind && kai_object::name(object) == name)
}

fn get<'a>(desired: &'a Desired, kind: &str, name: &str) -> &'a Value {
    find(desired, kind, name).unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn arguments(desired: &Desired, kind: &str, name: &str) -> Vec<String> {
    let object = get(desired, kind, name);
    let args = object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect()
}

/// A cluster that contains what is desired.
fn deployed(desired: &Desired, facts: &Facts) -> Facts {
    let mut facts = facts.clone();
    facts.objects.extend(desired.objects().map(|object| (ObjectKey::of(object), object.clone())));
    facts
}
