//! Recorded calls about NUMA zones and alignment.

use super::compare::same;
use super::inputs::{Names, containers, numa_topology};
use super::record::{Case, list, map, text, whole};
use super::{Adapter, Area, CallOutcome};
use kai_cache::object::{Kind, NodeResourceTopology};
use kai_cache::{Report, translate};
use kai_engine::ids::Idx;
use kai_engine::input::{AmountList, Key, NumaTopology, NumaZone};
use kai_engine::numa::{self, Ignored, NumaNode, NumaRequests, Placement, ZoneAccounting};
use kai_engine::resource::{Amounts, Dim};
use serde_json::{Map, Value, json};

pub(super) const AREA: Area = Area { name: "unit-numa", adapter };

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "node_info.BuildNumaTopology" => Some(topology),
        "numa.buildNumaRequests" => Some(requests),
        "numa.numaPlugin.allocatable" => Some(admits),
        "numa.numaPlugin.evaluate" => Some(evaluate),
        "numa.numaPlugin.nodeScore" => Some(score),
        "numa.numaPlugin.predicate" => Some(predicate),
        "numa.numaPlugin.shouldFilter" => Some(must_align),
        "numa.numaPlugin.wantsNuma" => Some(needs_alignment),
        "numa.solve" => Some(solve),
        _ => None,
    }
}

/// What most calls are about: a node's zones, a pod's requests, and what is left out of alignment.
struct Meeting {
    names: Names,
    node: Option<NumaNode>,
    requests: NumaRequests,
    ignored: Ignored,
}

impl Meeting {
    fn new(case: &Case<'_>, topology: &Value) -> Self {
        let mut names = Names::new();
        let node = node(&mut names, topology);
        let spec = containers(&case.input["task"]["pod"]);
        let requests = NumaRequests::build(&spec, &mut names.dims, &mut names.names);
        let ignore = &case.input["self"]["ignore_resources"];
        let ignore: Vec<&str> =
            list(ignore).map(text).chain(map(ignore).map(|(name, _)| name.as_str())).collect();
        let ignored = Ignored::parse(&ignore.join(","), &names.dims, &names.names);
        Self { names, node, requests, ignored }
    }

    fn on_node(case: &Case<'_>) -> Self {
        Self::new(case, &case.input["node"]["numa_topology"])
    }
}

/// Recorded zones: what they have and what is free at the time of the call.
fn node(names: &mut Names, topology: &Value) -> Option<NumaNode> {
    let mut node = NumaNode::build(&numa_topology(topology)?, &mut names.dims, &mut names.names)?;
    node.open_accounting(ZoneAccounting::FromReport, std::iter::empty());
    Some(node)
}

fn topology(case: &Case<'_>) -> CallOutcome {
    let object = &case.input["nrt"];
    let key = Key::default();
    let ours = match serde_json::from_value::<NodeResourceTopology>(object.clone()) {
        Ok(object) if !case.input["nrt"].is_null() => {
            translate::numa::topology(&object, &mut Report::on(Kind::NodeResourceTopology, &key))
        }
        _ => None,
    };
    // Resources that no node or pod of the record's cluster has are left out there.
    let known: Vec<&str> = list(&case.input["vector_map"]).map(text).collect();
    let amounts = |list: &AmountList| -> Value {
        let kept = list.iter().filter(|(name, amount)| *amount != 0 && known.contains(&name.as_str()));
        Value::Object(kept.map(|(name, amount)| (name.clone(), json!(amount))).collect::<Map<_, _>>())
    };
    let fields = |topology: &NumaTopology| {
        let zone = |zone: &NumaZone| json!([zone.name, amounts(&zone.allocatable), amounts(&zone.available)]);
        let zones: Vec<Value> = topology.zones.iter().map(zone).collect();
        json!([format!("{:?}", topology.policy), format!("{:?}", topology.scope), zones])
    };
    let expected = numa_topology(&case.result()[0]);
    same(&json!(expected.as_ref().map(fields)), &json!(ours.as_ref().map(fields)))
}

fn requests(case: &Case<'_>) -> CallOutcome {
    let mut names = Names::new();
    let spec = containers(&case.input["pod"]);
    let requests = NumaRequests::build(&spec, &mut names.dims, &mut names.names);
    let vectors = |list: &[Amounts]| list.iter().map(|amounts| names.recorded(amounts)).collect::<Vec<_>>();
    let mut answer = json!({ "pod_scope": [names.recorded(&requests.pod_scope)] });
    for (key, list) in [("concurrent", &requests.concurrent), ("serial", &requests.serial)] {
        if !list.is_empty() {
            answer[key] = vectors(list).into();
        }
    }
    same(case.result(), &json!([answer]))
}

fn admits(case: &Case<'_>) -> CallOutcome {
    let at = Meeting::on_node(case);
    let admitted = at.node.as_ref().is_none_or(|node| node.admits(&at.requests, &at.ignored));
    same(case.result(), &json!([admitted]))
}

fn predicate(case: &Case<'_>) -> CallOutcome {
    let at = Meeting::on_node(case);
    let admitted = at.node.as_ref().is_none_or(|node| node.admits(&at.requests, &at.ignored));
    same(&json!(case.result()[0].is_null()), &json!(admitted))
}

fn evaluate(case: &Case<'_>) -> CallOutcome {
    let at = Meeting::on_node(case);
    let Some(node) = &at.node else { return CallOutcome::Failed("the record has no zones".to_owned()) };
    let placement = numa::evaluate(node, &at.requests, &at.ignored);
    let zones = placement.as_ref().map_or(Value::Null, |placement| recorded(&at.names, placement));
    same(case.result(), &json!([zones, placement.is_some()]))
}

fn score(case: &Case<'_>) -> CallOutcome {
    let mut at = Meeting::on_node(case);
    let nodes = case.inputs_beside().map(|input| &input["node"]["numa_topology"]);
    let nodes: Vec<NumaNode> = nodes.filter_map(|topology| node(&mut at.names, topology)).collect();
    let score = numa::score(at.node.as_ref(), &at.requests, &at.ignored, numa::max_zones(&nodes));
    same(case.result(), &json!([score, null]))
}

fn must_align(case: &Case<'_>) -> CallOutcome {
    let at = Meeting::new(case, &case.input["topo"]);
    let must = at.node.as_ref().is_some_and(|node| node.must_align(&at.requests, &at.ignored));
    same(case.result(), &json!([must]))
}

fn needs_alignment(case: &Case<'_>) -> CallOutcome {
    same(case.result(), &json!([Meeting::new(case, &Value::Null).requests.needs_alignment()]))
}

fn solve(case: &Case<'_>) -> CallOutcome {
    let mut names = Names::new();
    let Some(node) = node(&mut names, &case.input["topo"]) else {
        return CallOutcome::Failed("the record has no zones".to_owned());
    };
    let aware: Vec<Dim> = list(&case.input["aware"]).map(|at| Dim::new(whole(at) as usize)).collect();
    let concurrent: Vec<Amounts> =
        list(&case.input["concurrent"]).map(|vector| names.amounts(vector, &Value::Null)).collect();
    let mut placement = Placement::default();
    let admitted = numa::solve(&node, &aware, &concurrent, &mut placement);
    let mut allocated = recorded(&names, &placement);
    if placement.is_empty() || !admitted {
        allocated = Value::Null;
    }
    let expected = if admitted { &case.output["after"]["alloc"] } else { &Value::Null };
    same(&json!([case.result(), expected]), &json!([[admitted], allocated]))
}

/// Allocated amounts of each zone, by position.
fn recorded(names: &Names, placement: &Placement) -> Value {
    let zone = |(zone, amounts): (usize, &Amounts)| (zone.to_string(), names.recorded(amounts));
    Value::Object(placement.iter().map(zone).collect::<Map<_, _>>())
}
