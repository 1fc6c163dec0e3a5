//! Authentication of requests.

use super::{dispatch, route};
use crate::field::quote;
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::user::User;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Authenticator {
    /// In-process clients, all with the same user.
    InProcess(Arc<User>),
    /// Bearer tokens.
    Token,
}

impl Authenticator {
    /// The user of a request. Impersonation is always granted, since RBAC is not enforced.
    pub(super) fn user(&self, core: &Core, headers: &HeaderMap) -> Result<Arc<User>, StatusError> {
        let user = match self {
            Self::InProcess(user) => Arc::clone(user),
            Self::Token => by_token(core, headers)?,
        };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(name) = text("impersonate-user") else { return Ok(user) };
        let groups: Vec<_> =
            headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok()).collect();
        let mut other = User::named(name, &groups);
        if let Some(uid) = text("impersonate-uid") {
            uid.clone_into(&mut other.uid);
        }
        Ok(Arc::new(other))
    }
}

fn by_token(core: &Core, headers: &HeaderMap) -> Result<Arc<User>, StatusError> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some(token) = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty()) else {
        return Ok(Arc::new(User::anonymous()));
    };
    let user = core.tokens.user(token, &core.clock);
    user.ok_or_else(|| StatusError::new(401, "Unauthorized", "Unauthorized"))
}

/// Rejects anonymous requests.
pub(super) fn check(core: &Core, user: &User, method: &Method, path: &str) -> Result<(), StatusError> {
    if !user.is_anonymous() {
        return Ok(());
    }
    let user_name = quote(&user.name);
    let Ok(target) = route::find(&core.catalog(), path) else {
        let verb = method.as_str().to_lowercase();
        let message = format!("forbidden: User {user_name} cannot {verb} path {}", quote(path));
        return Err(StatusError::new(403, "Forbidden", message).on(QualifiedName { group: "", name: "" }, ""));
    };
    let resource = &*target.resource;
    let verb = dispatch::verb_of(method, target.name.is_empty()).unwrap_or_default();
    let place = if target.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quote(&target.namespace))
    };
    let (plural, group) = (quote(&resource.plural), quote(&resource.group));
    let why = format!("User {user_name} cannot {verb} resource {plural} in API group {group} {place}");
    Err(StatusError::forbidden(resource.qualified_resource(), &target.name, &why))
}
