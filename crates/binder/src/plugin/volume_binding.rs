//! `volumebinding`: sees to it that the storage a pod claims is there and can be used on the pod's node.
//!
//! Most claims are bound long before their pods. Those of classes that wait for their first user get a volume here:
//! one that is there and fits is set aside for them, or else whoever makes volumes is told the node.

mod affinity;

use crate::concurrency_limit::Permit;
use crate::error::{Doing, Error, Result};
use crate::informers::annotation_of;
use affinity::{reaches, selects};
use kai_object as object;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{self, Key};
use kai_units::Quantity;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Where a claim says on which node its first user will run.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Marks claims whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks what no user bound.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The provisioner of classes whose volumes people make.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// How often a volume is chosen again because somebody else took it.
const TRIES: usize = 5;
/// How long to wait before a claim is first read again, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The names of the claims that a pod's volumes are of.
fn claim_names(pod: &Value) -> Vec<String> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let named = volumes.into_iter().flatten().filter_map(|volume| {
        if let Some(name) = volume.pointer("/persistentVolumeClaim/claimName") {
            return name.as_str().map(str::to_owned);
        }
        volume.get("ephemeral")?;
        Some(format!("{}-{}", object::name(pod), object::str_at(volume, "/name")))
    });
    named.collect()
}

fn is_bound(claim: &Value) -> bool {
    !object::str_at(claim, "/spec/volumeName").is_empty() && !annotation_of(claim, BIND_COMPLETED).is_empty()
}

/// A volume that is set aside for the claim already, or the smallest one that fits.
fn choose<'a>(claim: &Value, volumes: &'a [Value], node: &Value) -> Option<&'a Value> {
    let bytes = |object: &Value, pointer: &str| {
        object::str_at(object, pointer).parse::<Quantity>().map_or(0, Quantity::nanos)
    };
    let modes = |object: &Value| object["spec"]["accessModes"].as_array().cloned().unwrap_or_default();
    let volume_mode = |object: &Value| match object::str_at(object, "/spec/volumeMode") {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    let is_for = |volume: &Value| {
        let Some(reference) = volume.pointer("/spec/claimRef") else { return false };
        let uid = object::str_at(reference, "/uid");
        reference["name"] == object::name(claim)
            && reference["namespace"] == object::namespace(claim)
            && (uid.is_empty() || uid == object::uid(claim))
    };
    let is_free = |volume: &Value| {
        volume.pointer("/spec/claimRef").is_none() && object::str_at(volume, "/status/phase") == "Available"
    };
    let fits = |volume: &Value| {
        !object::is_deleting(volume)
            && (is_for(volume) || is_free(volume))
            && object::str_at(volume, "/spec/storageClassName")
                == object::str_at(claim, "/spec/storageClassName")
            && bytes(volume, "/spec/capacity/storage") >= bytes(claim, "/spec/resources/requests/storage")
            && modes(claim).iter().all(|mode| modes(volume).contains(mode))
            && volume_mode(volume) == volume_mode(claim)
            && claim.pointer("/spec/selector").is_none_or(|selector| selects(selector, volume))
            && reaches(volume, node)
    };
    volumes.iter().filter(|volume| fits(volume)).min_by_key(|volume| {
        (!is_for(volume), bytes(volume, "/spec/capacity/storage"), object::name(volume).to_owned())
    })
}

/// Whether a class makes volumes for a node.
fn serves(class: &Value, node: &Value) -> bool {
    let terms = class.get("allowedTopologies").and_then(Value::as_array);
    let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return true };
    let labels = object::meta(node, "labels");
    terms.iter().any(|term| {
        let rules = term["matchLabelExpressions"].as_array().into_iter().flatten();
        rules.into_iter().all(|rule| {
            let value = labels.and_then(|labels| labels.get(object::str_at(rule, "/key")));
            value.is_some_and(|value| {
                rule["values"].as_array().into_iter().flatten().any(|known| known == value)
            })
        })
    })
}

/// Has all claims of a pod bound to volumes that can be used on the node.
pub(crate) async fn prepare(
    api: &Api,
    pod: &Value,
    node: &Value,
    timeout: Duration,
    permit: &mut Permit,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    let mut waiting = Vec::new();
    for name in claim_names(pod) {
        let key = Key::new(object::namespace(pod), &name);
        let claim = get_claim(api, &key).await?;
        if is_bound(&claim) {
            check_reach(api, &claim, node).await?;
        } else {
            place(api, &claim, node).await?;
            waiting.push(key);
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    match permit.release_during(tokio::time::timeout_at(deadline, wait(api, &waiting, node))).await {
        Ok(waited) => waited,
        Err(_) => Err(Error::Timeout { step: "binding the volumes of the pod", limit: timeout }),
    }
}

/// Takes back that the first users of claims will run on the node; volumes that are bound stay so.
pub(crate) async fn undo(api: &Api, pod: &Value, node: &str) -> Result<()> {
    for name in claim_names(pod) {
        let key = Key::new(object::namespace(pod), &name);
        let claim = match get_claim(api, &key).await {
            Err(Error::Missing { .. }) => continue,
            claim => claim?,
        };
        if is_bound(&claim) || annotation_of(&claim, SELECTED_NODE) != node {
            continue;
        }
        let patch = json!({"metadata": {"uid": object::uid(&claim), "annotations": {SELECTED_NODE: null}}});
        match api.patch_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, &key, Part::Main, &patch).await {
            Err(error) if error.is_not_found() => {}
            written => {
                written.doing(|| format!("write volume claim `{key}`"))?;
            }
        }
    }
    Ok(())
}

async fn get_claim(api: &Api, key: &Key) -> Result<Value> {
    match api.get_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, key).await {
        Err(error) if error.is_not_found() => {
            Err(Error::Missing { kind: "volume claim", name: key.to_string() })
        }
        claim => claim.doing(|| format!("read volume claim `{key}`")),
    }
}

fn refused(claim: &Value, reason: String) -> Error {
    Error::Volume { claim: Key::of(claim).to_string(), reason }
}

async fn check_reach(api: &Api, claim: &Value, node: &Value) -> Result<()> {
    let name = object::str_at(claim, "/spec/volumeName");
    let volume = match api.get_dynamic(&kind::PERSISTENT_VOLUME, &Key::new("", name)).await {
        Err(error) if error.is_not_found() => {
            return Err(refused(claim, format!("its volume `{name}` is gone")));
        }
        volume => volume.doing(|| format!("read volume `{name}`"))?,
    };
    if reaches(&volume, node) {
        return Ok(());
    }
    Err(refused(claim, format!("its volume `{name}` cannot be used on node `{}`", object::name(node))))
}

/// Finds a volume for a claim, or has one made.
async fn place(api: &Api, claim: &Value, node: &Value) -> Result<()> {
    if !object::str_at(claim, "/spec/volumeName").is_empty() {
        return Ok(());
    }
    let class = object::str_at(claim, "/spec/storageClassName");
    let unbound = || refused(claim, "it is not bound, and its class does not wait for pods".to_owned());
    if class.is_empty() {
        return Err(unbound());
    }
    let class = match api.get_dynamic(&kind::STORAGE_CLASS, &Key::new("", class)).await {
        Err(error) if error.is_not_found() => {
            return Err(refused(claim, format!("there is no storage class `{class}`")));
        }
        class => class.doing(|| "read the storage class".to_owned())?,
    };
    if class["volumeBindingMode"] != "WaitForFirstConsumer" {
        return Err(unbound());
    }
    for _ in 0..TRIES {
        let listed =
            api.list_dynamic(&kind::PERSISTENT_VOLUME, "").await.doing(|| "list volumes".to_owned())?;
        let Some(volume) = choose(claim, &listed.items, node) else {
            return ask_for_volume(api, claim, &class, node).await;
        };
        if object::str_at(volume, "/spec/claimRef/uid") == object::uid(claim) {
            return Ok(());
        }
        match set_aside(api, volume, claim).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            written => return written.doing(|| format!("set aside volume `{}`", object::name(volume))),
        }
    }
    Err(Error::Contended { kind: "volume for claim", name: Key::of(claim).to_string() })
}

/// Keeps a volume for a claim; the controller of volumes does the rest.
async fn set_aside(api: &Api, volume: &Value, claim: &Value) -> kai_runtime::api::Result<()> {
    let mut kept = volume.clone();
    kept["spec"]["claimRef"] = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": object::namespace(claim),
        "name": object::name(claim), "uid": object::uid(claim),
    });
    object::map_mut(&mut kept["metadata"], "annotations")
        .insert(BOUND_BY_CONTROLLER.to_owned(), json!("yes"));
    api.patch_difference_dynamic(&kind::PERSISTENT_VOLUME, Part::Main, volume, &kept).await.map(|_| ())
}

/// Tells whoever makes volumes of the class where the claim's is needed.
async fn ask_for_volume(api: &Api, claim: &Value, class: &Value, node: &Value) -> Result<()> {
    let name = object::name(node);
    let provisioner = object::str_at(class, "/provisioner");
    if matches!(provisioner, "" | NO_PROVISIONER) || !serves(class, node) {
        let class = object::name(class);
        return Err(refused(claim, format!("class `{class}` has no volume for it on node `{name}`")));
    }
    if annotation_of(claim, SELECTED_NODE) == name {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": object::uid(claim), "annotations": {SELECTED_NODE: name}}});
    let written =
        api.patch_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, &Key::of(claim), Part::Main, &patch).await;
    written.map(|_| ()).doing(|| format!("write volume claim `{}`", Key::of(claim)))
}

/// Waits until the claims are bound, and checks by what.
async fn wait(api: &Api, claims: &[Key], node: &Value) -> Result<()> {
    let (mut pause, longest) = PAUSE;
    for key in claims {
        loop {
            let claim = get_claim(api, key).await?;
            if is_bound(&claim) {
                check_reach(api, &claim, node).await?;
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, size: &str, more: &Value) -> Value {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"tier": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"},
            "status": {"phase": "Available"},
        });
        for (field, value) in more.as_object().unwrap() {
            volume["spec"][field] = value.clone();
        }
        volume
    }

    fn claim(more: &Value) -> Value {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "x", "uid": "u"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "5Gi"}},
            },
        });
        for (field, value) in more.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        claim
    }

    fn chosen(claim: &Value, volumes: &[Value]) -> Option<String> {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}});
        choose(claim, volumes, &node).map(|volume| object::name(volume).to_owned())
    }

    #[test]
    fn the_smallest_volume_that_fits_is_taken() {
        let away = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        ]}}});
        let volumes = [
            volume("small", "1Gi", &json!({})),
            volume("large", "100Gi", &json!({})),
            volume("right", "6Gi", &json!({})),
            volume("away", "5Gi", &away),
            volume("other", "5Gi", &json!({"storageClassName": "else"})),
            volume("block", "5Gi", &json!({"volumeMode": "Block"})),
            volume("taken", "5Gi", &json!({"claimRef": {"name": "d", "namespace": "x", "uid": "v"}})),
        ];
        assert_eq!(chosen(&claim(&json!({})), &volumes).as_deref(), Some("right"));
        assert_eq!(chosen(&claim(&json!({"volumeMode": "Block"})), &volumes).as_deref(), Some("block"));
        assert_eq!(chosen(&claim(&json!({"accessModes": ["ReadWriteMany"]})), &volumes), None);
        let picky = claim(&json!({"selector": {"matchLabels": {"tier": "large"}}}));
        assert_eq!(chosen(&picky, &volumes).as_deref(), Some("large"));
        let own = volume("own", "50Gi", &json!({"claimRef": {"name": "c", "namespace": "x", "uid": "u"}}));
        let volumes = [volume("right", "6Gi", &json!({})), own];
        assert_eq!(chosen(&claim(&json!({})), &volumes).as_deref(), Some("own"), "it is set aside already");
    }

    #[test]
    fn only_claims_on_storage_count() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"volumes": [
            {"name": "token", "projected": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "scratch", "ephemeral": {}},
        ]}});
        assert_eq!(claim_names(&pod), ["d", "a-scratch"]);
        assert!(claim_names(&json!({"spec": {}})).is_empty());
    }

    #[test]
    fn classes_serve_the_topologies_they_name() {
        let node = json!({"metadata": {"labels": {"zone": "a"}}});
        let class = |values: Value| json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": values}]}]});
        assert!(serves(&json!({}), &node));
        assert!(serves(&class(json!(["b", "a"])), &node));
        assert!(!serves(&class(json!(["b"])), &node));
    }
}
