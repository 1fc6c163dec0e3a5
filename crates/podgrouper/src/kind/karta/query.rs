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
        let values = follow(&path, input).ok_or_else(|| format!("`{expression}` does not fit the object"))?;
        return Ok(values.into_iter().map(whole).collect());
    }
    let wrong = |problem: &str| format!("`{expression}` {problem}");
    let program = bounded(expression).map_err(|problem| wrong(&problem))?;
    let arena = Arena::default();
    let loader = Loader::new(jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()));
    let program = File { code: program.as_str(), path: () };
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
        let result = serde_json::from_str(&result.to_string()).map_err(|_| wrong("yields no JSON"))?;
        results.push(whole(result));
    }
    Ok(results)
}

/// A number without a fraction as an integer, as jq writes it.
fn whole(value: Value) -> Value {
    /// Up to here, floating-point numbers are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is small enough")]
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() <= EXACT => {
            Value::from(number as i64)
        }
        _ => value,
    }
}

/// The program of an expression, which cannot run without end nor make a text as long as a number of the object says.
fn bounded(expression: &str) -> Result<String, String> {
    let mut program = String::new();
    let mut word = String::new();
    // Parentheses that are open in each text that is being interpolated, outermost first.
    let mut interpolated: Vec<usize> = Vec::new();
    let mut is_text = false;
    let mut characters = expression.chars().chain([' ']).peekable();
    while let Some(c) = characters.next() {
        if is_text {
            program.push(c);
            match c {
                '"' => is_text = false,
                '\\' => {
                    let escaped = characters.next().unwrap_or(' ');
                    program.push(escaped);
                    if escaped == '(' {
                        interpolated.push(0);
                        is_text = false;
                    }
                }
                _ => {}
            }
            continue;
        }
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            program.push(c);
            continue;
        }
        let before = program.strip_suffix(word.as_str()).unwrap_or_default();
        let is_field = before.ends_with('.') && !before.ends_with("..");
        // A definition could recurse without end; paths and filters need none.
        if !is_field && UNBOUNDED.contains(&word.as_str()) {
            return Err(format!("uses one of {}, which paths may not", UNBOUNDED.join(", ")));
        }
        word.clear();
        match c {
            '"' => is_text = true,
            '#' => return Err("has a comment, which paths may not".to_owned()),
            '(' => {
                if let Some(open) = interpolated.last_mut() {
                    *open += 1;
                }
            }
            ')' => match interpolated.last_mut() {
                Some(0) => {
                    interpolated.pop();
                    is_text = true;
                }
                Some(open) => *open -= 1,
                None => {}
            },
            '*' if characters.peek() == Some(&'=') => {
                return Err("uses `*=`, which paths may not".to_owned());
            }
            // A text cannot be divided by a number, nor repeated by the floating-point number that a division yields.
            '*' => program.push_str("/ 1 "),
            _ => {}
        }
        program.push(c);
    }
    Ok(program)
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
    fn only_calls_of_functions_are_refused() {
        let pod = json!({"env": 1, "metadata": {"labels": {"env": "prod", "a\"env": 2}}});
        let of = |expression: &str| run(expression, &pod);
        assert_eq!(of(".metadata.labels[\"env\"]"), Ok(vec![json!("prod")]));
        assert_eq!(of(".metadata.labels[\"a\\\"env\"]"), Ok(vec![json!(2)]));
        assert_eq!(of("[.env] | length"), Ok(vec![json!(1)]));
        assert_eq!(of("\"range \\(.env) input\""), Ok(vec![json!("range 1 input")]));
        for expression in
            ["\"\\(env)\"", "\"\\((1) | env)\"", "# \"\nenv # \"", "$ENV", "..|env", "[.[]|env]"]
        {
            assert!(of(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn whole_numbers_are_integers() {
        let object = json!({"spec": {"a": 2.0, "b": 3, "c": 2.5}});
        assert_eq!(numbers(".spec.a", &object), Ok(vec![Some(2)]));
        assert_eq!(numbers(".spec.a * .spec.b * 2", &object), Ok(vec![Some(12)]));
        assert_eq!(texts(".spec.b*.spec.b", &object), Ok(vec!["9".to_owned()]));
        assert!(numbers(".spec.c", &object).is_err());
    }

    #[test]
    fn texts_are_not_repeated() {
        let object = json!({"text": "x", "n": 1_000_000_000_000i64});
        for expression in [".text * .n", ".n * .text", ".n*1*.text", "(.text)*(.n)", ".text *= .n"] {
            assert!(run(expression, &object).is_err(), "{expression}");
        }
    }

    #[test]
    fn expressions_that_may_not_end_are_refused() {
        for expression in ["def f: f; f", "repeat(.)", "[range(1e12)]", "halt", "env"] {
            assert!(run(expression, &json!({})).is_err(), "{expression}");
        }
    }
}
