//! The `list` verb: consistent lists, with pagination.

use super::Call;
use super::selection::Selection;
use crate::field::{Error, Path, quote};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::store::{ListRange, Record};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::sync::Arc;

const OPTIONS: QualifiedName<'static> = QualifiedName { group: "meta.k8s.io", name: "ListOptions" };
/// Marks a continue token of an inconsistent continuation.
const ANY_REVISION: i64 = -1;

/// A list or a page of it.
#[derive(Debug)]
pub struct Listing {
    pub revision: u64,
    /// The objects, in their storage version.
    pub records: Vec<Arc<Record>>,
    /// The `continue` token.
    pub continue_token: Option<String>,
    /// `remainingItemCount`, if known.
    pub remaining: Option<usize>,
}

/// The requested `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Unset: the latest.
    Latest,
    /// `0`: any.
    Any,
    At(u64),
}

/// Parses a `resourceVersion`; the error is a message.
pub fn parse_version(text: &str) -> Result<Version, String> {
    match text {
        "" => Ok(Version::Latest),
        "0" => Ok(Version::Any),
        _ => text.parse().map(Version::At).map_err(|_| {
            let quoted = quote(text);
            format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: invalid syntax")
        }),
    }
}

/// The `resourceVersion` of a list or watch.
pub fn read_version(call: &Call) -> Result<Version, StatusError> {
    parse_version(call.query.get("resourceVersion").unwrap_or_default())
        .map_err(|message| StatusError::bad_request(format!("invalid resource version: {message}")))
}

/// Rejects a `resourceVersion` that does not exist yet.
pub fn check_not_future(core: &Core, version: Version) -> Result<(), StatusError> {
    let current = core.store.revision();
    match version {
        Version::At(wanted) if wanted > current => {
            let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
            let cause = "Too large resource version";
            Err(StatusError::new(504, "Timeout", message)
                .cause("ResourceVersionTooLarge", cause, "")
                .retry_after(1))
        }
        Version::At(_) | Version::Any | Version::Latest => Ok(()),
    }
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    NotOlderThan,
    Exact,
}

/// Lists the selected objects.
pub fn list(core: &Core, call: &Call) -> Result<Listing, StatusError> {
    let selection = Selection::read(call)?;
    let limit = call.query.number("limit")?.filter(|limit| *limit > 0).map(|limit| limit as usize);
    let token = call.query.get("continue").filter(|token| !token.is_empty());
    let version = read_version(call)?;
    call.query.number("timeoutSeconds")?;
    let matching = read_match(call, version, limit.is_some(), token.is_some())?;
    let from = token.map(read_token).transpose()?;
    let at = if let Some(from) = &from {
        from.revision
    } else {
        check_not_future(core, version)?;
        match (version, matching) {
            (Version::At(revision), Match::Exact) => Some(revision),
            (Version::At(_), Match::NotOlderThan) | (Version::Latest | Version::Any, _) => None,
        }
    };
    let after = from.as_ref().map(|from| from.after.as_str());
    let wanted = ListRange { prefix: &selection.prefix, after, at, limit };
    let page = core
        .store
        .list(call.resource.table, &wanted, |record| selection.matches_selectors(record))
        .map_err(|compacted| match &from {
            Some(from) => expired_token(&from.after),
            None => StatusError::expired(format!(
                "The provided resource version is too old: {} ({})",
                compacted.requested, compacted.oldest
            )),
        })?;
    let more = page.remaining > 0;
    let last = page.records.last().filter(|_| more);
    Ok(Listing {
        revision: page.revision,
        continue_token: last.map(|last| write_token(Some(page.revision), &last.key)),
        remaining: (more && selection.is_everything()).then_some(page.remaining),
        records: page.records,
    })
}

fn read_match(call: &Call, version: Version, limited: bool, continued: bool) -> Result<Match, StatusError> {
    let matching = call.query.get("resourceVersionMatch").unwrap_or_default();
    let errors = option_errors(call, matching, version, continued);
    if !errors.is_empty() {
        return Err(StatusError::invalid(OPTIONS, "", &errors));
    }
    if continued && !matches!(version, Version::Latest | Version::Any) {
        return Err(StatusError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    Ok(if matching == "Exact" || (matching.is_empty() && limited) {
        Match::Exact
    } else {
        Match::NotOlderThan
    })
}

fn option_errors(call: &Call, matching: &str, version: Version, continued: bool) -> Vec<Error> {
    let path = Path::of("resourceVersionMatch");
    let mut errors = Vec::new();
    if !matching.is_empty() {
        if version == Version::Latest {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(Error::forbidden(&path, detail));
        }
        if continued {
            errors
                .push(Error::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(Error::not_supported(&path, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == Version::Any {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    if call.query.get("sendInitialEvents").is_some() {
        errors.push(Error::forbidden(
            &Path::of("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

struct Continue {
    revision: Option<u64>,
    after: String,
}

fn write_token(revision: Option<u64>, after: &str) -> String {
    let revision = revision.map_or(Value::from(ANY_REVISION), Value::from);
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": after}).to_string())
}

fn read_token(token: &str) -> Result<Continue, StatusError> {
    let bad = || StatusError::bad_request("invalid continue token: continue key is not valid");
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|error| {
        let fault = crate::request_body::syntax_error(&bytes).unwrap_or_else(|| error.to_string());
        StatusError::bad_request(format!("invalid continue token: continue key is not valid: {fault}"))
    })?;
    let revision = token["rv"].as_i64().ok_or_else(bad)?;
    if token["v"] != "meta.k8s.io/v1" || (revision <= 0 && revision != ANY_REVISION) {
        return Err(bad());
    }
    let after = token["start"].as_str().filter(|after| !after.is_empty()).ok_or_else(bad)?;
    Ok(Continue { revision: u64::try_from(revision).ok(), after: after.to_owned() })
}

fn expired_token(after: &str) -> StatusError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    StatusError::expired(message).continue_with(write_token(None, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_token_round_trips() {
        let from = read_token(&write_token(Some(17), "ns/pod-7")).unwrap();
        assert_eq!((from.revision, from.after.as_str()), (Some(17), "ns/pod-7"));
        assert_eq!(read_token(&write_token(None, "a")).unwrap().revision, None);
        assert!(read_token("!!").is_err());
        assert!(read_token(&URL_SAFE_NO_PAD.encode("{}")).is_err());
    }

    #[test]
    fn resource_version_is_a_number() {
        assert_eq!(parse_version("").unwrap(), Version::Latest);
        assert_eq!(parse_version("0").unwrap(), Version::Any);
        assert_eq!(parse_version("12").unwrap(), Version::At(12));
        assert!(parse_version("x").unwrap_err().contains("\"x\""));
    }
}
