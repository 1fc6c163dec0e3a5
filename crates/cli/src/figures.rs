//! Amounts as JSON: GPUs in devices, CPU in cores, memory in bytes.

use kai_engine::input;
use kai_engine::resource::WHOLE_GPU;
use kai_engine::verdict::QueueResource;
use serde_json::{Map, Value, json};

/// The resources of a triple by name.
const RESOURCES: [(QueueResource, usize); 3] =
    [(QueueResource::Gpu, 2), (QueueResource::Cpu, 0), (QueueResource::Memory, 1)];

/// A resource as a key.
pub(crate) fn key(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Gpu => "gpu",
        QueueResource::Cpu => "cpu",
        QueueResource::Memory => "memory",
    }
}

/// One value a resource; the second argument is its place in a triple.
pub(crate) fn by_resource(value: impl Fn(QueueResource, usize) -> Value) -> Map<String, Value> {
    RESOURCES.into_iter().map(|(resource, at)| (key(resource).to_owned(), value(resource, at))).collect()
}

/// An amount.
pub(crate) fn unit(resource: QueueResource, amount: i64) -> Value {
    mean(resource, amount as f64)
}

/// An amount of a resource by the name that nodes have for it.
pub(crate) fn named(resource: &str, amount: i64) -> Value {
    match resource {
        input::CPU => unit(QueueResource::Cpu, amount),
        input::MEMORY => unit(QueueResource::Memory, amount),
        input::GPU => unit(QueueResource::Gpu, amount),
        _ => number(amount as f64 / 1_000.0),
    }
}

/// An amount that is a mean.
pub(crate) fn mean(resource: QueueResource, amount: f64) -> Value {
    number(match resource {
        QueueResource::Gpu => amount / WHOLE_GPU as f64,
        QueueResource::Cpu => amount / 1_000.0,
        QueueResource::Memory => amount.round(),
    })
}

/// Six decimals at most; whole numbers without any.
pub(crate) fn number(number: f64) -> Value {
    let rounded = (number * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        return json!(rounded as i64);
    }
    json!(rounded)
}
