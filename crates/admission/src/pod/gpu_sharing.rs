//! `gpusharing`: pods that request a part of a GPU.
//!
//! The binder creates two config maps for such a pod when its GPU is known; here the container gets the references to
//! them, since a pod's containers cannot be changed later.

use super::Options;
use super::fields::{
    self, ContainerKind, ContainerRef, GPU_VARIABLES, all_containers, amount, annotation, containers,
    display_name, fraction_container, from_config_map, is_zero, list, set_variable, shares_gpu,
};
use crate::names;
use kai_api::well_known::annotation as key;
use kai_api::well_known::resource::NVIDIA_GPU;
use kai_units::Quantity;
use serde_json::{Value, json};

/// Longest name of a volume: a DNS label.
const LABEL_LENGTH_MAX: usize = 63;
const SHARED_GPU: &str = "-shared-gpu";
const EVAR: &str = "-evar";
const VOLUME: &str = "-vol";

/// Adds the references to the config maps. `uid` is that of the request.
pub(super) fn mutate(pod: &mut Value, uid: &str) -> Result<(), String> {
    let Some(container) = fraction_container(pod)? else { return Ok(()) };
    let given = annotation(pod, key::SHARED_GPU_CONFIG_MAP).unwrap_or_default();
    let prefix = if given.is_empty() { generated_prefix(pod, container, uid) } else { given.to_owned() };
    let map = format!("{prefix}-{}", container.suffix());
    let environment = environment_map(&prefix, container);
    if !is_usable(&prefix, container) {
        let (shown, name) = (display_name(pod), key::SHARED_GPU_CONFIG_MAP);
        let rule = format!(
            "at most {} lower case letters, digits, `-` and `.`, beginning with a letter or digit",
            LABEL_LENGTH_MAX - (volume_name(&prefix, container).len() - prefix.len())
        );
        return Err(if given.is_empty() {
            format!(
                "{shown}: the names of its config maps would begin with `{prefix}`, after its owner or itself, and no config \
                 map can have such a name; hint: set annotation `{name}` to the beginning of their names, with {rule}"
            )
        } else {
            format!(
                "{shown}: annotation `{name}` is `{prefix}`, which cannot begin the names of config maps and a volume; hint: \
                 remove the annotation, or use {rule}"
            )
        });
    }
    add_volume(pod, &map, &names::label(&volume_name(&prefix, container)))?;
    let annotations = kai_object::meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
    annotations[key::SHARED_GPU_CONFIG_MAP] = Value::from(prefix);
    if let Some(container) = container.get_mut(pod) {
        for name in GPU_VARIABLES {
            set_variable(container, name, &from_config_map(&map, name));
        }
        let source = json!({"configMapRef": {"name": environment, "optional": false}});
        let sources = list(container, "envFrom");
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    Ok(())
}

/// Name of the config map with further variables of a container.
fn environment_map(prefix: &str, container: ContainerRef) -> String {
    format!("{prefix}-{}{EVAR}", container.suffix())
}

/// Name of the volume with the config map of a container, before it becomes a DNS label.
fn volume_name(prefix: &str, container: ContainerRef) -> String {
    format!("{prefix}-{}{VOLUME}", container.suffix())
}

/// Whether the names of config maps and of the volume may begin with the prefix.
fn is_usable(prefix: &str, container: ContainerRef) -> bool {
    names::is_subdomain(&environment_map(prefix, container))
        && volume_name(prefix, container).len() <= LABEL_LENGTH_MAX
}

/// Whether a fraction pod has a prefix for the names of its config maps that is replaced, as an empty one, or refused.
pub fn has_unusable_prefix(pod: &Value) -> bool {
    let Ok(Some(container)) = fraction_container(pod) else { return false };
    annotation(pod, key::SHARED_GPU_CONFIG_MAP)
        .is_some_and(|prefix| prefix.is_empty() || !is_usable(prefix, container))
}

/// `BASE-RANDOM-shared-gpu`, so short that the name of the volume is a DNS label.
fn generated_prefix(pod: &Value, container: ContainerRef, uid: &str) -> String {
    let owner = kai_object::str_at(pod, "/metadata/ownerReferences/0/name");
    let base = [owner, kai_object::name(pod), kai_object::meta_str(pod, "generateName"), "pod"]
        .into_iter()
        .map(|base| base.trim_end_matches(['.', '-']))
        .find(|base| !base.is_empty())
        .unwrap_or_default();
    let tail = format!("-{}{SHARED_GPU}", names::suffix(uid));
    let reserved = tail.len() + 1 + container.suffix().len() + EVAR.len() + VOLUME.len();
    let mut end = base.len().min(LABEL_LENGTH_MAX - reserved);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let base = base.get(..end).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{base}{tail}")
}

fn add_volume(pod: &mut Value, map: &str, name: &str) -> Result<(), String> {
    let shown = display_name(pod);
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let volumes = list(spec, "volumes");
    let known = volumes.iter().find(|volume| kai_object::str_at(volume, "/name") == name);
    match known {
        None => volumes.push(json!({"name": name, "configMap": {"name": map}})),
        Some(volume) if kai_object::str_at(volume, "/configMap/name") == map => {}
        Some(_) => {
            return Err(format!(
                "{shown}: volume `{name}` is needed for config map `{map}`, but the pod uses the name for something \
                 else; hint: rename the volume"
            ));
        }
    }
    Ok(())
}

/// The rules of a request for a part of a GPU.
pub(super) fn validate(pod: &Value, options: &Options) -> Result<(), String> {
    let shown = display_name(pod);
    if shares_gpu(pod) && !options.gpu_sharing {
        return Err(format!(
            "{shown}: a part of a GPU is requested, but GPU sharing is disabled; hint: request whole GPUs (`{NVIDIA_GPU}`), \
             or enable GPU sharing for the cluster (`--gpu-sharing-enabled`)"
        ));
    }
    combination(pod).and_then(|()| values(pod)).map_err(|problem| format!("{shown}: {problem}"))?;
    fraction_container(pod).map(|_| ())
}

/// What may not be requested together.
fn combination(pod: &Value) -> Result<(), String> {
    if annotation(pod, key::MPS) == Some("true") && !shares_gpu(pod) {
        return Err(format!(
            "annotation `{}` requires a request for a part of a GPU; hint: add `{}`, or remove it",
            key::MPS,
            key::GPU_FRACTION
        ));
    }
    let fraction = annotation(pod, key::GPU_FRACTION).is_some();
    let memory = annotation(pod, key::GPU_MEMORY).is_some();
    if fraction && memory {
        return Err(format!(
            "annotations `{}` and `{}` exclude each other; hint: keep one of them",
            key::GPU_FRACTION,
            key::GPU_MEMORY
        ));
    }
    if (fraction || memory)
        && let Some((_, container)) = all_containers(pod).find(|(_, container)| has_whole_gpu(container))
    {
        return Err(format!(
            "container `{}` requests whole GPUs (`{NVIDIA_GPU}`) beside annotation `{}`; hint: keep one of the two",
            kai_object::str_at(container, "/name"),
            if fraction { key::GPU_FRACTION } else { key::GPU_MEMORY },
        ));
    }
    if annotation(pod, key::GPU_FRACTION_NUM_DEVICES).is_some() && !fraction && !memory {
        return Err(format!(
            "annotation `{}` requires `{}` or `{}`; hint: whole GPUs are requested as `{NVIDIA_GPU}`",
            key::GPU_FRACTION_NUM_DEVICES,
            key::GPU_FRACTION,
            key::GPU_MEMORY
        ));
    }
    Ok(())
}

/// A limit counts even if it is 0, as in KAI.
fn has_whole_gpu(container: &Value) -> bool {
    amount(container, "limits", NVIDIA_GPU).is_some()
        || amount(container, "requests", NVIDIA_GPU).is_some_and(|amount| !is_zero(amount))
}

fn values(pod: &Value) -> Result<(), String> {
    if let Some(text) = annotation(pod, key::GPU_MEMORY)
        && positive_integer(text).is_none()
    {
        return Err(format!(
            "annotation `{}` is `{text}`, which is no positive whole number of MiB; hint: such as `2000`",
            key::GPU_MEMORY
        ));
    }
    if let Some(text) = annotation(pod, key::GPU_FRACTION)
        && !is_fraction(text)
    {
        return Err(format!(
            "annotation `{}` is `{text}`, which is no number above 0 and below 1; hint: such as `0.5`, or request whole \
             GPUs (`{NVIDIA_GPU}`)",
            key::GPU_FRACTION
        ));
    }
    if let Some(text) = annotation(pod, key::GPU_FRACTION_NUM_DEVICES)
        && positive_integer(text).is_none()
    {
        return Err(format!(
            "annotation `{}` is `{text}`, which is no positive whole number; hint: such as `2`",
            key::GPU_FRACTION_NUM_DEVICES
        ));
    }
    Ok(())
}

/// Decimal digits only: no sign, as in Go.
fn positive_integer(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number > 0)
}

fn is_fraction(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(|number| number > 0.0 && number < 1.0) && text.parse::<Quantity>().is_ok()
}

/// Refuses a request for a part of a GPU that is added to an existing pod, which can no longer be prepared.
pub(super) fn validate_update(old: &Value, new: &Value) -> Result<(), String> {
    if !shares_gpu(new) || shares_gpu(old) || containers(new, ContainerKind::Regular).is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}: a part of a GPU can only be requested when the pod is created; hint: delete the pod and create it with the \
         annotation",
        fields::display_name(new)
    ))
}
