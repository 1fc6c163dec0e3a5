//! Creates `ResourceClaim`s of pods from templates, and releases the claims of terminated pods.

use super::{annotation, owner_reference, pod};
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};

/// Annotation: the entry of `spec.resourceClaims` that the claim was created for.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// Finalizer that keeps a claim while it is allocated; set by the scheduler.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

#[derive(Debug)]
pub struct ResourceClaimController;

impl DynamicController for ResourceClaimController {
    const NAME: &'static str = "resourceclaim";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD, kind::RESOURCE_CLAIM, kind::RESOURCE_CLAIM_TEMPLATE]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        let namespace = object::namespace(changed);
        if *kind == kind::POD {
            let has_claims = changed.pointer("/spec/resourceClaims").is_some();
            return if has_claims { vec![kai_runtime::key_of(changed)] } else { Vec::new() };
        }
        let pods = informers.dynamic(&kind::POD).in_namespace(namespace);
        let users = pods.iter().filter(|pod| uses(pod, kind, object::name(changed)));
        let reserved = changed.pointer("/status/reservedFor").and_then(Value::as_array).into_iter().flatten();
        let reserved = reserved.map(|user| Key::new(namespace, object::str_at(user, "/name")));
        // The claim's own key is enqueued for the removal of its finalizer.
        users
            .map(|pod| kai_runtime::key_of(pod))
            .chain(reserved)
            .chain([kai_runtime::key_of(changed)])
            .collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        remove_finalizer(context, key).await?;
        let Some(found) = context.informers.dynamic(&kind::POD).get(key) else {
            release_deleted(context, key).await?;
            return Ok(Action::AwaitChange);
        };
        if pod::is_terminal(&found) {
            release_terminated(context, &found).await?;
            return Ok(Action::AwaitChange);
        }
        if object::is_deleting(&found) {
            return Ok(Action::AwaitChange);
        }
        let mut statuses = Vec::new();
        let entries = found.pointer("/spec/resourceClaims").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let name = object::str_at(entry, "/name");
            let template = object::str_at(entry, "/resourceClaimTemplateName");
            if template.is_empty() {
                continue;
            }
            let Some(claim) = claim_for(context, &found, name, template).await? else {
                return Ok(Action::AwaitChange);
            };
            statuses.push(json!({"name": name, "resourceClaimName": object::name(&claim)}));
        }
        if !statuses.is_empty() {
            let mut new = (*found).clone();
            object::map_mut(&mut new, "status")
                .insert("resourceClaimStatuses".to_owned(), Value::from(statuses));
            context.patch_difference_dynamic(&kind::POD, Part::Status, &found, &new).await?;
        }
        Ok(Action::AwaitChange)
    }
}

fn uses(pod: &Value, kind: &ResourceKind, name: &str) -> bool {
    let field = if *kind == kind::RESOURCE_CLAIM { "resourceClaimName" } else { "resourceClaimTemplateName" };
    let entries = pod.pointer("/spec/resourceClaims").and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| entry[field] == name)
}

/// Finds or creates the claim of a pod; `None` while the template does not exist.
async fn claim_for(context: &Context, pod: &Value, name: &str, template: &str) -> Result<Option<Value>> {
    let owned = context.informers.dynamic(&kind::RESOURCE_CLAIM).controlled_by(object::uid(pod));
    if let Some(found) = owned.iter().find(|claim| annotation(claim, POD_CLAIM) == name) {
        return Ok(Some((**found).clone()));
    }
    let namespace = object::namespace(pod);
    let key = Key::new(namespace, template);
    let Some(template) = context.informers.dynamic(&kind::RESOURCE_CLAIM_TEMPLATE).get(&key) else {
        return Ok(None);
    };
    let mut annotations =
        template.pointer("/spec/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    annotations[POD_CLAIM] = Value::from(name);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": format!("{}-{name}-", object::name(pod)), "namespace": namespace,
            "labels": template.pointer("/spec/metadata/labels").cloned().unwrap_or_else(|| json!({})),
            "annotations": annotations, "ownerReferences": [owner_reference(pod)],
        },
        "spec": template["spec"]["spec"].clone(),
    });
    context.create_dynamic(&kind::RESOURCE_CLAIM, namespace, &claim).await.map(Some)
}

/// Deletes the claims that a terminated pod owns, and removes it from `reservedFor` of the others.
async fn release_terminated(context: &Context, pod: &Value) -> Result<()> {
    for claim in context.informers.dynamic(&kind::RESOURCE_CLAIM).controlled_by(object::uid(pod)) {
        if !object::is_deleting(&claim) {
            context.delete_dynamic(&kind::RESOURCE_CLAIM, &claim, DeleteOptions::of(&claim)).await?;
        }
    }
    release(context, object::namespace(pod), |user| object::str_at(user, "/uid") == object::uid(pod)).await
}

async fn release_deleted(context: &Context, pod: &Key) -> Result<()> {
    release(context, &pod.namespace, |user| object::str_at(user, "/name") == pod.name).await
}

fn is_protected(claim: &Value) -> bool {
    let finalizers = object::meta(claim, "finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|name| name == DELETE_PROTECTION)
}

fn users(claim: &Value) -> &[Value] {
    claim.pointer("/status/reservedFor").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Removes the finalizer of a deleted claim without users.
async fn remove_finalizer(context: &Context, key: &Key) -> Result<()> {
    let Some(claim) = context.informers.dynamic(&kind::RESOURCE_CLAIM).get(key) else { return Ok(()) };
    if !object::is_deleting(&claim) || !is_protected(&claim) || !users(&claim).is_empty() {
        return Ok(());
    }
    let mut new = (*claim).clone();
    let finalizers =
        object::meta(&claim, "finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let left = finalizers.into_iter().filter(|name| name != DELETE_PROTECTION).collect();
    object::set_meta(&mut new, "finalizers", Some(Value::Array(left)));
    context.patch_difference_dynamic(&kind::RESOURCE_CLAIM, Part::Main, &claim, &new).await?;
    Ok(())
}

/// Removes users from `reservedFor` of the claims in a namespace; a protected claim without users is deallocated.
async fn release(context: &Context, namespace: &str, is_gone: impl Fn(&Value) -> bool) -> Result<()> {
    for claim in context.informers.dynamic(&kind::RESOURCE_CLAIM).in_namespace(namespace) {
        if !users(&claim).iter().any(&is_gone) {
            continue;
        }
        let left: Vec<&Value> = users(&claim).iter().filter(|user| !is_gone(user)).collect();
        let mut new = (*claim).clone();
        let status = object::map_mut(&mut new, "status");
        if left.is_empty() {
            status.remove("reservedFor");
            if is_protected(&claim) {
                status.remove("allocation");
                status.remove("devices");
            }
        } else {
            status.insert("reservedFor".to_owned(), json!(left));
        }
        context.patch_difference_dynamic(&kind::RESOURCE_CLAIM, Part::Status, &claim, &new).await?;
    }
    Ok(())
}
