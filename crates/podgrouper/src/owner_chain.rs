//! Resolves the owner references of a pod up to the topmost owner.
//!
//! Owners are read dynamically, since any kind may own pods. An owner that cannot be read is an error, and the pod waits: a
//! shorter chain would put it into a group of its own and tear a gang apart.

use crate::objects::{MetaExt, OwnerObject, PodSummary};
use crate::plan::{ReadFor, Source, Wanted};
use kai_runtime::api;
use std::sync::Arc;

/// A longer chain of owners counts as a cycle.
const LENGTH_MAX: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("an owner cannot be read")]
    Read(#[source] api::Error),
    #[error("{kind} `{name}` has invalid metadata")]
    Invalid {
        kind: String,
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error(
        "{kind} `{name}` may not be read ({api_version}); grant the pod grouper `get` on `{resource}`, or annotate the pod \
         with `kai.scheduler/skip-podgrouper: \"true\"` and create its pod group yourself"
    )]
    Forbidden { kind: String, name: String, api_version: String, resource: String },
    #[error("objects of kind {kind} may not be listed; grant the pod grouper `list` on `{resource}`")]
    MayNotList { kind: &'static str, resource: String },
    #[error(
        "the owner `{name}` is of kind {kind} ({api_version}), which the server does not serve; install its \
         CustomResourceDefinition, or remove the owner reference"
    )]
    UnknownKind { name: String, kind: String, api_version: String },
    #[error(
        "an owner reference names {kind} `{name}`, and no object can have that name; remove the owner reference"
    )]
    Name { kind: String, name: String },
    #[error("the owner {kind} `{name}` does not exist; the pod waits until it does, or until it is deleted")]
    Gone { kind: String, name: String },
    #[error("the owner {kind} `{name}` is gone; another object has its name")]
    Replaced { kind: String, name: String },
    #[error("{kind} `{name}` has {count} owners, and only one can be followed; leave one owner reference")]
    Ambiguous { kind: String, name: String, count: usize },
    #[error(
        "the owner references of the pod form a cycle at {kind} `{name}`, or are more than {LENGTH_MAX}; remove one of them"
    )]
    Cycle { kind: String, name: String },
}

/// The owners of a pod, nearest first; empty where it has none.
pub async fn resolve(
    source: &impl Source,
    pod: &PodSummary,
    read_for: ReadFor<'_>,
) -> Result<Vec<Arc<OwnerObject>>, Error> {
    let namespace = pod.metadata.namespace_str();
    let mut chain: Vec<Arc<OwnerObject>> = Vec::new();
    let Some(first) = pod.metadata.owners().first() else { return Ok(chain) };
    let mut next = Some(first.clone());
    while let Some(reference) = next {
        let is_known = chain.iter().any(|owner| owner.metadata.uid_str() == reference.uid);
        if is_known || chain.len() == LENGTH_MAX {
            return Err(Error::Cycle { kind: reference.kind, name: reference.name });
        }
        let wanted = Wanted {
            namespace,
            api_version: &reference.api_version,
            kind: &reference.kind,
            name: &reference.name,
            uid: Some(&reference.uid),
        };
        check(&wanted)?;
        let owner = source.read(&wanted, read_for).await?;
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

/// Refuses references that cannot be part of a URL; the API server accepts any text in them.
fn check(wanted: &Wanted<'_>) -> Result<(), Error> {
    let is_step = |part: &str| matches!(part, "." | "..");
    let (kind, name) = (wanted.kind.to_owned(), wanted.name.to_owned());
    if wanted.name.is_empty() || is_step(wanted.name) || wanted.name.contains(['/', '%']) {
        return Err(Error::Name { kind, name });
    }
    if wanted.api_version.split('/').any(is_step) {
        return Err(Error::UnknownKind { name, kind, api_version: wanted.api_version.to_owned() });
    }
    Ok(())
}
