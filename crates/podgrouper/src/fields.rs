//! Reads of fields of owners, whose schemas are not ours: a field of another type is an error that names it.

use crate::error::Invalid;
use crate::objects::OwnerObject;
use serde_json::{Map, Value};

impl OwnerObject {
    /// An error of this object: what is wrong, and what it must be.
    pub fn invalid(&self, problem: impl Into<String>) -> Invalid {
        Invalid::new(&self.kind, self.metadata.name.as_deref().unwrap_or_default(), problem)
    }

    /// The value at a path such as `spec.runPolicy`; null counts as absent.
    pub fn field(&self, path: &str) -> Result<Option<&Value>, Invalid> {
        field(&self.data, path).map_err(|at| self.invalid(format!("`{at}` must be an object")))
    }

    pub fn int(&self, path: &str) -> Result<Option<i32>, Invalid> {
        self.field(path)?.map(|value| int(value, path)).transpose().map_err(|problem| self.invalid(problem))
    }

    pub fn text(&self, path: &str) -> Result<Option<&str>, Invalid> {
        let wrong = || self.invalid(format!("`{path}` must be a string"));
        self.field(path)?.map(|value| value.as_str().ok_or_else(wrong)).transpose()
    }

    pub fn map(&self, path: &str) -> Result<Option<&Map<String, Value>>, Invalid> {
        let wrong = || self.invalid(format!("`{path}` must be an object"));
        self.field(path)?.map(|value| value.as_object().ok_or_else(wrong)).transpose()
    }

    pub fn list(&self, path: &str) -> Result<Option<&[Value]>, Invalid> {
        let wrong = || self.invalid(format!("`{path}` must be a list"));
        let list = |value: &'_ Value| value.as_array().map(Vec::as_slice).is_some();
        match self.field(path)? {
            Some(value) if list(value) => Ok(value.as_array().map(Vec::as_slice)),
            Some(_) => Err(wrong()),
            None => Ok(None),
        }
    }
}

/// The value at a path below a value; an error names the part that is no object.
pub(crate) fn field<'a>(value: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = value;
    let mut read = String::new();
    for name in path.split('.') {
        let Some(fields) = at.as_object() else { return Err(read) };
        match fields.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(below) => at = below,
        }
        if !read.is_empty() {
            read.push('.');
        }
        read.push_str(name);
    }
    Ok(Some(at))
}

/// A whole number of 32 bits; an error is the problem, and what to write.
pub(crate) fn int(value: &Value, path: &str) -> Result<i32, String> {
    let is_beyond = value.as_u64().is_some_and(|number| number > i32::MAX.unsigned_abs().into());
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| {
        if is_beyond || value.is_i64() {
            format!("`{path}` is {value}, which is beyond 32 bits; write a number from 0 to {}", i32::MAX)
        } else {
            format!("`{path}` is {value}, which is not a whole number; write one without quotes, such as 2")
        }
    })
}

/// A whole number of 32 bits in a text; an error is the problem with it, without what to write.
pub(crate) fn number(text: &str) -> Result<i32, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| {
        let problem = if is_whole { "is beyond 32 bits" } else { "is not a whole number" };
        format!("`{text}`, which {problem}")
    })
}

/// An annotation of a pod template.
pub(crate) fn template_annotation<'a>(template: Option<&'a Value>, name: &str) -> Option<&'a str> {
    template?.get("metadata")?.get("annotations")?.get(name)?.as_str()
}
