//! The parts of a Karta that grouping reads.

use crate::objects::OwnerObject;
use serde::Deserialize;
use serde_json::Value;

/// A Karta with instructions for gangs.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) root: String,
    kind: (String, String, String),
    /// The root first.
    pub(super) components: Vec<Component>,
    pub(super) gang: Gang,
}

#[derive(Clone, Debug)]
pub(super) enum Gang {
    /// One group with a subgroup for each of these components.
    Tree { name: String, topology: Option<Topology>, sub_groups: Vec<(String, Option<Topology>)> },
    /// Groups without subgroups, by the first member definition that applies to a pod.
    Flat(Vec<Member>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Topology {
    #[serde(rename = "topologyName")]
    pub(super) name: String,
    pub(super) required_topology_level: String,
    pub(super) preferred_topology_level: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Member {
    pub(super) component_name: String,
    pub(super) group_by_key_paths: Vec<String>,
    pub(super) filters: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Component {
    pub(super) name: String,
    owner_ref: Option<String>,
    kind: Option<Kind>,
    pod_selector: Option<PodSelector>,
    pub(super) instance_id_path: Option<String>,
    pub(super) scale_definition: Option<Scale>,
    spec_definition: Option<PodDefinition>,
    status_definition: Option<Value>,
}

/// Where a component defines its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodDefinition {
    pod_template_spec_path: Option<String>,
    pod_spec_path: Option<String>,
    fragmented_pod_spec_definition: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Kind {
    group: String,
    version: String,
    #[serde(rename = "kind")]
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSelector {
    component_type_selector: Option<TypeSelector>,
    component_instance_selector: Option<InstanceSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TypeSelector {
    pub(super) key_path: String,
    pub(super) value: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InstanceSelector {
    id_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Scale {
    #[serde(rename = "replicasPath")]
    pub(super) replicas: Option<String>,
    #[serde(rename = "minReplicasPath")]
    pub(super) min_replicas: Option<String>,
    #[serde(rename = "maxReplicasPath")]
    pub(super) max_replicas: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    structure_definition: Structure,
    optimization_instructions: Option<Instructions>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Structure {
    root_component: Component,
    #[serde(default)]
    child_components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instructions {
    gang_scheduling: Option<GangScheduling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GangScheduling {
    pod_group: Option<PodGroup>,
    #[serde(default)]
    pod_groups: Vec<PodGroups>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGroup {
    name: String,
    topology: Option<Topology>,
    #[serde(default)]
    sub_groups: Vec<SubGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubGroup {
    component_name: String,
    topology: Option<Topology>,
}

#[derive(Deserialize)]
struct PodGroups {
    #[serde(default)]
    members: Vec<Member>,
}

impl Component {
    pub(super) fn type_selector(&self) -> Option<&TypeSelector> {
        self.pod_selector.as_ref()?.component_type_selector.as_ref()
    }

    /// Whether the component has pods, besides those of components below it.
    pub(super) fn has_pods(&self) -> bool {
        self.pod_definitions() > 0
    }

    fn pod_definitions(&self) -> usize {
        let Some(of) = &self.spec_definition else { return 0 };
        let paths = [of.pod_template_spec_path.is_some(), of.pod_spec_path.is_some()];
        let is_fragmented = of.fragmented_pod_spec_definition.is_some();
        paths.into_iter().chain([is_fragmented]).filter(|is_set| *is_set).count()
    }

    /// Where a pod names its instance.
    pub(super) fn instance_path(&self) -> Option<&str> {
        Some(&self.pod_selector.as_ref()?.component_instance_selector.as_ref()?.id_path)
    }
}

impl Definition {
    /// None for a Karta that does not parse or says nothing about gangs: such ones do not count.
    pub(super) fn read(object: &OwnerObject) -> Option<Self> {
        Self::parse(object).ok().flatten()
    }

    /// None for a Karta that says nothing about gangs; an error is the problem of an invalid one.
    pub(super) fn parse(object: &OwnerObject) -> Result<Option<Self>, String> {
        let spec = Spec::deserialize(object.data.get("spec").unwrap_or(&Value::Null));
        let definition = Self::of(spec.map_err(|error| format!("`spec` does not parse: {error}"))?);
        definition.map(|definition| definition.check().map(|()| definition)).transpose()
    }

    /// Refuses what Karta's own validation refuses, and what could not be computed.
    fn check(&self) -> Result<(), String> {
        let (root, children) = self.components.split_first().ok_or("it has no components")?;
        if root.owner_ref.is_some() {
            return Err("`rootComponent` has an `ownerRef`".to_owned());
        }
        if root.status_definition.is_none() {
            return Err("`rootComponent` has no `statusDefinition`".to_owned());
        }
        let (group, version, kind) = &self.kind;
        if version.is_empty() || kind.is_empty() || (group.is_empty() && kind != "Pod") {
            return Err("`rootComponent.kind` is not complete".to_owned());
        }
        for (index, component) in self.components.iter().enumerate() {
            let name = &component.name;
            if name.is_empty() {
                return Err("a component has no name".to_owned());
            }
            if self.components.iter().skip(index + 1).any(|other| other.name == *name) {
                return Err(format!("two components are called `{name}`"));
            }
            if component.pod_definitions() > 1 {
                return Err(format!("component `{name}` defines its pods more than once"));
            }
            if component.instance_id_path.is_some() != component.instance_path().is_some() {
                return Err(format!(
                    "component `{name}` has only one of `instanceIdPath` and `componentInstanceSelector`"
                ));
            }
        }
        for child in children {
            let owner = child.owner_ref.as_deref().filter(|owner| !owner.is_empty());
            let owner = owner.ok_or_else(|| format!("component `{}` has no `ownerRef`", child.name))?;
            self.component(owner)?;
            if self.with_ancestors(&child.name).last() != Some(&root.name.as_str()) {
                return Err(format!("the components form a cycle at `{}`", child.name));
            }
        }
        if let Gang::Flat(members) = &self.gang {
            for member in members {
                self.component(&member.component_name)?;
            }
        }
        Ok(())
    }

    fn of(spec: Spec) -> Option<Self> {
        let scheduling = spec.optimization_instructions?.gang_scheduling?;
        let gang = if let Some(PodGroup { name, topology, sub_groups }) = scheduling.pod_group {
            let sub_groups = sub_groups.into_iter().map(|of| (of.component_name, of.topology)).collect();
            Gang::Tree { name, topology, sub_groups }
        } else {
            let members: Vec<Member> =
                scheduling.pod_groups.into_iter().flat_map(|group| group.members).collect();
            if members.is_empty() {
                return None;
            }
            Gang::Flat(members)
        };
        let root = spec.structure_definition.root_component;
        let Kind { group, version, name: kind } = root.kind.clone()?;
        let name = root.name.clone();
        let components = std::iter::once(root).chain(spec.structure_definition.child_components).collect();
        Some(Self { root: name, kind: (group, version, kind), components, gang })
    }

    pub(super) fn describes(&self, (group, version, kind): (&str, &str, &str)) -> bool {
        (self.kind.0.as_str(), self.kind.1.as_str(), self.kind.2.as_str()) == (group, version, kind)
    }

    pub(super) fn component(&self, name: &str) -> Result<&Component, String> {
        let found = self.components.iter().find(|component| component.name == name);
        found.ok_or_else(|| format!("there is no component `{name}`"))
    }

    pub(super) fn children(&self, name: &str) -> Vec<&Component> {
        let is_child = |of: &&Component| of.owner_ref.as_deref() == Some(name) && of.name != name;
        self.components.iter().filter(is_child).collect()
    }

    /// All components below one; each once, even in a cycle.
    pub(super) fn descendants(&self, name: &str) -> Vec<&Component> {
        let mut all: Vec<&Component> = self.children(name);
        let mut next = 0;
        while let Some(component) = all.get(next).copied() {
            for child in self.children(&component.name) {
                if child.name != name && !all.iter().any(|known| known.name == child.name) {
                    all.push(child);
                }
            }
            next += 1;
        }
        all
    }

    pub(super) fn with_pods(&self) -> Vec<&Component> {
        self.components.iter().filter(|of| of.has_pods()).collect()
    }

    /// A component and its ancestors, nearest first.
    pub(super) fn with_ancestors<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut names = vec![name];
        while let Some(parent) = names
            .last()
            .and_then(|last| self.component(last).ok())
            .and_then(|of| of.owner_ref.as_deref())
            .filter(|parent| !names.contains(parent))
        {
            names.push(parent);
        }
        names
    }

    pub(super) fn has_scale(&self) -> bool {
        self.components.iter().any(|of| of.scale_definition.is_some())
    }
}
