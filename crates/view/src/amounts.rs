//! Amounts of queue resources, serialised as GPUs in devices, CPU in cores and memory in bytes.

use kai_engine::input;
use kai_engine::resource::{PerResource, WHOLE_GPU};
use kai_engine::verdict::QueueResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The resources in the order in which they are displayed.
pub const RESOURCES: [QueueResource; 3] = [QueueResource::Gpu, QueueResource::Cpu, QueueResource::Memory];

/// An amount in the base unit of its resource: millionths of a GPU, millicores, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub resource: QueueResource,
    pub value: i64,
}

/// A number in the unit of the resource.
impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "description": "GPUs in devices, CPU in cores, memory in bytes."})
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        unit(self.resource, self.value).serialize(serializer)
    }
}

/// One value per resource, serialised by name.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct ByResource<T> {
    pub gpu: T,
    pub cpu: T,
    pub memory: T,
}

impl<T> ByResource<T> {
    pub fn from_fn(value: impl Fn(QueueResource) -> T) -> Self {
        Self {
            gpu: value(QueueResource::Gpu),
            cpu: value(QueueResource::Cpu),
            memory: value(QueueResource::Memory),
        }
    }

    pub fn get(&self, resource: QueueResource) -> &T {
        match resource {
            QueueResource::Gpu => &self.gpu,
            QueueResource::Cpu => &self.cpu,
            QueueResource::Memory => &self.memory,
        }
    }
}

impl ByResource<Amount> {
    pub fn amounts(amounts: &PerResource<i64>) -> Self {
        Self::from_fn(|resource| Amount { resource, value: amounts[resource] })
    }
}

/// The name of a resource in JSON.
pub fn key(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Gpu => "gpu",
        QueueResource::Cpu => "cpu",
        QueueResource::Memory => "memory",
    }
}

/// A JSON object with one value per resource.
pub fn by_resource(value: impl Fn(QueueResource) -> Value) -> Map<String, Value> {
    RESOURCES.into_iter().map(|resource| (key(resource).to_owned(), value(resource))).collect()
}

/// An amount in the unit of its resource.
pub fn unit(resource: QueueResource, amount: i64) -> Value {
    mean(resource, amount as f64)
}

/// An amount of a resource under its name in Kubernetes.
pub fn named(resource: &str, amount: i64) -> Value {
    match resource {
        input::CPU => unit(QueueResource::Cpu, amount),
        input::MEMORY => unit(QueueResource::Memory, amount),
        input::GPU => unit(QueueResource::Gpu, amount),
        _ => number(amount as f64 / 1_000.0),
    }
}

/// An average amount, which may be a fraction of the base unit.
pub fn mean(resource: QueueResource, amount: f64) -> Value {
    number(match resource {
        QueueResource::Gpu => amount / WHOLE_GPU as f64,
        QueueResource::Cpu => amount / 1_000.0,
        QueueResource::Memory => amount.round(),
    })
}

/// Rounded to six decimals, the precision of GPU amounts; whole numbers without decimals.
pub fn number(number: f64) -> Value {
    let rounded = (number * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        return json!(rounded as i64);
    }
    json!(rounded)
}
