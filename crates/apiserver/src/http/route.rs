//! Parses resource paths.

use crate::registry::{Catalog, Resource, Subresource};
use crate::status_error::StatusError;
use crate::verbs::call::{Plus, unescape};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Target {
    pub resource: Arc<Resource>,
    /// Empty for all namespaces.
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    pub subresource: Option<Subresource>,
    /// Whether the path is a deprecated `/watch/` path.
    pub watch: bool,
}

pub(super) fn find(catalog: &Catalog, path: &str) -> Result<Target, RouteError> {
    let nothing = || if is_builtin(catalog, path) { RouteError::Path } else { RouteError::Page };
    if path.contains("//") {
        return Err(nothing());
    }
    locate(catalog, path).map_or_else(|| Err(nothing()), |found| found.map_err(RouteError::Object))
}

/// Why a path is not found.
#[derive(Debug)]
pub(super) enum RouteError {
    /// Outside of the API groups.
    Page,
    /// An unknown path in a built-in group.
    Path,
    /// An unknown object.
    Object(StatusError),
}

/// Whether the path is below a built-in group.
fn is_builtin(catalog: &Catalog, path: &str) -> bool {
    let mut segments = path.trim_start_matches('/').split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next() {
        Some("api") => "",
        Some("apis") => match segments.next() {
            Some(group) => group,
            None => return false,
        },
        Some(_) | None => return false,
    };
    let mut resources = catalog.group(group).into_iter().flat_map(|group| group.versions.values()).flatten();
    resources.any(|(_, resource)| resource.custom().is_none())
}

fn locate(catalog: &Catalog, path: &str) -> Option<Result<Target, StatusError>> {
    let segments: Vec<String> =
        path.trim_matches('/').split('/').map(|segment| unescape(segment, Plus::IsPlus)).collect();
    let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version) = match segments.as_slice() {
        ["api", version, ..] => ("", *version),
        ["apis", group, version, ..] => (*group, *version),
        _ => return None,
    };
    segments.drain(..if group.is_empty() { 2 } else { 3 });
    let watch = segments.first() == Some(&"watch");
    if watch {
        segments.remove(0);
    }
    let find = |plural: &str| catalog.find(group, version, plural).map(Arc::clone);
    let target = |resource: Arc<Resource>, namespace: &str, name: &str, part: Option<&&str>| {
        let subresource = match part {
            None => None,
            Some(part) => match resource.subresource(part) {
                Some(part) => Some(part),
                // apiextensions-apiserver serves the object at every unknown path below it.
                None if resource.custom().is_some() => {
                    return Some(Err(StatusError::not_found(resource.qualified_resource(), name)));
                }
                None => return None,
            },
        };
        Some(Ok(Target {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
            watch,
        }))
    };
    match segments.as_slice() {
        ["namespaces", namespace, plural, rest @ ..]
            if !namespace.is_empty() && !is_part_of_namespace(group, plural) =>
        {
            let resource = find(plural).filter(|resource| resource.namespaced)?;
            match rest {
                [] => target(resource, namespace, "", None),
                [name] | [name, _] if !name.is_empty() => target(resource, namespace, name, rest.get(1)),
                _ => None,
            }
        }
        [plural] => target(find(plural)?, "", "", None),
        [plural, name] | [plural, name, _] if !name.is_empty() => {
            let resource = find(plural).filter(|resource| !resource.namespaced)?;
            target(resource, "", name, segments.get(2))
        }
        _ => None,
    }
}

/// Whether `namespaces/x/PLURAL` is a subresource of the namespace and not a resource in it.
fn is_part_of_namespace(group: &str, plural: &str) -> bool {
    group.is_empty() && matches!(plural, "finalize" | "status")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::store::Store;

    fn shown(path: &str) -> Option<String> {
        let catalog = Registry::new(&Store::new(1 << 20)).current();
        find(&catalog, path).ok().map(|target| {
            let sub = target.subresource.map_or("", Subresource::name);
            format!(
                "{} {} {} {}{}",
                target.resource.plural,
                target.namespace,
                target.name,
                sub,
                if target.watch { "watch" } else { "" }
            )
        })
    }

    #[test]
    fn paths_are_parsed_to_resources() {
        let cases = [
            ("/api/v1/pods", Some("pods   ")),
            ("/api/v1/namespaces/a/pods", Some("pods a  ")),
            ("/api/v1/namespaces/a/pods/b", Some("pods a b ")),
            ("/api/v1/namespaces/a/pods/b/status", Some("pods a b status")),
            ("/api/v1/namespaces/a", Some("namespaces  a ")),
            ("/api/v1/namespaces/a/status", Some("namespaces  a status")),
            ("/api/v1/namespaces/a/finalize", Some("namespaces  a finalize")),
            ("/api/v1/nodes/a/status", Some("nodes  a status")),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", Some("deployments a b scale")),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab", Some("clusterroles  a:b ")),
            ("/api/v1/watch/namespaces/a/pods", Some("pods a  watch")),
            ("/api/v1/pods/b", None),
            ("/api/v1/namespaces/a/nodes", None),
            ("/api/v1/namespaces/a/pods/b/nothing", None),
            ("/apis/apps/v2/deployments", None),
            ("/apis/apps/v1/pods", None),
            ("/other", None),
        ];
        for (path, expected) in cases {
            assert_eq!(shown(path).as_deref(), expected, "{path}");
        }
    }
}
