//! Converts a snapshot to a saved state of the embedded API server.
//!
//! Objects are created through the API of a temporary server, which defaults and validates them. Then UIDs and creation
//! timestamps are restored, since owner references and the order of groups depend on them.

mod object;
mod report;

pub(super) use report::Report;

use anyhow::{Context, Result};
use kai_apiserver::{ApiServer, Options};
use kai_cache::{Kind, Snapshot, snapshot};
use kai_clock::Clock;
use kai_components::install;
use kai_object::{name, namespace};
use kai_runtime::api::{Api, Part};
use kai_runtime::{Key, kind};
use kai_sim::node;
use object::Identity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const USER_AGENT: &str = "kai-up";

pub(super) struct Imported {
    /// In the format of the API server.
    pub(super) state: Vec<u8>,
    pub(super) report: Report,
}

/// Must be called in a tokio runtime.
pub(super) async fn import(snapshot: &Snapshot, seed: u64) -> Result<Imported> {
    let mut lists = lists(snapshot)?;
    let clock = Clock::system();
    let server = ApiServer::new(&Options::new(seed, clock));
    let api = Api::new(kube::Client::new(server.service(), "default"), USER_AGENT);
    install::install_crds(&api).await?;
    if lists.contains_key(&Kind::NodeResourceTopology) {
        let definition = node::topology_definition();
        api.ensure_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &definition)
            .await
            .context("cannot create the definition of NUMA zones")?;
    }
    create_namespaces(&api, &lists).await?;
    let mut importer = Importer {
        api,
        now: clock.time(),
        uids: lists.values().flatten().filter_map(|record| text_at(record, "/metadata/uid")).collect(),
        classes: lists
            .get(&Kind::PriorityClass)
            .into_iter()
            .flatten()
            .map(|class| name(class).to_owned())
            .collect(),
        identities: BTreeMap::new(),
        report: Report::default(),
    };
    for kind in object::ORDER {
        for record in lists.remove(&kind).unwrap_or_default() {
            importer.create(kind, record).await;
        }
    }
    importer
        .report
        .leave_out_all(Kind::PodDisruptionBudget, lists.get(&Kind::PodDisruptionBudget).map_or(0, Vec::len));
    let mut saved = Vec::new();
    server.save(&mut saved).context("cannot serialise the state")?;
    Ok(Imported { state: restore_identities(&saved, &importer.identities)?, report: importer.report })
}

/// The objects of a snapshot as JSON, by kind; `default` is the default namespace.
fn lists(snapshot: &Snapshot) -> Result<BTreeMap<Kind, Vec<Value>>> {
    let mut text = Vec::new();
    snapshot::write_json(snapshot, &mut text).context("cannot serialise the state")?;
    let mut file: Value = serde_json::from_slice(&text).context("cannot read a serialised snapshot")?;
    let mut lists = BTreeMap::new();
    for kind in Kind::ALL {
        for member in ["rawObjects", "replay"] {
            let Some(Value::Array(mut records)) = file[member].get_mut(kind.list_key()).map(Value::take)
            else {
                continue;
            };
            let is_in_namespace = object::resource(*kind).is_some_and(|resource| resource.namespaced);
            for record in records.iter_mut().filter(|record| is_in_namespace && namespace(record).is_empty())
            {
                record["metadata"]["namespace"] = json!("default");
            }
            if !records.is_empty() {
                lists.insert(*kind, records);
            }
        }
    }
    Ok(lists)
}

/// Creates the namespaces of all objects, with the service account that pods require.
async fn create_namespaces(api: &Api, lists: &BTreeMap<Kind, Vec<Value>>) -> Result<()> {
    let mut namespaces: BTreeMap<&str, Value> = BTreeMap::new();
    for record in lists.get(&Kind::Namespace).into_iter().flatten() {
        namespaces.insert(name(record), record["metadata"]["labels"].clone());
    }
    for record in lists.values().flatten().filter(|record| !namespace(record).is_empty()) {
        namespaces.entry(namespace(record)).or_default();
    }
    for (name, labels) in namespaces {
        let created =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let failed = || format!("cannot create namespace `{name}`");
        api.ensure_dynamic(&kind::NAMESPACE, "", &created).await.with_context(failed)?;
        api.ensure_dynamic(&kind::SERVICE_ACCOUNT, name, &account).await.with_context(failed)?;
    }
    Ok(())
}

struct Importer {
    api: Api,
    now: String,
    /// UIDs of all objects: references to other owners are removed.
    uids: BTreeSet<String>,
    classes: BTreeSet<String>,
    /// Original UIDs and creation timestamps, by kind and key.
    identities: BTreeMap<(String, Key), Identity>,
    report: Report,
}

impl Importer {
    /// Creates one object, or reports why not.
    async fn create(&mut self, kind: Kind, mut record: Value) {
        let Some(resource) = object::resource(kind) else { return };
        if let Some(why) = object::exclusion(kind, &record) {
            return self.report.leave_out(kind, why);
        }
        let identity = object::prepare(kind, &mut record, &self.uids, &self.classes, &self.now);
        let key = kai_runtime::key_of(&record);
        record["apiVersion"] = Value::from(resource.api_version());
        record["kind"] = Value::from(&*resource.kind);
        let status = object::status(kind, &mut record);
        match self.api.create_dynamic(&resource, &key.namespace, &record).await {
            Ok(_) => self.report.created(kind),
            // Objects that every cluster has exist already.
            Err(error) if error.is_conflict() => return,
            Err(error) => return self.report.rejected(kind, &key, error),
        }
        self.identities.insert((resource.kind.to_string(), key.clone()), identity);
        if let Some(status) = status {
            let patch = json!({"status": status});
            if let Err(error) = self.api.patch_dynamic(&resource, &key, Part::Status, &patch).await {
                self.report.status_rejected(kind, &key, error);
            }
        }
    }
}

/// Restores UIDs and creation timestamps in a saved state.
fn restore_identities(saved: &[u8], identities: &BTreeMap<(String, Key), Identity>) -> Result<Vec<u8>> {
    let mut state = Vec::with_capacity(saved.len());
    for (index, line) in saved.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        if index > 0 {
            let mut row: Value = serde_json::from_slice(line).context("cannot read the serialised state")?;
            let created = &mut row["object"];
            let identity =
                identities.get(&(kai_object::kind(created).to_owned(), kai_runtime::key_of(created)));
            if let Some(identity) = identity {
                identity.restore(created);
            }
            serde_json::to_writer(&mut state, &row).context("cannot serialise the state")?;
        } else {
            state.extend_from_slice(line);
        }
        state.push(b'\n');
    }
    Ok(state)
}

fn text_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests;
