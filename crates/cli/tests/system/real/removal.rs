//! Every right is needed: without it, a request that a component made in the scenarios is refused.
//!
//! Each right is taken out of its role alone, and the request that needed it is sent once more as the same service account,
//! so that no other rule can hide that this one is gone. Nothing is written: the server decides about rights first, and
//! what it lets through is a dry run.

use super::plane::{Plane, patiently};
use super::rights::{self, Right, Role};
use kai_object as object;
use kai_runtime::api::{self, Api};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The server looks this one up while it serves another request; nobody can ask for it by itself.
const WITHIN_ANOTHER: (&str, &str) = ("resourceclaims/binding", "resource.k8s.io");

/// Takes one right after the other away; says how many there are.
pub(super) async fn each_right_is_needed(plane: &Plane, requests: &[Value]) -> usize {
    let asked = asked(requests);
    let roles = rights::roles();
    let accounts: BTreeSet<&String> = roles.iter().map(|role| &role.account).collect();
    let each = accounts.into_iter().map(|account| {
        let ours: Vec<&Role> = roles.iter().filter(|role| role.account == *account).collect();
        let asked = &asked;
        async move {
            let inside = plane.api_of(account).await;
            for role in ours {
                without_each(plane.api(), &inside, role, asked).await;
            }
        }
    });
    futures::future::join_all(each).await;
    roles.iter().map(|role| role.rules.len()).sum()
}

/// Where each right was needed: a reference to an object as the server logged it.
fn asked(requests: &[Value]) -> BTreeMap<Right, Value> {
    let needed =
        requests.iter().filter_map(|request| Some((rights::needed(request)?, request["objectRef"].clone())));
    needed.collect()
}

async fn without_each(api: &Api, inside: &Api, role: &Role, asked: &BTreeMap<Right, Value>) {
    for rule in &role.rules {
        let (group, resource, verb) = rule;
        let right = (role.account.clone(), rights::named(resource, group), verb.clone());
        let what = format!("{} may not {verb} {} of {}", role.account, right.1, role.key);
        let request = Request::of(&right, rule, asked, &role.key.namespace);
        assert!(!request.is_denied(inside).await, "it is not granted that {what}");
        let rest = role.rules.iter().filter(|other| *other != rule).cloned().collect();
        role.set(api, &rest).await;
        patiently(&what, || request.is_denied(inside)).await;
    }
    role.set(api, &role.rules).await;
    let last = role.rules.last().expect("a role has rules");
    let right = (role.account.clone(), rights::named(&last.1, &last.0), last.2.clone());
    let request = Request::of(&right, last, asked, &role.key.namespace);
    patiently("the role is whole again", || async { !request.is_denied(inside).await }).await;
}

/// A request that needs one right.
struct Request {
    method: &'static str,
    path: String,
    /// Asks the server whether it would be allowed, instead of asking for the thing.
    review: Option<Value>,
}

impl Request {
    /// As the component made it; where it did so only elsewhere, as it would.
    fn of(
        right: &Right,
        rule: &(String, String, String),
        asked: &BTreeMap<Right, Value>,
        namespace: &str,
    ) -> Self {
        let (group, resource, verb) = rule;
        if (resource.as_str(), group.as_str()) == WITHIN_ANOTHER {
            let (resource, part) = resource.split_once('/').expect("it is a part of something");
            let attributes = json!({
                "group": group, "resource": resource, "subresource": part, "verb": verb, "namespace": "default",
            });
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
            return Self { method: "POST", path, review: Some(review) };
        }
        let made = asked.get(right).or_else(|| {
            asked.iter().find(|((_, other, _), _)| *other == right.1).map(|(_, reference)| reference)
        });
        let made = made.unwrap_or_else(|| panic!("nobody asked for {} in any way", right.1));
        let (method, named) = match verb.as_str() {
            "get" => ("GET", true),
            "list" | "watch" => ("GET", false),
            "create" => ("POST", resource.contains('/')),
            "patch" => ("PATCH", true),
            "delete" => ("DELETE", true),
            other => panic!("the verb `{other}` is new"),
        };
        let mut path = path(made, namespace, named);
        path.push_str(match verb.as_str() {
            "get" => "",
            "list" => "?limit=1",
            "watch" => "?watch=true&timeoutSeconds=1",
            _ => "?dryRun=All",
        });
        Self { method, path, review: None }
    }

    async fn is_denied(&self, inside: &Api) -> bool {
        if let Some(review) = &self.review {
            let answer = inside.send(self.method, &self.path, Some(("application/json", review))).await;
            return answer.unwrap()["status"]["allowed"] != true;
        }
        let nothing = json!({});
        let body = match self.method {
            "POST" => Some(("application/json", &nothing)),
            "PATCH" => Some(("application/merge-patch+json", &nothing)),
            _ => None,
        };
        let answer = inside.send(self.method, &self.path, body).await;
        answer.is_err_and(|error| denies(&error))
    }
}

fn denies(error: &api::Error) -> bool {
    error.code() == 403 && error.reason().contains(" cannot ")
}

/// Where the object of a reference is, or the list that it is in.
fn path(reference: &Value, namespace: &str, named: bool) -> String {
    let text = |field: &str| object::str_at(reference, field);
    let (group, version) = (text("/apiGroup"), text("/apiVersion"));
    let mut path =
        if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = if namespace.is_empty() { text("/namespace") } else { namespace };
    // Lists and watches go over all namespaces where the role does.
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
