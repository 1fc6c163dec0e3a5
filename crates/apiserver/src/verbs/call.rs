//! A parsed request and its outcome.

use crate::registry::{Resource, Subresource};
use crate::status_error::StatusError;
use crate::store::Record;
use crate::user::User;
use serde_json::Value;
use std::sync::Arc;

/// A request with a parsed path; its body is decoded separately.
#[derive(Clone, Debug)]
pub struct Call {
    pub resource: Arc<Resource>,
    /// Empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    pub subresource: Option<Subresource>,
    pub user: Arc<User>,
    /// The default field manager, from `User-Agent`.
    pub agent: String,
    /// The query parameters.
    pub query: Query,
}

impl Call {
    pub fn dry_run(&self) -> Result<bool, StatusError> {
        check_dry_run(self.query.all("dryRun"))
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        match self.query.get("fieldManager") {
            Some(manager) if !manager.is_empty() => manager,
            Some(_) | None => &self.agent,
        }
    }

    /// The subresource's name; empty for the object itself.
    pub fn subresource_name(&self) -> &'static str {
        self.subresource.map_or("", Subresource::name)
    }
}

/// Whether these values of `dryRun` request a dry run.
pub fn check_dry_run<'a>(values: impl Iterator<Item = &'a str>) -> Result<bool, StatusError> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            let error =
                crate::field::Error::not_supported(&crate::field::Path::of("dryRun"), vec![value], &["All"]);
            let about = crate::status_error::QualifiedName { group: "meta.k8s.io", name: "CreateOptions" };
            return Err(StatusError::invalid(about, "", &[error]));
        }
        dry = true;
    }
    Ok(dry)
}

/// The query parameters, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && is_escaped(pair)).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(key, Plus::IsSpace), unescape(value, Plus::IsSpace))
        });
        Self(pairs.collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is present and not `false` or `0`.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    /// An integer parameter; a malformed one is a bad request.
    pub fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let quoted = crate::field::quote(text);
                StatusError::bad_request(format!("strconv.ParseInt: parsing {quoted}: invalid syntax"))
            }),
        }
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.0.push((key.to_owned(), value.to_owned()));
        self
    }
}

/// Whether every percent sign begins an escape; kube-apiserver ignores parameters with invalid escapes.
fn is_escaped(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| rest.get(..2).is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit())))
}

/// The meaning of a plus sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// A space, as in query parameters.
    IsSpace,
    /// Itself, as in paths.
    IsPlus,
}

/// Decodes percent-encoding; invalid escapes are kept.
pub fn unescape(text: &str, plus: Plus) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = match bytes.get(at..at + 3) {
            Some([b'%', high, low]) => hex(*high).zip(hex(*low)).map(|(high, low)| (high * 16 + low) as u8),
            Some(_) | None => None,
        };
        match (escaped, bytes[at]) {
            (Some(byte), _) => {
                plain.push(byte);
                at += 3;
                continue;
            }
            (None, b'+') if plus == Plus::IsSpace => plain.push(b' '),
            (None, byte) => plain.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The body of a successful response.
#[derive(Clone, Debug)]
pub enum ReplyBody {
    /// A stored object, in its storage version.
    Record(Arc<Record>),
    /// An object in the version of the call, such as the result of a dry run.
    Object(Value),
    /// Another kind, such as a `Status`.
    Other(Value),
}

/// The outcome of a successful call.
#[derive(Clone, Debug)]
pub struct Reply {
    pub code: u16,
    pub body: ReplyBody,
    /// Warning headers.
    pub warnings: Vec<String>,
}

impl Reply {
    /// Status 200 with a stored object.
    pub fn found(record: Arc<Record>) -> Self {
        Self { code: 200, body: ReplyBody::Record(record), warnings: Vec::new() }
    }

    pub fn new(code: u16, body: ReplyBody) -> Self {
        Self { code, body, warnings: Vec::new() }
    }

    /// A `Status` of success.
    pub fn success(code: u16, details: Option<Value>) -> Self {
        let mut status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        });
        match details {
            Some(details) => status["details"] = details,
            None => status["code"] = Value::from(code),
        }
        Self::new(code, ReplyBody::Other(status))
    }

    /// Prepends warnings to an outcome.
    pub fn warned(outcome: Result<Self, StatusError>, warnings: Vec<String>) -> Result<Self, StatusError> {
        match outcome {
            Ok(mut reply) => {
                reply.warnings.splice(0..0, warnings);
                Ok(reply)
            }
            Err(failure) => Err(failure.warn(warnings)),
        }
    }

    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_unescaped() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=5&x=%e2%82%ac&y=%zz");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.is_set("watch"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.get("x"), Some("€"));
        assert_eq!(query.get("y"), None);
    }

    #[test]
    fn dry_run_accepts_only_all() {
        assert!(check_dry_run(["All"].into_iter()).unwrap());
        assert!(!check_dry_run(std::iter::empty()).unwrap());
        assert!(check_dry_run(["Some"].into_iter()).is_err());
    }
}
