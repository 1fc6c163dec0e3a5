//! Label selectors and field selectors, with the grammar and errors of Kubernetes.
//!
//! A selector is parsed once per request; matching labels does not allocate.

pub mod fields;
mod parse;

pub use fields::{Field, FieldSelector, FieldTarget};

use crate::field::{self, Path};
use crate::names;
use serde_json::{Map, Value};
use std::fmt;

/// A malformed selector; kube-apiserver returns the text with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key=value`, or `key==value`.
    Equals,
    /// `key!=value`; also matches if the label is missing.
    NotEquals,
    /// `key in (a,b)`.
    In,
    /// `key notin (a,b)`; also matches if the label is missing.
    NotIn,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>1`: integers only.
    GreaterThan,
    /// `key<1`: integers only.
    LessThan,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted and unique.
    values: Vec<String>,
}

/// A conjunction of requirements on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelSelector {
    /// Matches nothing: the selector of a missing `LabelSelector`.
    Nothing,
    /// Matches objects that meet every requirement; without requirements, all objects.
    All(Vec<Requirement>),
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, Error> {
        values.sort_unstable();
        values.dedup();
        let mut faults = Vec::new();
        let key_faults = names::label_key(key);
        if !key_faults.is_empty() {
            faults.push(field::Error::invalid(&Path::of("key"), key, key_faults.join("; ")));
        }
        let path = Path::of("values");
        if let Some(fault) = operator.wrong_count(&values) {
            faults.push(field::Error::invalid(&path, values.clone(), fault));
        }
        for (index, value) in values.iter().enumerate() {
            let place = path.index(index);
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err()
            {
                let fault = "for 'Gt', 'Lt' operators, the value must be an integer";
                faults.push(field::Error::invalid(&place, value.as_str(), fault));
            }
            let value_faults = names::label_value(value);
            if !value_faults.is_empty() {
                faults.push(field::Error::invalid(&place.key(key), value.as_str(), value_faults.join("; ")));
            }
        }
        if faults.is_empty() {
            Ok(Self { key: key.to_owned(), operator, values })
        } else {
            Err(Error(field::aggregate(&faults)))
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            Operator::Equals | Operator::In => label.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(|(label, bound)| label > bound),
            Operator::LessThan => self.compare(label).is_some_and(|(label, bound)| label < bound),
        }
    }

    fn compare(&self, label: Option<&str>) -> Option<(i64, i64)> {
        Some((label?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl Operator {
    fn wrong_count(self, values: &[String]) -> Option<&'static str> {
        match self {
            Self::In | Self::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Self::Equals | Self::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            Self::In
            | Self::NotIn
            | Self::Equals
            | Self::NotEquals
            | Self::Exists
            | Self::DoesNotExist
            | Self::GreaterThan
            | Self::LessThan => None,
        }
    }
}

impl LabelSelector {
    /// Parses a query parameter, such as `app=web,tier in (a,b),!old`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self::of(parse::requirements(text)?))
    }

    /// The selector of a `LabelSelector` object; `null` matches nothing, `{}` everything.
    pub fn from_object(selector: &Value) -> Result<Self, Error> {
        let Value::Object(selector) = selector else { return Ok(Self::Nothing) };
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(expression_requirement(expression)?);
        }
        Ok(Self::of(requirements))
    }

    /// The selector of a plain map, such as that of a Service.
    pub fn from_map(labels: &Map<String, Value>) -> Result<Self, Error> {
        let requirement = |(key, value): (&String, &Value)| {
            Requirement::new(key, Operator::Equals, vec![value.as_str().unwrap_or_default().to_owned()])
        };
        Ok(Self::of(labels.iter().map(requirement).collect::<Result<_, _>>()?))
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Whether `metadata.labels` match.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches_with(|key| labels?.get(key)?.as_str())
    }

    /// Whether the labels that `lookup` returns match.
    pub fn matches_with<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|one| one.matches(lookup(&one.key))),
        }
    }

    /// Whether the labels of an object match.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(object.pointer("/metadata/labels").and_then(Value::as_object))
    }
}

fn expression_requirement(expression: &Value) -> Result<Requirement, Error> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(Error(format!("{} is not a valid label selector operator", field::quote(other))));
        }
    };
    let values = expression.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let values = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Requirement::new(text("key"), operator, values)
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::All(requirements) = self else { return Ok(()) };
        for (index, requirement) in requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
