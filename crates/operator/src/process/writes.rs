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
    backoff: Backoff,
    next: Instant,
    error: Option<String>,
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
    /// Sends a change, unless the object was written a moment ago.
    pub(super) async fn write(&mut self, api: &Api, change: &Change, current: Option<&Value>) -> Outcome {
        let key = change.key();
        let attempt = self.objects.entry(key.clone()).or_insert_with(|| Attempt {
            desired: None,
            backoff: Backoff::new(BACKOFF),
            next: Instant::now(),
            error: None,
        });
        if Instant::now() < attempt.next {
            return Outcome::default();
        }
        let mut outcome = Outcome::default();
        let result = match change {
            Change::Create(desired) => apply(api, &key, desired).await,
            Change::Apply { desired, .. } => {
                // The same was applied before: others have changed the object since.
                if attempt.desired.as_ref() == Some(desired) && attempt.error.is_none() {
                    outcome.reverted = Some(reverted(&key));
                }
                apply(api, &key, desired).await
            }
            Change::Replace(_) | Change::Delete(_) => delete(api, &key, current).await.map(|()| Value::Null),
        };
        attempt.desired = match change {
            Change::Create(desired) | Change::Apply { desired, .. } => Some(desired.clone()),
            Change::Replace(_) | Change::Delete(_) => None,
        };
        match result {
            Ok(written) => {
                attempt.error = None;
                attempt.backoff.reset();
                attempt.next = Instant::now() + INTERVAL_MIN;
                outcome.deleted = written.is_null();
                outcome.written = Some(written).filter(|written| !written.is_null());
            }
            Err(error) => {
                tracing::warn!(object = %key, error = &error as &dyn std::error::Error, "cannot write an object of the installation");
                attempt.error = Some(error.message());
                attempt.next = Instant::now() + attempt.backoff.next_delay();
                outcome.reverted = None;
            }
        }
        outcome
    }

    /// Why the last write of an object failed.
    pub(super) fn error(&self, key: &ObjectKey) -> Option<&str> {
        self.objects.get(key)?.error.as_deref()
    }

    /// The errors of objects that are no longer desired and cannot be deleted.
    pub(super) fn failed_deletions(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let failed = self.objects.iter().filter(|(_, attempt)| attempt.desired.is_none());
        failed.filter_map(|(key, attempt)| Some((key, attempt.error.as_deref()?)))
    }

    /// How long to wait for the next deferred or failed write.
    pub(super) fn next_attempt(&self) -> Duration {
        let now = Instant::now();
        let pending = self.objects.values().filter(|attempt| attempt.next > now || attempt.error.is_some());
        let next = pending.map(|attempt| attempt.next.saturating_duration_since(now)).min();
        next.map_or(Duration::MAX, |next| next.max(Duration::from_millis(10)))
    }

    /// Forgets objects that are neither desired nor waiting for an attempt.
    pub(super) fn forget_others(&mut self, desired: &Desired) {
        let wanted: BTreeSet<ObjectKey> = desired.objects().map(ObjectKey::of).collect();
        let now = Instant::now();
        self.objects.retain(|key, attempt| {
            wanted.contains(key) || attempt.next > now || attempt.error.is_some() && attempt.desired.is_none()
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

/// Applies the desired fields, then removes decided fields that others own and that an apply leaves in place.
async fn apply(api: &Api, key: &ObjectKey, desired: &Object) -> Result<Value> {
    let kind = resource(key)?;
    let path = kind.path_of(&Key::new(&key.namespace, &key.name));
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    let written = api.send("PATCH", &path, Some(("application/apply-patch+yaml", desired))).await?;
    match difference(desired, &written) {
        Some(Difference::Merged { merged, .. }) => {
            let patched = api.patch_difference_dynamic(&kind, Part::Main, &written, &merged).await?;
            Ok(patched.unwrap_or(written))
        }
        Some(Difference::Immutable) | None => Ok(written),
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
