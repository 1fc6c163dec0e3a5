//! Bind requests that were decided and that the watch has not delivered yet.
//!
//! A binding is assumed: its bind request enters the store when it is decided, before the API server has it. Until the
//! watch delivers the request, older events and relists must not undo that. When the server rejects the request, it
//! leaves the store again, and the object that the watch has delivered under its name meanwhile takes its place.

use kai_api::BindRequest;
use kai_cache::{Kind, Object, Store};
use kai_engine::input::Key;
use kai_units::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct AssumedBinding {
    /// The request as it was put into the store.
    pub(crate) request: BindRequest,
    pub(crate) group: Option<Key>,
    pub(crate) pod_created: Option<Timestamp>,
    pub(crate) decided: Timestamp,
    /// Uid and resource version of the created request.
    created: Option<(String, u64)>,
    /// The latest other request of the same name that the watch has delivered.
    observed: Option<BindRequest>,
}

/// All assumed bindings, by the key of their request.
#[derive(Debug, Default)]
pub(crate) struct AssumedBindings {
    bindings: BTreeMap<Key, AssumedBinding>,
    /// The highest resource version that list and watch have delivered.
    delivered: u64,
}

impl AssumedBindings {
    pub(crate) fn len(&self) -> usize {
        self.bindings.len()
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.bindings.contains_key(key)
    }

    /// Whether a request on the server is the assumed one.
    pub(crate) fn is_assumed(&self, key: &Key, request: &BindRequest) -> bool {
        self.bindings.get(key).is_some_and(|binding| is_same(&binding.request, request))
    }

    pub(crate) fn assume(
        &mut self,
        key: Key,
        request: BindRequest,
        group: Option<Key>,
        pod_created: Option<Timestamp>,
        decided: Timestamp,
        store: &mut Store,
    ) {
        store.apply(request.clone());
        let binding = AssumedBinding { request, group, pod_created, decided, created: None, observed: None };
        self.bindings.insert(key, binding);
    }

    /// The server has created the request.
    pub(crate) fn confirm(
        &mut self,
        key: &Key,
        response: &Value,
        store: &mut Store,
    ) -> Option<&AssumedBinding> {
        let binding = self.bindings.get_mut(key)?;
        let uid = kai_object::uid(response).to_owned();
        binding.created = Some((uid, version(response)));
        if let Ok(request) = BindRequest::deserialize(response) {
            store.apply(request.clone());
            binding.request = request;
        }
        self.bindings.get(key)
    }

    /// The server has rejected the request: takes it out of the store.
    pub(crate) fn reject(&mut self, key: &Key, store: &mut Store) -> Option<AssumedBinding> {
        let binding = self.bindings.remove(key)?;
        match &binding.observed {
            Some(observed) => {
                store.apply(observed.clone());
            }
            None => {
                store.delete(Kind::BindRequest, key);
            }
        }
        Some(binding)
    }

    /// The watch has delivered a request; returns whether it is to be stored.
    pub(crate) fn observe_applied(&mut self, key: &Key, request: &BindRequest) -> bool {
        self.advance(request);
        let Some(binding) = self.bindings.get_mut(key) else { return true };
        if is_same(&binding.request, request) {
            self.bindings.remove(key);
            return true;
        }
        // An older request of that name, or another scheduler's: the response to the creation decides which one counts.
        binding.observed = Some(request.clone());
        false
    }

    /// The watch has delivered a deletion; returns whether the request is to be deleted from the store.
    pub(crate) fn observe_deleted(&mut self, key: &Key, last: &BindRequest) -> bool {
        self.advance(last);
        let Some(binding) = self.bindings.get_mut(key) else { return true };
        binding.observed = None;
        let is_assumed =
            binding.created.as_ref().is_some_and(|(uid, _)| last.metadata.uid.as_deref() == Some(uid));
        if is_assumed {
            self.bindings.remove(key);
        }
        is_assumed
    }

    fn advance(&mut self, request: &BindRequest) {
        let version = request.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        self.delivered = self.delivered.max(version.unwrap_or(0));
    }

    /// The watch has delivered a list at a resource version: adds the assumed requests that it cannot contain. Returns those
    /// that were created after the list, or before the server was restored from a backup; only a lookup tells which.
    pub(crate) fn observe_list(&mut self, listed: &mut Vec<Object>, list_version: u64) -> Vec<Key> {
        // Lists do not go backwards, unless etcd was restored from a backup that may lack the created requests.
        let is_restored = list_version < self.delivered;
        self.delivered = list_version;
        let mut uncertain = Vec::new();
        let mut same_name: BTreeMap<Key, BindRequest> = BTreeMap::new();
        listed.retain(|object| {
            if let Object::BindRequest(request) = object
                && self.bindings.contains_key(&object.key())
            {
                same_name.insert(object.key(), (**request).clone());
                return false;
            }
            true
        });
        self.bindings.retain(|key, binding| {
            let observed = same_name.remove(key);
            match (&binding.created, observed) {
                (_, Some(observed)) if is_same(&binding.request, &observed) => {
                    listed.push(observed.into());
                    return false;
                }
                // Created before the list was read and not in it: it has been deleted.
                (Some((_, created)), None) if *created <= list_version || is_restored => return false,
                (created, observed) => {
                    if created.is_some() {
                        uncertain.push(key.clone());
                    }
                    binding.observed = observed;
                }
            }
            listed.push(binding.request.clone().into());
            true
        });
        uncertain
    }
}

/// Whether two requests bind the same pod to the same node and GPUs.
fn is_same(assumed: &BindRequest, observed: &BindRequest) -> bool {
    let owner = |request: &BindRequest| {
        let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
        owners.first().map(|owner| owner.uid.clone())
    };
    assumed.spec.selected_node == observed.spec.selected_node
        && assumed.spec.selected_gpu_groups == observed.spec.selected_gpu_groups
        && owner(assumed) == owner(observed)
}

fn version(object: &Value) -> u64 {
    kai_object::meta_str(object, "resourceVersion").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
