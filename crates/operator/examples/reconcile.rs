//! Reconciles an installation with ten shards in which everything is as desired, as often as the argument says.
//!
//! For counting instructions: `valgrind --tool=callgrind target/debug/examples/reconcile 10`. What the first argument adds
//! is the cost of reconciliations, without reading the API server.

use kai_operator::plan::plan;
use kai_operator::status::{Observed, conditions};
use kai_operator::{Certificate, Facts, Images, ObjectKey, desired, read};
use serde_json::json;

const SHARDS: usize = 10;

fn main() -> Result<(), String> {
    let times: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let config =
        json!({"metadata": {"name": "kai-config", "uid": "c"}, "spec": {"global": {"replicaCount": 2}}});
    let shards: Vec<_> = (0..SHARDS)
        .map(|number| {
            let name = format!("shard-{number}");
            json!({
                "metadata": {"name": name, "uid": name},
                "spec": {"partitionLabelValue": name, "kValue": 0.5, "placementStrategy": {"gpu": "spread"}},
            })
        })
        .collect();
    let certificate = Certificate { certificate: "c".to_owned(), key: "k".to_owned(), trusted: None };
    let secrets =
        ["kai-admission-webhook-tls-secret", "queue-webhook-tls-secret", "podgroup-webhook-tls-secret"];
    let mut facts = Facts {
        images: Images { repository: "registry".to_owned(), tag: "v1".to_owned() },
        certificates: secrets.map(|name| (name.to_owned(), certificate.clone())).into(),
        ..Facts::default()
    };
    for round in 0..=times {
        let config = read::config(&config)?;
        let shards = shards.iter().map(read::shard).collect::<Result<Vec<_>, _>>()?;
        let desired = desired(Some(&config), &shards, &facts);
        let changes = plan(&desired, "kai-config", &facts);
        if round == 0 {
            facts.objects.extend(desired.objects().map(|object| (ObjectKey::of(object), object.clone())));
            continue;
        }
        let observed = Observed {
            generation: 1,
            operands: &desired.config,
            objects: &facts.objects,
            kept: facts.objects.values().collect(),
            failures: &[],
            external_prometheus: None,
        };
        if !changes.is_empty() || conditions(&observed).is_empty() {
            return Err(format!("something is to be written: {changes:?}"));
        }
    }
    Ok(())
}
