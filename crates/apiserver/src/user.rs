//! Users and bearer tokens.

use crate::clock::Clock;
use crate::id_generator::IdGenerator;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// May be empty.
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    /// The administrator, a member of `system:masters`.
    pub fn admin() -> Self {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        Self { name: "kubernetes-admin".to_owned(), uid: String::new(), groups }
    }

    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), uid: String::new(), groups }
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    pub fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_owned).collect();
        Self { name: name.to_owned(), uid: String::new(), groups }
    }

    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let all = "system:serviceaccounts".to_owned();
        let own = format!("system:serviceaccounts:{namespace}");
        let groups = vec![all, own, "system:authenticated".to_owned()];
        Self { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.to_owned(), groups }
    }

    /// `UserInfo` as reviews contain it.
    pub fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = Value::from(self.uid.as_str());
        }
        info
    }
}

#[derive(Debug)]
struct Issued {
    user: Arc<User>,
    expires: Option<Timestamp>,
}

/// The valid bearer tokens and their users.
#[derive(Debug)]
pub struct Tokens {
    issued: RwLock<FxHashMap<String, Issued>>,
}

impl Tokens {
    /// Tokens with one of the administrator that never expires.
    pub fn with_admin(token: &str) -> Self {
        let admin = Issued { user: Arc::new(User::admin()), expires: None };
        Self { issued: RwLock::new(std::iter::once((token.to_owned(), admin)).collect()) }
    }

    /// The user of a valid token.
    pub fn user(&self, token: &str, clock: &Clock) -> Option<Arc<User>> {
        let issued = self.issued.read();
        let found = issued.get(token)?;
        let valid = found.expires.is_none_or(|expires| clock.now() < expires);
        valid.then(|| Arc::clone(&found.user))
    }

    /// Issues a token for a user; also returns its expiration time. It has the form of a JSON web token, but its
    /// signature cannot be verified elsewhere.
    pub fn issue(
        &self,
        user: User,
        audiences: &Value,
        seconds: i64,
        clock: &Clock,
        ids: &IdGenerator,
    ) -> (String, Timestamp) {
        let now = clock.now();
        let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        let header = json!({"alg": "none", "typ": "JWT"});
        let claims =
            json!({"aud": audiences, "exp": expires.as_second(), "iat": now.as_second(), "sub": user.name});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let token =
            format!("{}.{}.{}", part(&header), part(&claims), URL_SAFE_NO_PAD.encode(ids.draw::<32>()));
        let entry = Issued { user: Arc::new(user), expires: Some(expires) };
        let mut issued = self.issued.write();
        issued.retain(|_, issued| issued.expires.is_none_or(|expires| now < expires));
        issued.insert(token.clone(), entry);
        (token, expires)
    }
}
