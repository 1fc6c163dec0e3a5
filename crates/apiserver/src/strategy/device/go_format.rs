//! Formats claims and allocations as kube-apiserver prints them: with the names and the order of Go struct fields.

use serde_json::{Value, json};
use std::fmt::Write as _;

/// A Go field: its name, its JSON name, its zero value, and the shape of its value.
type Field = (&'static str, &'static str, &'static str, Shape);

#[derive(Clone, Copy)]
enum Shape {
    Plain,
    /// A struct, or a list of structs.
    Struct(&'static [Field]),
}

use Shape::{Plain, Struct};

const SELECTOR: &[Field] = &[("CEL", "cel", "null", Struct(&[("Expression", "expression", "\"\"", Plain)]))];
const SUB_REQUEST: &[Field] = &[
    ("Name", "name", "\"\"", Plain),
    ("DeviceClassName", "deviceClassName", "\"\"", Plain),
    ("Selectors", "selectors", "null", Struct(SELECTOR)),
    ("AllocationMode", "allocationMode", "\"\"", Plain),
    ("Count", "count", "0", Plain),
    ("Tolerations", "tolerations", "null", Plain),
    ("Capacity", "capacity", "null", Plain),
];
const EXACT_REQUEST: &[Field] = &[
    ("DeviceClassName", "deviceClassName", "\"\"", Plain),
    ("Selectors", "selectors", "null", Struct(SELECTOR)),
    ("AllocationMode", "allocationMode", "\"\"", Plain),
    ("Count", "count", "0", Plain),
    ("AdminAccess", "adminAccess", "null", Plain),
    ("Tolerations", "tolerations", "null", Plain),
    ("Capacity", "capacity", "null", Plain),
];
const REQUEST: &[Field] = &[
    ("Name", "name", "\"\"", Plain),
    ("Exactly", "exactly", "null", Struct(EXACT_REQUEST)),
    ("FirstAvailable", "firstAvailable", "null", Struct(SUB_REQUEST)),
];
const CONSTRAINT: &[Field] = &[
    ("Requests", "requests", "null", Plain),
    ("MatchAttribute", "matchAttribute", "null", Plain),
    ("DistinctAttribute", "distinctAttribute", "null", Plain),
];
const DEVICES: &[Field] = &[
    ("Requests", "requests", "[]", Struct(REQUEST)),
    ("Constraints", "constraints", "null", Struct(CONSTRAINT)),
    ("Config", "config", "null", Plain),
];
const CLAIM_SPEC: &[Field] = &[("Devices", "devices", "{}", Struct(DEVICES))];
const RESULT: &[Field] = &[
    ("Request", "request", "\"\"", Plain),
    ("Driver", "driver", "\"\"", Plain),
    ("Pool", "pool", "\"\"", Plain),
    ("Device", "device", "\"\"", Plain),
    ("AdminAccess", "adminAccess", "null", Plain),
    ("Tolerations", "tolerations", "null", Plain),
    ("BindingConditions", "bindingConditions", "null", Plain),
    ("BindingFailureConditions", "bindingFailureConditions", "null", Plain),
    ("ShareID", "shareID", "null", Plain),
    ("ConsumedCapacity", "consumedCapacity", "null", Plain),
];
const ALLOCATED: &[Field] =
    &[("Results", "results", "null", Struct(RESULT)), ("Config", "config", "null", Plain)];
const REQUIREMENT: &[Field] = &[
    ("Key", "key", "\"\"", Plain),
    ("Operator", "operator", "\"\"", Plain),
    ("Values", "values", "null", Plain),
];
const TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", "null", Struct(REQUIREMENT)),
    ("MatchFields", "matchFields", "null", Struct(REQUIREMENT)),
];
const NODE_SELECTOR: &[Field] = &[("NodeSelectorTerms", "nodeSelectorTerms", "null", Struct(TERM))];
const ALLOCATION: &[Field] = &[
    ("Devices", "devices", "{}", Struct(ALLOCATED)),
    ("NodeSelector", "nodeSelector", "null", Struct(NODE_SELECTOR)),
    ("AllocationTimestamp", "allocationTimestamp", "null", Plain),
];

pub(super) fn claim_spec(spec: &Value) -> String {
    write(spec, Struct(CLAIM_SPEC))
}

pub(super) fn allocation(allocation: &Value) -> String {
    write(allocation, Struct(ALLOCATION))
}

fn write(value: &Value, shape: Shape) -> String {
    match (shape, value) {
        (Struct(_), Value::Array(elements)) => {
            let elements: Vec<_> = elements.iter().map(|element| write(element, shape)).collect();
            format!("[{}]", elements.join(","))
        }
        (Struct(fields), Value::Object(_)) => {
            let mut text = String::from("{");
            for (index, (name, json, missing, shape)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let shown = match value.get(json) {
                    Some(value) => write(value, *shape),
                    None if *missing == "{}" => write(&json!({}), *shape),
                    None => (*missing).to_owned(),
                };
                let _ = write!(text, "{comma}\"{name}\":{shown}");
            }
            text + "}"
        }
        (Plain | Struct(_), _) => value.to_string(),
    }
}
