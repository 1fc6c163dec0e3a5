//! Objects whose content does not fit their type: logged, counted, and never replaced by a default.

use crate::kind::{Key, ResourceKind};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts, Registry};
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Versions of how many objects are remembered as logged, so that a relist does not log them again.
const LOGGED_MAX: usize = 1_024;

/// The identity of an object that does not deserialise, and why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    pub key: Key,
    pub uid: String,
    pub resource_version: String,
    pub reason: String,
    /// Whether the object was deleted and this was its last state.
    pub deleted: bool,
}

impl InvalidObject {
    pub(crate) fn new(text: &str, error: &serde_json::Error) -> Self {
        let PartialMeta { namespace, name, uid, resource_version } = PartialMeta::of(text);
        let (key, reason) = (Key { namespace, name }, error.to_string());
        Self { key, uid, resource_version, reason, deleted: false }
    }
}

/// The part of the metadata that identifies an object.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PartialMeta {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl PartialMeta {
    /// Reads an object up to its metadata, which precedes almost everything else.
    pub(crate) fn of(object: &str) -> Self {
        let mut found = Self::default();
        // Stopping early is an error to the deserialiser; what was found counts.
        let _ = serde_json::Deserializer::from_str(object).deserialize_map(UntilMetadata(&mut found));
        found
    }
}

struct UntilMetadata<'a>(&'a mut PartialMeta);

impl<'de> Visitor<'de> for UntilMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<Cow<'de, str>>()? {
            if field == "metadata" {
                *self.0 = fields.next_value()?;
                return Ok(());
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Logs and counts invalid objects of one client.
#[derive(Debug)]
pub(crate) struct InvalidObjects {
    counter: IntCounterVec,
    /// The resource version of each object that was last logged.
    logged: Mutex<BTreeMap<(String, Key), String>>,
}

impl Default for InvalidObjects {
    #[expect(clippy::expect_used, reason = "names of metrics and labels are constants")]
    fn default() -> Self {
        let help = "Objects read from the API server that do not deserialise";
        let opts = Opts::new("api_invalid_objects_total", help).namespace("kai");
        let counter = IntCounterVec::new(opts, &["resource"]);
        Self { counter: counter.expect("names and labels are valid constants"), logged: Mutex::default() }
    }
}

impl InvalidObjects {
    pub(crate) fn register(&self, metrics: &Registry) {
        // Fails only when it is registered already.
        let _ = metrics.register(Box::new(self.counter.clone()));
    }

    pub(crate) fn report(&self, kind: &ResourceKind, object: &InvalidObject) {
        self.counter.with_label_values(&[&kind.plural]).inc();
        let mut logged = self.logged.lock();
        let id = (kind.plural.to_string(), object.key.clone());
        if logged.get(&id) == Some(&object.resource_version) {
            return;
        }
        if logged.len() >= LOGGED_MAX {
            logged.pop_first();
        }
        logged.insert(id, object.resource_version.clone());
        tracing::warn!(resource = %kind.plural, key = %object.key, reason = object.reason, "invalid object");
    }
}
