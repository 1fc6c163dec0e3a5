//! Bindings that were decided and that the server has not shown yet.
//!
//! A decision counts from the moment it is made: its bind request is put among the stored objects at once. Until the
//! watch shows it, older news about the name must not undo that, and a list that was read before must not either. When
//! the server refuses, the request is taken out again, and whatever was seen under its name meanwhile takes its place.

use kai_api::BindRequest;
use kai_cache::{Kind, Object, Store};
use kai_engine::input::Key;
use kai_units::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

/// A binding under way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    /// What was put among the stored objects.
    pub(crate) request: BindRequest,
    /// The pod's group.
    pub(crate) group: Option<Key>,
    /// When the pod was created.
    pub(crate) pod_created: Option<Timestamp>,
    /// When it was decided.
    pub(crate) decided: Timestamp,
    /// What the server made of it: uid and version.
    made: Option<(String, u64)>,
    /// What the watch shows under the name meanwhile.
    seen: Option<BindRequest>,
}

/// All bindings under way, by the name of their request.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    flying: BTreeMap<Key, Flying>,
}

impl Flight {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.flying.len()
    }

    /// Whether a request of this name is under way.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.flying.contains_key(key)
    }

    /// Whether a request on the server is the one that is under way.
    pub(crate) fn is_flying(&self, key: &Key, request: &BindRequest) -> bool {
        self.flying.get(key).is_some_and(|flying| is_same(&flying.request, request))
    }

    /// Lets a binding begin.
    pub(crate) fn begin(
        &mut self,
        key: Key,
        request: BindRequest,
        group: Option<Key>,
        pod_created: Option<Timestamp>,
        decided: Timestamp,
        store: &mut Store,
    ) {
        store.apply(request.clone());
        let flying = Flying { request, group, pod_created, decided, made: None, seen: None };
        self.flying.insert(key, flying);
    }

    /// The server made the request.
    pub(crate) fn made(&mut self, key: &Key, answer: &Value, store: &mut Store) -> Option<&Flying> {
        let flying = self.flying.get_mut(key)?;
        let uid = kai_object::uid(answer).to_owned();
        flying.made = Some((uid, version(answer)));
        if let Ok(request) = BindRequest::deserialize(answer) {
            store.apply(request.clone());
            flying.request = request;
        }
        self.flying.get(key)
    }

    /// The server refused; the decision counts no longer.
    pub(crate) fn refused(&mut self, key: &Key, store: &mut Store) -> Option<Flying> {
        let flying = self.flying.remove(key)?;
        match &flying.seen {
            Some(seen) => {
                store.apply(seen.clone());
            }
            None => {
                store.delete(Kind::BindRequest, key);
            }
        }
        Some(flying)
    }

    /// The watch shows a request; says whether it is to be stored.
    pub(crate) fn shown(&mut self, key: &Key, request: &BindRequest) -> bool {
        let Some(flying) = self.flying.get_mut(key) else { return true };
        if is_same(&flying.request, request) {
            self.flying.remove(key);
            return true;
        }
        // An older request of that name, or somebody else's: which one counts shows when the server answers.
        flying.seen = Some(request.clone());
        false
    }

    /// The watch shows that a request is gone; says whether it is to be taken out.
    pub(crate) fn gone(&mut self, key: &Key, last: &BindRequest) -> bool {
        let Some(flying) = self.flying.get_mut(key) else { return true };
        flying.seen = None;
        let ours = flying.made.as_ref().is_some_and(|(uid, _)| last.metadata.uid.as_deref() == Some(uid));
        if ours {
            self.flying.remove(key);
        }
        ours
    }

    /// The watch shows all requests there were at a version: puts those under way back that it could not show.
    pub(crate) fn listed(&mut self, listed: &mut Vec<Object>, list_version: u64) {
        let mut shown: BTreeMap<Key, BindRequest> = BTreeMap::new();
        listed.retain(|object| {
            if let Object::BindRequest(request) = object
                && self.flying.contains_key(&object.key())
            {
                shown.insert(object.key(), (**request).clone());
                return false;
            }
            true
        });
        self.flying.retain(|key, flying| {
            let seen = shown.remove(key);
            match (&flying.made, seen) {
                (_, Some(seen)) if is_same(&flying.request, &seen) => {
                    listed.push(seen.into());
                    return false;
                }
                // It was made before the list was read, and is not on it: it is gone.
                (Some((_, made)), None) if *made <= list_version => return false,
                (_, seen) => flying.seen = seen,
            }
            listed.push(flying.request.clone().into());
            true
        });
    }
}

/// Whether a request on the server is the one that was decided: for the same pod, to the same node.
fn is_same(decided: &BindRequest, shown: &BindRequest) -> bool {
    let owner = |request: &BindRequest| {
        let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
        owners.first().map(|owner| owner.uid.clone())
    };
    decided.spec.selected_node == shown.spec.selected_node
        && decided.spec.selected_gpu_groups == shown.spec.selected_gpu_groups
        && owner(decided) == owner(shown)
}

fn version(object: &Value) -> u64 {
    kai_object::meta_str(object, "resourceVersion").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
