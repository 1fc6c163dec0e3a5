//! Kinds that a Karta describes: components, how pods are matched to them, and how many pods they have.
//!
//! Paths and filters are jq expressions over the pod or over the topmost owner.

mod definition;
mod query;

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::kind::segments::with_level;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use definition::{Component, Definition, Gang, Member, Topology};
use kai_api::pod_group::{SubGroup, TopologyConstraint};
use serde_json::Value;
use std::sync::Arc;

/// The Karta of the topmost owner's kind; none where there are several, since it is unknown which one is meant.
pub(crate) fn of<'a>(workload: &Workload<'a>) -> Option<Found<'a>> {
    let mut found = workload.objects.all(&kartas_of(workload)).iter().filter_map(|object| {
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        let definition = Definition::read(object).filter(|_| !is_deleted)?;
        definition.describes(workload.top_kind()).then_some(Found { object, definition })
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Whether a Karta is valid and describes the gangs of a kind.
pub fn describes(karta: &OwnerObject, kind: (&str, &str, &str)) -> bool {
    Definition::read(karta).is_some_and(|definition| definition.describes(kind))
}

/// The Kartas of a kind that are not used, with the reason.
pub(crate) fn unused<'a>(
    kartas: &'a [Arc<OwnerObject>],
    kind: (&str, &str, &str),
) -> Vec<(&'a OwnerObject, String)> {
    let mut unused = Vec::new();
    let mut used: Vec<&OwnerObject> = Vec::new();
    for karta in kartas.iter().filter(|karta| karta.metadata.deletion_timestamp.is_none()) {
        match Definition::parse(karta) {
            Ok(Some(definition)) if definition.describes(kind) => used.push(karta),
            Ok(Some(_)) => {
                let reason = "its labels name another kind than `spec.structureDefinition.rootComponent.kind`, so it is not used";
                unused.push((karta.as_ref(), reason.to_owned()));
            }
            Ok(None) => {}
            Err(problem) => unused.push((karta.as_ref(), format!("{problem}, so the Karta is not used"))),
        }
    }
    if let [_, _, ..] = used.as_slice() {
        let names: Vec<&str> = used.iter().map(|karta| karta.metadata.name_str()).collect();
        let reason = format!(
            "several Kartas describe this kind, so none is used; leave one of `{}`",
            names.join("`, `")
        );
        unused.extend(used.into_iter().map(|karta| (karta, reason.clone())));
    }
    unused
}

/// A Karta that was read.
pub(crate) struct Found<'a> {
    object: &'a OwnerObject,
    definition: Definition,
}

fn kartas_of(workload: &Workload<'_>) -> ObjectRef {
    let (group, version, kind) = workload.top_kind();
    ObjectRef::Kartas { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}

fn pod_of(workload: &Workload<'_>) -> ObjectRef {
    let name = workload.pod.metadata.name_str().to_owned();
    ObjectRef::Object { api_version: "v1".to_owned(), kind: "Pod".to_owned(), name }
}

/// The Kartas, and the whole pod if one describes its owner.
pub(crate) fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    let mut reads = vec![kartas_of(workload)];
    if of(workload).is_some() {
        reads.push(pod_of(workload));
    }
    reads
}

pub(crate) fn group(workload: &Workload<'_>, found: &Found<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let invalid = |problem: String| found.object.invalid(problem);
    let tree = Tree {
        definition: &found.definition,
        root: workload.top_object()?.to_json(),
        pod: workload.objects.get(&pod_of(workload)).map(|pod| pod.to_json()).unwrap_or_default(),
    };
    match &found.definition.gang {
        Gang::Tree { name, topology, sub_groups } => {
            desired.name = format!("pg-{}-{name}", desired.owner.uid);
            if let Some(topology) = topology {
                desired.topology = constraint(topology).map_err(invalid)?;
            }
            for (component, topology) in sub_groups {
                let (sub_group, is_member) = tree.sub_group(component, topology.as_ref()).map_err(invalid)?;
                if is_member && desired.sub_group.is_none() {
                    desired.sub_group = Some(sub_group.name.clone());
                }
                desired.sub_groups.push(sub_group);
            }
            if desired.sub_groups.is_empty() {
                desired.min_member = tree.scale(&found.definition.root).map_err(invalid)?;
            } else {
                desired.min_sub_group = Some(i32::try_from(desired.sub_groups.len()).unwrap_or(i32::MAX));
            }
        }
        Gang::Flat(members) => {
            let (name, pods) =
                tree.membership(members, &desired.owner.uid).map_err(|problem| match problem {
                    Problem::Karta(problem) => invalid(problem),
                    Problem::Pod(problem) => workload.pod_invalid(problem),
                })?;
            desired.name = name;
            desired.min_member = pods;
        }
    }
    Ok(desired)
}

/// Whose problem it is that a pod is in no group.
enum Problem {
    Karta(String),
    Pod(String),
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Karta(problem)
    }
}

fn constraint(topology: &Topology) -> Result<TopologyConstraint, String> {
    let constraint = TopologyConstraint {
        topology: topology.name.clone(),
        required_topology_level: topology.required_topology_level.clone(),
        preferred_topology_level: topology.preferred_topology_level.clone(),
    };
    with_level(constraint).ok_or_else(|| "a topology needs `topologyName` and a level".to_owned())
}

/// The components of a workload, with the pod that is grouped.
struct Tree<'a> {
    definition: &'a Definition,
    root: Value,
    pod: Value,
}

impl Tree<'_> {
    /// The subgroup of a component, and whether the pod is in it.
    fn sub_group(&self, component: &str, topology: Option<&Topology>) -> Result<(SubGroup, bool), String> {
        let of = self.definition.component(component)?;
        let pods = self.scale(component)?;
        if pods == 0 {
            return Err(format!(
                "component `{component}` has no pods; its `scaleDefinition` must yield at least 1"
            ));
        }
        let mut is_member = self.matches(of)?;
        for below in self.definition.descendants(component) {
            is_member = is_member || self.matches(below)?;
        }
        let topology_constraint = topology.map(constraint).transpose()?;
        let name = component.to_owned();
        Ok((SubGroup { name, min_member: Some(pods), topology_constraint, ..SubGroup::default() }, is_member))
    }

    /// Whether the pod belongs to a component by its type selector.
    fn matches(&self, component: &Component) -> Result<bool, String> {
        let Some(selector) = component.type_selector() else { return Ok(false) };
        let found = query::run(&selector.key_path, &self.pod)?;
        Ok(match &selector.value {
            Some(value) => found.iter().any(|of| of == value),
            None => found.iter().any(|of| !of.is_null()),
        })
    }

    /// The group name and the minimum of the pod, by the first member definition that fits.
    fn membership(&self, members: &[Member], uid: &str) -> Result<(String, i32), Problem> {
        let with_pods = self.definition.with_pods();
        let own = match with_pods.as_slice() {
            [only] => Some(*only),
            several => {
                let mut own = None;
                for leaf in several {
                    if self.matches(leaf)? {
                        own = Some(*leaf);
                        break;
                    }
                }
                own
            }
        };
        let own = own.ok_or_else(|| Problem::Pod("no component of its Karta matches it".to_owned()))?;
        for component in self.definition.with_ancestors(&own.name) {
            for member in members.iter().filter(|member| member.component_name == component) {
                if !self.passes(&member.filters)? {
                    continue;
                }
                let mut name = format!("pg-{uid}");
                for path in &member.group_by_key_paths {
                    name = format!("{name}-{}", text(&self.single(path)?));
                }
                let pods = if component == own.name { self.own_instance(own)? } else { None };
                return Ok((name, pods.map_or_else(|| self.scale(component), Ok)?));
            }
        }
        Err(Problem::Pod("no member definition of its Karta applies to it".to_owned()))
    }

    fn passes(&self, filters: &[String]) -> Result<bool, Problem> {
        for filter in filters {
            if self.single(filter)? != Value::Bool(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The only value of an expression over the pod, which must not be empty.
    fn single(&self, expression: &str) -> Result<Value, Problem> {
        let mut values = query::run(expression, &self.pod)?;
        match values.pop() {
            Some(value) if values.is_empty() && !value.is_null() && value != "" => Ok(value),
            Some(_) | None => Err(Problem::Pod(format!(
                "its Karta reads `{expression}` of it, which must have exactly one value"
            ))),
        }
    }

    /// The pods of the instance that the pod belongs to; none for a component without instances.
    fn own_instance(&self, component: &Component) -> Result<Option<i32>, Problem> {
        let (Some(ids), Some(id)) = (&component.instance_id_path, component.instance_path()) else {
            return Ok(None);
        };
        let ids = query::texts(ids, &self.root)?;
        if ids.is_empty() {
            return Ok(None);
        }
        let own = text(&self.single(id)?);
        let at = ids.iter().position(|id| *id == own).ok_or_else(|| {
            Problem::Pod(format!("component `{}` has no instance `{own}`, which it names", component.name))
        })?;
        if !self.definition.has_scale() {
            return Ok(Some(1));
        }
        Ok(Some(self.instances(component)?.get(at).copied().unwrap_or(0)))
    }

    /// The pods of every instance of a component, without its children.
    fn instances(&self, component: &Component) -> Result<Vec<i32>, String> {
        let Some(scale) = &component.scale_definition else { return Ok(Vec::new()) };
        let numbers = |path: &Option<String>| match path {
            Some(path) => query::numbers(path, &self.root),
            None => Ok(Vec::new()),
        };
        let (least, replicas) = (numbers(&scale.min_replicas)?, numbers(&scale.replicas)?);
        let positive =
            |numbers: &[Option<i32>], at: usize| numbers.get(at).copied().flatten().filter(|n| *n > 0);
        let count = least.len().max(replicas.len()).max(numbers(&scale.max_replicas)?.len());
        let instances = match &component.instance_id_path {
            Some(path) => query::texts(path, &self.root)?.len(),
            None => 1,
        };
        if count != instances {
            return Err(format!(
                "`scaleDefinition` of component `{}` yields {count} values for {instances} instances",
                component.name
            ));
        }
        Ok((0..count)
            .map(|at| positive(&least, at).or_else(|| positive(&replicas, at)).unwrap_or(0))
            .collect())
    }

    /// The pods of a component and everything below it.
    fn scale(&self, component: &str) -> Result<i32, String> {
        if !self.definition.has_scale() {
            return self.pod_count(component);
        }
        self.subtree(component)
    }

    fn subtree(&self, component: &str) -> Result<i32, String> {
        let of = self.definition.component(component)?;
        let beyond = || format!("component `{component}` has more pods than 32 bits count");
        let sum = |numbers: Vec<i32>| numbers.into_iter().try_fold(0i32, i32::checked_add).ok_or_else(beyond);
        let own = sum(self.instances(of)?)?;
        let mut below = Vec::new();
        for child in self.definition.children(component) {
            below.push(self.subtree(&child.name)?);
        }
        let is_leaf = below.is_empty();
        match (own, sum(below)?) {
            (own, 0) => Ok(own),
            (0, below) => Ok(below),
            (own, _) if is_leaf => Ok(own),
            (own, below) => own.checked_mul(below).ok_or_else(beyond),
        }
    }

    /// Without any scale, the components with pods are counted, and the instances of those that have some.
    fn pod_count(&self, component: &str) -> Result<i32, String> {
        let own = self.definition.component(component)?;
        if own.has_pods() {
            let Some(path) = &own.instance_id_path else { return Ok(1) };
            let instances = query::texts(path, &self.root)?.len();
            return Ok(i32::try_from(instances).unwrap_or(i32::MAX));
        }
        let mut count = 0i32;
        for child in self.definition.children(component) {
            count = count.saturating_add(self.pod_count(&child.name)?);
        }
        Ok(count)
    }
}

/// A value as part of a name.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
