//! Validates custom resources against their schema, with the messages of kube-apiserver.
//!
//! On update, unchanged values are not validated again (ratcheting, KEP-4008): a schema may become stricter than

use super::check::{self, Bound, Checks};
use super::{ListType, Schema, Type, format, rules};
use crate::field::{Error, Path, Reason, quote};
use rustc_hash::FxHashMap;
use serde_json::{Map, Number, Value};

/// The value that an update replaces.
#[derive(Clone, Copy, Debug)]
pub enum Old<'a> {
    /// None: the object, or this part of it, is new.
    None,
    /// The value at the same path.
    Value(&'a Value),
}

impl<'a> Old<'a> {
    pub fn value(self) -> Option<&'a Value> {
        match self {
            Self::None => None,
            Self::Value(value) => Some(value),
        }
    }

    fn of(value: Option<&'a Value>) -> Self {
        value.map_or(Self::None, Self::Value)
    }

    pub(super) fn field(self, name: &str) -> Self {
        Self::of(self.value().and_then(|value| value.get(name)))
    }

    /// The old element with the same key, if the list type identifies elements.
    pub(super) fn element(self, list: &ListType, element: &Value) -> Self {
        let (ListType::Map(keys), Some(Value::Array(old))) = (list, self.value()) else { return Self::None };
        let same = |old: &&Value| keys.iter().all(|key| old.get(key) == element.get(key));
        Self::of(old.iter().find(same))
    }
}

/// All errors of an object: types and limits, list types, and the rules of its schema.
pub fn validate(schema: &Schema, object: &Value, old: Old<'_>) -> Vec<Error> {
    let mut errors = Findings::default();
    walk(schema, object, old, &Path::ROOT, &mut errors);
    let mut errors = errors.errors;
    lists(schema, object, &Path::ROOT, &mut errors);
    if rules::has_rules(schema) {
        // Rules may rely on types and sizes.
        if errors.iter().any(|error| blocks_rules(error.reason)) {
            errors.push(Error::invalid(&Path::ROOT, Value::Null, UNCHECKED));
        } else {
            rules::evaluate(schema, object, old, &Path::ROOT, &mut errors);
        }
    }
    errors
}

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

fn blocks_rules(reason: Reason) -> bool {
    match reason {
        Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid => {
            true
        }
        Reason::NotFound | Reason::Duplicate | Reason::Invalid | Reason::Forbidden | Reason::Internal => {
            false
        }
    }
}

/// Errors, and how many values were checked: of several failed alternatives the best match is reported.
#[derive(Default)]
struct Findings {
    errors: Vec<Error>,
    seen: usize,
}

impl Findings {
    fn merge(&mut self, other: Findings) {
        self.seen += other.seen;
        for error in other.errors {
            self.add(error);
        }
    }

    fn add(&mut self, error: Error) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

fn walk(schema: &Schema, value: &Value, old: Old<'_>, path: &Path<'_>, found: &mut Findings) {
    if old.value() == Some(value) {
        return;
    }
    found.seen += 1;
    check_type(schema, value, path, found);
    let checks = check::of(schema);
    if value.is_null() {
        if let Some(checks) = checks {
            check_enum(checks, value, path, found);
        }
        return;
    }
    if let Some(checks) = checks {
        combinations(checks, value, path, found);
        match value {
            Value::String(text) => check_string(checks, text, path, found),
            Value::Number(number) => check_number(checks, number, path, found),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
    if let (Value::String(text), Some(format)) = (value, &schema.format)
        && matches!(schema.kind, Type::String | Type::Any)
        && format::has_format(format, text) == Some(false)
    {
        let detail = format!("{path} in body must be of type {format}: {}", quote(text));
        found.add(Error::type_invalid(path, text.as_str(), detail));
    }
    if let Value::Array(elements) = value {
        check_array(schema, checks, elements, old, path, found);
    }
    if let Some(checks) = checks {
        check_enum(checks, value, path, found);
    }
    if let Value::Object(fields) = value {
        check_object(schema, checks, fields, old, path, found);
    }
}

fn check_type(schema: &Schema, value: &Value, path: &Path<'_>, found: &mut Findings) {
    let wrong = |wanted: &str, got: &str| {
        Error::type_invalid(path, got, format!("{path} in body must be of type {wanted}: {}", quote(got)))
    };
    if schema.kind == Type::Any {
        return;
    }
    let (name, format) = match value {
        Value::Null if schema.nullable => return,
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_f64() => ("number", "double"),
        Value::Number(_) => ("integer", "int64"),
    };
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match schema.kind {
        Type::Any => true,
        Type::Integer => name == "integer" || (name == "number" && whole),
        Type::Number => matches!(name, "integer" | "number"),
        Type::IntOrString => matches!(name, "integer" | "string") || (name == "number" && whole),
        Type::Object | Type::Array | Type::String | Type::Boolean => schema.kind.name() == name,
    };
    if fits {
        let exceeds = value.as_f64().is_some_and(|number| i32::try_from(number as i64).is_err());
        if schema.kind == Type::Integer && schema.format.as_deref() == Some("int32") && exceeds {
            let detail = format!("Checked value must be of type integer with format int32 in {path}");
            found.add(Error::invalid(&Path::ROOT, "", detail));
        }
        return;
    }
    // kube-apiserver checks formats before types, except for strings and lists.
    let known = schema.format.as_deref().filter(|format| is_checked(schema.kind, format));
    match known {
        Some(wanted) if !matches!(name, "string" | "array" | "null") => found.add(wrong(wanted, format)),
        Some(_) if schema.kind == Type::String && name == "array" => {}
        Some(_) | None => found.add(wrong(schema.kind.name(), name)),
    }
}

fn is_checked(kind: Type, format: &str) -> bool {
    match kind {
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        Type::String => format::has_format(format, "").is_some(),
        Type::Any | Type::Object | Type::Array | Type::Boolean | Type::IntOrString => false,
    }
}

fn combinations(checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Findings) {
    let run = |schema: &Schema| {
        let mut inner = Findings::default();
        walk(schema, value, Old::None, path, &mut inner);
        inner
    };
    let say = |text: String| Error::invalid(&Path::ROOT, "", format!("{} {text}", quote(&path.to_string())));
    if !checks.any_of.is_empty() {
        let (valid, best) = try_all(&checks.any_of, run);
        if valid == 0 {
            found.add(say("must validate at least one schema (anyOf)".to_owned()));
            found.merge(best);
        }
    }
    if !checks.one_of.is_empty() {
        let (valid, best) = try_all(&checks.one_of, run);
        if valid == 0 {
            found.add(say("must validate one and only one schema (oneOf). Found none valid".to_owned()));
            found.merge(best);
        } else if valid > 1 {
            let text =
                format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives");
            found.add(say(text));
        }
    }
    let failed: Vec<_> =
        checks.all_of.iter().map(|schema| run(schema)).filter(|inner| !inner.errors.is_empty()).collect();
    if !failed.is_empty() {
        let none = if failed.len() == checks.all_of.len() { ". None validated" } else { "" };
        for inner in failed {
            found.merge(inner);
        }
        found.add(say(format!("must validate all the schemas (allOf){none}")));
    }
    if checks.not.as_ref().is_some_and(|schema| run(schema).errors.is_empty()) {
        found.add(say("must not validate the schema (not)".to_owned()));
    }
}

/// How many schemas match, and the errors of the one that failed after the most checks.
fn try_all(schemas: &[super::SchemaRef], run: impl Fn(&Schema) -> Findings) -> (usize, Findings) {
    let mut valid = 0;
    let mut best: Option<Findings> = None;
    for schema in schemas {
        let inner = run(schema);
        if inner.errors.is_empty() {
            valid += 1;
        } else if best.as_ref().is_none_or(|best| inner.seen > best.seen) {
            best = Some(inner);
        }
    }
    (valid, best.unwrap_or_default())
}

fn check_enum(checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Findings) {
    let Some(allowed) = &checks.one_of_values else { return };
    let equal = |one: &Value| one == value || one.as_f64().is_some_and(|one| Some(one) == value.as_f64());
    if !allowed.iter().any(equal) {
        let texts: Vec<_> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        found.add(Error::not_supported(path, value.clone(), &texts));
    }
}

fn check_string(checks: &Checks, text: &str, path: &Path<'_>, found: &mut Findings) {
    let length = text.chars().count();
    // Only the first error of a string is reported.
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        found.add(Error::too_long(path, max));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        found.add(Error::invalid(path, text, format!("{path} in body should be at least {min} chars long")));
    } else if let Some(pattern) = &checks.pattern
        && !pattern.regex.as_ref().is_none_or(|regex| regex.is_match(text))
    {
        found.add(Error::invalid(path, text, format!("{path} in body should match '{}'", pattern.text)));
    }
}

fn check_number(checks: &Checks, number: &Number, path: &Path<'_>, found: &mut Findings) {
    let value = number.as_f64().unwrap_or_default();
    let mut say = |text: String| {
        found.add(Error::invalid(
            path,
            Value::Number(number.clone()),
            format!("{path} in body should be {text}"),
        ));
    };
    if let Some(factor) = checks.multiple_of
        && (value / factor).fract() != 0.0
    {
        say(format!("a multiple of {factor}"));
    }
    if let Some(Bound { value: min, exclusive }) = checks.minimum {
        if exclusive && value <= min {
            say(format!("greater than {min}"));
        } else if !exclusive && value < min {
            say(format!("greater than or equal to {min}"));
        }
    }
    if let Some(Bound { value: max, exclusive }) = checks.maximum {
        if exclusive && value >= max {
            say(format!("less than {max}"));
        } else if !exclusive && value > max {
            say(format!("less than or equal to {max}"));
        }
    }
}

fn check_array(
    schema: &Schema,
    checks: Option<&Checks>,
    elements: &[Value],
    old: Old<'_>,
    path: &Path<'_>,
    found: &mut Findings,
) {
    if let Some(items) = &schema.items {
        for (index, element) in elements.iter().enumerate() {
            walk(items, element, old.element(&schema.merge.list, element), &path.index(index), found);
        }
    }
    let Some(checks) = checks else { return };
    if let Some(min) = checks.min_items.filter(|min| elements.len() < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        found.add(Error::invalid(path, elements.len(), detail));
    }
    if let Some(max) = checks.max_items.filter(|max| elements.len() > *max) {
        found.add(Error::too_many(path, elements.len(), max));
    }
}

fn check_object(
    schema: &Schema,
    checks: Option<&Checks>,
    fields: &Map<String, Value>,
    old: Old<'_>,
    path: &Path<'_>,
    found: &mut Findings,
) {
    if let Some(min) = checks.and_then(|checks| checks.min_properties).filter(|min| fields.len() < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        found.add(Error::invalid(path, fields.len(), detail));
    }
    if let Some(max) = checks.and_then(|checks| checks.max_properties).filter(|max| fields.len() > *max) {
        found.add(Error::too_many(path, fields.len(), max));
    }
    for (name, value) in fields {
        if let Some(field) = schema.properties.get(name).or(schema.additional.as_ref()) {
            walk(field, value, old.field(name), &path.field(name), found);
        }
    }
    for name in &schema.required {
        // `metadata` is declared by the built-in type, whose required fields are not checked here.
        if !fields.contains_key(name) && schema.definition.is_none() {
            found.add(Error::required(&path.field(name), ""));
        }
    }
    if schema.embedded {
        for name in ["apiVersion", "kind"].into_iter().filter(|name| !fields.contains_key(*name)) {
            found.add(Error::required(&path.field(name), ""));
        }
    }
}

/// Reports duplicate elements of sets and maps.
fn lists(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<Error>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = schema.properties.get(name) {
                    lists(field, value, &path.field(name), errors);
                } else if let Some(field) = &schema.additional {
                    lists(field, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(elements) => {
            let keys: Vec<Value> = match &schema.merge.list {
                ListType::Atomic => Vec::new(),
                ListType::Set => elements.clone(),
                ListType::Map(keys) => elements.iter().map(|element| key_of(element, keys)).collect(),
            };
            if matches!(schema.merge.list, ListType::Map(_)) {
                for (index, element) in elements.iter().enumerate().filter(|(_, one)| !one.is_object()) {
                    let detail = "must be an object for an array of list-type map";
                    errors.push(Error::invalid(&path.index(index), element.clone(), detail));
                }
            }
            let mut seen: FxHashMap<String, usize> = FxHashMap::default();
            for (index, key) in keys.into_iter().enumerate() {
                let times = seen.entry(key.to_string()).or_default();
                *times += 1;
                if *times == 2 {
                    errors.push(Error::duplicate(&path.index(index), key));
                }
            }
            for (index, element) in elements.iter().enumerate() {
                lists(schema.element(), element, &path.index(index), errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn key_of(element: &Value, keys: &[String]) -> Value {
    keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone()))).collect::<Map<_, _>>().into()
}
