//! The contents of `metadata.managedFields`: which manager set which fields, with which operation and when.

use super::field_set::shown;
use super::{Conflict, FieldSet, Write};
use crate::field::quote;
use crate::registry::Subresource;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, btree_map::Entry as Slot};

/// Maximum number of `Update` entries, as in kube-apiserver; older ones are merged into one entry.
const UPDATERS_MAX: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// Identifies a manager. An applier is the same manager in every API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    manager: String,
    operation: Operation,
    /// Empty for `Apply`.
    api_version: String,
    subresource: String,
}

impl Id {
    pub(super) fn new(manager: &str, operation: Operation, write: &Write<'_>) -> Self {
        let api_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => write.api_version.to_owned(),
        };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version,
            subresource: write.subresource.to_owned(),
        }
    }

    /// The manager as conflict messages name it.
    fn shown(&self) -> String {
        let mut text = quote(&self.manager);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {}", quote(&self.subresource));
        }
        match self.operation {
            Operation::Apply => text,
            Operation::Update => format!("{text} using {}", self.api_version),
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    fields: FieldSet,
    api_version: String,
    time: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ManagedFields {
    entries: BTreeMap<Id, Entry>,
}

impl ManagedFields {
    /// Parses `managedFields`; `None` if malformed.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let mut entries = BTreeMap::new();
        let Some(Value::Array(raw)) = object.pointer("/metadata/managedFields") else {
            return Some(Self::default());
        };
        for raw in raw {
            let text = |name: &str| raw.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let id = Id {
                manager: text("manager"),
                operation,
                api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
                subresource: text("subresource"),
            };
            let fields = raw.get("fieldsV1").map_or_else(|| Some(FieldSet::default()), FieldSet::decode)?;
            let time = raw.get("time").and_then(Value::as_str).map(str::to_owned);
            entries.insert(id, Entry { fields, api_version, time });
        }
        Some(Self { entries })
    }

    /// Writes `managedFields`: `Apply` entries first, then by time.
    pub(super) fn write(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        if self.entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_by_key(|(id, entry)| {
            (
                id.operation,
                entry.time.clone(),
                id.manager.clone(),
                entry.api_version.clone(),
                id.subresource.clone(),
            )
        });
        let encoded = sorted.into_iter().map(|(id, entry)| {
            let operation = match id.operation {
                Operation::Apply => "Apply",
                Operation::Update => "Update",
            };
            let mut raw = Map::from_iter([
                ("manager".to_owned(), json!(id.manager)),
                ("operation".to_owned(), json!(operation)),
                ("apiVersion".to_owned(), json!(entry.api_version)),
                ("fieldsType".to_owned(), json!("FieldsV1")),
                ("fieldsV1".to_owned(), entry.fields.encode()),
            ]);
            if let Some(time) = &entry.time {
                raw.insert("time".to_owned(), json!(time));
            }
            if !id.subresource.is_empty() {
                raw.insert("subresource".to_owned(), json!(id.subresource));
            }
            Value::Object(raw)
        });
        metadata.insert("managedFields".to_owned(), encoded.collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The union of all owned fields.
    pub(super) fn all_fields(&self) -> FieldSet {
        let mut all = FieldSet::default();
        for entry in self.entries.values() {
            all.absorb(entry.fields.clone());
        }
        all
    }

    /// Removes fields from all managers but one, and drops managers that own nothing any more.
    pub(super) fn release(&mut self, but: Option<&Id>, touched: &FieldSet, removed: &FieldSet) {
        for (id, entry) in &mut self.entries {
            if Some(id) != but {
                entry.fields.remove(touched);
                entry.fields.remove(removed);
            }
        }
        self.entries.retain(|_, entry| !entry.fields.is_empty());
    }

    /// Adds fields to a manager and sets its time.
    pub(super) fn extend(&mut self, id: Id, fields: FieldSet, api_version: &str, now: &str) {
        // kube-apiserver sets no time for the `scale` subresource.
        let time = (id.subresource != Subresource::Scale.name()).then(|| now.to_owned());
        match self.entries.entry(id) {
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                entry.fields.absorb(fields);
                api_version.clone_into(&mut entry.api_version);
                entry.time = time;
            }
            Slot::Vacant(slot) => {
                slot.insert(Entry { fields, api_version: api_version.to_owned(), time });
            }
        }
    }

    /// Sets the fields of an applier; returns its previous ones.
    pub(super) fn set_applied(&mut self, id: &Id, fields: FieldSet, api_version: &str) -> Option<FieldSet> {
        let before = self.entries.remove(id);
        let time = before.as_ref().and_then(|before| before.time.clone());
        self.entries.insert(id.clone(), Entry { fields, api_version: api_version.to_owned(), time });
        before.map(|before| before.fields).filter(|before| !before.is_empty())
    }

    pub(super) fn touch(&mut self, id: &Id, now: &str) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.time = Some(now.to_owned());
        }
    }

    /// Changes the fields of one manager, and drops it if it owns nothing any more.
    pub(super) fn strip(&mut self, id: &Id, change: impl Fn(FieldSet) -> FieldSet) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.fields = change(std::mem::take(&mut entry.fields));
        }
        self.entries.retain(|_, entry| !entry.fields.is_empty());
    }

    /// The fields of other managers that overlap `touched`.
    pub(super) fn conflicts(&self, but: &Id, touched: &FieldSet) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (id, entry) in self.entries.iter().filter(|(id, _)| *id != but) {
            entry.fields.intersection(touched).for_each(|path| {
                conflicts.push(Conflict { manager: id.shown(), field: shown(path) });
            });
        }
        conflicts
    }

    /// Merges the oldest `Update` entries if there are too many.
    pub(super) fn merge_oldest(&mut self) {
        let mut updaters: Vec<Id> =
            self.entries.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        if updaters.len() <= UPDATERS_MAX {
            return;
        }
        updaters.sort_by_key(|id| (self.entries.get(id).and_then(|entry| entry.time.clone()), id.clone()));
        let mut count = updaters.len();
        let mut first: BTreeMap<String, Id> = BTreeMap::new();
        for id in updaters {
            if count <= UPDATERS_MAX {
                break;
            }
            let bucket = Id {
                manager: OLD_UPDATERS.to_owned(),
                operation: Operation::Update,
                api_version: id.api_version.clone(),
                subresource: String::new(),
            };
            let Some(earliest) = first.get(&id.api_version) else {
                first.insert(id.api_version.clone(), id);
                continue;
            };
            // The first entry of an API version becomes the merged entry once there is a second one.
            if let Some(entry) = self.entries.remove(earliest).filter(|_| *earliest != bucket) {
                self.extend(
                    bucket.clone(),
                    entry.fields,
                    &entry.api_version,
                    entry.time.as_deref().unwrap_or_default(),
                );
                first.insert(id.api_version.clone(), bucket.clone());
            }
            if let Some(entry) = self.entries.remove(&id) {
                self.extend(
                    bucket,
                    entry.fields,
                    &entry.api_version,
                    entry.time.as_deref().unwrap_or_default(),
                );
                count -= 1;
            }
        }
    }
}
