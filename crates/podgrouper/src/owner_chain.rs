//! Resolves the owner references of a pod up to the topmost owner.
//!
//! Owners are read dynamically, since any kind may own pods. An owner that may not be read (403) ends the chain: the last
//! readable owner is the topmost, or the pod itself.

use crate::objects::{MetaExt, OwnerObject, PodSummary};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_runtime::api::{self, Api};
use kai_runtime::kind::{Key, ResourceKind, group_path};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A longer chain of owners counts as a cycle.
const LENGTH_MAX: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("an owner cannot be read")]
    Read(#[source] api::Error),
    #[error("the owner {kind} `{name}` has invalid metadata")]
    Invalid {
        kind: String,
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the owner `{name}` is of kind {kind} ({api_version}), which the server does not serve")]
    UnknownKind { name: String, kind: String, api_version: String },
    #[error("the owner {kind} `{name}` is gone; another object has its name")]
    Replaced { kind: String, name: String },
    #[error("{kind} `{name}` has {count} owners, and only one can be followed")]
    Ambiguous { kind: String, name: String, count: usize },
    #[error("the owner references of the pod form a cycle, or are more than {LENGTH_MAX}")]
    Cycle,
}

/// The owners of a pod, nearest first; empty where it has none.
pub async fn resolve(api: &Api, resources: &Resources, pod: &PodSummary) -> Result<Vec<OwnerObject>, Error> {
    let namespace = pod.metadata.namespace_str();
    let mut chain: Vec<OwnerObject> = Vec::new();
    let mut next = pod.metadata.owners().first().cloned();
    while let Some(reference) = next {
        if chain.len() == LENGTH_MAX {
            return Err(Error::Cycle);
        }
        let Some(owner) = read(api, resources, namespace, &reference).await? else { break };
        next = match owner.metadata.owners() {
            [] => None,
            [single] => Some(single.clone()),
            several => {
                return Err(Error::Ambiguous {
                    kind: owner.kind.clone(),
                    name: owner.metadata.name_str().to_owned(),
                    count: several.len(),
                });
            }
        };
        chain.push(owner);
    }
    Ok(chain)
}

/// Reads the object of a reference; none where it may not be read.
async fn read(
    api: &Api,
    resources: &Resources,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<OwnerObject>, Error> {
    let OwnerReference { api_version, kind, name, uid, .. } = reference;
    let found = resources.find(api, api_version, kind).await.map_err(Error::Read)?;
    let Some(resource) = found else {
        let (name, kind, api_version) = (name.clone(), kind.clone(), api_version.clone());
        return Err(Error::UnknownKind { name, kind, api_version });
    };
    let namespace = if resource.namespaced { namespace } else { "" };
    match api.get_dynamic(&resource, &Key::new(namespace, name)).await {
        Ok(owner) => {
            let owner = OwnerObject::deserialize(owner);
            let owner =
                owner.map_err(|source| Error::Invalid { kind: kind.clone(), name: name.clone(), source })?;
            if owner.metadata.uid_str() != uid {
                return Err(Error::Replaced { kind: kind.clone(), name: name.clone() });
            }
            Ok(Some(owner))
        }
        Err(error) if error.code() == 403 => Ok(None),
        Err(error) => Err(Error::Read(error)),
    }
}

/// The resources of kinds, cached from discovery.
#[derive(Debug, Default)]
pub struct Resources {
    known: Mutex<BTreeMap<(String, String), ResourceKind>>,
}

impl Resources {
    async fn find(&self, api: &Api, api_version: &str, kind: &str) -> api::Result<Option<ResourceKind>> {
        let wanted = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().get(&wanted) {
            return Ok(Some(known.clone()));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let listed = match api.send("GET", &group_path(group, version), None).await {
            Err(error) if error.is_not_found() => return Ok(None),
            listed => listed?,
        };
        let found = described(&listed, api_version, kind);
        if let Some(found) = &found {
            self.known.lock().insert(wanted, found.clone());
        }
        Ok(found)
    }
}

/// The resource of a kind in an `APIResourceList`.
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
    fn kind_is_found_in_the_resource_list_of_its_group() {
        let listed = json!({"resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true},
            {"name": "jobs", "kind": "Job", "namespaced": true},
        ]});
        assert_eq!(described(&listed, "batch/v1", "Job"), Some(JOB));
        assert_eq!(described(&listed, "batch/v1", "CronJob"), None);
    }
}
