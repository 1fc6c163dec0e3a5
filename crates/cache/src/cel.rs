//! Evaluates CEL device selectors: which devices of all slices an expression accepts.
//!
//! An expression has one variable `device`: its driver, attributes and capacities, the latter two by domain and name.
//! Results are cached per expression and slice, so that a change of one slice evaluates its devices only.
//! Expressions are user input: their size is limited before they are compiled, because parser and evaluator recurse, and a
//! panic inside them invalidates that expression only.

use crate::object::ResourceSlice;
use crate::object::device::{AttributeValue, Device, DeviceSelector};
use crate::object::value::Amount;
use kai_engine::input::{DeviceId, Key};
use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, Program, Value};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Limit of the expression's bytes, as in the API.
const BYTES_MAX: usize = 10 * 1024;
/// Limit of the selectors of one request, as in the API.
const SELECTORS_MAX: usize = 32;
/// Limit of operators, brackets and selections; bounds the depth of recursion.
const OPERATORS_MAX: usize = 600;
/// Limit of commas; bounds the size of list literals.
const COMMAS_MAX: usize = 200;
/// Limit of comprehensions.
const LOOPS_MAX: usize = 2;
/// Limit of bracket nesting.
const NESTING_MAX: usize = 40;
/// Limit of cached expressions; the cache is cleared when it is reached.
const EXPRESSIONS_MAX: usize = 1024;

/// Evaluates device selectors and caches the results.
#[derive(Debug, Default)]
pub struct Selectors {
    expressions: BTreeMap<String, Expression>,
}

#[derive(Debug)]
struct Expression {
    compiled: Result<Compiled, String>,
    results: BTreeMap<Key, Answer>,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    /// Domains in the expression; they exist on every device, possibly without attributes.
    domains: Vec<String>,
}

/// The result of an expression for the devices of one slice.
#[derive(Clone, Debug, Default)]
struct Answer {
    accepted: Vec<DeviceId>,
    failed: usize,
    error: Option<String>,
    devices: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Devices that all selectors accept, sorted; `None` without a selector.
    pub devices: Option<Vec<DeviceId>>,
    /// Problems of the selectors.
    pub problems: Vec<String>,
}

impl Selectors {
    /// Devices of all slices that every selector accepts.
    pub fn accepted(
        &mut self,
        selectors: &[DeviceSelector],
        slices: &BTreeMap<Key, Arc<ResourceSlice>>,
    ) -> Accepted {
        let mut accepted = Accepted::default();
        if selectors.len() > SELECTORS_MAX {
            let problem = format!("{} selectors exceed the limit of {SELECTORS_MAX}", selectors.len());
            return Accepted { devices: Some(Vec::new()), problems: vec![problem] };
        }
        for selector in selectors {
            let answer = match &selector.cel {
                Some(cel) => self.accepted_by(&cel.expression, slices),
                None => Err("unsupported selector".to_owned()),
            };
            let devices = answer.unwrap_or_else(|problem| {
                accepted.problems.push(problem);
                Vec::new()
            });
            accepted.devices = Some(match accepted.devices {
                None => devices,
                Some(mut both) => {
                    both.retain(|device| devices.binary_search(device).is_ok());
                    both
                }
            });
        }
        accepted
    }

    /// Drops the cached results of a slice.
    pub fn forget(&mut self, slice: &Key) {
        for expression in self.expressions.values_mut() {
            expression.results.remove(slice);
        }
    }

    fn accepted_by(
        &mut self,
        text: &str,
        slices: &BTreeMap<Key, Arc<ResourceSlice>>,
    ) -> Result<Vec<DeviceId>, String> {
        if !self.expressions.contains_key(text) {
            if self.expressions.len() >= EXPRESSIONS_MAX {
                self.expressions.clear();
            }
            let compiled = compile(text);
            self.expressions.insert(text.to_owned(), Expression { compiled, results: BTreeMap::new() });
        }
        #[expect(clippy::expect_used, reason = "a lookup by `entry` would copy the text for each device")]
        let expression = self.expressions.get_mut(text).expect("inserted above if it was missing");
        let compiled =
            expression.compiled.as_ref().map_err(|e| format!("`{text}` cannot be compiled: {e}"))?;
        let missing: Vec<&Key> = slices.keys().filter(|key| !expression.results.contains_key(*key)).collect();
        if !missing.is_empty() {
            let root = Context::default().with_all();
            for key in missing {
                expression.results.insert(key.clone(), ask(compiled, &slices[key], &root));
            }
        }
        let mut devices: Vec<DeviceId> = Vec::new();
        let (mut evaluated, mut failed, mut error) = (0, 0, None);
        for result in expression.results.iter().filter(|(key, _)| slices.contains_key(*key)).map(|(_, a)| a) {
            evaluated += result.devices;
            failed += result.failed;
            error = error.or(result.error.as_ref());
            devices.extend(result.accepted.iter().cloned());
        }
        match error {
            // Attributes that only some devices have are common; an error on all devices is a defect of the expression.
            Some(error) if failed == evaluated => Err(format!("`{text}` fails on every device: {error}")),
            Some(_) | None => {
                devices.sort();
                devices.dedup();
                Ok(devices)
            }
        }
    }
}

fn compile(text: &str) -> Result<Compiled, String> {
    check_limits(text)?;
    let program = catch_unwind(AssertUnwindSafe(|| Program::compile(text)))
        .map_err(|_| "the parser failed".to_owned())?
        .map_err(|errors| errors.to_string())?;
    Ok(Compiled { program, domains: domains(text) })
}

fn check_limits(text: &str) -> Result<(), String> {
    let operators = text.matches(|c| "?:.([{!-+*/%<>=&|".contains(c)).count();
    let loops = [".all(", ".exists(", ".exists_one(", ".map(", ".filter("];
    let loops: usize = loops.iter().map(|name| text.matches(name).count()).sum();
    let mut depth = 0usize;
    let mut deepest = 0;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let excess = [
        ("bytes", text.len(), BYTES_MAX),
        ("operators", operators, OPERATORS_MAX),
        ("commas", text.matches(',').count(), COMMAS_MAX),
        ("loops", loops, LOOPS_MAX),
        ("levels of brackets", deepest, NESTING_MAX),
    ];
    match excess.iter().find(|(_, found, most)| found > most) {
        Some((what, found, most)) => Err(format!("{found} {what} exceed the limit of {most}")),
        None => Ok(()),
    }
}

/// String keys in `["…"]` or `['…']`.
fn domains(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for quote in ['"', '\''] {
        for part in text.split(&format!("[{quote}")).skip(1) {
            if let Some((key, _)) = part.split_once(quote) {
                found.push(key.to_owned());
            }
        }
    }
    found
}

fn ask(compiled: &Compiled, slice: &ResourceSlice, root: &Context<'_>) -> Answer {
    let driver = &slice.spec.driver;
    let mut answer = Answer { devices: slice.spec.devices.len(), ..Answer::default() };
    for device in &slice.spec.devices {
        let verdict = catch_unwind(AssertUnwindSafe(|| {
            let mut scope = root.new_inner_scope();
            scope.add_variable_from_value("device", described(device, driver, &compiled.domains, root));
            compiled.program.execute(&scope)
        }));
        let error = match verdict {
            Ok(Ok(Value::Bool(true))) => {
                answer.accepted.push(DeviceId {
                    driver: driver.to_string(),
                    pool: slice.spec.pool.name.to_string(),
                    device: device.name.to_string(),
                });
                continue;
            }
            Ok(Ok(Value::Bool(false))) => continue,
            Ok(Ok(_)) => "the result is not a boolean".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the evaluator failed".to_owned(),
        };
        answer.failed += 1;
        answer.error.get_or_insert(error);
    }
    answer
}

fn described(device: &Device, driver: &str, domains: &[String], root: &Context<'_>) -> Value {
    let empty = || domains.iter().map(|d| (d.clone(), BTreeMap::new())).collect::<BTreeMap<_, _>>();
    let mut attributes: BTreeMap<String, BTreeMap<String, Value>> = empty();
    for (name, value) in device.attributes.iter() {
        let (domain, name) = qualified(name, driver);
        attributes.entry(domain).or_default().insert(name, attribute(value, root));
    }
    let mut capacity: BTreeMap<String, BTreeMap<String, Value>> = empty();
    for (name, counter) in device.capacity.iter() {
        let (domain, name) = qualified(name, driver);
        let text = match &counter.value {
            Amount::Exact(quantity) => quantity.to_string(),
            Amount::Bad(text) => text.to_string(),
        };
        capacity.entry(domain).or_default().insert(name, call("quantity(text)", text, root));
    }
    let by_domain = |all: BTreeMap<String, BTreeMap<String, Value>>| {
        map(all.into_iter().map(|(d, names)| (d, map(names))))
    };
    map([
        ("driver".to_owned(), Value::from(driver)),
        ("attributes".to_owned(), by_domain(attributes)),
        ("capacity".to_owned(), by_domain(capacity)),
        ("allowMultipleAllocations".to_owned(), Value::Bool(device.allow_multiple_allocations)),
    ])
}

/// Domain and name of an attribute or a capacity; without a domain it is the driver's.
pub(crate) fn qualified(name: &str, driver: &str) -> (String, String) {
    match name.split_once('/') {
        Some((domain, name)) => (domain.to_owned(), name.to_owned()),
        None => (driver.to_owned(), name.to_owned()),
    }
}

fn attribute(value: &AttributeValue, root: &Context<'_>) -> Value {
    if let Some(number) = value.integer {
        Value::Int(number)
    } else if let Some(truth) = value.boolean {
        Value::Bool(truth)
    } else if let Some(version) = &value.version {
        call("semver(text)", version.to_string(), root)
    } else {
        Value::from(value.string.as_deref().unwrap_or_default())
    }
}

/// Builds a typed value with the CEL conversion function; text that it rejects stays text.
fn call(function: &str, text: String, root: &Context<'_>) -> Value {
    let mut scope = root.new_inner_scope();
    scope.add_variable_from_value("text", text.clone());
    let made = Program::compile(function).ok().and_then(|program| program.execute(&scope).ok());
    made.unwrap_or_else(|| Value::from(text))
}

#[expect(clippy::disallowed_types, reason = "the evaluator's own map type; nothing here iterates over it")]
fn map(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::from(pairs.into_iter().collect::<std::collections::HashMap<String, Value>>())
}

#[cfg(test)]
mod tests;
