//! Evaluates the `matchConditions` of a webhook: CEL expressions over the request and its objects.

use super::request::AdmissionRequest;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Condition {
    expression: String,
    program: Option<Program>,
}

pub(super) fn read(hook: &Value) -> Vec<Condition> {
    let conditions = hook.get("matchConditions").and_then(Value::as_array);
    let expressions = conditions
        .into_iter()
        .flatten()
        .map(|condition| condition.get("expression").and_then(Value::as_str).unwrap_or_default().to_owned());
    expressions
        .map(|expression| Condition { program: Program::compile(&expression).ok(), expression })
        .collect()
}

/// Whether all conditions hold. As in kube-apiserver, one false condition decides even when another one fails.
pub(super) fn hold(conditions: &[Condition], request: &AdmissionRequest<'_>) -> Result<bool, String> {
    let mut context = Context::default().with_all();
    for (name, value) in [("object", request.object), ("oldObject", request.old)] {
        context.add_variable_from_value(name, value.map_or(Cel::Null, of_json));
    }
    context.add_variable_from_value("request", of_json(&request.request()));
    let mut failed = None;
    for condition in conditions {
        let outcome = match &condition.program {
            Some(program) => program.execute(&context).map_err(|error| message(&error.to_string())),
            None => Err("the expression does not compile".to_owned()),
        };
        match outcome {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => return Ok(false),
            Ok(_) => {
                failed.get_or_insert("the result is neither true nor false".to_owned());
            }
            Err(why) => {
                let expression = &condition.expression;
                failed.get_or_insert(format!("expression '{expression}' resulted in error: {why}"));
            }
        }
    }
    failed.map_or(Ok(true), Err)
}

/// Rewords an evaluation error as kube-apiserver reports it.
fn message(error: &str) -> String {
    match error.split_once(':') {
        Some(("No such key", key)) => format!("no such key:{key}"),
        Some(("Index out of bounds", index)) => format!("index out of bounds:{index}"),
        _ if error == "No such overload" => "no such overload".to_owned(),
        _ => error.to_owned(),
    }
}

fn of_json(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(elements) => Cel::List(Arc::new(elements.iter().map(of_json).collect())),
        Value::Object(fields) => {
            let entries =
                fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), of_json(value)));
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}
