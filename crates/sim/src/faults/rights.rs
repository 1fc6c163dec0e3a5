//! RBAC for one client: requests that its roles do not grant are forbidden, with the message of kube-apiserver.

use http::Method;
use serde_json::Value;
use std::collections::BTreeSet;

/// A right as roles name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    /// With its subresource, such as `pods/status`.
    pub resource: String,
    pub api_group: String,
}

impl Right {
    pub fn new(verb: &str, resource: &str, api_group: &str) -> Self {
        Self { verb: verb.to_owned(), resource: resource.to_owned(), api_group: api_group.to_owned() }
    }
}

/// Everything that the roles of a client grant, with the namespace of each right; empty for all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(BTreeSet<(String, Right)>);

impl Rights {
    /// The rights of the `ClusterRole` and `Role` objects among these; those of a `ClusterRole` to which a `RoleBinding` among
    /// these refers are rights in the namespace of that.
    pub fn of_roles<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut rights = BTreeSet::new();
        let objects: Vec<&Value> = objects.into_iter().collect();
        let binds = |binding: &Value, role: &Value| {
            binding["kind"] == "RoleBinding"
                && role["kind"] == "ClusterRole"
                && binding["roleRef"]["kind"] == role["kind"]
                && binding["roleRef"]["name"] == role["metadata"]["name"]
        };
        for &object in &objects {
            let place = objects.iter().copied().find(|&binding| binds(binding, object)).unwrap_or(object);
            let namespace = place["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in object["rules"].as_array().into_iter().flatten() {
                for api_group in strings(rule, "apiGroups") {
                    for resource in strings(rule, "resources") {
                        let of = |verb| (namespace.to_owned(), Right::new(verb, resource, api_group));
                        rights.extend(strings(rule, "verbs").map(of));
                    }
                }
            }
        }
        Self(rights)
    }

    /// Each right with its namespace.
    pub fn iter(&self) -> impl Iterator<Item = &(String, Right)> {
        self.0.iter()
    }

    #[must_use]
    pub fn without(mut self, removed: &[Right]) -> Self {
        self.0.retain(|(_, right)| !removed.contains(right));
        self
    }

    /// Without the rights to a resource, in all verbs.
    #[must_use]
    pub fn without_resource(mut self, resource: &str, api_group: &str) -> Self {
        self.0.retain(|(_, right)| right.resource != resource || right.api_group != api_group);
        self
    }

    fn grant(&self, namespace: &str, right: &Right) -> bool {
        ["", namespace].iter().any(|namespace| self.0.contains(&((*namespace).to_owned(), right.clone())))
    }
}

fn strings<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    rule[field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// What a request needs.
pub(super) struct Needed {
    pub(super) right: Right,
    namespace: String,
}

impl Needed {
    /// `None` for requests of no resource, such as discovery, which every client may send.
    pub(super) fn of(method: &Method, path: &str, watches: bool) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let api_group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let parts: Vec<&str> = parts.collect();
        let (namespace, rest) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let resource = match rest {
            [] => return None,
            [resource] | [resource, _] => (*resource).to_owned(),
            [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        };
        let verb = match (method, rest.len() > 1) {
            (&Method::GET, _) if watches => "watch",
            (&Method::GET, true) => "get",
            (&Method::GET, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => return None,
        };
        Some(Self { right: Right::new(verb, &resource, api_group), namespace: namespace.to_owned() })
    }

    pub(super) fn is_granted_by(&self, rights: &Rights) -> bool {
        rights.grant(&self.namespace, &self.right)
    }

    pub(super) fn denial(&self, client: &str) -> String {
        let Right { verb, resource, api_group } = &self.right;
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", self.namespace)
        };
        let plural = resource.split('/').next().unwrap_or_default();
        let plural = if api_group.is_empty() { plural.to_owned() } else { format!("{plural}.{api_group}") };
        format!(
            "{plural} is forbidden: User \"system:serviceaccount:kai-scheduler:{client}\" cannot {verb} resource \
             \"{resource}\" in API group \"{api_group}\" {scope}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn needed(method: &Method, path: &str) -> Option<String> {
        let needed = Needed::of(method, path, false)?;
        let Right { verb, resource, api_group } = &needed.right;
        Some(format!("{verb} {resource}.{api_group} in `{}`", needed.namespace))
    }

    #[test]
    fn request_needs_the_right_that_kube_apiserver_checks() {
        let cases = [
            (Method::GET, "/api/v1/pods", "list pods. in ``"),
            (Method::GET, "/api/v1/namespaces/a/pods/p", "get pods. in `a`"),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces. in ``"),
            (Method::POST, "/api/v1/namespaces/a/pods/p/eviction", "create pods/eviction. in `a`"),
            (Method::PATCH, "/apis/g.io/v1/queues/q/status", "patch queues/status.g.io in ``"),
            (Method::DELETE, "/apis/g.io/v1/namespaces/a/groups", "deletecollection groups.g.io in `a`"),
        ];
        for (method, path, expected) in cases {
            assert_eq!(needed(&method, path).as_deref(), Some(expected), "{path}");
        }
        for path in ["/version", "/apis", "/api/v1", "/apis/g.io", "/apis/g.io/v1"] {
            assert_eq!(needed(&Method::GET, path), None, "{path}");
        }
    }

    #[test]
    fn role_grants_in_its_namespace_only() {
        let rule = json!({"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get"]});
        let role = json!({"metadata": {"name": "r", "namespace": "a"}, "rules": [rule]});
        let rights = Rights::of_roles([&role]).without(&[Right::new("get", "secrets", "")]);
        let granted = |path: &str| Needed::of(&Method::GET, path, false).unwrap().is_granted_by(&rights);
        assert!(granted("/api/v1/namespaces/a/pods/p"));
        assert!(!granted("/api/v1/namespaces/b/pods/p"));
        assert!(!granted("/api/v1/namespaces/a/secrets/s"));
        assert!(!granted("/api/v1/namespaces/a/pods"));
    }
}
