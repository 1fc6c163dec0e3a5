//! Normalises transcripts: replaces values that a server chooses by placeholders.
//!
//! Uids are numbered in order of appearance. A resource version becomes the number of the version of its object, so that
//! a write without effect is visible and other writes are not; that of a list becomes whether it is up to date. Recent
//! times, generated names, continue tokens, ages in tables and allocated addresses become placeholders, and descriptions
//! of table columns are removed. Times before 2024 come from the files of the suite and are kept.

use super::{Entry, ManagedFields};
use indexmap::IndexMap;
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A response before normalisation.
pub(super) struct RawResponse {
    pub(super) entry: Entry,
    pub(super) keep: Vec<String>,
    /// Whether causes of an error are sorted.
    pub(super) any_order: bool,
}

/// Length of the suffix that the API server appends to `generateName`.
const SUFFIX_CHARS: usize = 5;

/// Normalises a whole transcript, in order.
pub(super) fn transcript(
    raw: Vec<RawResponse>,
    managed_fields: ManagedFields,
    scrubbed: &[(String, String)],
) -> Vec<Entry> {
    let mut normaliser = Normaliser::new(managed_fields, scrubbed);
    raw.into_iter().map(|response| normaliser.entry(response)).collect()
}

struct Normaliser {
    managed_fields: ManagedFields,
    /// Literal replacements: those of the caller, and generated names.
    replaced: Vec<(String, String)>,
    uids: IndexMap<String, ()>,
    versions: BTreeMap<String, Vec<u64>>,
    newest: u64,
    rules: Vec<(Regex, &'static str)>,
    uid: Regex,
    time: Regex,
}

impl Normaliser {
    fn new(managed_fields: ManagedFields, scrubbed: &[(String, String)]) -> Self {
        let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is constant");
        Self {
            managed_fields,
            replaced: scrubbed.to_vec(),
            uids: IndexMap::new(),
            versions: BTreeMap::new(),
            newest: 0,
            rules: vec![
                (regex(r"kube-api-access-[a-z0-9]{5}"), "kube-api-access-<generated>"),
                (regex(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
                (regex(r"too old resource version: \d+ \(\d+\)"), "too old resource version: <rv> (<rv>)"),
                (regex(r"current: \d+"), "current: <rv>"),
                (regex(r"\?hash=[0-9A-F]+"), "?hash=<hash>"),
                // The object as JSON; its field order is not compared.
                (regex(r#"Invalid value: "\{\\"apiVersion.*\}": "#), "Invalid value: <object>: "),
                (
                    regex(r"precondition \(\d+\) does not match the ResourceVersion in record \(\d+\)"),
                    "precondition (<rv>) does not match the ResourceVersion in record (<rv>)",
                ),
                (
                    regex(r"ResourceVersion in precondition: (\d+), ResourceVersion in object meta: \d+"),
                    "ResourceVersion in precondition: <rv>, ResourceVersion in object meta: <rv>",
                ),
            ],
            uid: regex(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            time: regex(r"20(?:2[4-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
        }
    }

    fn entry(&mut self, RawResponse { mut entry, keep, any_order }: RawResponse) -> Entry {
        self.value(&mut entry.body);
        if any_order {
            sort_causes(&mut entry.body);
        }
        for event in &mut entry.events {
            self.value(event);
        }
        for values in entry.headers.values_mut() {
            for value in values {
                *value = self.text(value);
            }
        }
        if !keep.is_empty() {
            if !entry.body.is_null() {
                entry.body = parts(&entry.body, &keep);
            }
            entry.events = entry.events.iter().map(|event| parts(event, &keep)).collect();
        }
        entry
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::String(text) => *text = self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>) {
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            self.metadata(metadata);
        }
        if let Some(Value::Array(columns)) = fields.get_mut("columnDefinitions") {
            // The text may differ between servers.
            columns.iter_mut().filter_map(Value::as_object_mut).for_each(|column| {
                column.remove("description");
            });
        }
        if fields.get("kind").is_some_and(|kind| kind == "Table") {
            replace_ages(fields);
        }
        for (key, field) in fields.iter_mut() {
            match (key.as_str(), &*field) {
                ("clusterIP", Value::String(text)) if is_address(text) => *field = "<address>".into(),
                ("clusterIPs", Value::Array(all))
                    if all.iter().any(|one| one.as_str().is_some_and(is_address)) =>
                {
                    *field = "<addresses>".into();
                }
                ("serverAddress", Value::String(_)) => *field = "<server>".into(),
                ("nodePort" | "healthCheckNodePort", Value::Number(_)) => *field = "<port>".into(),
                _ => self.value(field),
            }
        }
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>) {
        if self.managed_fields == ManagedFields::Drop {
            metadata.remove("managedFields");
        }
        if let Some(Value::Array(managers)) = metadata.get_mut("managedFields") {
            // Sorted by time with a resolution of one second, so their order depends on timing.
            let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            managers.sort_by_cached_key(|entry| {
                ["manager", "operation", "subresource"].map(|key| text(entry, key))
            });
        }
        let fields = metadata.clone();
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        if let (Some(stem), Some(name)) = (text("generateName"), text("name"))
            && name.strip_prefix(&stem).is_some_and(|suffix| suffix.len() == SUFFIX_CHARS)
            && !self.replaced.iter().any(|(known, _)| *known == name)
        {
            let number = self.replaced.len();
            self.replaced.push((name, format!("{stem}<generated {number}>")));
        }
        if let Some(version) = text("resourceVersion").and_then(|version| version.parse::<u64>().ok()) {
            let shown = match text("uid") {
                Some(uid) => self.version_of(uid, version),
                None if version >= self.newest => "<list>".to_owned(),
                None => "<old list>".to_owned(),
            };
            metadata.insert("resourceVersion".to_owned(), shown.into());
        }
        if text("continue").is_some_and(|token| !token.is_empty()) {
            metadata.insert("continue".to_owned(), "<continue>".into());
        }
    }

    fn version_of(&mut self, uid: String, version: u64) -> String {
        self.newest = self.newest.max(version);
        let seen = self.versions.entry(uid).or_default();
        let index = seen.iter().position(|known| *known == version).unwrap_or_else(|| {
            seen.push(version);
            seen.len() - 1
        });
        let stale = seen[..index].iter().any(|earlier| *earlier > version);
        if stale { "<stale>".to_owned() } else { format!("<{}>", index + 1) }
    }

    fn text(&mut self, text: &str) -> String {
        let mut shown = text.to_owned();
        for (known, mask) in &self.replaced {
            if shown.contains(known.as_str()) {
                shown = shown.replace(known.as_str(), mask);
            }
        }
        for (pattern, mask) in &self.rules {
            shown = pattern.replace_all(&shown, *mask).into_owned();
        }
        let uids = &mut self.uids;
        shown = self
            .uid
            .replace_all(&shown, |found: &Captures<'_>| {
                format!("<uid {}>", uids.insert_full(found[0].to_owned(), ()).0 + 1)
            })
            .into_owned();
        let time = |found: &Captures<'_>| match found.get(1) {
            Some(fraction) => format!("<time.{}>", fraction.len() - 1),
            None => "<time>".to_owned(),
        };
        self.time.replace_all(&shown, time).into_owned()
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Replaces ages in table cells.
fn replace_ages(table: &mut Map<String, Value>) {
    let Some(Value::Array(rows)) = table.get_mut("rows") else { return };
    for row in rows {
        let Some(Value::Array(cells)) = row.get_mut("cells") else { continue };
        for cell in cells {
            let is_age = cell.as_str().is_some_and(|text| {
                text.len() <= 8
                    && text.starts_with(|first: char| first.is_ascii_digit())
                    && text.ends_with(['s', 'm', 'h', 'd', 'y'])
                    && text.chars().all(|letter| letter.is_ascii_digit() || "smhdy".contains(letter))
            });
            if is_age {
                *cell = "<age>".into();
            }
        }
    }
}

/// Sorts the causes of an error, and removes them from its message.
fn sort_causes(status: &mut Value) {
    if let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") {
        causes.sort_by_cached_key(ToString::to_string);
    }
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(end) = message.find(" is invalid: ")
    {
        message.replace_range(end.., " is invalid: <causes>");
    }
}

/// The selected parts of a value, by path.
fn parts(value: &Value, paths: &[String]) -> Value {
    let mut kept = Map::new();
    for path in paths {
        let mut found = Vec::new();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        find(value, &segments, &mut found);
        let many = segments.iter().any(|segment| *segment == "*" || segment.contains('='));
        if many && !found.is_empty() {
            kept.insert(path.clone(), Value::Array(found));
        } else if let Some(part) = found.pop() {
            kept.insert(path.clone(), part);
        }
    }
    Value::Object(kept)
}

fn find(value: &Value, path: &[&str], found: &mut Vec<Value>) {
    let Some((segment, rest)) = path.split_first() else {
        found.push(value.clone());
        return;
    };
    match value {
        Value::Object(fields) if *segment == "*" => {
            fields.values().for_each(|field| find(field, rest, found));
        }
        Value::Object(fields) => {
            // As in a JSON pointer, a slash inside a key is written `~1`.
            if let Some(field) = fields.get(&segment.replace("~1", "/")) {
                find(field, rest, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let wanted = match segment.split_once('=') {
                    Some((field, wanted)) => item.get(field).and_then(Value::as_str) == Some(wanted),
                    None => *segment == "*" || segment.parse() == Ok(index),
                };
                if wanted {
                    find(item, rest, found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
