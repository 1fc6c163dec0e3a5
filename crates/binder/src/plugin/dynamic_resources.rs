//! `dynamicresources`: gives a pod the devices that were chosen for its claims, and takes them back.
//!
//! A claim is allocated and reserved for the pod in its status. For extended resources that devices serve, the binder
//! makes the claim itself and tells the pod.

use crate::bind_target::BindTarget;
use crate::error::{Doing, Error, Result};
use crate::informers::annotation_of;
use kai_api::well_known::{annotation, label_value};
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use tokio::sync::OnceCell;

/// How often a claim is read and written again because somebody else wrote it in between.
const TRIES: usize = 6;
/// Keeps a claim from going while it is in use. Only claims that have it lose their devices when nobody uses them any
/// more.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The versions of the API that have what is written here, the best first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Claims on devices, in the version of the API that the server has.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    kind: OnceCell<ResourceKind>,
}

/// Whether a pod's devices are any of this step's business.
pub(crate) fn concerns(target: &BindTarget) -> bool {
    target.claims().next().is_some() || target.extended_claim().is_some()
}

/// The object behind a pod's claim; nothing when it has not been made yet.
fn claim_name<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let wanted = list("/spec/resourceClaims").find(|claim| claim["name"] == name)?;
    if let Some(direct) = wanted["resourceClaimName"].as_str() {
        return Some(direct);
    }
    let made = list("/status/resourceClaimStatuses").find(|made| made["name"] == name)?;
    made["resourceClaimName"].as_str()
}

fn is_user(user: &Value, pod: &Value) -> bool {
    user["resource"] == "pods"
        && object::str_at(user, "/apiGroup").is_empty()
        && user["name"] == object::name(pod)
        && user["uid"] == object::uid(pod)
}

fn users(claim: &Value) -> Vec<Value> {
    claim.pointer("/status/reservedFor").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Which devices an allocation is about, whatever else the server notes in it.
fn devices(allocation: &Value) -> Vec<[&str; 4]> {
    let results = allocation.pointer("/devices/results").and_then(Value::as_array);
    let text = |result, field| object::str_at(result, field);
    let of = |result| {
        [text(result, "/request"), text(result, "/driver"), text(result, "/pool"), text(result, "/device")]
    };
    results.into_iter().flatten().map(of).collect()
}

/// What is to be written to a claim next.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The claim with the devices, reserved for the pod: then it is done.
    Take(Value),
    /// The claim without what an earlier attempt chose for this pod alone. Devices can be given and taken, not changed.
    Free(Value),
    /// The claim that is marked as one to be freed, before it has anything that could be.
    Protect(Value),
}

/// The claim with [`FINALIZER`]; nothing when it has it.
fn protected(claim: &Value) -> Option<Value> {
    let known = object::meta(claim, "finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    if known.iter().any(|known| known == FINALIZER) {
        return None;
    }
    let mut new = claim.clone();
    let all: Vec<Value> = known.into_iter().chain([Value::from(FINALIZER)]).collect();
    object::set_meta(&mut new, "finalizers", Some(Value::Array(all)));
    Some(new)
}

/// What is to be written to give the pod these devices; refused while others use the claim with other devices.
fn allocated(claim: &Value, pod: &Value, allocation: &Value) -> Result<Step, String> {
    let mut users = users(claim);
    let mut new = claim.clone();
    let status = object::map_mut(&mut new, "status");
    let known = claim.pointer("/status/allocation").filter(|known| !known.is_null());
    match known {
        Some(known) if devices(known) == devices(allocation) => {}
        Some(_) if users.iter().any(|user| !is_user(user, pod)) => {
            return Err("other pods use it with other devices".to_owned());
        }
        Some(_) => {
            free(status);
            return Ok(Step::Free(new));
        }
        None => {
            if let Some(protected) = protected(claim) {
                return Ok(Step::Protect(protected));
            }
            status.insert("allocation".to_owned(), allocation.clone());
        }
    }
    if !users.iter().any(|user| is_user(user, pod)) {
        users.push(json!({"resource": "pods", "name": object::name(pod), "uid": object::uid(pod)}));
        status.insert("reservedFor".to_owned(), Value::Array(users));
    }
    Ok(Step::Take(new))
}

fn free(status: &mut Map<String, Value>) {
    for field in ["reservedFor", "allocation", "devices"] {
        status.remove(field);
    }
}

/// The claim without the pod; without users it has no devices either.
fn released(claim: &Value, pod: &Value) -> Value {
    let left: Vec<Value> = users(claim).into_iter().filter(|user| !is_user(user, pod)).collect();
    let mut new = claim.clone();
    if left.len() == users(claim).len() {
        return new;
    }
    let status = object::map_mut(&mut new, "status");
    if left.is_empty() {
        free(status);
    } else {
        status.insert("reservedFor".to_owned(), Value::Array(left));
    }
    new
}

impl Claims {
    /// Gives the pod what the request names.
    pub(crate) async fn prepare(&self, api: &Api, target: &BindTarget, pod: &Value) -> Result<()> {
        if !concerns(target) {
            return Ok(());
        }
        let kind = self.kind(api).await?;
        for (name, allocation) in target.claims() {
            let refused = |reason: &str| Error::Claim { claim: name.to_owned(), reason: reason.to_owned() };
            let allocation = allocation.ok_or_else(|| refused("the bind request names no devices for it"))?;
            let object = claim_name(pod, name).ok_or_else(|| refused("it has not been made yet"))?;
            let key = Key::new(&target.pod.namespace, object);
            change(api, kind, &key, |claim| allocated(claim, pod, allocation).map_err(|why| refused(&why)))
                .await?;
        }
        match target.extended_claim() {
            Some(wanted) => prepare_extended(api, kind, target, pod, wanted).await,
            None => Ok(()),
        }
    }

    /// Takes back what an attempt may have given; doing it twice does no harm.
    pub(crate) async fn undo(&self, api: &Api, target: &BindTarget, pod: &Value) -> Result<()> {
        if !concerns(target) {
            return Ok(());
        }
        let kind = self.kind(api).await?;
        for (name, _) in target.claims() {
            let Some(object) = claim_name(pod, name) else { continue };
            let key = Key::new(&target.pod.namespace, object);
            match change(api, kind, &key, |claim| Ok(Step::Take(released(claim, pod)))).await {
                Err(Error::Missing { .. }) => {}
                changed => changed?,
            }
        }
        if target.extended_claim().is_some() {
            undo_extended(api, kind, target, pod).await?;
        }
        Ok(())
    }

    /// The resource, in the best version that the server has.
    async fn kind(&self, api: &Api) -> Result<&ResourceKind> {
        self.kind
            .get_or_try_init(|| async {
                let path = "/apis/resource.k8s.io";
                let found = match api.send("GET", path, None).await {
                    Err(error) if error.is_not_found() => Value::Null,
                    found => found.doing(|| format!("read {path}"))?,
                };
                let served: Vec<&str> = found["versions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|version| version["version"].as_str())
                    .collect();
                let best = VERSIONS.into_iter().find(|version| served.contains(version));
                let best = best.ok_or(Error::Missing { kind: "API", name: "resource.k8s.io".to_owned() })?;
                Ok(ResourceKind { version: Cow::Borrowed(best), ..kind::RESOURCE_CLAIM })
            })
            .await
    }
}

/// Reads a claim and writes it anew, step by step, and again when others write it in between.
async fn change(
    api: &Api,
    kind: &ResourceKind,
    key: &Key,
    step: impl Fn(&Value) -> Result<Step>,
) -> Result<()> {
    for _ in 0..TRIES {
        let claim = match api.get_dynamic(kind, key).await {
            Err(error) if error.is_not_found() => {
                return Err(Error::Missing { kind: "resource claim", name: key.to_string() });
            }
            claim => claim.doing(|| format!("read resource claim `{key}`"))?,
        };
        let (new, part, last) = match step(&claim)? {
            Step::Take(new) => (new, Part::Status, true),
            Step::Free(new) => (new, Part::Status, false),
            Step::Protect(new) => (new, Part::Main, false),
        };
        match api.patch_difference_dynamic(kind, part, &claim, &new).await {
            Err(error) if error.is_conflict() => {}
            Ok(_) if !last => {}
            written => return written.map(|_| ()).doing(|| format!("write resource claim `{key}`")),
        }
    }
    Err(Error::Contended { kind: "resource claim", name: key.to_string() })
}

fn is_extended_of(claim: &Value, pod: &Value) -> bool {
    let owners = object::meta(claim, "ownerReferences").and_then(Value::as_array);
    let own = owners.into_iter().flatten().any(|owner| {
        owner["controller"] == true && owner["name"] == object::name(pod) && owner["uid"] == object::uid(pod)
    });
    own && annotation_of(claim, annotation::EXTENDED_RESOURCE_CLAIM) == label_value::TRUE
}

/// The claims that stand for extended resources of the pod; there is at most one, unless answers got lost.
async fn extended_of(api: &Api, kind: &ResourceKind, target: &BindTarget, pod: &Value) -> Result<Vec<Value>> {
    let listed =
        api.list_dynamic(kind, &target.pod.namespace).await.doing(|| "list resource claims".to_owned())?;
    Ok(listed.items.into_iter().filter(|claim| is_extended_of(claim, pod)).collect())
}

async fn prepare_extended(
    api: &Api,
    kind: &ResourceKind,
    target: &BindTarget,
    pod: &Value,
    wanted: &Value,
) -> Result<()> {
    let refused =
        |reason: &str| Error::Claim { claim: "extended resources".to_owned(), reason: reason.to_owned() };
    let allocation = wanted
        .get("allocation")
        .filter(|allocation| !allocation.is_null())
        .ok_or_else(|| refused("the bind request names no devices for them"))?;
    let found =
        extended_of(api, kind, target, pod).await?.into_iter().find(|claim| !object::is_deleting(claim));
    let claim = if let Some(claim) = found {
        claim
    } else {
        let claim = extended_claim(kind, pod, wanted);
        let made = api.create_dynamic(kind, &target.pod.namespace, &claim).await;
        made.doing(|| "create the resource claim of extended resources".to_owned())?
    };
    let key = Key::new(&target.pod.namespace, object::name(&claim));
    change(api, kind, &key, |claim| allocated(claim, pod, allocation).map_err(|why| refused(&why))).await?;
    let mappings = wanted.get("containerMappings").cloned().unwrap_or_else(|| json!([]));
    let status = json!({"resourceClaimName": object::name(&claim), "requestMappings": mappings});
    tell_pod(api, target, pod, status).await
}

/// The claim that stands for extended resources of the pod.
fn extended_claim(kind: &ResourceKind, pod: &Value, wanted: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": "ResourceClaim",
        "metadata": {
            "generateName": format!("{}-extended-resources-", object::name(pod)),
            "namespace": object::namespace(pod),
            "annotations": {annotation::EXTENDED_RESOURCE_CLAIM: label_value::TRUE},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": object::name(pod), "uid": object::uid(pod),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"devices": {"requests": wanted.get("deviceRequests").cloned().unwrap_or_else(|| json!([]))}},
    })
}

async fn tell_pod(api: &Api, target: &BindTarget, pod: &Value, status: Value) -> Result<()> {
    let patch =
        json!({"metadata": {"uid": object::uid(pod)}, "status": {"extendedResourceClaimStatus": status}});
    let written = api.patch_dynamic(&kind::POD, &target.pod, Part::Status, &patch).await;
    written.map(|_| ()).doing(|| format!("write the status of pod `{}`", target.pod))
}

async fn undo_extended(api: &Api, kind: &ResourceKind, target: &BindTarget, pod: &Value) -> Result<()> {
    for claim in extended_of(api, kind, target, pod).await? {
        let key = Key::new(&target.pod.namespace, object::name(&claim));
        match change(api, kind, &key, |claim| Ok(Step::Take(released(claim, pod)))).await {
            Err(Error::Missing { .. }) => continue,
            changed => changed?,
        }
        let doing = || format!("delete resource claim `{key}`");
        let unprotected = json!({"metadata": {"finalizers": null, "uid": object::uid(&claim)}});
        for done in [
            api.patch_dynamic(kind, &key, Part::Main, &unprotected).await,
            api.delete_dynamic(kind, &key, &DeleteOptions::of(&claim)).await,
        ] {
            match done {
                Err(error) if error.is_not_found() => {}
                done => {
                    done.doing(doing)?;
                }
            }
        }
    }
    match tell_pod(api, target, pod, Value::Null).await {
        Err(Error::Api { refusal, .. }) if refusal.is_not_found() => Ok(()),
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u"},
            "spec": {"resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "t"}, {"name": "shared", "resourceClaimName": "s"},
                {"name": "later", "resourceClaimTemplateName": "t"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "a-own-x1"}]},
        })
    }

    fn user(name: &str, uid: &str) -> Value {
        json!({"resource": "pods", "name": name, "uid": uid})
    }

    fn on(device: &str) -> Value {
        json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": device}]}})
    }

    #[test]
    fn claims_are_found_by_the_names_pods_give_them() {
        let pod = pod();
        assert_eq!(claim_name(&pod, "own"), Some("a-own-x1"));
        assert_eq!(claim_name(&pod, "shared"), Some("s"));
        assert_eq!(claim_name(&pod, "later"), None);
        assert_eq!(claim_name(&pod, "other"), None);
    }

    #[test]
    fn a_claim_is_allocated_once_and_reserved_for_each_pod() {
        let take = |claim: &Value, device: &str| match allocated(claim, &pod(), &on(device)) {
            Ok(Step::Take(new)) => new,
            other => panic!("{other:?}"),
        };
        let unprotected = json!({"metadata": {"name": "s", "finalizers": ["other"]}});
        let claim = json!({"metadata": {"name": "s", "finalizers": ["other", FINALIZER]}});
        assert_eq!(allocated(&unprotected, &pod(), &on("gpu-0")), Ok(Step::Protect(claim.clone())));
        let first = take(&claim, "gpu-0");
        assert_eq!(first["status"], json!({"allocation": on("gpu-0"), "reservedFor": [user("a", "u")]}));
        assert_eq!(take(&first, "gpu-0"), first, "a second time changes nothing");
        let shared = json!({"status": {"allocation": on("gpu-0"), "reservedFor": [user("b", "v")]}});
        let both = take(&shared, "gpu-0");
        assert_eq!(both["status"]["reservedFor"], json!([user("b", "v"), user("a", "u")]));
        assert!(allocated(&shared, &pod(), &on("gpu-1")).is_err(), "others use other devices");
        let freed = allocated(&first, &pod(), &on("gpu-1")).unwrap();
        let empty = json!({"metadata": claim["metadata"], "status": {}});
        assert_eq!(freed, Step::Free(empty), "first it gives way");
    }

    #[test]
    fn a_released_claim_keeps_its_other_users_and_without_any_its_devices_are_free() {
        let both =
            json!({"status": {"allocation": on("gpu-0"), "reservedFor": [user("b", "v"), user("a", "u")]}});
        let one = released(&both, &pod());
        assert_eq!(one["status"], json!({"allocation": on("gpu-0"), "reservedFor": [user("b", "v")]}));
        assert_eq!(released(&one, &pod()), one);
        let own =
            json!({"status": {"allocation": on("gpu-0"), "reservedFor": [user("a", "u")], "devices": []}});
        assert_eq!(released(&own, &pod())["status"], json!({}));
        assert_eq!(released(&json!({}), &pod()), json!({}));
    }
}
