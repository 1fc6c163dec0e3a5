//! `dynamicresources`: writes the allocations of a BindRequest to the resource claims of the pod, and reverts them.
//!
//! A claim is allocated and reserved for the pod in its status, as by kube-scheduler's dynamic resources plugin. For
//! extended resources that are backed by devices (KEP-5004) the binder creates the claim and writes it to the pod's status.

use crate::bind_target::{BindTarget, ExtendedClaim};
use crate::error::{ApiContext as _, Error, Result};
use crate::objects::{name, uid};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::well_known::{annotation as annotations, label_value};
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::{Key, ResourceKind, discovery};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tokio::sync::OnceCell;

/// Number of attempts of an optimistic update that conflicts.
const ATTEMPTS_MAX: usize = 6;
/// Keeps an allocated claim from being removed. The resource claim controller deallocates only claims that have it.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Access to resource claims in the version that the server has.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    kind: OnceCell<ResourceKind>,
}

/// The fields of a ResourceClaim that are read and written here. They are equal in all supported versions; all other
/// fields are kept as received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<ClaimStatus>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatus {
    /// Passed through from the BindRequest.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_for: Option<Vec<ResourceClaimConsumerReference>>,
    /// Driver-reported state of the allocated devices, which ends with the allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl ClaimStatus {
    fn deallocate(&mut self) {
        (self.allocation, self.reserved_for, self.devices) = (None, None, None);
    }
}

impl Claim {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn consumers(&self) -> &[ResourceClaimConsumerReference] {
        self.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
    }
}

fn has_claims(target: &BindTarget) -> bool {
    !target.claims.is_empty() || target.extended_claim.is_some()
}

/// The name of the ResourceClaim for an entry of the pod's `spec.resourceClaims`; none before it is created.
fn claim_name<'a>(pod: &'a Pod, entry: &str) -> Option<&'a str> {
    let claims = pod.spec.as_ref()?.resource_claims.as_ref()?;
    let claim = claims.iter().find(|claim| claim.name == entry)?;
    if let Some(direct) = &claim.resource_claim_name {
        return Some(direct);
    }
    let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == entry)?.resource_claim_name.as_deref()
}

fn is_consumer(consumer: &ResourceClaimConsumerReference, pod: &Pod) -> bool {
    consumer.resource == "pods"
        && consumer.api_group.as_deref().unwrap_or_default().is_empty()
        && consumer.name == name(pod)
        && consumer.uid == uid(pod)
}

/// The devices of an allocation, without the fields that the server adds.
fn devices(allocation: &Value) -> Vec<[&str; 4]> {
    let results = allocation.pointer("/devices/results").and_then(Value::as_array);
    let of = |result| ["request", "driver", "pool", "device"].map(|field| text(result, field));
    results.into_iter().flatten().map(of).collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The next write to a claim.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The final state: allocated and reserved for the pod, or released.
    Finish(Claim),
    /// Removes an earlier allocation for this pod alone: an allocation cannot be changed in place.
    Deallocate(Claim),
    /// Adds the finalizer before the allocation.
    AddFinalizer(Claim),
}

/// The claim with [`FINALIZER`]; none if it has the finalizer.
fn with_finalizer(claim: &Claim) -> Option<Claim> {
    let known = claim.metadata.finalizers.iter().flatten();
    if known.into_iter().any(|known| known == FINALIZER) {
        return None;
    }
    let mut new = claim.clone();
    new.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
    Some(new)
}

/// The next step to allocate the claim for the pod; an error while other pods use another allocation.
fn allocate(claim: &Claim, pod: &Pod, allocation: &Value) -> Result<Step, String> {
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    match &status.allocation {
        Some(known) if devices(known) == devices(allocation) => {}
        Some(_) if claim.consumers().iter().any(|consumer| !is_consumer(consumer, pod)) => {
            return Err("other pods use it with other devices".to_owned());
        }
        Some(_) => {
            status.deallocate();
            return Ok(Step::Deallocate(new));
        }
        None => {
            if let Some(new) = with_finalizer(claim) {
                return Ok(Step::AddFinalizer(new));
            }
            status.allocation = Some(allocation.clone());
        }
    }
    if !claim.consumers().iter().any(|consumer| is_consumer(consumer, pod)) {
        status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            name: name(pod).to_owned(),
            uid: uid(pod).to_owned(),
            api_group: None,
        });
    }
    Ok(Step::Finish(new))
}

/// The claim without the reservation of the pod; without any reservation it is deallocated.
fn release(claim: &Claim, pod: &Pod) -> Claim {
    let mut new = claim.clone();
    let Some(status) = &mut new.status else { return new };
    let Some(consumers) = &mut status.reserved_for else { return new };
    let before = consumers.len();
    consumers.retain(|consumer| !is_consumer(consumer, pod));
    if consumers.len() < before && consumers.is_empty() {
        status.deallocate();
    }
    new
}

impl Claims {
    /// Allocates and reserves the claims as the request says.
    pub(crate) async fn pre_bind(&self, api: &Api, target: &BindTarget, pod: &Pod) -> Result<()> {
        if !has_claims(target) {
            return Ok(());
        }
        let kind = self.kind(api).await?;
        for (entry, allocation) in &target.claims {
            let error = |reason: &str| Error::Claim { claim: entry.clone(), reason: reason.to_owned() };
            let allocation =
                allocation.as_ref().ok_or_else(|| error("the bind request has no allocation for it"))?;
            let claim = claim_name(pod, entry).ok_or_else(|| error("it has not been created yet"))?;
            let key = Key::new(&target.pod.namespace, claim);
            update(api, kind, &key, |claim| allocate(claim, pod, allocation).map_err(|why| error(&why)))
                .await?;
        }
        match &target.extended_claim {
            Some(extended) => pre_bind_extended(api, kind, target, pod, extended).await,
            None => Ok(()),
        }
    }

    /// Reverts what an attempt may have written; idempotent.
    pub(crate) async fn rollback(&self, api: &Api, target: &BindTarget, pod: &Pod) -> Result<()> {
        if !has_claims(target) {
            return Ok(());
        }
        let kind = self.kind(api).await?;
        for (entry, _) in &target.claims {
            let Some(claim) = claim_name(pod, entry) else { continue };
            let key = Key::new(&target.pod.namespace, claim);
            match update(api, kind, &key, |claim| Ok(Step::Finish(release(claim, pod)))).await {
                Err(Error::NotFound { .. }) => {}
                updated => updated?,
            }
        }
        if target.extended_claim.is_some() {
            rollback_extended(api, kind, target, pod).await?;
        }
        Ok(())
    }

    /// ResourceClaims in the preferred version that the server has.
    async fn kind(&self, api: &Api) -> Result<&ResourceKind> {
        self.kind
            .get_or_try_init(|| async {
                let served = discovery::resource_claims(api).await;
                let served = served.during(|| "discover resource.k8s.io".to_owned())?;
                served.ok_or_else(|| Error::NotFound { kind: "API", name: "resource.k8s.io".to_owned() })
            })
            .await
    }
}

fn decode(claim: Value, key: &Key) -> Result<Claim> {
    Claim::deserialize(claim).map_err(|error| Error::Invalid {
        kind: "resource claim",
        name: key.to_string(),
        reason: error.to_string(),
    })
}

#[expect(clippy::expect_used, reason = "a claim has only text keys, so it always serialises")]
fn encode(claim: &Claim) -> Value {
    serde_json::to_value(claim).expect("a claim has only text keys")
}

/// Reads a claim and writes it step by step; repeats conflicting updates.
async fn update(
    api: &Api,
    kind: &ResourceKind,
    key: &Key,
    step: impl Fn(&Claim) -> Result<Step>,
) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let claim = match api.get_dynamic(kind, key).await {
            Err(error) if error.is_not_found() => {
                return Err(Error::NotFound { kind: "resource claim", name: key.to_string() });
            }
            claim => claim.during(|| format!("read resource claim `{key}`"))?,
        };
        let claim = decode(claim, key)?;
        let (new, part, last) = match step(&claim)? {
            Step::Finish(new) => (new, Part::Status, true),
            Step::Deallocate(new) => (new, Part::Status, false),
            Step::AddFinalizer(new) => (new, Part::Main, false),
        };
        match api.patch_difference_dynamic(kind, part, &encode(&claim), &encode(&new)).await {
            Err(error) if error.is_conflict() => {}
            Ok(_) if !last => {}
            written => return written.map(|_| ()).during(|| format!("write resource claim `{key}`")),
        }
    }
    Err(Error::Conflict { kind: "resource claim", name: key.to_string() })
}

fn is_extended_claim_of(claim: &Claim, pod: &Pod) -> bool {
    let owned = claim
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.name == name(pod) && owner.uid == uid(pod));
    let annotations = claim.metadata.annotations.as_ref();
    let marked = annotations.and_then(|known| known.get(annotations::EXTENDED_RESOURCE_CLAIM));
    owned && marked.is_some_and(|value| value == label_value::TRUE)
}

/// The claims for extended resources of the pod; more than one only if responses to earlier requests were lost.
async fn extended_claims(
    api: &Api,
    kind: &ResourceKind,
    target: &BindTarget,
    pod: &Pod,
) -> Result<Vec<Claim>> {
    let listed = api.list_dynamic(kind, &target.pod.namespace).await;
    let listed = listed.during(|| "list resource claims".to_owned())?.items;
    let claims = listed.into_iter().map(|claim| {
        let key = kai_runtime::key_of(&claim);
        decode(claim, &key)
    });
    let mut claims = claims.collect::<Result<Vec<Claim>>>()?;
    claims.retain(|claim| is_extended_claim_of(claim, pod));
    Ok(claims)
}

async fn pre_bind_extended(
    api: &Api,
    kind: &ResourceKind,
    target: &BindTarget,
    pod: &Pod,
    extended: &ExtendedClaim,
) -> Result<()> {
    let error =
        |reason: &str| Error::Claim { claim: "extended resources".to_owned(), reason: reason.to_owned() };
    let allocation =
        extended.allocation.as_ref().ok_or_else(|| error("the bind request has no allocation for them"))?;
    let mut found = extended_claims(api, kind, target, pod).await?.into_iter();
    let namespace = &target.pod.namespace;
    let claim = if let Some(claim) = found.find(|claim| claim.metadata.deletion_timestamp.is_none()) {
        claim
    } else {
        let claim = encode(&extended_claim(kind, pod, extended));
        let created = api.create_dynamic(kind, namespace, &claim).await;
        let created = created.during(|| "create the resource claim of extended resources".to_owned())?;
        let key = kai_runtime::key_of(&created);
        decode(created, &key)?
    };
    let key = Key::new(namespace, claim.name());
    update(api, kind, &key, |claim| allocate(claim, pod, allocation).map_err(|why| error(&why))).await?;
    let mappings = extended.container_mappings.clone().unwrap_or_else(|| json!([]));
    let status = json!({"resourceClaimName": claim.name(), "requestMappings": mappings});
    write_pod_status(api, target, pod, status).await
}

/// A new claim for the extended resources of the pod.
fn extended_claim(kind: &ResourceKind, pod: &Pod, extended: &ExtendedClaim) -> Claim {
    let mut requests = extended.device_requests.clone().unwrap_or_else(|| json!([]));
    if kind.version == "v1beta1" {
        flatten_exactly(&mut requests);
    }
    let other = [
        ("apiVersion".to_owned(), Value::from(kind.api_version())),
        ("kind".to_owned(), Value::from("ResourceClaim")),
        ("spec".to_owned(), json!({"devices": {"requests": requests}})),
    ];
    Claim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-extended-resources-", name(pod))),
            namespace: pod.metadata.namespace.clone(),
            annotations: Some(BTreeMap::from([(
                annotations::EXTENDED_RESOURCE_CLAIM.to_owned(),
                label_value::TRUE.to_owned(),
            )])),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: name(pod).to_owned(),
                uid: uid(pod).to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        status: None,
        other: other.into_iter().collect(),
    }
}

/// Device requests as v1beta1 has them: the fields of `exactly` are one level up.
fn flatten_exactly(requests: &mut Value) {
    for request in requests.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(exact)) = request.remove("exactly") {
            request.extend(exact);
        }
    }
}

async fn write_pod_status(api: &Api, target: &BindTarget, pod: &Pod, status: Value) -> Result<()> {
    let patch = json!({"metadata": {"uid": uid(pod)}, "status": {"extendedResourceClaimStatus": status}});
    let written = api.patch::<Pod>(&target.pod, Part::Status, &patch).await;
    written.map(|_| ()).during(|| format!("write the status of pod `{}`", target.pod))
}

async fn rollback_extended(api: &Api, kind: &ResourceKind, target: &BindTarget, pod: &Pod) -> Result<()> {
    for claim in extended_claims(api, kind, target, pod).await? {
        let key = Key::new(&target.pod.namespace, claim.name());
        match update(api, kind, &key, |claim| Ok(Step::Finish(release(claim, pod)))).await {
            Err(Error::NotFound { .. }) => continue,
            updated => updated?,
        }
        let operation = || format!("delete resource claim `{key}`");
        let uid = claim.metadata.uid.clone();
        let unprotected = json!({"metadata": {"finalizers": null, "uid": uid}});
        let options = DeleteOptions { uid, ..DeleteOptions::default() };
        for done in [
            api.patch_dynamic(kind, &key, Part::Main, &unprotected).await,
            api.delete_dynamic(kind, &key, &options).await,
        ] {
            match done {
                Err(error) if error.is_not_found() => {}
                done => {
                    done.during(operation)?;
                }
            }
        }
    }
    match write_pod_status(api, target, pod, Value::Null).await {
        Err(Error::Api { cause, .. }) if cause.is_not_found() => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_requests_of_v1beta1_have_no_exactly() {
        let mut requests = json!([{"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}}]);
        flatten_exactly(&mut requests);
        assert_eq!(requests, json!([{"name": "a", "deviceClassName": "gpu", "count": 2}]));
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "t"}, {"name": "shared", "resourceClaimName": "s"},
                {"name": "later", "resourceClaimTemplateName": "t"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "a-own-x1"}]},
        }))
        .unwrap()
    }

    fn claim(claim: &Value) -> Claim {
        serde_json::from_value(claim.clone()).unwrap()
    }

    fn consumer(name: &str, uid: &str) -> Value {
        json!({"resource": "pods", "name": name, "uid": uid})
    }

    fn on(device: &str) -> Value {
        json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": device}]}})
    }

    #[test]
    fn claims_are_found_by_their_entry_in_the_pod() {
        let pod = pod();
        assert_eq!(claim_name(&pod, "own"), Some("a-own-x1"));
        assert_eq!(claim_name(&pod, "shared"), Some("s"));
        assert_eq!(claim_name(&pod, "later"), None);
        assert_eq!(claim_name(&pod, "other"), None);
    }

    #[test]
    fn claim_is_allocated_once_and_reserved_for_each_pod() {
        let finish = |known: &Claim, device: &str| match allocate(known, &pod(), &on(device)) {
            Ok(Step::Finish(new)) => new,
            other => panic!("{other:?}"),
        };
        let unprotected = claim(&json!({"metadata": {"name": "s", "finalizers": ["other"]}}));
        let protected = claim(&json!({"metadata": {"name": "s", "finalizers": ["other", FINALIZER]}}));
        assert_eq!(allocate(&unprotected, &pod(), &on("gpu-0")), Ok(Step::AddFinalizer(protected.clone())));
        let first = finish(&protected, "gpu-0");
        assert_eq!(
            encode(&first)["status"],
            json!({"allocation": on("gpu-0"), "reservedFor": [consumer("a", "u")]})
        );
        assert_eq!(finish(&first, "gpu-0"), first, "idempotent");
        let shared =
            claim(&json!({"status": {"allocation": on("gpu-0"), "reservedFor": [consumer("b", "v")]}}));
        let both = finish(&shared, "gpu-0");
        assert_eq!(encode(&both)["status"]["reservedFor"], json!([consumer("b", "v"), consumer("a", "u")]));
        assert!(allocate(&shared, &pod(), &on("gpu-1")).is_err(), "another pod uses another device");
        let deallocated = allocate(&first, &pod(), &on("gpu-1")).unwrap();
        let empty = Claim { status: Some(ClaimStatus::default()), ..protected };
        assert_eq!(deallocated, Step::Deallocate(empty), "an allocation is removed before the next");
    }

    #[test]
    fn released_claim_keeps_other_consumers_and_is_deallocated_without_any() {
        let reserved = json!([consumer("b", "v"), consumer("a", "u")]);
        let both = claim(&json!({"status": {"allocation": on("gpu-0"), "reservedFor": reserved}}));
        let one = release(&both, &pod());
        assert_eq!(
            encode(&one)["status"],
            json!({"allocation": on("gpu-0"), "reservedFor": [consumer("b", "v")]})
        );
        assert_eq!(release(&one, &pod()), one);
        let own = claim(
            &json!({"status": {"allocation": on("gpu-0"), "reservedFor": [consumer("a", "u")], "devices": []}}),
        );
        assert_eq!(encode(&release(&own, &pod()))["status"], json!({}));
        assert_eq!(release(&Claim::default(), &pod()), Claim::default());
    }

    #[test]
    fn unknown_fields_of_a_claim_are_kept() {
        let stored = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "s"},
            "spec": {"devices": {}, "future": 1}, "status": {"future": {"a": 1}},
        });
        assert_eq!(encode(&claim(&stored)), stored);
    }
}
