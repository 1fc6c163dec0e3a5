//! `gpusharing`: exposes portion and devices of shared GPUs to a container through config maps.
//!
//! The admission webhook has added references to two config maps to the container: one with the capabilities of its GPUs,
//! and one that is its environment. The devices are in the one from which the container reads them.

use super::DeviceNames;
use crate::bind_target::BindTarget;
use crate::error::{ApiContext as _, Error, Result};
use crate::objects::{annotation, name, namespace, uid};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::well_known::{annotation as annotations, env, resource};
use kai_runtime::Key;
use kai_runtime::api::{Api, DeleteOptions, Part};
use std::collections::BTreeMap;

/// Number of attempts of an optimistic update that conflicts.
const ATTEMPTS_MAX: usize = 5;

/// Keys of the config maps that binders write.
const KEYS: [&str; 5] = [
    env::NVIDIA_VISIBLE_DEVICES,
    env::RUNAI_VISIBLE_DEVICES,
    env::RUNAI_NUM_OF_GPUS,
    env::GPU_PORTION,
    env::CUDA_DEVICE_MEMORY_LIMIT,
];

type Data = BTreeMap<String, String>;

/// The config maps of the container that receives the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigMaps {
    /// The value of the annotation from which their names follow.
    prefix: String,
    pub(crate) capabilities: Key,
    pub(crate) environment: Key,
    /// Whether the container reads its devices from the capabilities (`configMapKeyRef`), not from its environment.
    devices_in_capabilities: bool,
}

/// The config maps of the container of a pod that receives the GPUs. Where the annotation is missing, they are those that
/// the container refers to.
pub(crate) fn config_maps(pod: &Pod) -> Result<ConfigMaps> {
    let (index, container) = gpu_container(pod)?;
    let referred = container.and_then(devices_map);
    let annotated = annotation(pod, annotations::SHARED_GPU_CONFIG_MAP);
    let prefix = if annotated.is_empty() {
        let of_container = referred.and_then(|name| name.strip_suffix(&format!("-{index}")));
        of_container.filter(|prefix| !prefix.is_empty()).ok_or_else(|| Error::NotPrepared {
            missing: format!(
                "it has no annotation `{}`, and container `{}` does not read its GPU from a config map",
                annotations::SHARED_GPU_CONFIG_MAP,
                container.map_or("", |container| &container.name),
            ),
        })?
    } else {
        annotated
    };
    let name = format!("{prefix}-{index}");
    Ok(ConfigMaps {
        prefix: prefix.to_owned(),
        environment: Key::new(namespace(pod), format!("{name}-evar")),
        capabilities: Key::new(namespace(pod), &name),
        devices_in_capabilities: referred.is_some(),
    })
}

/// The config map from which a container reads its devices as a variable.
fn devices_map(container: &Container) -> Option<&str> {
    let variables = container.env.iter().flatten();
    variables
        .filter(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES)
        .find_map(|variable| Some(variable.value_from.as_ref()?.config_map_key_ref.as_ref()?.name.as_str()))
}

/// Checks what cannot be repaired: the container must read its GPU from the config maps. Otherwise it would see none, or
/// all of them, as the image decides.
///
/// Returns the value of the annotation where that has to be added.
pub(crate) fn check_prepared(pod: &Pod) -> Result<Option<String>> {
    let maps = config_maps(pod)?;
    let (_, container) = gpu_container(pod)?;
    let sources = container.and_then(|container| container.env_from.as_ref()).into_iter().flatten();
    let takes_environment = sources
        .filter_map(|source| source.config_map_ref.as_ref())
        .any(|map| map.name == maps.environment.name);
    let reads_capabilities =
        container.and_then(devices_map).is_some_and(|name| name == maps.capabilities.name);
    // A variable of the container itself wins over one of the config map.
    let hidden = container.is_some_and(|container| {
        container.env.iter().flatten().any(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES)
    });
    if !reads_capabilities && (!takes_environment || hidden) {
        return Err(Error::NotPrepared {
            missing: format!(
                "container `{}` does not read `{}` from config map `{}`",
                container.map_or("", |container| &container.name),
                env::NVIDIA_VISIBLE_DEVICES,
                maps.capabilities.name,
            ),
        });
    }
    let is_annotated = !annotation(pod, annotations::SHARED_GPU_CONFIG_MAP).is_empty();
    Ok((!is_annotated).then_some(maps.prefix))
}

/// The container that receives the GPUs, and its index in the names of config maps.
fn gpu_container(pod: &Pod) -> Result<(String, Option<&Container>)> {
    let selected = annotation(pod, annotations::GPU_FRACTION_CONTAINER);
    let spec = pod.spec.as_ref();
    let containers = spec.map_or(&[][..], |spec| &spec.containers);
    if selected.is_empty() {
        return Ok(("0".to_owned(), containers.first()));
    }
    let init_containers = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let find =
        |containers: &'_ [Container]| containers.iter().position(|container| container.name == selected);
    if let Some(index) = find(init_containers) {
        Ok((format!("i{index}"), init_containers.get(index)))
    } else if let Some(index) = find(containers) {
        Ok((index.to_string(), containers.get(index)))
    } else {
        Err(Error::NoContainer(selected.to_owned()))
    }
}

/// The data of the capabilities and of the environment.
fn contents(maps: &ConfigMaps, names: DeviceNames, devices: &[String], portion: &str) -> (Data, Data) {
    let visible: Vec<String> = devices
        .iter()
        .map(|uuid| match names {
            DeviceNames::Uuid => uuid.clone(),
            DeviceNames::Cdi => format!("{}{uuid}", resource::CDI_GPU_PREFIX),
        })
        .collect();
    let mut capabilities =
        [env::RUNAI_NUM_OF_GPUS, env::GPU_PORTION].map(|name| (name.to_owned(), portion.to_owned())).into();
    let mut environment = Data::new();
    let with_devices: &mut Data =
        if maps.devices_in_capabilities { &mut capabilities } else { &mut environment };
    with_devices.insert(env::NVIDIA_VISIBLE_DEVICES.to_owned(), visible.join(","));
    (capabilities, environment)
}

/// Writes the config maps.
pub(crate) async fn pre_bind(
    api: &Api,
    target: &BindTarget,
    pod: &Pod,
    names: DeviceNames,
    devices: &[String],
) -> Result<()> {
    let maps = config_maps(pod)?;
    let (capabilities, environment) = contents(&maps, names, devices, target.portion());
    write(api, pod, &maps.capabilities, capabilities).await?;
    write(api, pod, &maps.environment, environment).await
}

/// The GPUs that the config maps of a pod expose to its container, in the order of its GPU groups; none if it has no
/// config maps.
pub(crate) async fn visible_devices(api: &Api, pod: &Pod) -> Result<Vec<String>> {
    let Ok(maps) = config_maps(pod) else { return Ok(Vec::new()) };
    let key = if maps.devices_in_capabilities { &maps.capabilities } else { &maps.environment };
    let map: ConfigMap = match api.get(key).await {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        map => map.during(|| format!("read config map `{key}`"))?,
    };
    let visible = map.data.as_ref().and_then(|data| data.get(env::NVIDIA_VISIBLE_DEVICES));
    let devices = visible.map_or("", String::as_str).split(',').filter(|device| !device.is_empty());
    let uuid = |device: &str| device.strip_prefix(resource::CDI_GPU_PREFIX).unwrap_or(device).to_owned();
    Ok(devices.map(uuid).collect())
}

/// Deletes the config maps of the pod, if it has any; not those of another owner whose name it gives.
pub(crate) async fn rollback(api: &Api, pod: &Pod) -> Result<()> {
    let Ok(maps) = config_maps(pod) else { return Ok(()) };
    for key in [&maps.capabilities, &maps.environment] {
        let map: ConfigMap = match api.get(key).await {
            Err(error) if error.is_not_found() => continue,
            map => map.during(|| format!("read config map `{key}`"))?,
        };
        let has_owner = map.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        if !has_owner || foreign_owner(&map, pod).is_some() {
            continue;
        }
        match api.delete::<ConfigMap>(key, &DeleteOptions::of_typed(&map)).await {
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            deleted => {
                deleted.during(|| format!("delete config map `{key}`"))?;
            }
        }
    }
    Ok(())
}

/// Creates a config map of the pod, or merges the data into an existing one.
pub(crate) async fn write(api: &Api, pod: &Pod, key: &Key, data: Data) -> Result<()> {
    let new = ConfigMap {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            owner_references: Some(vec![owner_reference(pod)]),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    };
    let operation = || format!("write config map `{key}`");
    for _ in 0..ATTEMPTS_MAX {
        match api.create(&new).await {
            Err(error) if error.is_conflict() => {}
            created => return created.map(|_| ()).during(operation),
        }
        let known: ConfigMap = match api.get(key).await {
            Err(error) if error.is_not_found() => continue,
            known => known.during(operation)?,
        };
        if let Some(owner) = foreign_owner(&known, pod) {
            return Err(Error::ForeignConfigMap { map: key.to_string(), owner });
        }
        match api.patch_difference(Part::Main, &known, &merged(&known, &new)).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            written => return written.map(|_| ()).during(operation),
        }
    }
    Err(Error::Conflict { kind: "config map", name: key.to_string() })
}

fn owner_reference(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name(pod).to_owned(),
        uid: uid(pod).to_owned(),
        ..OwnerReference::default()
    }
}

/// Who else a config map belongs to. A pod may give the name of any config map of its namespace. One of an earlier pod of
/// the same name belongs to the pod, and one without owners to the first pod that names it, as in KAI, unless it has data
/// that no binder writes.
fn foreign_owner(map: &ConfigMap, pod: &Pod) -> Option<String> {
    let owners = map.metadata.owner_references.as_deref().unwrap_or_default();
    if owners.is_empty() {
        let keys = map.data.iter().flat_map(BTreeMap::keys);
        let mut keys = keys.chain(map.binary_data.iter().flat_map(BTreeMap::keys));
        return keys
            .find(|key| !KEYS.contains(&key.as_str()))
            .map(|key| format!("no pod, for its key `{key}`,"));
    }
    let is_own = |owner: &OwnerReference| owner.kind == "Pod" && owner.name == name(pod);
    let foreign = owners.iter().find(|owner| !is_own(owner))?;
    Some(format!("{} `{}`", foreign.kind, foreign.name))
}

/// The desired state of an existing config map. One of the same pod keeps its other keys; one of an earlier pod of the same
/// name, or without owners, is taken over with the new data only.
fn merged(known: &ConfigMap, new: &ConfigMap) -> ConfigMap {
    let mut merged = known.clone();
    let owners = |map: &ConfigMap| -> Vec<String> {
        let owners = map.metadata.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect()
    };
    if owners(known) != owners(new) {
        merged.metadata.owner_references.clone_from(&new.metadata.owner_references);
        merged.data.clone_from(&new.data);
        return merged;
    }
    let data = merged.data.get_or_insert_default();
    let new = new.data.clone().unwrap_or_default();
    if let Some(devices) = new.get(env::NVIDIA_VISIBLE_DEVICES)
        && let Some(older) = data.get_mut(env::RUNAI_VISIBLE_DEVICES)
    {
        older.clone_from(devices);
    }
    data.extend(new.into_iter().filter(|(_, value)| !value.is_empty()));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(container: &str, variables: &Value) -> Pod {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "annotations": {
                annotations::SHARED_GPU_CONFIG_MAP: "a-abcdefg-shared-gpu",
                annotations::GPU_FRACTION_CONTAINER: container,
            }},
            "spec": {
                "initContainers": [{"name": "first"}, {"name": "second"}],
                "containers": [{"name": "main", "env": variables}, {"name": "side"}],
            },
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn config_maps_are_named_after_the_container() {
        let table = [("", "0"), ("main", "0"), ("side", "1"), ("second", "i1"), ("first", "i0")];
        for (container, index) in table {
            let maps = config_maps(&pod(container, &json!([]))).unwrap();
            assert_eq!(maps.capabilities.name, format!("a-abcdefg-shared-gpu-{index}"), "{container}");
            assert_eq!(maps.environment.name, format!("a-abcdefg-shared-gpu-{index}-evar"));
        }
        assert!(matches!(config_maps(&pod("none", &json!([]))), Err(Error::NoContainer(_))));
        assert!(matches!(config_maps(&Pod::default()), Err(Error::NotPrepared { .. })));
    }

    #[test]
    fn pod_that_the_webhook_has_not_prepared_is_refused_and_a_lost_annotation_is_derived() {
        let by_map = |name: &str| json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": name}}}]);
        let of = |variables: &Value, sources: &Value, annotated: bool| {
            let mut pod = pod("", variables);
            let container = pod.spec.as_mut().unwrap().containers.first_mut().unwrap();
            container.env_from = serde_json::from_value(sources.clone()).unwrap();
            if !annotated {
                pod.metadata.annotations = None;
            }
            check_prepared(&pod).map_err(|error| error.to_string())
        };
        let capabilities = by_map("a-abcdefg-shared-gpu-0");
        let environment = json!([{"configMapRef": {"name": "a-abcdefg-shared-gpu-0-evar"}}]);
        assert_eq!(of(&capabilities, &json!([]), true), Ok(None));
        assert_eq!(of(&capabilities, &json!([]), false), Ok(Some("a-abcdefg-shared-gpu".to_owned())));
        assert_eq!(of(&json!([]), &environment, true), Ok(None));
        let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
        for (variables, sources, annotated) in [
            (&json!([]), &json!([]), true),
            (&json!([]), &json!([]), false),
            (&json!([]), &environment, false),
            (&by_map("another"), &json!([]), true),
            (&all, &environment, true),
        ] {
            let refused = of(variables, sources, annotated).unwrap_err();
            assert!(refused.contains("container `main`") && refused.contains("hint:"), "{refused}");
        }
    }

    #[test]
    fn devices_are_in_the_config_map_that_the_container_reads() {
        let devices = ["GPU-1".to_owned(), "GPU-2".to_owned()];
        let by_map =
            json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]);
        let own = config_maps(&pod("", &by_map)).unwrap();
        let (capabilities, environment) = contents(&own, DeviceNames::Uuid, &devices, "0.50");
        assert_eq!(
            json!(capabilities),
            json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50", "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
        );
        assert_eq!(json!(environment), json!({}));
        let other =
            config_maps(&pod("", &json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]))).unwrap();
        let (capabilities, environment) = contents(&other, DeviceNames::Cdi, &devices[..1], "0.50");
        assert_eq!(json!(capabilities), json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"}));
        assert_eq!(
            json!(environment),
            json!({"NVIDIA_VISIBLE_DEVICES": "k8s.device-plugin.nvidia.com/gpu=GPU-1"})
        );
    }

    #[test]
    fn config_map_belongs_to_the_pods_of_one_name() {
        let map = |owners: Value| -> ConfigMap {
            serde_json::from_value(json!({"metadata": {"name": "m", "ownerReferences": owners}})).unwrap()
        };
        let owner =
            |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "v"});
        let pod = pod("", &json!([]));
        assert_eq!(foreign_owner(&map(json!([owner("Pod", "a")])), &pod), None);
        assert_eq!(foreign_owner(&map(json!([])), &pod), None);
        let with = |data: Value| -> ConfigMap { serde_json::from_value(json!({"data": data})).unwrap() };
        assert_eq!(foreign_owner(&with(json!({"GPU_PORTION": "1"})), &pod), None);
        let settings = foreign_owner(&with(json!({"GPU_PORTION": "1", "url": "x"})), &pod).unwrap();
        assert!(settings.contains("key `url`"), "{settings}");
        assert_eq!(foreign_owner(&map(json!([owner("Pod", "b")])), &pod).as_deref(), Some("Pod `b`"));
        let both = map(json!([owner("Pod", "a"), owner("Job", "a")]));
        assert_eq!(foreign_owner(&both, &pod).as_deref(), Some("Job `a`"));
    }

    #[test]
    fn config_map_of_the_same_pod_is_merged_and_of_an_earlier_one_replaced() {
        let map = |uid: &str, data: Value| -> ConfigMap {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid});
            let map = json!({"metadata": {"ownerReferences": [owner]}, "data": data});
            serde_json::from_value(map).unwrap()
        };
        let new = map("u", json!({"NVIDIA_VISIBLE_DEVICES": "GPU-1", "GPU_PORTION": ""}));
        let known = json!({"GPU_PORTION": "0.50", "x": "y", "RUNAI-VISIBLE-DEVICES": "old"});
        assert_eq!(
            json!(merged(&map("u", known.clone()), &new).data),
            json!({
                "GPU_PORTION": "0.50", "x": "y", "RUNAI-VISIBLE-DEVICES": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1",
            })
        );
        assert_eq!(merged(&map("other", known), &new), new);
    }
}
