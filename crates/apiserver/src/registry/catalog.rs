//! An immutable snapshot of the served resources, by group and version.

use super::{Builtin, Origin, Resource, api_version, builtin};
use crate::store::Store;
use indexmap::IndexMap;
use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Catalog {
    groups: IndexMap<Box<str>, Group, FxBuildHasher>,
}

/// An API group, the preferred version first.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Resources of each version by plural name.
    pub versions: IndexMap<Box<str>, BTreeMap<Box<str>, Arc<Resource>>, FxBuildHasher>,
}

impl Catalog {
    /// The groups in discovery order; the core group is the first.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.groups.get(group)?.versions.get(version)?.get(plural)
    }

    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.groups.get(group)?.versions.get(version)?.values().find(|resource| &*resource.kind == kind)
    }

    /// A resource in its preferred version.
    pub fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.groups.get(group)?.versions.values().find_map(|resources| resources.get(plural))
    }

    /// Every resource in its preferred version.
    pub fn all_preferred(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|group| {
            group.versions.iter().enumerate().flat_map(move |(index, (_, resources))| {
                resources.values().filter(move |resource| {
                    !group.versions.values().take(index).any(|better| better.contains_key(&resource.plural))
                })
            })
        })
    }

    /// Every resource in every version.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|group| group.versions.values()).flat_map(BTreeMap::values)
    }

    fn add(&mut self, resource: &Arc<Resource>) {
        let group = self.groups.entry(resource.group.clone()).or_default();
        let version = group.versions.entry(resource.version.clone()).or_default();
        version.entry(resource.plural.clone()).or_insert_with(|| Arc::clone(resource));
    }
}

/// The current catalog and the resources it is built from.
#[derive(Debug)]
pub struct Registry {
    builtin: Catalog,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    custom: BTreeMap<Box<str>, Vec<Arc<Resource>>>,
    current: Arc<Catalog>,
}

impl Registry {
    /// Registers the built-in resources and their tables in the store.
    pub fn new(store: &Store) -> Self {
        let mut catalog = Catalog::default();
        for builtin in builtin::all() {
            catalog.add(&Arc::new(resource_of(builtin, store)));
        }
        let current = Arc::new(catalog.clone());
        Self { builtin: catalog, state: RwLock::new(State { custom: BTreeMap::new(), current }) }
    }

    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.state.read().current)
    }

    /// Replaces the resources of a `CustomResourceDefinition`; an empty list stops serving it.
    pub fn serve_custom(&self, definition: &str, resources: Vec<Arc<Resource>>) {
        let mut state = self.state.write();
        if resources.is_empty() {
            state.custom.remove(definition);
        } else {
            state.custom.insert(definition.into(), resources);
        }
        let mut resources: Vec<_> = state.custom.values().flatten().map(Arc::clone).collect();
        resources.sort_by_cached_key(|resource| {
            (resource.group.clone(), Reverse(version_rank(&resource.version)))
        });
        let mut catalog = self.builtin.clone();
        for resource in &resources {
            catalog.add(resource);
        }
        state.current = Arc::new(catalog);
    }
}

fn resource_of(builtin: &'static Builtin, store: &Store) -> Resource {
    let own_version = api_version(builtin.group, builtin.version);
    let own_table = if builtin.group.is_empty() {
        builtin.plural.to_owned()
    } else {
        format!("{}/{}", builtin.group, builtin.plural)
    };
    let (table, storage) = builtin.stored_as.unwrap_or((&own_table, &own_version));
    Resource {
        group: builtin.group.into(),
        version: builtin.version.into(),
        api_version: own_version.as_str().into(),
        kind: builtin.kind.into(),
        list_kind: format!("{}List", builtin.kind).into(),
        plural: builtin.plural.into(),
        singular: builtin.kind.to_lowercase().into(),
        short_names: builtin.short_names.iter().map(|name| (*name).into()).collect(),
        categories: builtin.categories.iter().map(|name| (*name).into()).collect(),
        namespaced: builtin.namespaced,
        verbs: builtin.verbs,
        subresources: builtin.subresources.to_vec(),
        table: store.table(table),
        storage_api_version: storage.into(),
        generation: builtin.generation,
        unconditional_update: builtin.unconditional_update,
        create_on_update: builtin.create_on_update,
        returns_deleted: builtin.returns_deleted,
        origin: Origin::Builtin(builtin),
    }
}

/// The version priority of Kubernetes, the highest preferred: `v2` over `v1`, stable over beta over alpha, and any
/// other name last, in reverse alphabetical order.
pub(crate) fn version_rank(version: &str) -> (u8, u32, u32, Reverse<Box<str>>) {
    let other = || (0, 0, 0, Reverse(version.into()));
    let Some(rest) = version.strip_prefix('v') else { return other() };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse::<u32>() else { return other() };
    let none = Reverse("".into());
    let tail = &rest[digits..];
    if tail.is_empty() {
        return (3, major, 0, none);
    }
    for (stage, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some(Ok(minor)) = tail.strip_prefix(stage).map(str::parse::<u32>) {
            return (rank, major, minor, none);
        }
    }
    other()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_priority_equals_kubernetes() {
        let mut versions =
            ["v1alpha1", "v10", "foo1", "v2", "v1", "v1beta2", "v11beta2", "foo10", "v12alpha1", "v1beta1"];
        versions.sort_by_key(|version| Reverse(version_rank(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v1beta2", "v1beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]
        );
    }

    #[test]
    fn builtin_resource_names_are_unique() {
        let catalog = Registry::new(&Store::new(1 << 20)).current();
        let mut names: Vec<_> = catalog
            .all()
            .filter(|resource| &*resource.group != "events.k8s.io")
            .flat_map(|resource| resource.short_names.iter().chain([&resource.plural, &resource.singular]))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn both_event_groups_share_storage() {
        let catalog = Registry::new(&Store::new(1 << 20)).current();
        let one = catalog.find("", "v1", "events").unwrap();
        let two = catalog.find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(one.table, two.table);
        assert_eq!(&*two.storage_api_version, "v1");
    }
}
