//! Every permission is required: without it, a request that a component sent in the scenarios is forbidden.
//!
//! Each permission is removed from its role alone, and the request that needed it is repeated with the same service
//! account, so that no other rule can grant it. Nothing is written: authorisation comes first, and requests that pass it
//! are dry runs.

use super::control_plane::{Plane, wait_until};
use super::rbac::{self, Permission, Role};
use kai_object as object;
use kai_runtime::api::{self, Api};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The API server checks this virtual subresource while it serves another request; no request names it.
const VIRTUAL_SUBRESOURCE: (&str, &str) = ("resourceclaims/binding", "resource.k8s.io");

/// Removes one permission after the other; returns their number.
pub(super) async fn each_permission_is_required(plane: &Plane, requests: &[Value]) -> usize {
    let observed = observed(requests);
    let roles = rbac::roles();
    let accounts: BTreeSet<&String> = roles.iter().map(|role| &role.account).collect();
    let each = accounts.into_iter().map(|account| {
        let ours: Vec<&Role> = roles.iter().filter(|role| role.account == *account).collect();
        let observed = &observed;
        async move {
            let account_api = plane.api_of(account).await;
            for role in ours {
                remove_each(plane.api(), &account_api, role, observed).await;
            }
        }
    });
    futures::future::join_all(each).await;
    roles.iter().map(|role| role.rules.len()).sum()
}

/// An `objectRef` of the audit log for each permission that a request needed.
fn observed(requests: &[Value]) -> BTreeMap<Permission, Value> {
    let needed =
        requests.iter().filter_map(|request| Some((rbac::needed(request)?, request["objectRef"].clone())));
    needed.collect()
}

async fn remove_each(api: &Api, account_api: &Api, role: &Role, observed: &BTreeMap<Permission, Value>) {
    for rule in &role.rules {
        let (group, resource, verb) = rule;
        let permission = (role.account.clone(), rbac::named(resource, group), verb.clone());
        let what = format!("{} cannot {verb} {} by {}", role.account, permission.1, role.key);
        let request = Request::of(&permission, rule, observed, &role.bound_in);
        assert!(!request.is_denied(account_api).await, "denied although granted: {what}");
        let rest = role.rules.iter().filter(|other| *other != rule).cloned().collect();
        role.set(api, &rest).await;
        wait_until(&what, || request.is_denied(account_api)).await;
    }
    role.set(api, &role.rules).await;
    let last = role.rules.last().expect("a role has rules");
    let permission = (role.account.clone(), rbac::named(&last.1, &last.0), last.2.clone());
    let request = Request::of(&permission, last, observed, &role.bound_in);
    wait_until("the role is restored", || async { !request.is_denied(account_api).await }).await;
}

/// A request that needs one permission.
struct Request {
    method: &'static str,
    path: String,
    /// A `SelfSubjectAccessReview` to send instead.
    review: Option<Value>,
}

impl Request {
    /// The request as a component sent it, with the verb of the rule.
    fn of(
        permission: &Permission,
        rule: &(String, String, String),
        observed: &BTreeMap<Permission, Value>,
        namespace: &str,
    ) -> Self {
        let (group, resource, verb) = rule;
        if (resource.as_str(), group.as_str()) == VIRTUAL_SUBRESOURCE {
            let (resource, subresource) = resource.split_once('/').expect("the resource has a subresource");
            let attributes = json!({
                "group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": "default",
            });
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
            return Self { method: "POST", path, review: Some(review) };
        }
        let reference = observed.get(permission).or_else(|| {
            observed.iter().find(|((_, other, _), _)| *other == permission.1).map(|(_, reference)| reference)
        });
        let reference = reference.unwrap_or_else(|| panic!("no request used {}", permission.1));
        let (method, named) = match verb.as_str() {
            "get" => ("GET", true),
            "list" | "watch" => ("GET", false),
            "create" => ("POST", resource.contains('/')),
            "patch" => ("PATCH", true),
            "delete" => ("DELETE", true),
            other => panic!("the verb `{other}` is unknown"),
        };
        let mut path = path(reference, namespace, named);
        path.push_str(match verb.as_str() {
            "get" => "",
            "list" => "?limit=1",
            "watch" => "?watch=true&timeoutSeconds=1",
            _ => "?dryRun=All",
        });
        Self { method, path, review: None }
    }

    async fn is_denied(&self, account_api: &Api) -> bool {
        if let Some(review) = &self.review {
            let response =
                account_api.send(self.method, &self.path, Some(("application/json", review))).await;
            return response.unwrap()["status"]["allowed"] != true;
        }
        let empty = json!({});
        let body = match self.method {
            "POST" => Some(("application/json", &empty)),
            "PATCH" => Some(("application/merge-patch+json", &empty)),
            _ => None,
        };
        let response = account_api.send(self.method, &self.path, body).await;
        response.is_err_and(|error| denies(&error))
    }
}

fn denies(error: &api::Error) -> bool {
    error.code() == 403 && error.message().contains(" cannot ")
}

/// The URL path of an object, or of its collection.
fn path(reference: &Value, namespace: &str, named: bool) -> String {
    let text = |field: &str| object::str_at(reference, field);
    let (group, version) = (text("/apiGroup"), text("/apiVersion"));
    let mut path =
        if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = if namespace.is_empty() { text("/namespace") } else { namespace };
    // A ClusterRole lists and watches all namespaces.
    if !namespace.is_empty() {
        path = format!("{path}/namespaces/{namespace}");
    }
    path = format!("{path}/{}", text("/resource"));
    if named {
        let name = if text("/name").is_empty() { "x" } else { text("/name") };
        path = format!("{path}/{name}");
        if !text("/subresource").is_empty() {
            path = format!("{path}/{}", text("/subresource"));
        }
    }
    path
}
