//! Sends changes by server-side apply, at a bounded rate for each object.

use super::watched::kind_of;
use crate::key::ObjectKey;
use crate::plan::{Change, Difference, difference};
use crate::{Desired, Object};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kai_api::Queue;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Error, Part, Result};
use kai_runtime::backoff::{Backoff, BackoffPolicy};
use kai_runtime::kind::{Key, ResourceKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// An object is not written more often than this, even while others keep changing it.
pub(super) const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Delay before a failed write is repeated.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(INTERVAL_MIN, Duration::from_mins(1));
const FIELD_MANAGER: &str = "kai-operator";

/// When each object was written, and how that went.
#[derive(Default)]
pub(super) struct Writes {
    objects: BTreeMap<ObjectKey, Attempt>,
    /// Whether the Queue CRD has been looked at.
    queue_conversion_checked: bool,
}

struct Attempt {
    /// What was desired.
    desired: Option<Object>,
    step: Step,
    /// Whether the object is not desired.
    is_deletion: bool,
    backoff: Backoff,
    next: Instant,
    /// Whether a write was deferred or has failed.
    is_pending: bool,
    error: Option<String>,
}

/// The next write of the same desired object.
#[derive(PartialEq)]
enum Step {
    Apply,
    /// An apply left decided fields that others own: they are removed.
    Remove,
    /// The server did not keep what was written. This version of the object is not written again.
    NotKept(String),
}

/// Whether an object may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Now,
    Later,
}

/// What became of a change.
#[derive(Default)]
pub(super) struct Outcome {
    /// The object as the server stored it.
    pub(super) written: Option<Value>,
    pub(super) deleted: bool,
    /// A change of others that was undone.
    pub(super) reverted: Option<String>,
}

impl Writes {
    /// Begins a reconcile: what is still to be written is found out anew.
    pub(super) fn begin(&mut self) {
        self.objects.values_mut().for_each(|attempt| attempt.is_pending = false);
    }

    pub(super) fn permit(&self, key: &ObjectKey) -> Permit {
        match self.objects.get(key) {
            Some(attempt) if Instant::now() < attempt.next => Permit::Later,
            _ => Permit::Now,
        }
    }

    /// A write that has to wait.
    pub(super) fn defer(&mut self, key: &ObjectKey) {
        self.attempt(key).is_pending = true;
    }

    pub(super) fn succeeded(&mut self, key: &ObjectKey) {
        let attempt = self.attempt(key);
        attempt.error = None;
        attempt.backoff.reset();
        attempt.next = Instant::now() + INTERVAL_MIN;
    }

    pub(super) fn failed(&mut self, key: &ObjectKey, error: String) {
        let attempt = self.attempt(key);
        attempt.error = Some(error);
        attempt.is_pending = true;
        attempt.next = Instant::now() + attempt.backoff.next_delay();
    }

    /// The server has not kept what was written, as where its definition of the kind lacks a field.
    pub(super) fn not_kept(&mut self, key: &ObjectKey, stored: &Value, field: &str) {
        let attempt = self.attempt(key);
        attempt.step = Step::NotKept(object::meta_str(stored, "resourceVersion").to_owned());
        let error = format!(
            "the API server does not keep `{field}`: its definition of {} has another version, or a webhook changes \
             the field; hint: install the CRDs of this version",
            key.kind
        );
        tracing::warn!(object = %key, field, "the API server does not keep a field that was written");
        attempt.error = Some(error);
    }

    /// Whether this version of an object lacks what was written to it last.
    pub(super) fn is_not_kept(&self, key: &ObjectKey, current: &Value) -> bool {
        let version = object::meta_str(current, "resourceVersion");
        let step = self.objects.get(key).map(|attempt| &attempt.step);
        matches!(step, Some(Step::NotKept(known)) if known == version)
    }

    fn attempt(&mut self, key: &ObjectKey) -> &mut Attempt {
        self.objects.entry(key.clone()).or_insert_with(|| Attempt {
            desired: None,
            step: Step::Apply,
            is_deletion: false,
            backoff: Backoff::new(BACKOFF),
            next: Instant::now(),
            is_pending: false,
            error: None,
        })
    }

    /// Sends a change, unless the object was written a moment ago.
    pub(super) async fn write(&mut self, api: &Api, change: &Change, current: Option<&Value>) -> Outcome {
        let key = change.key();
        if self.permit(&key) == Permit::Later {
            self.defer(&key);
            return Outcome::default();
        }
        let attempt = self.attempt(&key);
        let is_same =
            matches!(change, Change::Apply { desired, .. } if attempt.desired.as_ref() == Some(desired));
        if is_same && current.is_some_and(|current| self.is_not_kept(&key, current)) {
            return Outcome::default();
        }
        let attempt = self.attempt(&key);
        if !(is_same && attempt.step == Step::Remove) {
            attempt.step = Step::Apply;
        }
        let is_first = attempt.step == Step::Apply;
        let mut outcome = Outcome::default();
        // The same was applied before: others have changed the object since.
        if is_same && is_first && attempt.error.is_none() {
            outcome.reverted = Some(reverted(&key));
        }
        attempt.is_deletion = matches!(change, Change::Delete(_));
        attempt.desired = match change {
            Change::Create(desired) | Change::Apply { desired, .. } => Some(desired.clone()),
            Change::Replace(_) | Change::Delete(_) => None,
        };
        let result = match (change, current) {
            (Change::Apply { merged, .. }, Some(current)) if !is_first => {
                remove(api, &key, current, merged).await
            }
            (Change::Create(desired) | Change::Apply { desired, .. }, _) => apply(api, &key, desired).await,
            (Change::Replace(_) | Change::Delete(_), _) => {
                delete(api, &key, current).await.map(|()| Value::Null)
            }
        };
        match result {
            Ok(written) => {
                self.succeeded(&key);
                if let Change::Create(desired) | Change::Apply { desired, .. } = change {
                    self.next_step(&key, desired, &written, is_first);
                }
                outcome.deleted = written.is_null();
                outcome.written = Some(written).filter(|written| !written.is_null());
            }
            Err(error) => {
                tracing::warn!(object = %key, error = &error as &dyn std::error::Error, "cannot write an object of the installation");
                self.failed(&key, error.message());
                outcome.reverted = None;
            }
        }
        outcome
    }

    /// What is still to be written after a write: an apply leaves fields that others own.
    fn next_step(&mut self, key: &ObjectKey, desired: &Object, written: &Value, was_first: bool) {
        let Some(Difference::Merged { merged, .. }) = difference(desired, written) else {
            self.attempt(key).step = Step::Apply;
            return;
        };
        if was_first {
            let attempt = self.attempt(key);
            attempt.step = Step::Remove;
            attempt.is_pending = true;
        } else {
            self.not_kept(key, written, &first_difference(written, &merged));
        }
    }

    /// Why the last write of an object failed.
    pub(super) fn error(&self, key: &ObjectKey) -> Option<&str> {
        self.objects.get(key)?.error.as_deref()
    }

    /// The errors of objects that are no longer desired and cannot be deleted.
    pub(super) fn failed_deletions(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let failed = self.objects.iter().filter(|(_, attempt)| attempt.is_deletion);
        failed.filter_map(|(key, attempt)| Some((key, attempt.error.as_deref()?)))
    }

    /// How long to wait for the next deferred or failed write.
    pub(super) fn next_attempt(&self) -> Duration {
        let now = Instant::now();
        let pending = self.objects.values().filter(|attempt| attempt.is_pending);
        let next = pending.map(|attempt| attempt.next.saturating_duration_since(now)).min();
        next.map_or(Duration::MAX, |next| next.max(Duration::from_millis(10)))
    }

    /// Forgets errors of objects that need no write any more: others may have written what was desired.
    pub(super) fn settle(&mut self, changes: &[Change]) {
        let changed: BTreeSet<ObjectKey> = changes.iter().map(Change::key).collect();
        for (key, attempt) in &mut self.objects {
            if !attempt.is_pending && !changed.contains(key) && !is_settings(key) {
                attempt.error = None;
                attempt.step = Step::Apply;
            }
        }
    }

    /// Forgets objects that are neither desired nor waiting for an attempt.
    pub(super) fn forget_others(&mut self, desired: &Desired) {
        let wanted: BTreeSet<ObjectKey> = desired.objects().map(ObjectKey::of).collect();
        let now = Instant::now();
        self.objects.retain(|key, attempt| {
            wanted.contains(key) || is_settings(key) || attempt.next > now || attempt.is_pending
        });
    }

    /// Removes the conversion webhook of the Queue CRD that versions of KAI before 0.9 installed.
    pub(super) async fn drop_queue_conversion(&mut self, api: &Api) {
        if self.queue_conversion_checked {
            return;
        }
        match remove_conversion(api).await {
            Ok(()) => self.queue_conversion_checked = true,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot remove the conversion webhook of the Queue CRD"
            ),
        }
    }
}

fn reverted(key: &ObjectKey) -> String {
    format!(
        "{key} was changed by others and has been restored; hint: change the setting in the Config or \
         SchedulingShard instead"
    )
}

/// Whether only conditions of the object are written.
fn is_settings(key: &ObjectKey) -> bool {
    ["Config", "SchedulingShard"].contains(&key.kind.as_str())
}

async fn apply(api: &Api, key: &ObjectKey, desired: &Object) -> Result<Value> {
    let kind = resource(key)?;
    let path = kind.path_of(&Key::new(&key.namespace, &key.name));
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    api.send("PATCH", &path, Some(("application/apply-patch+yaml", desired))).await
}

/// Removes decided fields that others own and that an apply leaves in place.
async fn remove(api: &Api, key: &ObjectKey, current: &Value, merged: &Value) -> Result<Value> {
    let patched = api.patch_difference_dynamic(&resource(key)?, Part::Main, current, merged).await?;
    Ok(patched.unwrap_or_else(|| current.clone()))
}

/// The path of the first field in which two values differ.
fn first_difference(stored: &Value, wanted: &Value) -> String {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            let fields: BTreeSet<&String> = stored.keys().chain(wanted.keys()).collect();
            let differs = |field: &&String| stored.get(*field) != wanted.get(*field);
            let Some(field) = fields.into_iter().find(differs) else { return String::new() };
            match (stored.get(field), wanted.get(field)) {
                (Some(stored), Some(wanted)) => match first_difference(stored, wanted) {
                    below if below.is_empty() => field.clone(),
                    below => format!("{field}.{below}"),
                },
                _ => field.clone(),
            }
        }
        (Value::Array(stored), Value::Array(wanted)) if stored.len() == wanted.len() => {
            let pairs = stored.iter().zip(wanted).enumerate();
            let differing = pairs.filter(|(_, (stored, wanted))| stored != wanted).take(1);
            let path = differing.map(|(number, (stored, wanted))| match first_difference(stored, wanted) {
                below if below.is_empty() => number.to_string(),
                below => format!("{number}.{below}"),
            });
            path.collect()
        }
        _ => String::new(),
    }
}

async fn delete(api: &Api, key: &ObjectKey, current: Option<&Value>) -> Result<()> {
    let kind = resource(key)?;
    let mut options = DeleteOptions::default().propagate("Background");
    options.uid = current.map(|object| object::uid(object).to_owned());
    match api.delete_dynamic(&kind, &Key::new(&key.namespace, &key.name), &options).await {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

fn resource(key: &ObjectKey) -> Result<ResourceKind> {
    kind_of(key).ok_or_else(|| Error::InvalidPath { path: key.to_string() })
}

async fn remove_conversion(api: &Api) -> Result<()> {
    let kind = ResourceKind::of::<CustomResourceDefinition>();
    let queues = ResourceKind::of::<Queue>();
    let key = Key::new("", format!("{}.{}", queues.plural, queues.group));
    let definition = match api.get_dynamic(&kind, &key).await {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    if object::str_at(&definition, "/spec/conversion/strategy") == "Webhook" {
        let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
        api.patch_dynamic(&kind, &key, Part::Main, &patch).await?;
    }
    Ok(())
}
