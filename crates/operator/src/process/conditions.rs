//! Writes the conditions of the `Config` and of the shards.

use super::watched::{Watched, kind_of};
use super::writes::Permit;
use super::{CONFIG, Operator, Read, shard_key};
use crate::plan::is_owned_by;
use crate::status::{Condition, Observed, conditions, unreadable};
use crate::{Desired, Facts, ObjectKey, Operand};
use kai_object as object;
use kai_runtime::api::Part;
use kai_runtime::event::EventType;
use kai_runtime::kind::Key;
use serde_json::{Value, json};

impl Operator {
    /// Writes conditions that differ from the stored ones.
    pub(super) async fn write_conditions(
        &mut self,
        watched: &Watched,
        desired: &Desired,
        read: &Read,
        facts: &Facts,
    ) {
        let owners = facts
            .objects
            .iter()
            .filter(|(key, _)| key.kind == "Config" && key.name == CONFIG || key.kind == "SchedulingShard");
        for (key, owner) in owners {
            let conditions = self.conditions_of(key, owner, desired, read, facts);
            let now = self.clock.time();
            let Some(list) = merged(owner, &conditions, &now) else { continue };
            if self.writes.is_not_kept(key, owner) {
                continue;
            }
            if self.writes.permit(key) == Permit::Later {
                self.writes.defer(key);
                continue;
            }
            self.report_changes(facts, key, owner, &conditions);
            let Some(kind) = kind_of(key) else { continue };
            let patch = json!({
                "metadata": {"resourceVersion": object::meta_str(owner, "resourceVersion")},
                "status": {"conditions": list},
            });
            match self.api.patch_dynamic(&kind, &Key::new("", &key.name), Part::Status, &patch).await {
                Ok(written) => {
                    self.writes.succeeded(key);
                    if merged(&written, &conditions, &now).is_some() {
                        self.writes.not_kept(key, &written, "status.conditions");
                    }
                    watched.put(&written);
                }
                // The change that caused the conflict is on its way.
                Err(error) if error.is_conflict() => {
                    self.writes.succeeded(key);
                    self.writes.defer(key);
                }
                Err(error) => {
                    tracing::warn!(object = %key, error = &error as &dyn std::error::Error, "cannot write conditions");
                    self.writes.failed(key, error.message());
                }
            }
        }
    }

    fn conditions_of(
        &self,
        key: &ObjectKey,
        owner: &Value,
        desired: &Desired,
        read: &Read,
        facts: &Facts,
    ) -> Vec<Condition> {
        let generation = object::generation(owner);
        if let Some(error) = read.unreadable.get(key) {
            return unreadable(generation, error);
        }
        let operands: &[Operand] = if key.kind == "Config" {
            &desired.config
        } else {
            let shard = desired.shards.iter().find(|(name, _)| shard_key(name) == *key);
            shard.map_or(&[], |(_, operand)| std::slice::from_ref(operand))
        };
        let wanted = operands.iter().flat_map(|operand| &operand.objects).map(ObjectKey::of);
        let failures = wanted.filter_map(|key| Some(format!("{key}: {}", self.writes.error(&key)?)));
        let owned = |object: &Value| is_owned_by(object, &key.kind, &key.name);
        let remaining = self
            .writes
            .failed_deletions()
            .filter(|(failed, _)| facts.objects.get(failed).is_some_and(owned))
            .map(|(failed, error)| format!("{failed}: cannot be deleted: {error}"));
        let failures: Vec<String> = failures.chain(remaining).collect();
        conditions(&Observed {
            generation,
            operands,
            objects: &facts.objects,
            kept: facts.objects.values().filter(|object| owned(object)).collect(),
            failures: &failures,
            external_prometheus: facts.external_prometheus.as_ref(),
        })
    }

    /// An event when the installation becomes ready, and when it cannot be reconciled.
    fn report_changes(&self, facts: &Facts, key: &ObjectKey, owner: &Value, conditions: &[Condition]) {
        for condition in conditions {
            let known = stored(owner, condition.type_);
            let is_same = known.is_some_and(|known| {
                object::str_at(known, "/status") == status(condition)
                    && object::str_at(known, "/message") == condition.message
            });
            let (type_, reason) = match (condition.type_, condition.status) {
                _ if is_same => continue,
                ("Ready", true) => (EventType::Normal, "Ready"),
                ("Reconciling", true) => (EventType::Warning, "ReconcileFailed"),
                _ => continue,
            };
            self.event(&facts.objects, key, type_, reason, condition.message.clone());
        }
    }
}

fn status(condition: &Condition) -> &'static str {
    if condition.status { "True" } else { "False" }
}

fn stored<'a>(owner: &'a Value, type_: &str) -> Option<&'a Value> {
    let list = owner.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten().find(|condition| object::str_at(condition, "/type") == type_)
}

/// The stored list with these conditions; none where nothing changes. Conditions of others stay.
fn merged(owner: &Value, conditions: &[Condition], now: &str) -> Option<Vec<Value>> {
    let known = owner.pointer("/status/conditions").and_then(Value::as_array);
    let mut list = known.cloned().unwrap_or_default();
    for condition in conditions {
        let before = stored(owner, condition.type_);
        let same_status = before.filter(|before| object::str_at(before, "/status") == status(condition));
        let since = same_status.map_or(now, |before| object::str_at(before, "/lastTransitionTime"));
        let new = json!({
            "type": condition.type_,
            "status": status(condition),
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": condition.observed_generation,
            "lastTransitionTime": if since.is_empty() { now } else { since },
        });
        match list.iter_mut().find(|known| object::str_at(known, "/type") == condition.type_) {
            Some(known) => *known = new,
            None => list.push(new),
        }
    }
    (known != Some(&list)).then_some(list)
}
