//! Field selectors: the selectable fields of each kind, and how their values are read.
//!
//! Every kind has `metadata.name` and `metadata.namespace`; some built-in kinds have more, and a custom resource has
//! its `selectableFields`. A missing field counts as the empty string.

use super::Error;
use crate::field::quote;
use serde_json::Value;
use std::borrow::Cow;

/// The kind whose fields are selected.
#[derive(Clone, Copy, Debug)]
pub enum FieldTarget<'a> {
    BuiltIn {
        /// `v1`, `apps/v1` …
        api_version: &'a str,
        /// `Pod`, `Deployment` …
        kind: &'a str,
    },
    /// A custom resource.
    Custom {
        namespaced: bool,
        /// The `jsonPath`s of `selectableFields`, such as `.spec.color`.
        selectable: &'a [String],
    },
}

/// A conjunction of equality requirements on fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

/// A field and how its value is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The value at this path, as text.
    Plain(String),
    /// As [`Field::Plain`], with a default.
    Or(&'static str, &'static str),
    /// The first of `status.podIPs`.
    PodIp,
    /// `source.component`, or the reporting controller.
    EventSource,
    /// Accepted and always empty.
    Empty(&'static str),
}

/// The selectable fields of built-in kinds.
const POD: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];
const CORE_EVENT: [&str; 12] = [
    "metadata.name",
    "metadata.namespace",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];
const EVENT: [&str; 12] = [
    "metadata.name",
    "metadata.namespace",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Pod fields that many clients use in watches.
const CACHED: [&str; 3] = ["spec.nodeName", "spec.schedulerName", "status.phase"];

impl Field {
    /// Fields that are cached together with this one.
    pub fn cached_together(&self) -> impl Iterator<Item = Self> + use<'_> {
        let own = match self {
            Self::Plain(path) => path.as_str(),
            Self::Or(..) | Self::PodIp | Self::EventSource | Self::Empty(_) => "",
        };
        let others = CACHED.iter().filter(move |other| CACHED.contains(&own) && **other != own);
        others.map(|other| Self::Plain((*other).to_owned()))
    }
}

impl FieldSelector {
    /// Parses a query parameter such as `spec.nodeName=n1,status.phase!=Failed`.
    pub fn parse(text: &str, target: FieldTarget<'_>) -> Result<Self, Error> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((name, equal, value)) = split_term(part) else {
                return Err(Error(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            // An empty term is ignored.
            if !(name.is_empty() && value.is_empty()) {
                terms.push((name, equal, unescape(value)?));
            }
        }
        let resolve = |(name, equal, value)| Ok(Term { field: field_of(name, target)?, equal, value });
        Ok(Self { terms: terms.into_iter().map(resolve).collect::<Result<_, _>>()? })
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The only value that `field` may have, so that a list by name needs no scan.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let is_field =
            |term: &&Term| term.equal && matches!(&term.field, Field::Plain(path) if path == field);
        self.terms.iter().find(is_field).map(|term| term.value.as_str())
    }

    /// Whether the object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(|field, value| field.value(object) == value)
    }

    /// Whether an object matches whose fields `has` compares.
    pub fn matches_with(&self, has: impl Fn(&Field, &str) -> bool) -> bool {
        self.terms.iter().all(|term| has(&term.field, &term.value) == term.equal)
    }
}

impl Field {
    pub fn value<'a>(&self, object: &'a Value) -> Cow<'a, str> {
        match self {
            Self::Plain(path) => text_at(object, path),
            Self::Or(path, other) => {
                let text = text_at(object, path);
                if text.is_empty() { Cow::Borrowed(other) } else { text }
            }
            Self::PodIp => text_of(object.pointer("/status/podIPs/0/ip")),
            Self::EventSource => {
                let own = object
                    .pointer("/source/component")
                    .or_else(|| object.pointer("/deprecatedSource/component"));
                let own = text_of(own);
                if !own.is_empty() {
                    return own;
                }
                text_of(object.get("reportingComponent").or_else(|| object.get("reportingController")))
            }
            Self::Empty(_) => Cow::Borrowed(""),
        }
    }
}

fn field_of(name: &str, target: FieldTarget<'_>) -> Result<Field, Error> {
    let plain = || Ok(Field::Plain(name.to_owned()));
    let unsupported = || Err(Error(format!("field label not supported: {name}")));
    match target {
        FieldTarget::Custom { namespaced, selectable } => {
            let listed = selectable.iter().any(|path| path.strip_prefix('.') == Some(name));
            let in_metadata = name == "metadata.name" || (namespaced && name == "metadata.namespace");
            if listed || in_metadata { plain() } else { unsupported() }
        }
        FieldTarget::BuiltIn { api_version, kind } => match (api_version, kind, name) {
            ("v1", "Pod", "spec.host") => Ok(Field::Plain("spec.nodeName".to_owned())),
            ("v1", "Pod", "spec.hostNetwork") => Ok(Field::Or("spec.hostNetwork", "false")),
            ("v1", "Pod", "status.podIP") => Ok(Field::PodIp),
            ("v1", "Pod", "status.podIPs") => Ok(Field::Empty("status.podIPs")),
            ("v1", "Node", "spec.unschedulable") => Ok(Field::Or("spec.unschedulable", "false")),
            ("batch/v1", "Job", "status.successful") => Ok(Field::Or("status.succeeded", "0")),
            ("v1", "Event", "source") => Ok(Field::EventSource),
            (_, kind, name) => match allowed(api_version, kind) {
                Some(fields) if fields.contains(&name) => plain(),
                Some(_) if kind == "Job" => {
                    Err(Error(format!("field label {} not supported for Job", quote(name))))
                }
                Some(_) if kind == "ResourceSlice" => Err(Error(format!(
                    "field label not supported for {}, Kind={kind}: {name}",
                    slashed(api_version)
                ))),
                Some(_) => unsupported(),
                None if matches!(name, "metadata.name" | "metadata.namespace") => plain(),
                None => Err(Error(format!(
                    "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                    quote(name)
                ))),
            },
        },
    }
}

fn slashed(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}

/// The selectable fields of kinds that have more than the metadata fields.
fn allowed(api_version: &str, kind: &str) -> Option<&'static [&'static str]> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    Some(match (group, kind) {
        ("", "Pod") => &POD,
        ("", "Event") => &CORE_EVENT,
        ("events.k8s.io", "Event") => &EVENT,
        ("", "Node") => &["metadata.name"],
        ("", "Namespace") => &["metadata.name", "status.phase"],
        ("", "Secret") => &["metadata.name", "metadata.namespace", "type"],
        ("", "Service") => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ("batch", "Job") => &["metadata.name", "metadata.namespace"],
        ("resource.k8s.io", "ResourceSlice") => &["metadata.name", "spec.nodeName", "spec.driver"],
        _ => return None,
    })
}

fn text_at<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    text_of(path.split('.').try_fold(object, |value, field| value.get(field)))
}

fn text_of(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Bool(value)) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Some(Value::Number(number)) => Cow::Owned(number.to_string()),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => Cow::Borrowed(""),
    }
}

/// Splits at commas that are not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find("!=").into_iter().chain(term.find('=')).min()?;
    let (name, rest) = term.split_at(at);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?),
    };
    Some((name, equal, value))
}

fn unescape(value: &str) -> Result<String, Error> {
    let bad =
        |sequence: String| Error(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(other) => return Err(bad(format!("\\{other}"))),
                None => return Err(bad("\\".to_owned())),
            },
            // kube-apiserver prints the code point.
            ',' | '=' => {
                let number = u32::from(c);
                return Err(Error(format!("invalid field selector: unescaped character in value: {number}")));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}
