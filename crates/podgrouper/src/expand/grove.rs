//! Grove: PodCliqueSets, and PodGangSets as they were called before.
//!
//! Names are those of Grove's page on naming conventions. A replica of the set has one base gang, of its cliques outside
//! scaling groups and of `minAvailable` replicas of each scaling group; every further replica of a scaling group is a gang
//! of its own.

use super::{Expander, Pods, RANDOM};
use crate::error::Invalid;
use crate::fields;
use crate::objects::MetaExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::well_known::label;
use serde_json::{Value, json};

const CLIQUES: &str = "spec.template.cliques";
const SCALING_GROUPS: &str = "spec.template.podCliqueScalingGroups";

/// A template of pods.
struct Clique {
    name: String,
    path: String,
    replicas: u32,
    min_available: u32,
    /// Labels and annotations of the template.
    metadata: Value,
    pod_spec: Value,
}

/// Cliques that are scaled together.
struct ScalingGroup {
    name: String,
    cliques: Vec<String>,
    replicas: u32,
    min_available: u32,
}

/// A clique of a gang.
struct Member<'a> {
    clique: &'a Clique,
    /// The name of its PodClique.
    name: String,
    owner: OwnerReference,
}

pub(super) fn pod_clique_set(of: &mut Expander<'_>) -> Result<(), Invalid> {
    let cliques = cliques(of)?;
    let groups = scaling_groups(of, &cliques)?;
    let (set, owner) = (of.name(), of.as_owner());
    let is_scaled = |clique: &Clique| groups.iter().any(|group| group.cliques.contains(&clique.name));
    for replica in 0..of.count("spec.replicas", 1)? {
        let base = format!("{set}-{replica}");
        let alone = cliques.iter().filter(|clique| !is_scaled(clique));
        let mut members: Vec<Member<'_>> = alone
            .map(|clique| Member { clique, name: format!("{base}-{}", clique.name), owner: owner.clone() })
            .collect();
        let mut gangs = Vec::new();
        for group in &groups {
            let name = format!("{base}-{}", group.name);
            let of_group =
                of.object(&owner, "grove.io/v1alpha1", "PodCliqueScalingGroup", name.clone(), None)?;
            for index in 0..group.replicas {
                let of_replica = members_of(&cliques, group, &format!("{name}-{index}"), &of_group);
                match index.checked_sub(group.min_available) {
                    None => members.extend(of_replica),
                    Some(further) => gangs.push((format!("{name}-{further}"), of_replica)),
                }
            }
        }
        gangs.insert(0, (base, members));
        for (name, mut members) in gangs {
            members.retain(|member| member.clique.replicas > 0);
            gang(of, &owner, &name, members)?;
        }
    }
    if of.top.data.to_string().contains("\"topologyConstraint\"") {
        of.notes.push(
            "its topology constraints name domains that a ClusterTopology of the cluster maps to levels, so they are left out"
                .to_owned(),
        );
    }
    Ok(())
}

fn members_of<'a>(
    cliques: &'a [Clique],
    group: &ScalingGroup,
    prefix: &str,
    owner: &OwnerReference,
) -> Vec<Member<'a>> {
    let named = cliques.iter().filter(|clique| group.cliques.contains(&clique.name));
    let member = |clique: &'a Clique| Member {
        clique,
        name: format!("{prefix}-{}", clique.name),
        owner: owner.clone(),
    };
    named.map(member).collect()
}

/// A PodGang with its PodCliques and their pods.
fn gang(
    of: &mut Expander<'_>,
    owner: &OwnerReference,
    name: &str,
    members: Vec<Member<'_>>,
) -> Result<(), Invalid> {
    let namespace = of.top.metadata.namespace_str().to_owned();
    let class = of.top.text("spec.template.priorityClassName")?.map(str::to_owned);
    let of_member = |member: &Member<'_>| {
        json!({
            "name": member.name, "minReplicas": member.clique.min_available,
            "podReferences": [{"namespace": namespace, "name": pod_name(&member.name)}],
        })
    };
    let mut spec = json!({"podgroups": members.iter().map(of_member).collect::<Vec<_>>()});
    if let (Some(class), Some(spec)) = (class, spec.as_object_mut()) {
        spec.insert("priorityClassName".to_owned(), class.into());
    }
    of.object(owner, "scheduler.grove.io/v1alpha1", "PodGang", name.to_owned(), None)?;
    if let Some(gang) = of.between.last_mut() {
        gang.data = json!({"spec": spec});
    }
    for Member { clique, name: pod_clique, owner } in members {
        let metadata = Some(&clique.metadata);
        let owner = of.object(&owner, "grove.io/v1alpha1", "PodClique", pod_clique.clone(), metadata)?;
        let template = json!({"metadata": clique.metadata, "spec": clique.pod_spec});
        of.add(Pods {
            owner: &owner,
            name: pod_name(&pod_clique),
            path: &clique.path,
            template: &template,
            labels: vec![(label::GROVE_POD_GANG, name.to_owned())],
            annotations: Vec::new(),
            count: clique.replicas,
        })?;
    }
    Ok(())
}

fn pod_name(pod_clique: &str) -> String {
    format!("{pod_clique}-{RANDOM}")
}

fn cliques(of: &Expander<'_>) -> Result<Vec<Clique>, Invalid> {
    let templates = of.top.list(CLIQUES)?.unwrap_or_default();
    let cliques = templates.iter().enumerate().map(|(at, template)| {
        let path = format!("{CLIQUES}[{at}]");
        let replicas = number(of, template, &path, "spec.replicas", 1)?;
        let pod_spec = template.pointer("/spec/podSpec").cloned();
        Ok(Clique {
            name: name(of, template, &path)?,
            replicas,
            min_available: number(of, template, &path, "spec.minAvailable", replicas)?,
            metadata: json!({"labels": template.get("labels"), "annotations": template.get("annotations")}),
            pod_spec: pod_spec.ok_or_else(|| of.top.invalid(format!("`{path}.spec.podSpec` is missing")))?,
            path,
        })
    });
    cliques.collect()
}

fn scaling_groups(of: &Expander<'_>, cliques: &[Clique]) -> Result<Vec<ScalingGroup>, Invalid> {
    let groups = of.top.list(SCALING_GROUPS)?.unwrap_or_default();
    let groups = groups.iter().enumerate().map(|(at, group)| {
        let path = format!("{SCALING_GROUPS}[{at}]");
        let named = group.get("cliqueNames").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let named: Vec<String> = named.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if let Some(unknown) = named.iter().find(|name| !cliques.iter().any(|clique| clique.name == **name)) {
            return Err(of
                .top
                .invalid(format!("`{path}.cliqueNames` names `{unknown}`, which is no clique")));
        }
        Ok(ScalingGroup {
            name: name(of, group, &path)?,
            cliques: named,
            replicas: number(of, group, &path, "replicas", 1)?,
            min_available: number(of, group, &path, "minAvailable", 1)?,
        })
    });
    groups.collect()
}

fn name(of: &Expander<'_>, value: &Value, path: &str) -> Result<String, Invalid> {
    let name = value.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| of.top.invalid(format!("`{path}.name` is missing")))
}

fn number(of: &Expander<'_>, value: &Value, path: &str, field: &str, default: u32) -> Result<u32, Invalid> {
    let wrong = |problem: String| of.top.invalid(format!("`{path}`: {problem}"));
    let found = fields::field(value, field).map_err(|at| wrong(format!("`{at}` must be an object")))?;
    let Some(found) = found.filter(|found| !found.is_null()) else { return Ok(default) };
    let number = fields::int(found, field).map_err(wrong)?;
    u32::try_from(number).map_err(|_| wrong(format!("`{field}` is {number}, and must not be negative")))
}
