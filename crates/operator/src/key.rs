//! Identity of an object: kind, namespace and name.

use serde_json::Value;
use std::fmt;

/// Kind, namespace (empty for cluster-wide objects) and name. The kinds of the operator have unambiguous names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn of(object: &Value) -> Self {
        Self::new(kai_object::kind(object), kai_object::namespace(object), kai_object::name(object))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind}/{name}"),
            namespace => write!(f, "{kind}/{namespace}/{name}"),
        }
    }
}
