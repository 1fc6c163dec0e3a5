//! How the server knows who a client is.

use crate::failure::Failure;
use crate::server::Core;
use crate::user::User;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::sync::Arc;

/// How clients prove who they are.
#[derive(Clone, Debug)]
pub enum Access {
    /// They are in this process, and all the same user.
    As(Arc<User>),
    /// By bearer token.
    Token,
}

impl Access {
    /// The user of a request; impersonation is granted to everybody, since rights are not enforced.
    pub(super) fn user(&self, core: &Core, headers: &HeaderMap) -> Result<Arc<User>, Failure> {
        let user = match self {
            Self::As(user) => Arc::clone(user),
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

fn by_token(core: &Core, headers: &HeaderMap) -> Result<Arc<User>, Failure> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let user = token.and_then(|(_, token)| core.tokens.user(token.trim(), &core.clock));
    user.ok_or_else(|| Failure::new(401, "Unauthorized", "Unauthorized"))
}
