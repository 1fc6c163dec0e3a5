//! Brings a snapshot to life: its records become objects of an API server, as far as they tell enough.
//!
//! Every object goes through the API of a server that nobody else uses, so that it is completed and checked like any
//! other. Then uids and creation times are put back, for who refers to an object and who came first must stay as they
//! were. What comes out is a saved state.

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

/// What we call ourselves to the server.
const CLIENT: &str = "kai-up";

/// A cluster that can start.
pub(super) struct Revived {
    /// As a server saves it.
    pub(super) state: Vec<u8>,
    /// What became of the snapshot.
    pub(super) report: Report,
}

/// Brings a snapshot to life. Must be called in a tokio runtime.
pub(super) async fn revive(snapshot: &Snapshot, seed: u64) -> Result<Revived> {
    let mut lists = lists(snapshot)?;
    let clock = Clock::system();
    let server = ApiServer::new(&Options::new(seed, clock));
    let api = Api::new(kube::Client::new(server.service(), "default"), CLIENT);
    install::install_crds(&api).await?;
    if lists.contains_key(&Kind::NodeResourceTopology) {
        let definition = node::topology_definition();
        api.ensure_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, "", &definition)
            .await
            .context("cannot define NUMA zones")?;
    }
    make_namespaces(&api, &lists).await?;
    let mut revival = Revival {
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
            revival.make(kind, record).await;
        }
    }
    revival
        .report
        .leave_out_all(Kind::PodDisruptionBudget, lists.get(&Kind::PodDisruptionBudget).map_or(0, Vec::len));
    let mut saved = Vec::new();
    server.save(&mut saved).context("memory is enough")?;
    Ok(Revived { state: put_back(&saved, &revival.identities)?, report: revival.report })
}

/// The objects of a snapshot as JSON, by kind; those that name no namespace are in `default`.
fn lists(snapshot: &Snapshot) -> Result<BTreeMap<Kind, Vec<Value>>> {
    let mut text = Vec::new();
    snapshot::write_json(snapshot, &mut text).context("memory is enough")?;
    let mut file: Value = serde_json::from_slice(&text).context("a written snapshot can be read")?;
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

/// Every namespace that an object is in must be there, and pods need a service account.
async fn make_namespaces(api: &Api, lists: &BTreeMap<Kind, Vec<Value>>) -> Result<()> {
    let mut namespaces: BTreeMap<&str, Value> = BTreeMap::new();
    for record in lists.get(&Kind::Namespace).into_iter().flatten() {
        namespaces.insert(name(record), record["metadata"]["labels"].clone());
    }
    for record in lists.values().flatten().filter(|record| !namespace(record).is_empty()) {
        namespaces.entry(namespace(record)).or_default();
    }
    for (name, labels) in namespaces {
        let made =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let failed = || format!("cannot make namespace `{name}`");
        api.ensure_dynamic(&kind::NAMESPACE, "", &made).await.with_context(failed)?;
        api.ensure_dynamic(&kind::SERVICE_ACCOUNT, name, &account).await.with_context(failed)?;
    }
    Ok(())
}

/// What is known while objects are made.
struct Revival {
    api: Api,
    now: String,
    /// Objects of the snapshot: owners among them are kept.
    uids: BTreeSet<String>,
    /// Priority classes of the snapshot.
    classes: BTreeSet<String>,
    /// Who objects were, by kind and key.
    identities: BTreeMap<(String, Key), Identity>,
    report: Report,
}

impl Revival {
    /// Makes one object, or notes why not.
    async fn make(&mut self, kind: Kind, mut record: Value) {
        let Some(resource) = object::resource(kind) else { return };
        if let Some(why) = object::unfit(kind, &record) {
            return self.report.leave_out(kind, why);
        }
        let identity = object::prepare(kind, &mut record, &self.uids, &self.classes, &self.now);
        let key = Key::of(&record);
        record["apiVersion"] = Value::from(resource.api_version());
        record["kind"] = Value::from(&*resource.kind);
        let status = object::status(kind, &mut record);
        match self.api.create_dynamic(&resource, &key.namespace, &record).await {
            Ok(_) => self.report.made(kind),
            // What every cluster has is there already.
            Err(error) if error.is_conflict() => return,
            Err(error) => return self.report.refuse(kind, &key, error),
        }
        self.identities.insert((resource.kind.to_string(), key.clone()), identity);
        if let Some(status) = status {
            let patch = json!({"status": status});
            if let Err(error) = self.api.patch_dynamic(&resource, &key, Part::Status, &patch).await {
                self.report.refuse_status(kind, &key, error);
            }
        }
    }
}

/// Gives objects in a saved state the uids and creation times that they had.
fn put_back(saved: &[u8], identities: &BTreeMap<(String, Key), Identity>) -> Result<Vec<u8>> {
    let mut state = Vec::with_capacity(saved.len());
    for (index, line) in saved.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        if index > 0 {
            let mut row: Value = serde_json::from_slice(line).context("a saved state can be read")?;
            let made = &mut row["object"];
            let identity = identities.get(&(kai_object::kind(made).to_owned(), Key::of(made)));
            if let Some(identity) = identity {
                identity.put_back(made);
            }
            serde_json::to_writer(&mut state, &row).context("memory is enough")?;
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
