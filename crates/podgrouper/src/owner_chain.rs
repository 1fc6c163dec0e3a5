//! Finds what a pod belongs to: its first owner, that one's owner, and so on to the top.
//!
//! Every owner is read from the server, since anything may own pods. What may not be read ends the chain: the last
//! readable owner is the top, or the pod itself.

use kai_object as object;
use kai_runtime::api::{self, Api};
use kai_runtime::kind::{Key, ResourceKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The most owners above each other that are followed; a chain that is longer leads in a circle.
const LENGTH_MAX: usize = 32;

/// Why the owners of a pod cannot be found out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An owner cannot be read.
    #[error("an owner cannot be read")]
    Read(#[source] api::Error),
    /// The server has no such kind.
    #[error("the owner `{name}` is of kind {kind} ({api_version}), which the server does not have")]
    UnknownKind {
        /// The owner.
        name: String,
        /// Its kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The owner was replaced by another object of its name.
    #[error("the owner {kind} `{name}` is gone; another one has its name")]
    Expired {
        /// Its kind.
        kind: String,
        /// The owner.
        name: String,
    },
    /// An owner has more than one owner.
    #[error("{kind} `{name}` has {count} owners, and only one can be followed")]
    Ambiguous {
        /// Its kind.
        kind: String,
        /// The object with several owners.
        name: String,
        /// How many.
        count: usize,
    },
    /// Owners own each other.
    #[error("the owners of the pod lead in a circle, or are more than {LENGTH_MAX}")]
    Endless,
}

/// The owners of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Nearest first, the topmost last; empty where the pod is its own top.
    pub owners: Vec<Value>,
}

/// The owner references of an object.
pub fn owners(of: &Value) -> &[Value] {
    object::meta(of, "ownerReferences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Finds the owners of a pod.
pub async fn resolve(api: &Api, resources: &Resources, pod: &Value) -> Result<Chain, Error> {
    let namespace = object::namespace(pod);
    let mut chain = Chain::default();
    let mut next = owners(pod).first().cloned();
    while let Some(reference) = next {
        if chain.owners.len() == LENGTH_MAX {
            return Err(Error::Endless);
        }
        let Some(owner) = read(api, resources, namespace, &reference).await? else { break };
        next = match owners(&owner) {
            [] => None,
            [single] => Some(single.clone()),
            several => {
                return Err(Error::Ambiguous {
                    kind: object::kind(&owner).to_owned(),
                    name: object::name(&owner).to_owned(),
                    count: several.len(),
                });
            }
        };
        chain.owners.push(owner);
    }
    Ok(chain)
}

/// Reads what a reference names; nothing where that may not be read.
async fn read(
    api: &Api,
    resources: &Resources,
    namespace: &str,
    reference: &Value,
) -> Result<Option<Value>, Error> {
    let field = |name: &str| object::str_at(reference, name);
    let (api_version, kind, name) = (field("/apiVersion"), field("/kind"), field("/name"));
    let found = resources.find(api, api_version, kind).await.map_err(Error::Read)?;
    let Some(resource) = found else {
        let (name, kind) = (name.to_owned(), kind.to_owned());
        return Err(Error::UnknownKind { name, kind, api_version: api_version.to_owned() });
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    match api.get_dynamic(&resource, &Key::new(namespace, name)).await {
        Ok(owner) if object::uid(&owner) != field("/uid") => {
            Err(Error::Expired { kind: kind.to_owned(), name: name.to_owned() })
        }
        Ok(owner) => Ok(Some(owner)),
        Err(error) if error.code() == 403 => Ok(None),
        Err(error) => Err(Error::Read(error)),
    }
}

/// Which resource holds the objects of a kind, as far as the server was asked.
#[derive(Debug, Default)]
pub struct Resources {
    known: Mutex<BTreeMap<(String, String), ResourceKind>>,
}

impl Resources {
    async fn find(&self, api: &Api, api_version: &str, kind: &str) -> api::Result<Option<ResourceKind>> {
        let wanted = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&wanted) {
            return Ok(Some(known.clone()));
        }
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let listed = match api.send("GET", &format!("{root}/{api_version}"), None).await {
            Err(error) if error.is_not_found() => return Ok(None),
            listed => listed?,
        };
        let found = described(&listed, api_version, kind);
        if let Some(found) = &found {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(wanted, found.clone());
        }
        Ok(found)
    }
}

/// The resource of a kind in the server's description of a group and version.
fn described(listed: &Value, api_version: &str, kind: &str) -> Option<ResourceKind> {
    let resources = listed["resources"].as_array()?;
    let is_main = |resource: &&Value| resource["name"].as_str().is_some_and(|name| !name.contains('/'));
    let found = resources.iter().filter(is_main).find(|resource| resource["kind"] == kind)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(ResourceKind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: found["name"].as_str()?.to_owned().into(),
        namespaced: found["namespaced"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_runtime::kind::JOB;
    use serde_json::json;

    #[test]
    fn a_kind_is_found_in_the_description_of_its_group() {
        let listed = json!({"resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true},
            {"name": "jobs", "kind": "Job", "namespaced": true},
        ]});
        assert_eq!(described(&listed, "batch/v1", "Job"), Some(JOB));
        assert_eq!(described(&listed, "batch/v1", "CronJob"), None);
    }
}
