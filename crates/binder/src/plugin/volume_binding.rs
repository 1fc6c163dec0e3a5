//! `volumebinding`: binds the persistent volume claims of a pod to volumes that are accessible from its node.
//!
//! Most claims are bound before their pods are scheduled. A claim of a class with `WaitForFirstConsumer` is bound here, as
//! by kube-scheduler's volume binding plugin: an available volume is pre-bound to it, or the selected node is written to
//! the claim for the provisioner. Volumes are read from an informer with indices: a cluster may have many.

mod affinity;

use crate::concurrency_limit::Permit;
use crate::error::{ApiContext as _, Error, Result};
use crate::informers::{AVAILABLE_OF_CLASS, FOR_CLAIM};
use crate::objects::{annotation, is_terminating, key, name, namespace, uid};
use affinity::{is_accessible, matches_labels};
use k8s_openapi::api::core::v1::{
    Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kai_runtime::Key;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::backoff::{Backoff, BackoffPolicy};
use kai_runtime::controller::Context;
use kai_units::Quantity;
use kube::ResourceExt as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Annotation of a claim with the node of its first consumer.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of claims whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of volumes that a controller, not a user, bound.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The provisioner of classes with statically provisioned volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The right to pre-bind volumes, which KAI's role does not grant.
const PREBIND: &str = "patch persistentvolumes";
const WITHOUT_PREBIND: &str = "available volumes are not used: claims of a class with a provisioner get a new volume, and pods \
                               with claims of other classes are not bound";
/// Number of attempts to pre-bind a volume that others may take.
const ATTEMPTS_MAX: usize = 5;
/// Intervals at which an unbound claim is polled.
const POLL: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(1));
/// How long the informer may take to receive the volume of a bound claim.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of the claims of a pod's volumes.
fn claim_names(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(claim.claim_name.clone());
        }
        volume.ephemeral.as_ref()?;
        // The ephemeral volume controller creates claims under this name.
        Some(format!("{}-{}", name(pod), volume.name))
    });
    claims.collect()
}

fn claim_spec(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    claim.spec.clone().unwrap_or_default()
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_name(claim).is_empty() && !annotation(claim, BIND_COMPLETED).is_empty()
}

/// A volume that is pre-bound to the claim already, or the smallest available one that satisfies it.
fn find_volume<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a PersistentVolume>,
    node: &Node,
) -> Option<&'a PersistentVolume> {
    let wanted = claim_spec(claim);
    let requests = wanted.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requested = storage(requests);
    let satisfies = |volume: &&PersistentVolume| {
        let Some(spec) = &volume.spec else { return false };
        !is_terminating(*volume)
            && (is_prebound(spec, claim) || is_available(volume, spec))
            && spec.storage_class_name.as_deref().unwrap_or_default()
                == wanted.storage_class_name.as_deref().unwrap_or_default()
            && storage(spec.capacity.as_ref()).zip(requested).is_some_and(|(has, needs)| has >= needs)
            && wanted
                .access_modes
                .iter()
                .flatten()
                .all(|mode| spec.access_modes.iter().flatten().any(|offered| offered == mode))
            && volume_mode(spec.volume_mode.as_deref()) == volume_mode(wanted.volume_mode.as_deref())
            && wanted.selector.as_ref().is_none_or(|selector| matches_labels(selector, *volume))
            && is_accessible(volume, node)
    };
    volumes.into_iter().filter(satisfies).min_by_key(|volume| {
        let spec = volume.spec.as_ref();
        let prebound = spec.is_some_and(|spec| is_prebound(spec, claim));
        let capacity = storage(spec.and_then(|spec| spec.capacity.as_ref()));
        (!prebound, capacity, name(*volume).to_owned())
    })
}

/// The amount of storage; 0 when absent, none when it is not a quantity.
fn storage(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Option<i128> {
    let Some(amount) = amounts.and_then(|amounts| amounts.get("storage")) else { return Some(0) };
    amount.0.parse::<Quantity>().ok().map(Quantity::nanos)
}

fn volume_mode(mode: Option<&str>) -> &str {
    mode.filter(|mode| !mode.is_empty()).unwrap_or("Filesystem")
}

fn is_prebound(spec: &PersistentVolumeSpec, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = &spec.claim_ref else { return false };
    let known = reference.uid.as_deref().unwrap_or_default();
    reference.name.as_deref() == Some(name(claim))
        && reference.namespace.as_deref() == Some(namespace(claim))
        && (known.is_empty() || known == uid(claim))
}

pub(crate) fn is_available(volume: &PersistentVolume, spec: &PersistentVolumeSpec) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    spec.claim_ref.is_none() && phase == Some("Available")
}

/// Whether the allowed topologies of a class include a node.
fn allows_node(class: &StorageClass, node: &Node) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let mut rules = term.match_label_expressions.iter().flatten();
            rules.all(|rule| node.labels().get(&rule.key).is_some_and(|value| rule.values.contains(value)))
        })
}

/// Binds all claims of a pod to volumes that are accessible from the node.
pub(crate) async fn pre_bind(
    context: &Context,
    pod: &Pod,
    node: &Node,
    timeout: Duration,
    permit: &mut Permit,
) -> Result<()> {
    let api = &context.api;
    let deadline = Instant::now() + timeout;
    let mut unbound = Vec::new();
    for name in claim_names(pod) {
        let key = Key::new(namespace(pod), &name);
        let claim = get_claim(api, &key).await?;
        if is_bound(&claim) {
            permit.release_during(check_accessible(context, &claim, node)).await?;
        } else {
            permit.release_during(select_volume(context, &claim, node)).await?;
            unbound.push(key);
        }
    }
    if unbound.is_empty() {
        return Ok(());
    }
    let bound = wait_until_bound(context, &unbound, node);
    match permit.release_during(tokio::time::timeout_at(deadline, bound)).await {
        Ok(bound) => bound,
        Err(_) => Err(Error::Timeout { step: "binding the volumes of the pod", limit: timeout }),
    }
}

/// Removes the selected node from unbound claims; bound volumes stay bound.
pub(crate) async fn rollback(api: &Api, pod: &Pod, node: &str) -> Result<()> {
    for name in claim_names(pod) {
        let key = Key::new(namespace(pod), &name);
        let claim = match get_claim(api, &key).await {
            Err(Error::NotFound { .. }) => continue,
            claim => claim?,
        };
        if is_bound(&claim) || annotation(&claim, SELECTED_NODE) != node {
            continue;
        }
        let patch = json!({"metadata": {"uid": uid(&claim), "annotations": {SELECTED_NODE: null}}});
        match api.patch::<PersistentVolumeClaim>(&key, Part::Main, &patch).await {
            Err(error) if error.is_not_found() => {}
            written => {
                written.during(|| format!("write volume claim `{key}`"))?;
            }
        }
    }
    Ok(())
}

async fn get_claim(api: &Api, key: &Key) -> Result<PersistentVolumeClaim> {
    match api.get(key).await {
        Err(error) if error.is_not_found() => {
            Err(Error::NotFound { kind: "volume claim", name: key.to_string() })
        }
        claim => claim.during(|| format!("read volume claim `{key}`")),
    }
}

fn volume_error(claim: &PersistentVolumeClaim, reason: String) -> Error {
    Error::Volume { claim: key(claim).to_string(), reason }
}

/// The volume of this name, once the informer has it.
async fn find_by_name(context: &Context, name: &str) -> Option<Arc<PersistentVolume>> {
    let deadline = Instant::now() + VOLUME_TIMEOUT;
    let mut poll = Backoff::new(POLL);
    loop {
        let found = context.informers.get::<PersistentVolume>(&Key::new("", name));
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(poll.next_delay()).await;
    }
}

async fn check_accessible(context: &Context, claim: &PersistentVolumeClaim, node: &Node) -> Result<()> {
    let volume_name = volume_name(claim);
    let Some(volume) = find_by_name(context, volume_name).await else {
        return Err(volume_error(claim, format!("its volume `{volume_name}` is gone")));
    };
    if is_accessible(&volume, node) {
        return Ok(());
    }
    let reason = format!("its volume `{volume_name}` cannot be used on node `{}`", name(node));
    Err(volume_error(claim, reason))
}

/// Pre-binds a volume to a claim, or requests one from the provisioner.
async fn select_volume(context: &Context, claim: &PersistentVolumeClaim, node: &Node) -> Result<()> {
    let api = &context.api;
    if !volume_name(claim).is_empty() {
        return Ok(());
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let unbound =
        || volume_error(claim, "it is not bound, and its class is not `WaitForFirstConsumer`".to_owned());
    if class.is_empty() {
        return Err(unbound());
    }
    let class = match api.get::<StorageClass>(&Key::new("", class)).await {
        Err(error) if error.is_not_found() => {
            return Err(volume_error(claim, format!("there is no storage class `{class}`")));
        }
        class => class.during(|| "read the storage class".to_owned())?,
    };
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Err(unbound());
    }
    let mut poll = Backoff::new(POLL);
    for _ in 0..ATTEMPTS_MAX {
        let volumes = context.informers.store::<PersistentVolume>();
        let mut candidates = volumes.by_index(FOR_CLAIM, &key(claim).to_string());
        candidates.extend(volumes.by_index(AVAILABLE_OF_CLASS, name(&class)));
        let Some(volume) = find_volume(claim, candidates.iter().map(|volume| &**volume), node) else {
            return provision(api, claim, &class, node).await;
        };
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if reference.and_then(|reference| reference.uid.as_deref()) == Some(uid(claim)) {
            return Ok(());
        }
        match prebind(context, volume, claim).await {
            // Another client was faster; the informer will know.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) if error.is_permission_denied() && has_provisioner(&class) => {
                return provision(api, claim, &class, node).await;
            }
            written => return written.during(|| format!("pre-bind volume `{}`", name(volume))),
        }
        tokio::time::sleep(poll.next_delay()).await;
    }
    Err(Error::Conflict { kind: "volume for claim", name: key(claim).to_string() })
}

/// Sets the claim reference of a volume; the persistent volume controller completes the binding.
async fn prebind(
    context: &Context,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> api::Result<()> {
    let mut bound = volume.clone();
    bound.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    });
    bound.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    let written = context.patch_difference(Part::Main, volume, &bound).await;
    if let Some(degradations) = &context.degradations {
        match &written {
            Err(error) if error.is_permission_denied() => degradations.begin(PREBIND, WITHOUT_PREBIND),
            Ok(_) => degradations.end(PREBIND),
            Err(_) => {}
        }
    }
    written.map(|_| ())
}

fn has_provisioner(class: &StorageClass) -> bool {
    !matches!(class.provisioner.as_str(), "" | NO_PROVISIONER)
}

/// Writes the selected node to the claim, from which the provisioner creates a volume.
async fn provision(
    api: &Api,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
) -> Result<()> {
    let node_name = name(node);
    if !has_provisioner(class) || !allows_node(class, node) {
        let class = name(class);
        return Err(volume_error(
            claim,
            format!("class `{class}` has no volume for it on node `{node_name}`"),
        ));
    }
    if annotation(claim, SELECTED_NODE) == node_name {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": uid(claim), "annotations": {SELECTED_NODE: node_name}}});
    let written = api.patch::<PersistentVolumeClaim>(&key(claim), Part::Main, &patch).await;
    written.map(|_| ()).during(|| format!("write volume claim `{}`", key(claim)))
}

/// Waits until the claims are bound, and checks their volumes.
async fn wait_until_bound(context: &Context, claims: &[Key], node: &Node) -> Result<()> {
    let mut poll = Backoff::new(POLL);
    for key in claims {
        loop {
            let claim = get_claim(&context.api, key).await?;
            if is_bound(&claim) {
                check_accessible(context, &claim, node).await?;
                break;
            }
            tokio::time::sleep(poll.next_delay()).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn volume(name: &str, size: &str, more: &Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"tier": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"},
            "status": {"phase": "Available"},
        });
        for (field, value) in more.as_object().unwrap() {
            volume["spec"][field] = value.clone();
        }
        serde_json::from_value(volume).unwrap()
    }

    fn claim(more: &Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "x", "uid": "u"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "5Gi"}},
            },
        });
        for (field, value) in more.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}})).unwrap()
    }

    fn found(claim: &PersistentVolumeClaim, volumes: &[PersistentVolume]) -> Option<String> {
        find_volume(claim, volumes, &node()).map(|volume| name(volume).to_owned())
    }

    #[test]
    fn smallest_satisfying_volume_is_selected() {
        let away = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        ]}}});
        let volumes = vec![
            volume("small", "1Gi", &json!({})),
            volume("large", "100Gi", &json!({})),
            volume("right", "6Gi", &json!({})),
            volume("away", "5Gi", &away),
            volume("other", "5Gi", &json!({"storageClassName": "else"})),
            volume("block", "5Gi", &json!({"volumeMode": "Block"})),
            volume("taken", "5Gi", &json!({"claimRef": {"name": "d", "namespace": "x", "uid": "v"}})),
        ];
        assert_eq!(found(&claim(&json!({})), &volumes).as_deref(), Some("right"));
        assert_eq!(found(&claim(&json!({"volumeMode": "Block"})), &volumes).as_deref(), Some("block"));
        assert_eq!(found(&claim(&json!({"accessModes": ["ReadWriteMany"]})), &volumes), None);
        let selective = claim(&json!({"selector": {"matchLabels": {"tier": "large"}}}));
        assert_eq!(found(&selective, &volumes).as_deref(), Some("large"));
        let prebound =
            volume("prebound", "50Gi", &json!({"claimRef": {"name": "c", "namespace": "x", "uid": "u"}}));
        let volumes = [volume("right", "6Gi", &json!({})), prebound];
        assert_eq!(found(&claim(&json!({})), &volumes).as_deref(), Some("prebound"));
    }

    #[test]
    fn only_claims_of_volumes_are_bound() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [], "volumes": [
            {"name": "token", "projected": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "scratch", "ephemeral": {}},
        ]}});
        assert_eq!(claim_names(&serde_json::from_value(pod).unwrap()), ["d", "a-scratch"]);
        assert!(claim_names(&Pod::default()).is_empty());
    }

    #[test]
    fn class_allows_the_nodes_of_its_topologies() {
        let class = |values: Value| -> StorageClass {
            let rule = json!({"key": "zone", "values": values});
            let class = json!({
                "metadata": {}, "provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": [rule]}],
            });
            serde_json::from_value(class).unwrap()
        };
        assert!(allows_node(&StorageClass::default(), &node()));
        assert!(allows_node(&class(json!(["b", "a"])), &node()));
        assert!(!allows_node(&class(json!(["b"])), &node()));
    }
}
