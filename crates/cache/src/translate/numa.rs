//! Translates NUMA zones of nodes, and observed and predicted NUMA placements of pods.

use super::amount::{dimension, in_base_units, read_amount};
use crate::finding::Report;
use crate::object::NodeResourceTopology;
use crate::object::node::Zone;
use crate::object::value::{Amount, List, Resources, Text};
use kai_engine::input::{AmountList, NumaAmount, NumaPolicy, NumaScope, NumaTopology, NumaZone};
use serde::Deserialize;

/// Returns `None` without a zone of type `Node`.
pub fn topology(object: &NodeResourceTopology, report: &mut Report<'_>) -> Option<NumaTopology> {
    let mut zones: Vec<&Zone> = object.zones.iter().filter(|zone| zone.kind == "Node").collect();
    if zones.is_empty() {
        return None;
    }
    zones.sort_by(|a, b| (zone_number(&a.name), &a.name).cmp(&(zone_number(&b.name), &b.name)));
    let (mut policy, mut scope) = older_policy(&object.topology_policies);
    for attribute in &object.attributes {
        match &*attribute.name {
            "topologyManagerPolicy" => policy = read_policy(&attribute.value, report),
            "topologyManagerScope" => {
                scope = if attribute.value == "pod" { NumaScope::Pod } else { NumaScope::Container };
            }
            _ => {}
        }
    }
    let zones = zones
        .into_iter()
        .map(|zone| NumaZone {
            name: zone.name.to_string(),
            allocatable: amounts(zone, |r| &r.allocatable, report),
            available: amounts(zone, |r| &r.available, report),
        })
        .collect();
    Some(NumaTopology { policy, scope, zones })
}

/// The placement of a pod from the JSON of an annotation.
pub fn placement_from_json(text: &str, field: &str, report: &mut Report<'_>) -> Vec<NumaAmount> {
    #[derive(Deserialize)]
    struct Entry {
        zone: Text,
        #[serde(default)]
        amount: Resources,
    }
    match serde_json::from_str::<List<Entry>>(text) {
        Ok(entries) => entries
            .iter()
            .map(|entry| NumaAmount {
                zone: entry.zone.to_string(),
                amounts: super::amount::Totals::read(&entry.amount, field, report).into_list(),
            })
            .collect(),
        Err(error) => {
            report.warn(
                field,
                format!("the placement is malformed ({error}), so the pod counts in no zone"),
                "remove the annotation, it is written again",
            );
            Vec::new()
        }
    }
}

/// The predicted placement of a pod from its bind request.
pub fn placement_from_bind(zones: &[kai_api::bind_request::NumaZoneAmount]) -> Vec<NumaAmount> {
    zones
        .iter()
        .map(|zone| {
            let mut amounts: AmountList = Vec::new();
            for (name, quantity) in &zone.amount {
                if let (Some(dimension), Ok(quantity)) = (dimension(name), quantity.0.parse()) {
                    amounts.push((dimension.to_owned(), in_base_units(name, quantity)));
                }
            }
            amounts.sort();
            NumaAmount { zone: zone.zone.clone(), amounts }
        })
        .collect()
}

fn amounts(
    zone: &Zone,
    which: impl Fn(&crate::object::node::ZoneResource) -> &Amount,
    report: &mut Report<'_>,
) -> AmountList {
    let mut amounts: AmountList = Vec::new();
    for resource in &zone.resources {
        let Some(dimension) = dimension(&resource.name) else { continue };
        if let Some(amount) =
            read_amount(&resource.name, which(resource), &format!("zones[{}]", zone.name), report)
        {
            amounts.push((dimension.to_owned(), amount));
        }
    }
    amounts.sort();
    amounts
}

/// The number at the end of a zone name; names without one sort last.
fn zone_number(name: &str) -> u64 {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name.strip_prefix(start).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

fn read_policy(name: &str, report: &mut Report<'_>) -> NumaPolicy {
    match name {
        "single-numa-node" => NumaPolicy::SingleNumaNode,
        "restricted" => NumaPolicy::Restricted,
        "best-effort" => NumaPolicy::BestEffort,
        "none" | "" => NumaPolicy::None,
        other => {
            report.warn(
                "attributes.topologyManagerPolicy",
                format!("policy `{other}` is unsupported and counts as `none`"),
                "use none, best-effort, restricted or single-numa-node",
            );
            NumaPolicy::None
        }
    }
}

/// The deprecated list combines policy and scope in one value.
fn older_policy(policies: &[Text]) -> (NumaPolicy, NumaScope) {
    let Some(word) = policies.first() else {
        return (NumaPolicy::None, NumaScope::Container);
    };
    let scope = if word.ends_with("PodLevel") { NumaScope::Pod } else { NumaScope::Container };
    let policy = match word.trim_end_matches("PodLevel").trim_end_matches("ContainerLevel") {
        "SingleNUMANode" => NumaPolicy::SingleNumaNode,
        "Restricted" => NumaPolicy::Restricted,
        "BestEffort" => NumaPolicy::BestEffort,
        _ => NumaPolicy::None,
    };
    (policy, scope)
}
