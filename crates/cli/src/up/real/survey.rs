//! What a cluster has of what we need: what is missing, what differs, and what an earlier trial made.

use anyhow::{Context, Result, anyhow, bail};
use kai_components::install::{self, Manifest};
use kai_components::{Component, rbac};
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{self, untyped};
use kai_runtime::{Key, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP, QUEUE, TOPOLOGY};
use serde_json::{Value, json};
use std::time::Duration;

/// The label of everything that a trial makes.
pub(super) const MADE_BY: (&str, &str) = ("kai.scheduler/made-by", "kai-up");
const ROLE: ResourceKind = untyped("rbac.authorization.k8s.io", "v1", "Role", "roles", true);
const ROLE_BINDING: ResourceKind =
    untyped("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true);
/// How long new definitions may take until they are served.
const SERVED_STEPS: u32 = 150;
const STEP: Duration = Duration::from_millis(200);

/// Something that is there and not as we would make it.
#[derive(Clone, Debug)]
pub(super) struct Different {
    pub(super) wanted: Manifest,
    there: Value,
    /// Which field differs first.
    pub(super) field: String,
}

/// What a cluster has of what we need.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What is not there, in the order in which it can be made.
    pub(super) missing: Vec<Manifest>,
    /// What is there and differs.
    pub(super) different: Vec<Different>,
    /// What is there and was made by a trial.
    pub(super) ours: Vec<Manifest>,
}

impl Survey {
    /// Looks at a cluster.
    pub(super) async fn of(api: &Api) -> Result<Self> {
        let mut survey = Self::default();
        for mut wanted in wanted(api).await? {
            wanted.object["metadata"]["labels"][MADE_BY.0] = Value::from(MADE_BY.1);
            let key = Key::of(&wanted.object);
            match api.get_dynamic(&wanted.kind, &key).await {
                Ok(there) => survey.note(wanted, there),
                Err(error) if error.is_not_found() => survey.missing.push(wanted),
                Err(error) => {
                    let (kind, told) = (&wanted.kind.kind, error.message());
                    bail!(
                        "cannot read {kind} `{key}`: {told}; hint: a trial needs an administrator's kubeconfig"
                    );
                }
            }
        }
        Ok(survey)
    }

    fn note(&mut self, wanted: Manifest, there: Value) {
        if there["metadata"]["labels"][MADE_BY.0] == MADE_BY.1 {
            self.ours.push(wanted.clone());
        }
        let field = fields_that_matter(&wanted.kind).iter().find_map(|field| {
            difference(&wanted.object[*field], &there[*field]).map(|below| format!("{field}{below}"))
        });
        if let Some(field) = field {
            self.different.push(Different { wanted, there, field });
        }
    }
}

/// Everything that a trial needs. A cluster with queues of its own needs none of ours.
async fn wanted(api: &Api) -> Result<Vec<Manifest>> {
    let mut wanted = install::custom_resource_definitions()?;
    wanted.extend(install::namespaces());
    for object in rbac::objects(Component::ResourceReservation.spec()) {
        let kinds = [kind::SERVICE_ACCOUNT, ROLE, ROLE_BINDING];
        let kind = kinds.into_iter().find(|kind| *kind.kind == *object::kind(&object));
        wanted.push(Manifest::new(
            kind.context("the RBAC objects of reservation pods have an unknown kind")?,
            object,
        ));
    }
    wanted.extend(install::priority_classes());
    let queues = queues(api).await?;
    let made_by_us = |queue: &Value| queue["metadata"]["labels"][MADE_BY.0] == MADE_BY.1;
    if queues.is_empty() || queues.iter().any(made_by_us) {
        wanted.extend(install::default_queues());
    }
    Ok(wanted)
}

/// The queues that are there; none where there is no such kind.
async fn queues(api: &Api) -> Result<Vec<Value>> {
    for _ in 0..SERVED_STEPS {
        match api.list_dynamic(&QUEUE, "").await {
            Ok(there) => return Ok(there.items),
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            // A kind whose definition has just been changed is not ready at first.
            Err(error) if error.code() == 429 => tokio::time::sleep(STEP).await,
            Err(error) => bail!("cannot list the queues: {}", error.message()),
        }
    }
    bail!("cannot list the queues: the server is busy; hint: try again a little later")
}

/// Makes something that is missing.
pub(super) async fn make(api: &Api, manifest: &Manifest) -> Result<()> {
    let made =
        api.create_dynamic(&manifest.kind, object::namespace(&manifest.object), &manifest.object).await;
    made.map_err(|error| anyhow!("cannot make {}: {}", name(manifest), error.message()))?;
    Ok(())
}

/// Brings something that differs to what it should be; everything else of it stays.
pub(super) async fn replace(api: &Api, different: &Different) -> Result<()> {
    let Different { wanted, there, .. } = different;
    let mut new = there.clone();
    for field in fields_that_matter(&wanted.kind) {
        new[*field] = wanted.object[*field].clone();
    }
    let replaced = api.patch_difference_dynamic(&wanted.kind, Part::Main, there, &new).await;
    replaced.map_err(|error| anyhow!("cannot replace {}: {}", name(wanted), error.message()))?;
    Ok(())
}

/// Waits until the server knows our kinds.
pub(super) async fn served(api: &Api) -> Result<()> {
    for kind in [QUEUE, POD_GROUP, BIND_REQUEST, TOPOLOGY] {
        let mut steps = 0;
        while let Err(error) = api.list_dynamic(&kind, "").await {
            steps += 1;
            // A kind that has just been defined is not found at first, and then not ready.
            if !(error.is_not_found() || error.is_transient()) || steps > SERVED_STEPS {
                bail!("the server does not serve {}: {}", kind.plural, error.message());
            }
            tokio::time::sleep(STEP).await;
        }
    }
    Ok(())
}

/// Whether this can be replaced at all: the server lets nobody change what a priority class is worth.
pub(super) fn is_replaceable(kind: &ResourceKind) -> bool {
    *kind == kind::CUSTOM_RESOURCE_DEFINITION || *kind == ROLE
}

/// What something is called, such as `Queue default-queue`.
pub(super) fn name(manifest: &Manifest) -> String {
    format!("{} {}", manifest.kind.kind, Key::of(&manifest.object))
}

/// What must be as we would make it; the rest is its owner's business.
fn fields_that_matter(kind: &ResourceKind) -> &'static [&'static str] {
    match &*kind.kind {
        "CustomResourceDefinition" => &["spec"],
        "PriorityClass" => &["value"],
        "Role" => &["rules"],
        "RoleBinding" => &["roleRef", "subjects"],
        _ => &[],
    }
}

/// Where something does not contain all that is wanted; what it has besides does no harm. Words for people do not count.
fn difference(wanted: &Value, there: &Value) -> Option<String> {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => wanted.iter().find_map(|(field, wanted)| {
            if field == "description" && wanted.is_string() {
                return None;
            }
            let below = difference(wanted, there.get(field).unwrap_or(&Value::Null));
            below.map(|below| format!(".{field}{below}"))
        }),
        (Value::Array(wanted), Value::Array(there)) if wanted.len() <= there.len() => {
            let by_name = |item: &Value| there.iter().find(|other| item["name"] == other["name"]).cloned();
            wanted.iter().enumerate().find_map(|(at, wanted)| {
                let other = if wanted["name"].is_string() { by_name(wanted) } else { there.get(at).cloned() };
                let below = difference(wanted, &other.unwrap_or_default());
                below.map(|below| format!("[{at}]{below}"))
            })
        }
        // A schema's 0 comes back as 0, and goes out as 0.0.
        (Value::Number(wanted), Value::Number(there)) if wanted.as_f64() == there.as_f64() => None,
        (wanted, there) => {
            let nothing =
                |value: &Value| [json!(null), json!(false), json!(""), json!([]), json!({})].contains(value);
            (wanted != there && !(nothing(wanted) && nothing(there))).then(String::new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_besides_is_no_difference() {
        let wanted = json!({"versions": [{"name": "v2", "served": true}], "preserve": false});
        let there = json!({"versions": [{"name": "v1"}, {"name": "v2", "served": true, "more": 1}], "conversion": {}});
        assert_eq!(difference(&wanted, &there), None);
        assert_eq!(difference(&json!({"minimum": 0.0}), &json!({"minimum": 0})), None);
        assert_eq!(difference(&json!({"description": "ours"}), &json!({"description": "theirs"})), None);
    }

    #[test]
    fn a_difference_is_named_by_its_field() {
        let wanted = json!({"versions": [{"name": "v2", "schema": {"type": "object"}}]});
        let there = json!({"versions": [{"name": "v2", "schema": {"type": "string"}}]});
        assert_eq!(difference(&wanted, &there).as_deref(), Some(".versions[0].schema.type"));
        assert_eq!(
            difference(&json!({"required": ["a", "b"]}), &json!({"required": ["a"]})).as_deref(),
            Some(".required")
        );
        assert_eq!(difference(&json!(50), &Value::Null).as_deref(), Some(""));
    }
}
