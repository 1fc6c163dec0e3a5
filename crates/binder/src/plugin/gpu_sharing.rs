//! `gpusharing`: tells the containers of a pod which part of which GPUs they have, through config maps.
//!
//! The admission webhook has made the container read two maps: one with what the container may know of its GPUs, and
//! one that is its environment. Which of them names the devices depends on how the container asks for them.

use super::DeviceNames;
use crate::bind_target::BindTarget;
use crate::error::{Doing, Error, Result};
use crate::informers::{CONFIG_MAP, annotation_of};
use kai_api::well_known::{annotation, env, resource};
use kai_object as object;
use kai_runtime::Key;
use kai_runtime::api::{Api, DeleteOptions, Part};
use serde_json::{Map, Value, json};

/// How often a map is read and written again because somebody else wrote it in between.
const TRIES: usize = 5;

/// The container that gets the GPUs, and what its config maps are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigMaps {
    /// The map with what the container may know of its GPUs.
    pub(crate) capabilities: Key,
    /// The map with its environment.
    pub(crate) environment: Key,
    /// Whether the container takes its devices from a map of its own choice, the first one.
    devices_in_capabilities: bool,
}

/// Finds the container of a pod that gets the GPUs.
pub(crate) fn config_maps(pod: &Value) -> Result<ConfigMaps> {
    let prefix = annotation_of(pod, annotation::SHARED_GPU_CONFIG_MAP);
    if prefix.is_empty() {
        return Err(Error::Unprepared(annotation::SHARED_GPU_CONFIG_MAP));
    }
    let wanted = annotation_of(pod, annotation::GPU_FRACTION_CONTAINER);
    let at = |list: &str| {
        let containers = pod["spec"][list].as_array()?;
        let index = containers.iter().position(|container| container["name"] == wanted)?;
        Some((index, containers.get(index)?))
    };
    let (place, container) = if wanted.is_empty() {
        ("0".to_owned(), &pod["spec"]["containers"][0])
    } else if let Some((index, container)) = at("initContainers") {
        (format!("i{index}"), container)
    } else if let Some((index, container)) = at("containers") {
        (index.to_string(), container)
    } else {
        return Err(Error::NoContainer(wanted.to_owned()));
    };
    let variables = container["env"].as_array().into_iter().flatten();
    let devices_in_capabilities = variables
        .filter(|variable| variable["name"] == env::NVIDIA_VISIBLE_DEVICES)
        .any(|variable| variable.pointer("/valueFrom/configMapKeyRef").is_some());
    let namespace = object::namespace(pod);
    let name = format!("{prefix}-{place}");
    Ok(ConfigMaps {
        environment: Key::new(namespace, &format!("{name}-evar")),
        capabilities: Key::new(namespace, &name),
        devices_in_capabilities,
    })
}

/// What the two maps say: first what the container may know, then its environment.
fn contents(maps: &ConfigMaps, names: DeviceNames, devices: &[String], portion: &str) -> (Value, Value) {
    let named: Vec<String> = devices
        .iter()
        .map(|uuid| match names {
            DeviceNames::Uuid => uuid.clone(),
            DeviceNames::Cdi => format!("{}{uuid}", resource::CDI_GPU_PREFIX),
        })
        .collect();
    let visible = named.join(",");
    let mut capabilities = json!({env::RUNAI_NUM_OF_GPUS: portion, env::GPU_PORTION: portion});
    let mut environment = json!({});
    let devices_in = if maps.devices_in_capabilities { &mut capabilities } else { &mut environment };
    devices_in[env::NVIDIA_VISIBLE_DEVICES] = Value::from(visible);
    (capabilities, environment)
}

/// Writes the maps.
pub(crate) async fn prepare(
    api: &Api,
    target: &BindTarget,
    pod: &Value,
    names: DeviceNames,
    devices: &[String],
) -> Result<()> {
    let maps = config_maps(pod)?;
    let (capabilities, environment) = contents(&maps, names, devices, &target.portion);
    write(api, pod, &maps.capabilities, &capabilities).await?;
    write(api, pod, &maps.environment, &environment).await
}

/// Takes the maps away; a pod that has none needs nothing.
pub(crate) async fn undo(api: &Api, pod: &Value) -> Result<()> {
    let Ok(maps) = config_maps(pod) else { return Ok(()) };
    for key in [&maps.capabilities, &maps.environment] {
        match api.delete_dynamic(&CONFIG_MAP, key, &DeleteOptions::default()).await {
            Err(error) if error.is_not_found() => {}
            deleted => {
                deleted.doing(|| format!("delete config map `{key}`"))?;
            }
        }
    }
    Ok(())
}

/// Brings a map of the pod to say what it should, made if need be.
pub(crate) async fn write(api: &Api, pod: &Value, key: &Key, data: &Value) -> Result<()> {
    let fresh = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner(pod)]},
        "data": data,
    });
    let doing = || format!("write config map `{key}`");
    for _ in 0..TRIES {
        match api.create_dynamic(&CONFIG_MAP, &key.namespace, &fresh).await {
            Err(error) if error.is_conflict() => {}
            made => return made.map(|_| ()).doing(doing),
        }
        let known = match api.get_dynamic(&CONFIG_MAP, key).await {
            Err(error) if error.is_not_found() => continue,
            known => known.doing(doing)?,
        };
        let wanted = merged(&known, &fresh);
        match api.patch_difference_dynamic(&CONFIG_MAP, Part::Main, &known, &wanted).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            written => return written.map(|_| ()).doing(doing),
        }
    }
    Err(Error::Contended { kind: "config map", name: key.to_string() })
}

/// The reference with which an object says that it goes with the pod.
fn owner(pod: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": object::name(pod), "uid": object::uid(pod)})
}

/// What a map that is there is turned into. One of the same pod keeps what else it says; one of somebody else becomes
/// the pod's, with nothing else in it.
fn merged(known: &Value, fresh: &Value) -> Value {
    let mut wanted = known.clone();
    let uids = |map: &Value| -> Vec<String> {
        let owners = object::meta(map, "ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().map(|owner| object::str_at(owner, "/uid").to_owned()).collect()
    };
    let new = fresh["data"].as_object().cloned().unwrap_or_default();
    if uids(known) != uids(fresh) {
        object::set_meta(&mut wanted, "ownerReferences", object::meta(fresh, "ownerReferences").cloned());
        wanted["data"] = Value::Object(new);
        return wanted;
    }
    let data: &mut Map<String, Value> = object::map_mut(&mut wanted, "data");
    let devices = new.get(env::NVIDIA_VISIBLE_DEVICES).cloned();
    if let (Some(devices), true) = (devices, data.contains_key(env::RUNAI_VISIBLE_DEVICES)) {
        data.insert(env::RUNAI_VISIBLE_DEVICES.to_owned(), devices);
    }
    data.extend(new.into_iter().filter(|(_, value)| value != ""));
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(container: &str, variables: &Value) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "annotations": {
                annotation::SHARED_GPU_CONFIG_MAP: "a-abcdefg-shared-gpu",
                annotation::GPU_FRACTION_CONTAINER: container,
            }},
            "spec": {
                "initContainers": [{"name": "first"}, {"name": "second"}],
                "containers": [{"name": "main", "env": variables}, {"name": "side"}],
            },
        })
    }

    #[test]
    fn maps_are_named_after_the_container() {
        let table = [("", "0"), ("main", "0"), ("side", "1"), ("second", "i1"), ("first", "i0")];
        for (container, place) in table {
            let maps = config_maps(&pod(container, &json!([]))).unwrap();
            assert_eq!(maps.capabilities.name, format!("a-abcdefg-shared-gpu-{place}"), "{container}");
            assert_eq!(maps.environment.name, format!("a-abcdefg-shared-gpu-{place}-evar"));
        }
        assert!(matches!(config_maps(&pod("none", &json!([]))), Err(Error::NoContainer(_))));
        assert!(matches!(config_maps(&json!({"metadata": {}})), Err(Error::Unprepared(_))));
    }

    #[test]
    fn devices_are_named_where_the_container_looks_for_them() {
        let devices = ["GPU-1".to_owned(), "GPU-2".to_owned()];
        let by_map =
            json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]);
        let own = config_maps(&pod("", &by_map)).unwrap();
        let (capabilities, environment) = contents(&own, DeviceNames::Uuid, &devices, "0.50");
        assert_eq!(
            capabilities,
            json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50", "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
        );
        assert_eq!(environment, json!({}));
        let other =
            config_maps(&pod("", &json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]))).unwrap();
        let (capabilities, environment) = contents(&other, DeviceNames::Cdi, &devices[..1], "0.50");
        assert_eq!(capabilities, json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"}));
        assert_eq!(environment, json!({"NVIDIA_VISIBLE_DEVICES": "k8s.device-plugin.nvidia.com/gpu=GPU-1"}));
    }

    #[test]
    fn a_map_of_the_same_pod_is_added_to_and_one_of_another_is_taken_over() {
        let map =
            |uid: &str, data: Value| json!({"metadata": {"ownerReferences": [{"uid": uid}]}, "data": data});
        let fresh = map("u", json!({"NVIDIA_VISIBLE_DEVICES": "GPU-1", "GPU_PORTION": ""}));
        let known = json!({"GPU_PORTION": "0.50", "x": "y", "RUNAI-VISIBLE-DEVICES": "old"});
        assert_eq!(
            merged(&map("u", known.clone()), &fresh)["data"],
            json!({
                "GPU_PORTION": "0.50", "x": "y", "RUNAI-VISIBLE-DEVICES": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1",
            })
        );
        let taken = merged(&map("other", known), &fresh);
        assert_eq!(taken["data"], fresh["data"]);
        assert_eq!(taken["metadata"]["ownerReferences"], json!([{"uid": "u"}]));
    }
}
