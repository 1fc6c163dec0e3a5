//! Who makes a request, and how the server knows.

use crate::clock::Clock;
use crate::identity::Identities;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::{Arc, PoisonError, RwLock};

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The uid; may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    /// The administrator, who may do everything.
    pub fn admin() -> Self {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        Self { name: "kubernetes-admin".to_owned(), uid: String::new(), groups }
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), uid: String::new(), groups }
    }

    /// Whether this is nobody in particular.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    /// Somebody by name.
    pub fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_owned).collect();
        Self { name: name.to_owned(), uid: String::new(), groups }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let all = "system:serviceaccounts".to_owned();
        let own = format!("system:serviceaccounts:{namespace}");
        let groups = vec![all, own, "system:authenticated".to_owned()];
        Self { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.to_owned(), groups }
    }

    /// As reviews write it.
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

/// The bearer tokens that are valid, and whose they are.
#[derive(Debug)]
pub struct Tokens {
    issued: RwLock<FxHashMap<String, Issued>>,
}

impl Tokens {
    /// Tokens, with one of the administrator that never expires.
    pub fn with_admin(token: &str) -> Self {
        let admin = Issued { user: Arc::new(User::admin()), expires: None };
        Self { issued: RwLock::new(std::iter::once((token.to_owned(), admin)).collect()) }
    }

    /// Whose token it is, if it is valid.
    pub fn user(&self, token: &str, clock: &Clock) -> Option<Arc<User>> {
        let issued = self.issued.read().unwrap_or_else(PoisonError::into_inner);
        let found = issued.get(token)?;
        let valid = found.expires.is_none_or(|expires| clock.now() < expires);
        valid.then(|| Arc::clone(&found.user))
    }

    /// A token for the user, valid for so many seconds; and when it expires. It has the shape of a JSON web token,
    /// but nobody else could check its signature.
    pub fn issue(
        &self,
        user: User,
        audiences: &Value,
        seconds: i64,
        clock: &Clock,
        identities: &Identities,
    ) -> (String, Timestamp) {
        let now = clock.now();
        let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        let header = json!({"alg": "none", "typ": "JWT"});
        let claims =
            json!({"aud": audiences, "exp": expires.as_second(), "iat": now.as_second(), "sub": user.name});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let token = format!(
            "{}.{}.{}",
            part(&header),
            part(&claims),
            URL_SAFE_NO_PAD.encode(identities.draw::<32>())
        );
        let entry = Issued { user: Arc::new(user), expires: Some(expires) };
        let mut issued = self.issued.write().unwrap_or_else(PoisonError::into_inner);
        issued.retain(|_, issued| issued.expires.is_none_or(|expires| now < expires));
        issued.insert(token.clone(), entry);
        (token, expires)
    }
}
