//! Compares an existing cluster with the objects that a trial requires: missing, different, or created by an earlier trial.

use anyhow::{Context, Result, anyhow, bail};
use kai_components::install::{self, Manifest};
use kai_components::{Component, rbac};
use kai_object as object;
use kai_runtime::ResourceKind;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{self, CLUSTER_ROLE, ROLE_BINDING};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE, TOPOLOGY};
use serde_json::{Value, json};
use std::time::Duration;

/// Label of all objects that a trial creates.
pub(super) const MADE_BY: (&str, &str) = ("kai.scheduler/made-by", "kai-up");
/// How often to check whether new definitions are served.
const SERVED_STEPS: u32 = 150;
const STEP: Duration = Duration::from_millis(200);

/// An existing object that differs from the required one.
#[derive(Clone, Debug)]
pub(super) struct Different {
    pub(super) wanted: Manifest,
    existing: Value,
    /// The first field that differs.
    pub(super) field: String,
}

#[derive(Debug, Default)]
pub(super) struct RequiredObjects {
    /// In the order in which they can be created.
    pub(super) missing: Vec<Manifest>,
    pub(super) different: Vec<Different>,
    /// Existing objects that a trial has created.
    pub(super) created: Vec<Manifest>,
}

impl RequiredObjects {
    pub(super) async fn read(api: &Api) -> Result<Self> {
        let mut objects = Self::default();
        for mut wanted in wanted(api).await? {
            wanted.object["metadata"]["labels"][MADE_BY.0] = Value::from(MADE_BY.1);
            let key = kai_runtime::key_of(&wanted.object);
            match api.get_dynamic(&wanted.kind, &key).await {
                Ok(existing) => objects.compare(wanted, existing),
                Err(error) if error.is_not_found() => objects.missing.push(wanted),
                Err(error) => {
                    let (kind, message) = (&wanted.kind.kind, error.message());
                    bail!(
                        "cannot read {kind} `{key}`: {message}; hint: a trial needs the kubeconfig of a cluster administrator"
                    );
                }
            }
        }
        Ok(objects)
    }

    fn compare(&mut self, wanted: Manifest, existing: Value) {
        if existing["metadata"]["labels"][MADE_BY.0] == MADE_BY.1 {
            self.created.push(wanted.clone());
        }
        let field = compared_fields(&wanted.kind).iter().find_map(|field| {
            difference(&wanted.object[*field], &existing[*field]).map(|below| format!("{field}{below}"))
        });
        if let Some(field) = field {
            self.different.push(Different { wanted, existing, field });
        }
    }
}

/// All objects that a trial requires. Default queues are required only in a cluster without other queues.
async fn wanted(api: &Api) -> Result<Vec<Manifest>> {
    let mut wanted = install::custom_resource_definitions()?;
    wanted.extend(install::namespaces());
    for object in rbac::objects(Component::ResourceReservation.spec()) {
        let kinds = [kind::SERVICE_ACCOUNT, CLUSTER_ROLE, ROLE_BINDING];
        let kind = kinds.into_iter().find(|kind| *kind.kind == *object::kind(&object));
        wanted.push(Manifest::new(
            kind.context("the RBAC objects of reservation pods have an unknown kind")?,
            object,
        ));
    }
    wanted.extend(install::priority_classes());
    let queues = queues(api).await?;
    let is_created = |queue: &Value| queue["metadata"]["labels"][MADE_BY.0] == MADE_BY.1;
    if queues.is_empty() || queues.iter().any(is_created) {
        wanted.extend(install::default_queues());
    }
    Ok(wanted)
}

/// Existing queues; none where the definition is missing.
async fn queues(api: &Api) -> Result<Vec<Value>> {
    for _ in 0..SERVED_STEPS {
        match api.list_dynamic(&QUEUE, "").await {
            Ok(list) => return Ok(list.items),
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            // A resource whose definition has just changed responds with 429 at first.
            Err(error) if error.code() == 429 => tokio::time::sleep(STEP).await,
            Err(error) => bail!("cannot list the queues: {}", error.message()),
        }
    }
    bail!("cannot list the queues: the server is busy; hint: try again later")
}

pub(super) async fn create(api: &Api, manifest: &Manifest) -> Result<()> {
    let created =
        api.create_dynamic(&manifest.kind, object::namespace(&manifest.object), &manifest.object).await;
    created.map_err(|error| anyhow!("cannot create {}: {}", name(manifest), error.message()))?;
    Ok(())
}

/// Replaces the compared fields of an object; the others stay.
pub(super) async fn replace(api: &Api, different: &Different) -> Result<()> {
    let Different { wanted, existing, .. } = different;
    let mut new = existing.clone();
    for field in compared_fields(&wanted.kind) {
        new[*field] = wanted.object[*field].clone();
    }
    let replaced = api.patch_difference_dynamic(&wanted.kind, Part::Main, existing, &new).await;
    replaced.map_err(|error| anyhow!("cannot replace {}: {}", name(wanted), error.message()))?;
    Ok(())
}

/// Waits until the server serves the custom resources.
pub(super) async fn wait_until_served(api: &Api) -> Result<()> {
    for kind in [&*QUEUE, &*POD_GROUP, &*BIND_REQUEST, &*TOPOLOGY] {
        let mut steps = 0;
        while let Err(error) = api.list_dynamic(kind, "").await {
            steps += 1;
            // A new resource responds with 404 at first, then with transient errors.
            if !(error.is_not_found() || error.is_transient()) || steps > SERVED_STEPS {
                bail!("the server does not serve {}: {}", kind.plural, error.message());
            }
            tokio::time::sleep(STEP).await;
        }
    }
    Ok(())
}

/// Whether objects of the kind can be replaced; the value of a `PriorityClass` is immutable.
pub(super) fn is_replaceable(kind: &ResourceKind) -> bool {
    *kind == kind::CUSTOM_RESOURCE_DEFINITION || *kind == CLUSTER_ROLE
}

/// Kind and name, such as `Queue default-queue`.
pub(super) fn name(manifest: &Manifest) -> String {
    format!("{} {}", manifest.kind.kind, kai_runtime::key_of(&manifest.object))
}

/// Fields that have to match; administrators may change the others.
fn compared_fields(kind: &ResourceKind) -> &'static [&'static str] {
    match &*kind.kind {
        "CustomResourceDefinition" => &["spec"],
        "PriorityClass" => &["value"],
        "ClusterRole" => &["rules"],
        "RoleBinding" => &["roleRef", "subjects"],
        _ => &[],
    }
}

/// The path of the first field that does not contain the wanted value. Additional fields and descriptions are ignored.
fn difference(wanted: &Value, existing: &Value) -> Option<String> {
    match (wanted, existing) {
        (Value::Object(wanted), Value::Object(existing)) => wanted.iter().find_map(|(field, wanted)| {
            if field == "description" && wanted.is_string() {
                return None;
            }
            let below = difference(wanted, existing.get(field).unwrap_or(&Value::Null));
            below.map(|below| format!(".{field}{below}"))
        }),
        (Value::Array(wanted), Value::Array(existing)) if wanted.len() <= existing.len() => {
            let by_name = |item: &Value| existing.iter().find(|other| item["name"] == other["name"]).cloned();
            wanted.iter().enumerate().find_map(|(at, wanted)| {
                let other =
                    if wanted["name"].is_string() { by_name(wanted) } else { existing.get(at).cloned() };
                let below = difference(wanted, &other.unwrap_or_default());
                below.map(|below| format!("[{at}]{below}"))
            })
        }
        // A schema has 0.0, which the server returns as 0.
        (Value::Number(wanted), Value::Number(existing)) if wanted.as_f64() == existing.as_f64() => None,
        (wanted, existing) => {
            let nothing =
                |value: &Value| [json!(null), json!(false), json!(""), json!([]), json!({})].contains(value);
            (wanted != existing && !(nothing(wanted) && nothing(existing))).then(String::new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additional_fields_are_ignored() {
        let wanted = json!({"versions": [{"name": "v2", "served": true}], "preserve": false});
        let existing = json!({"versions": [{"name": "v1"}, {"name": "v2", "served": true, "more": 1}], "conversion": {}});
        assert_eq!(difference(&wanted, &existing), None);
        assert_eq!(difference(&json!({"minimum": 0.0}), &json!({"minimum": 0})), None);
        assert_eq!(difference(&json!({"description": "ours"}), &json!({"description": "theirs"})), None);
    }

    #[test]
    fn difference_is_reported_as_a_field_path() {
        let wanted = json!({"versions": [{"name": "v2", "schema": {"type": "object"}}]});
        let existing = json!({"versions": [{"name": "v2", "schema": {"type": "string"}}]});
        assert_eq!(difference(&wanted, &existing).as_deref(), Some(".versions[0].schema.type"));
        assert_eq!(
            difference(&json!({"required": ["a", "b"]}), &json!({"required": ["a"]})).as_deref(),
            Some(".required")
        );
        assert_eq!(difference(&json!(50), &Value::Null).as_deref(), Some(""));
    }
}
