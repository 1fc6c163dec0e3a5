//! `JSONPath` expressions of printer columns.
//!
//! Supports fields (`.a`, `['a.b']`), elements (`[0]`, `[-1]`, `[1:3]`, `[*]`), recursive descent (`..a`) and filters
//! (`[?(@.type=="Ready")]`). A path without a match yields nothing and is not an error.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Below,
    Filter(Vec<Step>, Test),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Compare(Comparison, Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A malformed path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized path {path:?}: {why}")]
pub struct Error {
    path: String,
    why: &'static str,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let error = |why| Error { path: text.to_owned(), why };
        let trimmed = text.trim();
        let inner = trimmed.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(trimmed);
        let mut reader = Reader { rest: inner.strip_prefix('$').unwrap_or(inner) };
        let steps = reader.steps().map_err(error)?;
        if reader.rest.is_empty() { Ok(Self { steps }) } else { Err(error("it goes on after its end")) }
    }

    /// The matching values.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        follow(&self.steps, value)
    }
}

/// A value as a cell of type string prints it.
pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| take(step, value)).collect();
    }
    found
}

fn take<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => elements.get(place(*index, elements.len())).into_iter().collect(),
        Step::Slice(from, to) => {
            let from = from.map_or(0, |from| place(from, elements.len())).min(elements.len());
            let to = to.map_or(elements.len(), |to| place(to, elements.len())).min(elements.len());
            elements.get(from..to).unwrap_or_default().iter().collect()
        }
        Step::All => match value {
            Value::Object(fields) => fields.values().collect(),
            Value::Array(elements) => elements.iter().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        },
        Step::Below => below(value),
        Step::Filter(path, test) => {
            elements.iter().filter(|element| test.holds(&follow(path, element))).collect()
        }
    }
}

/// An index that may count from the end; one that is out of range stays so.
fn place(index: i64, length: usize) -> usize {
    let index = if index < 0 { index + length as i64 } else { index };
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn below(value: &Value) -> Vec<&Value> {
    let mut found = vec![value];
    match value {
        Value::Object(fields) => found.extend(fields.values().flat_map(below)),
        Value::Array(elements) => found.extend(elements.iter().flat_map(below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}

impl Test {
    fn holds(&self, found: &[&Value]) -> bool {
        match self {
            Self::Exists => !found.is_empty(),
            Self::Compare(comparison, wanted) => {
                found.first().is_some_and(|value| comparison.holds(value, wanted))
            }
        }
    }
}

impl Comparison {
    fn holds(self, value: &Value, wanted: &Value) -> bool {
        use std::cmp::Ordering;
        let order = match (value, wanted) {
            (Value::String(value), Value::String(wanted)) => Some(value.cmp(wanted)),
            (Value::Number(value), Value::Number(wanted)) => {
                value.as_f64().zip(wanted.as_f64()).and_then(|(value, wanted)| value.partial_cmp(&wanted))
            }
            (Value::Bool(value), Value::Bool(wanted)) => Some(value.cmp(wanted)),
            _ => None,
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order.is_some_and(Ordering::is_ne),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn steps(&mut self) -> Result<Vec<Step>, &'static str> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Below);
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat(".") {
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A name after a dot; a backslash escapes the next character.
    fn field(&mut self) -> Result<Step, &'static str> {
        if self.eat("*") {
            return Ok(Step::All);
        }
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((index, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>' | ' ' => {
                    end = index;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        if name.is_empty() { Err("a name is missing") } else { Ok(Step::Field(name)) }
    }

    fn bracket(&mut self) -> Result<Step, &'static str> {
        let step = if self.eat("?(") {
            let filter = self.filter()?;
            if !self.eat(")") {
                return Err("a filter is not closed");
            }
            filter
        } else if self.rest.starts_with(['\'', '"']) {
            Step::Field(self.quoted()?)
        } else {
            let end = self.rest.find(']').ok_or("a bracket is not closed")?;
            let (inside, rest) = self.rest.split_at(end);
            self.rest = rest;
            element(inside.trim())?
        };
        if self.eat("]") { Ok(step) } else { Err("a bracket is not closed") }
    }

    fn quoted(&mut self) -> Result<String, &'static str> {
        let quote = self.rest.chars().next().ok_or("a quote is missing")?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((index, c)) = chars.next() {
            if c == '\\' {
                text.extend(chars.next().map(|(_, c)| c));
            } else if c == quote {
                self.rest = &self.rest[index + c.len_utf8()..];
                return Ok(text);
            } else {
                text.push(c);
            }
        }
        Err("a quote is not closed")
    }

    fn filter(&mut self) -> Result<Step, &'static str> {
        self.rest = self.rest.trim_start();
        if !self.eat("@") {
            return Err("a filter begins with @");
        }
        let path = self.steps()?;
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(')') {
            return Ok(Step::Filter(path, Test::Exists));
        }
        let known = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let (_, comparison) =
            known.into_iter().find(|(text, _)| self.eat(text)).ok_or("a comparison is missing")?;
        self.rest = self.rest.trim_start();
        let wanted = if self.rest.starts_with(['\'', '"']) {
            Value::from(self.quoted()?)
        } else {
            let end = self.rest.find(')').ok_or("a filter is not closed")?;
            let (literal, rest) = self.rest.split_at(end);
            self.rest = rest;
            serde_json::from_str(literal.trim()).map_err(|_| "a value cannot be read")?
        };
        self.rest = self.rest.trim_start();
        Ok(Step::Filter(path, Test::Compare(comparison, wanted)))
    }
}

fn element(text: &str) -> Result<Step, &'static str> {
    let number = |text: &str| text.parse::<i64>().map_err(|_| "an index is no number");
    let optional = |text: &str| if text.is_empty() { Ok(None) } else { number(text).map(Some) };
    if text == "*" {
        return Ok(Step::All);
    }
    match text.split_once(':') {
        Some((from, to)) => Ok(Step::Slice(optional(from)?, optional(to)?)),
        None => number(text).map(Step::Index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(path: &str) -> Vec<Value> {
        let value = json!({
            "spec": {"a": 1, "b.c": "dotted", "list": [10, 20, 30], "map": {"x": {"n": 1}, "y": {"n": 2}}},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "False", "n": 5}]},
        });
        JsonPath::parse(path).unwrap().find(&value).into_iter().cloned().collect()
    }

    #[test]
    fn paths_select_values() {
        assert_eq!(find(".spec.a"), [json!(1)]);
        assert_eq!(find("$.spec.a"), [json!(1)]);
        assert_eq!(find("{.spec.a}"), [json!(1)]);
        assert_eq!(find(".spec['b.c']"), [json!("dotted")]);
        assert_eq!(find(r".spec.b\.c"), [json!("dotted")]);
        assert_eq!(find(".spec.list[1]"), [json!(20)]);
        assert_eq!(find(".spec.list[-1]"), [json!(30)]);
        assert_eq!(find(".spec.list[1:]"), [json!(20), json!(30)]);
        assert_eq!(find(".spec.list[*]"), [json!(10), json!(20), json!(30)]);
        assert_eq!(find(".spec.map.*.n"), [json!(1), json!(2)]);
        assert_eq!(find("..n"), [json!(1), json!(2), json!(1), json!(5)]);
        assert_eq!(find(".spec.nothing.there"), Vec::<Value>::new());
        assert_eq!(find(".spec.list[7]"), Vec::<Value>::new());
    }

    #[test]
    fn filters_select_elements() {
        assert_eq!(find(".status.conditions[?(@.type==\"Ready\")].status"), [json!("True")]);
        assert_eq!(find(".status.conditions[?(@.type=='Other')].status"), [json!("False")]);
        assert_eq!(find(".status.conditions[?(@.type != 'Other')].n"), [json!(1)]);
        assert_eq!(find(".status.conditions[?(@.n>=2)].type"), [json!("Other")]);
        assert_eq!(find(".status.conditions[?(@.n)].type"), [json!("Ready"), json!("Other")]);
    }

    #[test]
    fn malformed_paths_are_rejected() {
        for bad in [".spec[", ".spec[x]", ".a[?(b)]", ".a[?(@.b==)]", ".a['b", ".a]"] {
            assert!(JsonPath::parse(bad).is_err(), "{bad}");
        }
    }
}
