//! Binds `PersistentVolumeClaim`s to volumes, and provisions volumes of simulated storage classes.

use super::{annotation, pod, set_entry};
use kai_apiserver::selector::LabelSelector;
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_units::Quantity;
use serde_json::{Value, json};
use std::sync::Arc;

/// Provisioner of simulated storage classes.
pub const PROVISIONER: &str = "sim.kai.scheduler/disk";
/// Annotation of the default storage class.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Annotation by the scheduler: the node of the first consumer.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Finalizers of claims and volumes in use.
const PROTECTION_FINALIZERS: [&str; 2] = ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"];

/// Keys of claims have a namespace, keys of volumes have none.
#[derive(Debug)]
pub struct PersistentVolumeController;

impl DynamicController for PersistentVolumeController {
    const NAME: &'static str = "persistentvolume";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::PERSISTENT_VOLUME_CLAIM, kind::PERSISTENT_VOLUME, kind::STORAGE_CLASS, kind::POD]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        let pending = || {
            let claims = informers.dynamic(&kind::PERSISTENT_VOLUME_CLAIM).list();
            claims
                .iter()
                .filter(|claim| !is_bound(claim))
                .map(|claim| kai_runtime::key_of(claim))
                .collect::<Vec<_>>()
        };
        if *kind == kind::PERSISTENT_VOLUME_CLAIM {
            let volume = object::str_at(changed, "/spec/volumeName");
            let volume = (!volume.is_empty()).then(|| Key::new("", volume));
            return std::iter::once(kai_runtime::key_of(changed)).chain(volume).collect();
        }
        if *kind == kind::POD {
            // Pods matter only to terminating claims.
            let claims = claims_of(changed).map(|name| Key::new(object::namespace(changed), name));
            return claims
                .filter(|key| {
                    informers
                        .dynamic(&kind::PERSISTENT_VOLUME_CLAIM)
                        .get(key)
                        .is_some_and(|claim| object::is_deleting(&claim))
                })
                .collect();
        }
        let mut keys = pending();
        if *kind == kind::PERSISTENT_VOLUME {
            keys.push(kai_runtime::key_of(changed));
        }
        keys
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        if key.namespace.is_empty() {
            sync_volume(context, key).await
        } else {
            sync_claim(context, key).await
        }
    }
}

fn is_bound(claim: &Value) -> bool {
    phase(claim) == "Bound"
}

/// Sets the phase of a volume, and deletes released ones with reclaim policy `Delete`.
async fn sync_volume(context: &Context, key: &Key) -> Result<Action> {
    let Some(volume) = context.informers.dynamic(&kind::PERSISTENT_VOLUME).get(key) else {
        return Ok(Action::AwaitChange);
    };
    if object::is_deleting(&volume) {
        let bound = phase(&volume) == "Bound" && claim_of(context, &volume).is_some();
        return if bound {
            Ok(Action::AwaitChange)
        } else {
            remove_protection(context, &kind::PERSISTENT_VOLUME, &volume).await
        };
    }
    let phase = match volume.pointer("/spec/claimRef") {
        None => "Available",
        Some(reference) => match claim_of(context, &volume) {
            Some(claim) if object::str_at(&claim, "/spec/volumeName") == key.name => "Bound",
            Some(_) => "Available",
            // Pre-bound by name to a claim that does not exist yet.
            None if object::str_at(reference, "/uid").is_empty() => "Available",
            None => "Released",
        },
    };
    if phase == "Released" && object::str_at(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        context.delete_dynamic(&kind::PERSISTENT_VOLUME, &volume, DeleteOptions::of(&volume)).await?;
        return Ok(Action::AwaitChange);
    }
    let mut new = (*volume).clone();
    object::map_mut(&mut new, "status").insert("phase".to_owned(), Value::from(phase));
    context.patch_difference_dynamic(&kind::PERSISTENT_VOLUME, Part::Status, &volume, &new).await?;
    Ok(Action::AwaitChange)
}

/// The claim in `claimRef` of a volume.
fn claim_of(context: &Context, volume: &Value) -> Option<Arc<Value>> {
    let reference = volume.pointer("/spec/claimRef")?;
    let key = Key::new(object::str_at(reference, "/namespace"), object::str_at(reference, "/name"));
    let uid = object::str_at(reference, "/uid");
    let claim = context.informers.dynamic(&kind::PERSISTENT_VOLUME_CLAIM).get(&key)?;
    (uid.is_empty() || object::uid(&claim) == uid).then_some(claim)
}

fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str())
}

fn phase(object: &Value) -> &str {
    object::str_at(object, "/status/phase")
}

/// Removes the protection finalizers.
async fn remove_protection(context: &Context, kind: &ResourceKind, object: &Value) -> Result<Action> {
    let mut new = object.clone();
    let left: Vec<&str> =
        object::finalizers(object).into_iter().filter(|name| !PROTECTION_FINALIZERS.contains(name)).collect();
    object::set_finalizers(&mut new, &left);
    match context.patch_difference_dynamic(kind, Part::Main, object, &new).await {
        Err(error) if error.is_not_found() => context.informers.remove_dynamic(kind, object),
        written => {
            written?;
        }
    }
    Ok(Action::AwaitChange)
}

async fn sync_claim(context: &Context, key: &Key) -> Result<Action> {
    let Some(claim) = context.informers.dynamic(&kind::PERSISTENT_VOLUME_CLAIM).get(key) else {
        return Ok(Action::AwaitChange);
    };
    if object::is_deleting(&claim) {
        let pods = context.informers.dynamic(&kind::POD).in_namespace(&key.namespace);
        let used =
            pods.iter().any(|pod| !pod::is_terminal(pod) && claims_of(pod).any(|name| name == key.name));
        return if used {
            Ok(Action::AwaitChange)
        } else {
            remove_protection(context, &kind::PERSISTENT_VOLUME_CLAIM, &claim).await
        };
    }
    if is_bound(&claim) {
        return Ok(Action::AwaitChange);
    }
    if claim.pointer("/spec/storageClassName").is_none() {
        return set_default_class(context, &claim).await;
    }
    let named = object::str_at(&claim, "/spec/volumeName");
    let found = if named.is_empty() {
        let mut volumes = context.informers.dynamic(&kind::PERSISTENT_VOLUME).list();
        if waits_for_first_consumer(context, &claim) {
            // The scheduler selects the volume together with the node, and sets its `claimRef`.
            volumes.retain(|volume| volume.pointer("/spec/claimRef").is_some());
        }
        find_volume(&claim, &volumes)
    } else {
        context
            .informers
            .dynamic(&kind::PERSISTENT_VOLUME)
            .get(&Key::new("", named))
            .filter(|volume| is_free_for(volume, &claim))
    };
    let volume = match found {
        Some(volume) => volume,
        None if named.is_empty() => match provision(context, &claim).await? {
            Some(volume) => Arc::new(volume),
            None => return Ok(Action::AwaitChange),
        },
        None => return Ok(Action::AwaitChange),
    };
    bind(context, &claim, &volume).await
}

fn waits_for_first_consumer(context: &Context, claim: &Value) -> bool {
    let class = Key::new("", object::str_at(claim, "/spec/storageClassName"));
    let class = context.informers.dynamic(&kind::STORAGE_CLASS).get(&class);
    class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
}

async fn set_default_class(context: &Context, claim: &Value) -> Result<Action> {
    let classes = context.informers.dynamic(&kind::STORAGE_CLASS).list();
    let Some(class) = classes.iter().find(|class| annotation(class, DEFAULT_CLASS) == "true") else {
        return Ok(Action::AwaitChange);
    };
    let mut new = claim.clone();
    new["spec"]["storageClassName"] = Value::from(object::name(class));
    context.patch_difference_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, Part::Main, claim, &new).await?;
    Ok(Action::AwaitChange)
}

fn is_free_for(volume: &Value, claim: &Value) -> bool {
    if object::is_deleting(volume) {
        return false;
    }
    let Some(reference) = volume.pointer("/spec/claimRef") else { return true };
    let uid = object::str_at(reference, "/uid");
    reference["name"] == object::name(claim)
        && reference["namespace"] == object::namespace(claim)
        && (uid.is_empty() || uid == object::uid(claim))
}

fn bytes(object: &Value, pointer: &str) -> i128 {
    object::str_at(object, pointer).parse::<Quantity>().map_or(0, Quantity::nanos)
}

/// The smallest matching volume; pre-bound ones first.
fn find_volume(claim: &Value, volumes: &[Arc<Value>]) -> Option<Arc<Value>> {
    let wanted = bytes(claim, "/spec/resources/requests/storage");
    let modes = |object: &Value| object["spec"]["accessModes"].as_array().cloned().unwrap_or_default();
    let selector = claim.pointer("/spec/selector").map(LabelSelector::from_object);
    let class = object::str_at(claim, "/spec/storageClassName");
    let fits = |volume: &Value| {
        let selected = match &selector {
            Some(selector) => selector.as_ref().is_ok_and(|selector| selector.matches_object(volume)),
            None => true,
        };
        is_free_for(volume, claim)
            && object::str_at(volume, "/spec/storageClassName") == class
            && bytes(volume, "/spec/capacity/storage") >= wanted
            && modes(claim).iter().all(|mode| modes(volume).contains(mode))
            && selected
    };
    let order = |volume: &Arc<Value>| {
        let reserved = volume.pointer("/spec/claimRef").is_some();
        (!reserved, bytes(volume, "/spec/capacity/storage"), object::name(volume).to_owned())
    };
    volumes.iter().filter(|volume| fits(volume)).min_by_key(|volume| order(volume)).map(Arc::clone)
}

/// Provisions a volume for a claim of a simulated class; `None` while it waits for its first consumer.
async fn provision(context: &Context, claim: &Value) -> Result<Option<Value>> {
    let class = Key::new("", object::str_at(claim, "/spec/storageClassName"));
    let Some(class) = context.informers.dynamic(&kind::STORAGE_CLASS).get(&class) else { return Ok(None) };
    let waits = object::str_at(&class, "/volumeBindingMode") == "WaitForFirstConsumer";
    if class["provisioner"] != PROVISIONER || (waits && annotation(claim, SELECTED_NODE).is_empty()) {
        return Ok(None);
    }
    let policy = match object::str_at(&class, "/reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": format!("pvc-{}", object::uid(claim)),
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim.pointer("/spec/resources/requests/storage").cloned().unwrap_or_else(|| json!("1Gi"))},
            "accessModes": claim["spec"]["accessModes"].clone(),
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": object::name(&class),
            "volumeMode": claim.pointer("/spec/volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
            "claimRef": reference(claim),
            "csi": {"driver": PROVISIONER, "volumeHandle": object::uid(claim)},
        },
    });
    match context.create_dynamic(&kind::PERSISTENT_VOLUME, "", &volume).await {
        // Provisioned before a crash; the watch event of the volume enqueues the claim.
        Err(error) if error.is_conflict() => Ok(None),
        created => created.map(Some),
    }
}

fn reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": object::namespace(claim),
        "name": object::name(claim), "uid": object::uid(claim),
    })
}

/// Binds the volume to the claim, then the claim to the volume, so that no other claim can take the volume.
async fn bind(context: &Context, claim: &Value, volume: &Value) -> Result<Action> {
    let mut bound_volume = volume.clone();
    let known = bound_volume.pointer("/spec/claimRef/uid").and_then(Value::as_str);
    if known != Some(object::uid(claim)) {
        bound_volume["spec"]["claimRef"] = reference(claim);
    }
    context.patch_difference_dynamic(&kind::PERSISTENT_VOLUME, Part::Main, volume, &bound_volume).await?;
    let mut bound = claim.clone();
    bound["spec"]["volumeName"] = Value::from(object::name(volume));
    set_entry(&mut bound, "annotations", "pv.kubernetes.io/bind-completed", "yes");
    set_entry(&mut bound, "annotations", "pv.kubernetes.io/bound-by-controller", "yes");
    context.patch_difference_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, Part::Main, claim, &bound).await?;
    let Some(claim) =
        context.informers.dynamic(&kind::PERSISTENT_VOLUME_CLAIM).get(&kai_runtime::key_of(claim))
    else {
        return Ok(Action::AwaitChange);
    };
    let mut bound = (*claim).clone();
    bound["status"] = json!({
        "phase": "Bound", "accessModes": volume["spec"]["accessModes"].clone(),
        "capacity": volume["spec"]["capacity"].clone(),
    });
    context.patch_difference_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, Part::Status, &claim, &bound).await?;
    Ok(Action::AwaitChange)
}
