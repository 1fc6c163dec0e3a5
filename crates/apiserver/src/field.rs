//! Field paths and validation errors, as in apimachinery's `field` package.
//!
//! A [`Path`] is a chain of borrowed steps, so that walking a valid object does not allocate; only an error formats it.

use serde_json::Value;
use std::fmt::{self, Write as _};

/// A path such as `spec.containers[0].image` or `metadata.labels[a/b]`.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn of(field: &'a str) -> Self {
        Path { parent: None, step: Step::Field(field) }
    }

    /// Appends a field: `spec` → `spec.replicas`.
    #[must_use]
    pub fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// Appends a list index: `items` → `items[3]`.
    #[must_use]
    pub fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// Appends a map key: `labels` → `labels[app]`.
    #[must_use]
    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub fn is_root(&self) -> bool {
        matches!(self.step, Step::Root) && self.parent.is_none_or(Path::is_root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        let dotted = self.parent.is_some_and(|parent| !parent.is_root());
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if dotted => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// `field.ErrorType`; the reason of a cause in a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl Reason {
    pub fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// A `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub reason: Reason,
    pub field: String,
    /// The offending value, if the message shows it.
    pub value: Option<Value>,
    pub detail: String,
}

impl Error {
    pub fn invalid(path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::with_value(Reason::Invalid, path, value, detail)
    }

    pub fn type_invalid(path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::with_value(Reason::TypeInvalid, path, value, detail)
    }

    pub fn duplicate(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::with_value(Reason::Duplicate, path, value, "")
    }

    pub fn not_found(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::with_value(Reason::NotFound, path, value, "")
    }

    pub fn not_supported<T: AsRef<str>>(path: &Path<'_>, value: impl Into<Value>, supported: &[T]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| quote(value.as_ref())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::with_value(Reason::NotSupported, path, value, detail)
    }

    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(Reason::Required, path, detail)
    }

    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(Reason::Forbidden, path, detail)
    }

    /// A string of more than `max` bytes.
    pub fn too_long(path: &Path<'_>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::without_value(Reason::TooLong, path, format!("may not be more than {max} {unit}"))
    }

    /// A list of more than `max` elements.
    pub fn too_many(path: &Path<'_>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::with_value(Reason::TooMany, path, actual, format!("must have at most {max} {unit}"))
    }

    /// An invalid value that is too large for the message.
    pub fn invalid_unshown(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(Reason::Invalid, path, detail)
    }

    pub fn internal(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(Reason::Internal, path, detail)
    }

    fn with_value(
        reason: Reason,
        path: &Path<'_>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { reason, field: named(path), value: Some(value.into()), detail: detail.into() }
    }

    fn without_value(reason: Reason, path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self { reason, field: named(path), value: None, detail: detail.into() }
    }

    /// The message without the field path: `StatusCause.message`.
    pub fn body(&self) -> String {
        let mut text = self.reason.text().to_owned();
        if let Some(value) = &self.value {
            let _ = write!(text, ": {}", shown(value));
        }
        if !self.detail.is_empty() {
            let _ = write!(text, ": {}", self.detail);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for Error {}

/// The path in messages; the root has no name, which kube-apiserver prints as `<nil>`.
fn named(path: &Path<'_>) -> String {
    if path.is_root() { "<nil>".to_owned() } else { path.to_string() }
}

/// Joins errors as `utilerrors.Aggregate` does: one as it is, several in brackets, duplicates once.
pub fn aggregate(errors: &[Error]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}

/// A value in messages: strings quoted, the rest as JSON.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            escape_html(&value.to_string())
        }
    }
}

/// Quotes a string as Go's `%q` does.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Go's JSON encoder escapes these three characters.
fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The Go type name of a decoded value, as messages print it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(elements) => format!("[{}]", elements.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_formatted_like_apimachinery() {
        let spec = Path::of("spec");
        let containers = spec.field("containers");
        let first = containers.index(0);
        assert_eq!(first.field("image").to_string(), "spec.containers[0].image");
        let labels = spec.field("labels");
        assert_eq!(labels.key("a/b").to_string(), "spec.labels[a/b]");
        assert_eq!(Path::ROOT.field("kind").to_string(), "kind");
        assert_eq!(Path::ROOT.to_string(), "");
        assert_eq!(Path::ROOT.index(2).to_string(), "[2]");
        assert!(Path::ROOT.is_root() && !spec.is_root());
    }

    #[test]
    fn errors_are_formatted_like_apimachinery() {
        let path = Path::of("spec");
        let cases = [
            (Error::invalid(&path, "x", "bad"), r#"spec: Invalid value: "x": bad"#),
            (Error::invalid(&path, -1, "bad"), "spec: Invalid value: -1: bad"),
            (Error::invalid(&path, json!({"a": "<"}), "bad"), r#"spec: Invalid value: {"a":"\u003c"}: bad"#),
            (Error::required(&path, ""), "spec: Required value"),
            (
                Error::not_supported(&path, "c", &["a", "b"]),
                r#"spec: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (Error::not_supported::<&str>(&path, "c", &[]), r#"spec: Unsupported value: "c""#),
            (Error::forbidden(&path, "no"), "spec: Forbidden: no"),
            (Error::too_long(&path, 63), "spec: Too long: may not be more than 63 bytes"),
            (Error::too_many(&path, 3, 2), "spec: Too many: 3: must have at most 2 items"),
            (Error::duplicate(&path, "a"), r#"spec: Duplicate value: "a""#),
            (Error::not_found(&path, "a"), r#"spec: Not found: "a""#),
            (Error::internal(&path, "broken"), "spec: Internal error: broken"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn aggregate_brackets_and_deduplicates_errors() {
        let one = Error::required(&Path::of("a"), "");
        let two = Error::required(&Path::of("b"), "");
        assert_eq!(aggregate(std::slice::from_ref(&one)), "a: Required value");
        assert_eq!(aggregate(&[one.clone(), two, one]), "[a: Required value, b: Required value]");
    }

    #[test]
    fn strings_are_quoted_like_go() {
        assert_eq!(quote("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\n\\x01é\"");
        assert_eq!(quote("\u{85}"), "\"\\u0085\"");
    }
}
