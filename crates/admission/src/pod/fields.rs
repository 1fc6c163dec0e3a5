//! Access to pods as JSON. A webhook changes an object without losing fields that it does not know.

use kai_api::well_known::{annotation, env, resource};
use kai_units::Quantity;
use serde_json::{Map, Value, json};

/// Which list of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    Init,
    Regular,
}

impl ContainerKind {
    pub(crate) const ALL: [Self; 2] = [Self::Init, Self::Regular];

    fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Regular => "containers",
        }
    }
}

/// Place of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerRef {
    pub(crate) kind: ContainerKind,
    pub(crate) index: usize,
}

impl ContainerRef {
    /// How the names of its config maps end: `0`, or `i0` for an init container.
    pub(crate) fn suffix(self) -> String {
        match self.kind {
            ContainerKind::Init => format!("i{}", self.index),
            ContainerKind::Regular => self.index.to_string(),
        }
    }

    pub(crate) fn get_mut(self, pod: &mut Value) -> Option<&mut Map<String, Value>> {
        pod.get_mut("spec")?.get_mut(self.kind.field())?.get_mut(self.index)?.as_object_mut()
    }
}

/// The value of an annotation; null is an empty one, as for the API server.
pub(crate) fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    let value = kai_object::meta(pod, "annotations")?.get(key)?;
    if value.is_null() { Some("") } else { value.as_str() }
}

pub(crate) fn scheduler_name(pod: &Value) -> &str {
    kai_object::str_at(pod, "/spec/schedulerName")
}

/// How messages name a pod, which may have no name yet.
pub(crate) fn display_name(pod: &Value) -> String {
    let name = match kai_object::name(pod) {
        "" => format!("{}*", kai_object::meta_str(pod, "generateName")),
        name => name.to_owned(),
    };
    match kai_object::namespace(pod) {
        "" => format!("pod `{name}`"),
        namespace => format!("pod `{namespace}/{name}`"),
    }
}

pub(crate) fn containers(pod: &Value, kind: ContainerKind) -> &[Value] {
    pod.get("spec")
        .and_then(|spec| spec.get(kind.field()))
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Init containers and regular containers.
pub(crate) fn all_containers(pod: &Value) -> impl Iterator<Item = (ContainerRef, &Value)> {
    ContainerKind::ALL.into_iter().flat_map(move |kind| {
        let list = containers(pod, kind).iter().enumerate();
        list.map(move |(index, container)| (ContainerRef { kind, index }, container))
    })
}

/// The variables of a container that have a name, in order.
pub(crate) fn variables<'a>(container: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let all = container.get("env").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |variable| kai_object::str_at(variable, "/name") == name)
}

/// Replaces all variables of a name by one at the end.
pub(crate) fn set_variable(container: &mut Map<String, Value>, name: &str, source: &Value) {
    let variables = list(container, "env");
    variables.retain(|variable| kai_object::str_at(variable, "/name") != name);
    variables.push(json!({"name": name, "valueFrom": source}));
}

/// A list of an object, which is created where it is missing.
#[expect(clippy::expect_used, reason = "it is replaced by a list first")]
pub(crate) fn list<'a>(object: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
    let value = object.entry(field).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was just made a list")
}

/// What a container has of a resource under `limits` or `requests`, if it says so.
pub(crate) fn amount<'a>(container: &'a Value, part: &str, resource: &str) -> Option<&'a Value> {
    container.get("resources")?.get(part)?.get(resource)
}

/// Whether a container requests whole GPUs or MIG instances. A limit without a request is the request.
pub(crate) fn requests_devices(container: &Value) -> bool {
    ["requests", "limits"].iter().any(|part| {
        let amounts = container.get("resources").and_then(|all| all.get(part)).and_then(Value::as_object);
        amounts.into_iter().flatten().any(|(name, limit)| {
            (name == resource::NVIDIA_GPU || name.starts_with(resource::NVIDIA_MIG_PREFIX))
                && !is_zero(amount(container, "requests", name).unwrap_or(limit))
        })
    })
}

/// Whether an amount is 0; one that cannot be read is not.
pub(crate) fn is_zero(amount: &Value) -> bool {
    quantity(amount).is_ok_and(Quantity::is_zero)
}

/// The quantity that a value is: text or a number.
pub(crate) fn quantity(value: &Value) -> Result<Quantity, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null => return Ok(Quantity::default()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return Err(format!("`{value}` is not a quantity"));
        }
    };
    text.parse().map_err(|error: kai_units::QuantityError| error.to_string())
}

/// Whether a pod requests a part of a GPU.
pub(crate) fn shares_gpu(pod: &Value) -> bool {
    [annotation::GPU_FRACTION, annotation::GPU_MEMORY].iter().any(|key| self::annotation(pod, key).is_some())
}

/// Whether two versions of a pod are the same in everything that the rules for pods read, except for the scheduler's name.
pub fn same_request(old: &Value, new: &Value) -> bool {
    const ANNOTATIONS: [&str; 5] = [
        annotation::GPU_FRACTION,
        annotation::GPU_MEMORY,
        annotation::GPU_FRACTION_NUM_DEVICES,
        annotation::GPU_FRACTION_CONTAINER,
        annotation::MPS,
    ];
    let read =
        |(place, container)| (place, ["name", "env", "resources"].map(|field| Value::get(container, field)));
    ANNOTATIONS.iter().all(|key| self::annotation(old, key) == self::annotation(new, key))
        && all_containers(old).map(read).eq(all_containers(new).map(read))
}

/// The container that receives the part of a GPU: the named one, init containers first, else the first regular one.
/// `None` where the pod requests no part of a GPU, or has no containers.
pub(crate) fn fraction_container(pod: &Value) -> Result<Option<ContainerRef>, String> {
    let regular = containers(pod, ContainerKind::Regular);
    if !shares_gpu(pod) || regular.is_empty() {
        return Ok(None);
    }
    let named = annotation(pod, annotation::GPU_FRACTION_CONTAINER).unwrap_or_default();
    if named.is_empty() {
        return Ok(Some(ContainerRef { kind: ContainerKind::Regular, index: 0 }));
    }
    let found = all_containers(pod).find(|(_, container)| kai_object::str_at(container, "/name") == named);
    if let Some((place, _)) = found {
        return Ok(Some(place));
    }
    let names: Vec<&str> =
        all_containers(pod).map(|(_, container)| kai_object::str_at(container, "/name")).collect();
    Err(format!(
        "{}: annotation `{}` names container `{named}`, which the pod does not have; hint: use one of `{}`, or remove the \
         annotation for the first container",
        display_name(pod),
        annotation::GPU_FRACTION_CONTAINER,
        names.join("`, `")
    ))
}

/// A reference to a key of a config map, as the source of a variable of the same name.
pub(crate) fn from_config_map(map: &str, key: &str) -> Value {
    json!({"configMapKeyRef": {"name": map, "key": key}})
}

/// Name of the config map with the capabilities of a container's GPUs, in a pod that was prepared.
pub(crate) fn capabilities_map(pod: &Value, container: ContainerRef) -> Option<String> {
    let prefix = annotation(pod, annotation::SHARED_GPU_CONFIG_MAP).filter(|prefix| !prefix.is_empty())?;
    Some(format!("{prefix}-{}", container.suffix()))
}

/// The variables that a container reads from its config map.
pub(crate) const GPU_VARIABLES: [&str; 3] =
    [env::NVIDIA_VISIBLE_DEVICES, env::RUNAI_NUM_OF_GPUS, env::GPU_PORTION];
