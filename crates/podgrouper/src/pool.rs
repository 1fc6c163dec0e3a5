//! What stored objects have in common: each key, text, map of labels and list of owners is in memory once.
//!
//! The pods of a workload have the same labels, owners and group, and the groups of a cluster mostly the same settings. A value
//! that no object uses any more is removed when the pool has grown by a quarter.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::PodGroupSpec;
use kai_runtime::Key;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashSet;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

/// Fewer values than this are kept, used or not.
const UNUSED_MIN: usize = 1_024;

/// A text that several objects may have.
pub(crate) type Text = Arc<str>;

/// Labels or annotations, by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Texts(Arc<[(Text, Text)]>);

impl Texts {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    pub(crate) fn to_map(&self) -> Option<BTreeMap<String, String>> {
        let all = self.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        (!self.0.is_empty()).then(|| all.collect())
    }
}

/// Owner references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owners(Arc<[Owner]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    api_version: Text,
    pub(crate) kind: Text,
    name: Text,
    pub(crate) uid: Text,
    is_controller: Option<bool>,
    blocks_deletion: Option<bool>,
}

impl Owners {
    pub(crate) fn first(&self) -> Option<&Owner> {
        self.0.first()
    }

    pub(crate) fn to_references(&self) -> Option<Vec<OwnerReference>> {
        (!self.0.is_empty()).then(|| self.0.iter().map(Owner::to_reference).collect())
    }
}

impl Owner {
    fn to_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: self.is_controller,
            block_owner_deletion: self.blocks_deletion,
        }
    }
}

/// What the pods of a workload have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfPods {
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
    pub(crate) owners: Owners,
    pub(crate) scheduler: Option<Text>,
    pub(crate) priority_class: Option<Text>,
    pub(crate) phase: Option<Text>,
}

/// The pool of this process.
pub(crate) fn pool() -> MutexGuard<'static, Pool> {
    static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);
    POOL.lock()
}

#[derive(Default)]
pub(crate) struct Pool {
    keys: Shared<Key>,
    texts: Shared<str>,
    maps: Shared<[(Text, Text)]>,
    owners: Shared<[Owner]>,
    of_pods: Shared<OfPods>,
    specs: Shared<PodGroupSpec>,
}

impl Pool {
    pub(crate) fn key(&mut self, namespace: Option<String>, name: Option<String>) -> Arc<Key> {
        self.keys.share(Key::new(namespace.unwrap_or_default(), name.unwrap_or_default()))
    }

    pub(crate) fn text(&mut self, text: &str) -> Text {
        self.texts.share(text)
    }

    pub(crate) fn map(&mut self, map: Option<BTreeMap<String, String>>) -> Texts {
        let all = map.unwrap_or_default();
        let all: Vec<_> = all.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        Texts(self.maps.share(all))
    }

    pub(crate) fn owners(&mut self, owners: Option<Vec<OwnerReference>>) -> Owners {
        let owner = |of: OwnerReference| Owner {
            api_version: self.text(&of.api_version),
            kind: self.text(&of.kind),
            name: self.text(&of.name),
            uid: self.text(&of.uid),
            is_controller: of.controller,
            blocks_deletion: of.block_owner_deletion,
        };
        let all: Vec<Owner> = owners.unwrap_or_default().into_iter().map(owner).collect();
        Owners(self.owners.share(all))
    }

    pub(crate) fn of_pods(&mut self, common: OfPods) -> Arc<OfPods> {
        self.of_pods.share(common)
    }

    pub(crate) fn spec(&mut self, spec: PodGroupSpec) -> Arc<PodGroupSpec> {
        self.specs.share(spec)
    }
}

/// Equal values in one place, for as long as an object uses them.
struct Shared<T: ?Sized> {
    values: FxHashSet<Arc<T>>,
    /// How many were in use when unused ones were removed.
    used: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { values: FxHashSet::default(), used: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(known) = self.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.values.len() >= UNUSED_MIN.max(self.used + self.used / 4) {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.used = self.values.len();
        }
        let new = value.into();
        self.values.insert(Arc::clone(&new));
        new
    }
}

/// Counts the memory that the allocator is asked for; what objects share counts once.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Bytes {
    pub(crate) total: usize,
    seen: FxHashSet<*const u8>,
}

#[cfg(test)]
impl Bytes {
    /// The counters of an `Arc`.
    const COUNTS: usize = 16;

    pub(crate) fn add<T: ?Sized>(&mut self, of: &Arc<T>) -> bool {
        let is_new = self.seen.insert(Arc::as_ptr(of).cast());
        self.total += if is_new { size_of_val(&**of) + Self::COUNTS } else { 0 };
        is_new
    }

    /// An object in an `Arc`, and the texts that it alone has.
    pub(crate) fn object<T>(&mut self, _: &T, texts: &[&str]) {
        self.total += size_of::<T>() + Self::COUNTS + texts.iter().map(|text| text.len()).sum::<usize>();
    }

    pub(crate) fn key(&mut self, key: &Arc<Key>) {
        self.total += if self.add(key) { key.namespace.capacity() + key.name.capacity() } else { 0 };
    }

    pub(crate) fn texts(&mut self, texts: &Texts) {
        self.add(&texts.0);
        for (key, value) in &*texts.0 {
            self.add(key);
            self.add(value);
        }
    }

    pub(crate) fn owners(&mut self, owners: &Owners) {
        self.add(&owners.0);
        for of in &*owners.0 {
            for text in [&of.api_version, &of.kind, &of.name, &of.uid] {
                self.add(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_a_user_are_removed() {
        let mut texts = Shared::<str>::default();
        let used = texts.share("used");
        for number in 0..100_000 {
            texts.share(number.to_string().as_str());
        }
        assert!(texts.values.len() <= UNUSED_MIN, "{}", texts.values.len());
        assert!(Arc::ptr_eq(&used, &texts.share("used")));
    }

    #[test]
    fn few_values_without_a_user_stay_beside_many_used_ones() {
        let mut texts = Shared::<str>::default();
        let used: Vec<Text> = (0..10_000).map(|number| texts.share(number.to_string().as_str())).collect();
        for number in 0..100_000 {
            texts.share(format!("unused-{number}").as_str());
        }
        assert!(texts.values.len() <= used.len() + used.len() / 4, "{}", texts.values.len());
    }
}
