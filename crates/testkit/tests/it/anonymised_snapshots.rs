//! Anonymised snapshots decide as the originals do, up to renaming, and contain none of their names.

use kai_cache::snapshot::{self, Limits, anonymise};
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Cycle, Decision, Policy};
use kai_units::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Cursor, Read as _};
use std::path::Path;

fn is_json(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "json")
}

/// One line for each decision, with its names through `name`.
fn decisions(value: &Value, name: impl Fn(&str) -> String) -> Vec<String> {
    let bytes = serde_json::to_vec(value).expect("a value is JSON");
    let snapshot =
        snapshot::read("test", Cursor::new(bytes), Limits::default()).expect("a readable snapshot");
    let config = &snapshot.config.engine;
    let policy = Policy::resolve(config, &snapshot.engine_params(), &PluginSet::builtin());
    let mut cluster = ClusterState::new();
    snapshot.into_store().drain_into(&mut cluster);
    let cycle = Cycle { now: Timestamp(1_780_000_000_000_000), seed: 7 };
    let outcome = kai_engine::plan(&mut cluster, &policy, cycle);
    let key = |key: &kai_engine::input::Key| format!("{}/{}", name(&key.namespace), name(&key.name));
    let line = |decision: &Decision| match decision {
        Decision::Bind(bind) => format!("bind {} {}", key(&bind.pod), name(&bind.node)),
        Decision::Pipeline { pod, node, moved, .. } => {
            format!("pipeline {} {} {moved}", key(pod), name(node))
        }
        Decision::Evict { pod, preemptor, action, .. } => {
            format!("evict {} {:?} {action}", key(pod), preemptor.as_ref().map(key))
        }
    };
    let verdict = |verdict: &kai_engine::verdict::GroupVerdict| {
        format!("{} {:?}", key(&verdict.group), std::mem::discriminant(&verdict.leading))
    };
    outcome.decisions.iter().map(line).chain(outcome.verdicts.iter().map(verdict)).collect()
}

/// Names of objects, and all labels that no public key has.
fn identifying(value: &Value, field: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(metadata) = fields.get("metadata") {
                for name in ["name", "namespace", "uid"] {
                    found.extend(metadata[name].as_str().map(str::to_owned));
                }
            }
            for (key, value) in fields {
                identifying(value, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| identifying(item, field, found)),
        Value::String(text)
            if ["nodeName", "queue", "parentQueue", "claimName", "topology"].contains(&field) =>
        {
            found.insert(text.clone());
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn anonymised_random_clusters_decide_alike_up_to_renaming_and_keep_no_name() {
    let archive = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/random.zip"));
    let mut archive = zip::ZipArchive::new(File::open(archive).unwrap()).unwrap();
    let files: Vec<String> = archive.file_names().filter(|name| is_json(name)).map(str::to_owned).collect();
    assert_eq!(files.len(), 200);
    // Classes of every cluster are no secret.
    let public = BTreeSet::from(["train", "build", "inference", "build-preemptible", "default", "main"]);
    let mut decided = 0;
    for file in files {
        let mut text = String::new();
        archive.by_name(&file).unwrap().read_to_string(&mut text).unwrap();
        let original: Value = serde_json::from_str(&text).unwrap();
        let mut renamed = original.clone();
        let names = anonymise(&mut renamed);
        let name = |text: &str| names.get(text).cloned().unwrap_or_else(|| text.to_owned());
        let expected = decisions(&original, name);
        assert_eq!(decisions(&renamed, str::to_owned), expected, "{file}");
        decided += expected.len();
        let written = renamed.to_string();
        let mut all = BTreeSet::new();
        identifying(&original["rawObjects"], "", &mut all);
        for name in all.iter().filter(|name| name.len() > 2 && !public.contains(name.as_str())) {
            assert!(!written.contains(&format!("\"{name}\"")), "`{name}` is left in {file}");
        }
        let pseudonyms: BTreeMap<&String, &String> = names.iter().map(|(text, name)| (name, text)).collect();
        assert_eq!(pseudonyms.len(), names.len(), "no two texts have the same pseudonym");
    }
    assert!(decided > 1_000, "{decided} decisions and verdicts were compared");
}
