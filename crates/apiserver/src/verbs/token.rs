//! The `token` subresource of `ServiceAccount`s (`TokenRequest`).

use super::{Call, Reply, ReplyBody, find};
use crate::field::{Error, Path};
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::user::User;
use crate::{clock, object};
use serde_json::{Value, json};

/// Default of `expirationSeconds`.
const SECONDS_DEFAULT: i64 = 3_600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

/// Issues a token for the service account of the call.
pub fn issue(core: &Core, call: &Call, mut request: Value) -> Result<Reply, StatusError> {
    let account = find(core, call)?.value();
    let seconds =
        request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS_DEFAULT);
    let detail = match seconds {
        ..SECONDS_MIN => Some("may not specify a duration less than 10 minutes"),
        SECONDS_MIN..=SECONDS_MAX => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(detail) = detail {
        let spec = Path::of("spec");
        let error = Error::invalid(&spec.field("expirationSeconds"), seconds, detail);
        return Err(StatusError::invalid(
            QualifiedName { group: "authentication.k8s.io", name: "TokenRequest" },
            "",
            &[error],
        ));
    }
    let audiences = request
        .pointer("/spec/audiences")
        .filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    let audiences =
        audiences.cloned().unwrap_or_else(|| json!(["https://kubernetes.default.svc.cluster.local"]));
    let user = User::service_account(&call.namespace, &call.name, object::uid(&account));
    let (token, expires) = core.tokens.issue(user, &audiences, seconds, &core.clock, &core.ids);
    request["kind"] = Value::from("TokenRequest");
    request["apiVersion"] = Value::from("authentication.k8s.io/v1");
    object::set_meta(&mut request, "name", Some(Value::from(call.name.as_str())));
    object::set_meta(&mut request, "namespace", Some(Value::from(call.namespace.as_str())));
    object::set_meta(&mut request, "creationTimestamp", Some(Value::from(core.clock.time())));
    let spec = object::map_mut(&mut request, "spec");
    spec.insert("audiences".to_owned(), audiences);
    spec.insert("expirationSeconds".to_owned(), Value::from(seconds));
    spec.entry("boundObjectRef").or_insert(Value::Null);
    request["status"] = json!({"token": token, "expirationTimestamp": clock::time(expires)});
    Ok(Reply::new(201, ReplyBody::Other(request)))
}
