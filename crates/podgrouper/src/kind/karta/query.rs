//! jq expressions over JSON.

use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read};
use serde_json::Value;

/// More results of one expression are not read.
const RESULTS_MAX: usize = 10_000;

/// All results of an expression.
pub(super) fn run(expression: &str, input: &Value) -> Result<Vec<Value>, String> {
    if let Some(path) = simple_path(expression) {
        return follow(&path, input).ok_or_else(|| format!("`{expression}` does not fit the object"));
    }
    // A definition could recurse without end; paths and filters need none.
    if expression.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| UNBOUNDED.contains(&word)) {
        return Err(format!("`{expression}` uses one of {}, which paths may not", UNBOUNDED.join(", ")));
    }
    let wrong = |problem: &str| format!("`{expression}` {problem}");
    let arena = Arena::default();
    let loader = Loader::new(jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()));
    let program = File { code: expression, path: () };
    let modules = loader.load(&arena, program).map_err(|_| wrong("is no valid jq expression"))?;
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let filter = Compiler::default()
        .with_funs(functions)
        .compile(modules)
        .map_err(|_| wrong("uses a function that jq does not have"))?;
    let text = input.to_string();
    let input = read::parse_single(text.as_bytes()).map_err(|_| wrong("cannot read its object"))?;
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut results = Vec::new();
    for result in filter.id.run((context, input)).map(unwrap_valr).take(RESULTS_MAX) {
        let result = result.map_err(|error| wrong(&format!("fails: {error}")))?;
        results.push(serde_json::from_str(&result.to_string()).map_err(|_| wrong("yields no JSON"))?);
    }
    Ok(results)
}

/// Words that start a computation without a bound, or leave the object.
const UNBOUNDED: &[&str] = &[
    "def",
    "recurse",
    "repeat",
    "while",
    "until",
    "range",
    "limit",
    "input",
    "inputs",
    "env",
    "ENV",
    "halt",
    "halt_error",
];

/// A step of a path such as `.spec.pools[].name`.
enum Step<'a> {
    Field(&'a str),
    Each,
}

/// The steps of an expression that is only a path, which nearly all are: no program has to be compiled for them.
fn simple_path(expression: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in expression.trim().strip_prefix('.')?.split('.') {
        let (name, each) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        let is_word = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !is_word(name) {
            return None;
        }
        steps.push(Step::Field(name));
        steps.extend(each.then_some(Step::Each));
    }
    Some(steps)
}

/// The values at a path, as jq yields them; none where a value has no fields or elements.
fn follow(path: &[Step<'_>], input: &Value) -> Option<Vec<Value>> {
    let mut values = vec![input.clone()];
    for step in path {
        let mut next = Vec::new();
        for value in values {
            match (step, value) {
                (Step::Field(name), Value::Object(mut fields)) => {
                    next.push(fields.remove(*name).unwrap_or_default());
                }
                (Step::Field(_), Value::Null) => next.push(Value::Null),
                (Step::Each, Value::Array(elements)) => next.extend(elements),
                (Step::Each, Value::Object(fields)) => {
                    next.extend(fields.into_iter().map(|(_, value)| value));
                }
                _ => return None,
            }
        }
        values = next;
    }
    Some(values)
}

/// The results that are not null, as texts.
pub(super) fn texts(expression: &str, input: &Value) -> Result<Vec<String>, String> {
    let results = run(expression, input)?.into_iter().filter(|value| !value.is_null());
    Ok(results.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect())
}

/// The results as numbers of 32 bits; null is none.
pub(super) fn numbers(expression: &str, input: &Value) -> Result<Vec<Option<i32>>, String> {
    let number = |value: Value| {
        if value.is_null() { Ok(None) } else { crate::fields::int(&value, expression).map(Some) }
    };
    run(expression, input)?.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_and_expressions_yield_what_jq_does() {
        let pod = json!({"metadata": {"labels": {"role": "worker", "a/b": "x"}}, "spec": {"n": [{"v": 1}, {"v": 2}]}});
        let of = |expression: &str| run(expression, &pod);
        assert_eq!(of(".metadata.labels.role"), Ok(vec![json!("worker")]));
        assert_eq!(of(".metadata.labels.none.below"), Ok(vec![Value::Null]));
        assert_eq!(of(".spec.n[].v"), Ok(vec![json!(1), json!(2)]));
        assert_eq!(of(".metadata.labels[\"a/b\"]"), Ok(vec![json!("x")]));
        assert_eq!(of(".metadata.labels.role == \"worker\""), Ok(vec![json!(true)]));
        assert_eq!(of("[.spec.n[] | select(.v > 1)] | length"), Ok(vec![json!(1)]));
        assert!(of(".spec.n.v").is_err() && of(".spec.n[.v").is_err() && of("nonsense(1)").is_err());
    }

    #[test]
    fn expressions_that_may_not_end_are_refused() {
        for expression in ["def f: f; f", "repeat(.)", "[range(1e12)]", "halt", "env"] {
            assert!(run(expression, &json!({})).is_err(), "{expression}");
        }
    }
}
