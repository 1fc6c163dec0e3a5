//! Topologies: trees of domains, their room, and candidate node sets.

mod tree;

use super::compare::same;
use super::record::{Case, list, map, text, whole};
use super::{Adapter, Area, CallOutcome};
use kai_engine::Delta;
use kai_engine::ids::{DomainIdx, NodeIdx};
use kai_engine::node_set::NodeSet;
use kai_engine::topology::{Candidates, Demand, Levels, Request, Room, Topology, candidates};
use kai_engine::verdict::TopologyReason;
use serde_json::{Map, Value, json};
use tree::{NAME, Site, Ties, Tree};

pub(super) const AREA: Area = Area { name: "unit-topology", adapter, not_run: &[] };

/// The recorded name of the domain, and of the level, around all others.
const ROOT: &str = "root";

const NO_TREE: &str = "there is always a tree";
const NO_LEVEL: &str = "a constraint without a level is refused before anything is sorted";
const UNEVEN: &str = "every domain reaches down to the innermost level";
const NO_SUM: &str = "the recorded counts of a domain are not the sum of those inside it";
const NO_CONSTRAINT: &str = "members without a constraint do not ask";

fn adapter(function: &str) -> Option<Adapter> {
    match function {
        "topology.isNodePartOfTopology" => Some(takes_part),
        "topology.lowestCommonDomainID" => Some(start_domain),
        "topology.topologyPlugin.calculateRelevantDomainLevels" => Some(relevant_levels),
        "topology.topologyPlugin.calcTreeAllocatable" => Some(pods_that_fit),
        "topology.sortTree" => Some(order),
        "topology.getLevelDomains" => Some(level_domains),
        "topology.reverseLevelOrder" => Some(inner_levels_first),
        "topology.calculateNodeScores" => Some(scores),
        "topology.topologyPlugin.getJobAllocatableDomains" => Some(fitting_domains),
        "topology.topologyPlugin.subSetNodesFn" => Some(node_sets),
        _ => None,
    }
}

/// A task that wants a pod slot and nothing else, so that no domain is tighter than another.
fn slot_task() -> Value {
    json!([{ "uid": "slot", "status": "Pending", "request": {} }])
}

fn empty_node(_: &Value) -> Value {
    json!({})
}

fn takes_part(case: &Case<'_>) -> CallOutcome {
    let mut site = Site::new(list(&case.input["levels"]).map(|level| text(&level["nodeLabel"])));
    site.world.add_node(&case.input["node_info"]);
    site.settle(&Value::Null);
    let node = site.world.node(text(&case.input["node_info"]["name"]));
    same(case.result(), &json!([site.topology().innermost(node).is_some()]))
}

fn start_domain(case: &Case<'_>) -> CallOutcome {
    let levels: Vec<&str> = list(&case.input["levels"]).map(|level| text(&level["nodeLabel"])).collect();
    let mut site = Site::new(levels.iter().copied());
    for node in list(&case.input["node_set"]) {
        site.world.add_node(node);
    }
    site.settle(&Value::Null);
    let preferred = text(&case.input["topology_constraint"]["preferred_level"]);
    let depth =
        levels.iter().position(|level| *level == preferred).map_or(levels.len(), |position| position + 1);
    let nodes = &site.world.cluster.nodes_by_rank;
    let topology = site.topology();
    let domain = topology.domain(topology.holding(nodes, depth).unwrap_or(Topology::root()));
    let level = domain.depth.checked_sub(1).map_or(ROOT, |position| levels[position]);
    let valid = nodes.iter().filter(|node| topology.innermost(**node).is_some());
    let valid: Map<_, _> = valid.map(|node| (site.name(*node).to_owned(), json!(site.name(*node)))).collect();
    same(case.result(), &json!([*domain.id, level, valid]))
}

/// Compares a result that comes with an error: of the error only whether there is one.
fn with_error(case: &Case<'_>, actual: Option<Value>) -> CallOutcome {
    let expected = case.result();
    match (expected[1].is_null(), actual) {
        (true, Some(actual)) => same(&expected[0], &actual),
        (false, None) => CallOutcome::Passed,
        (true, None) => CallOutcome::Failed(format!("expected {}, got a refused constraint", expected[0])),
        (false, Some(actual)) => {
            CallOutcome::Failed(format!("expected the error {}, got {actual}", expected[1]))
        }
    }
}

fn relevant_levels(case: &Case<'_>) -> CallOutcome {
    let names: Vec<&str> = list(&case.input["topology_tree"]["levels"]).map(text).collect();
    let mut site = Site::new(names.iter().copied());
    let constraint = site.constraint(&case.input["sub_group"]["topology_constraint"]);
    let name = |depth: usize| depth.checked_sub(1).map_or(ROOT, |position| names[position]);
    let levels = Levels::of(site.topology(), &constraint);
    let relevant =
        levels.map(|levels| (levels.widest()..=levels.deepest()).rev().map(name).collect::<Vec<_>>());
    with_error(case, relevant.map(|levels| json!(levels)))
}

fn pods_that_fit(case: &Case<'_>) -> CallOutcome {
    let before = &case.input["domain"];
    // A node without anything stands for a domain without nodes.
    let Some(mut tree) = Tree::new(before, Ties::Recorded, &empty_node) else {
        return CallOutcome::NotYet(UNEVEN);
    };
    let pods = tree.site.settle(&case.input["tasks"]);
    let cluster = &tree.site.world.cluster;
    let demand = Demand::of(cluster, &pods);
    let topology = tree.site.topology();
    let room = Room::measure(&cluster.nodes, topology, &demand, Topology::root(), tree.levels.len());
    let counts: Map<_, _> =
        topology.domains().skip(1).map(|(domain, _)| (tree.id(domain), json!(room.pods(domain)))).collect();
    let after = &case.output["after"]["domain"];
    let mut expected = Map::new();
    note_counts(if after.is_null() { before } else { after }, &mut expected);
    same(&Value::Object(expected), &Value::Object(counts))
}

fn note_counts(domain: &Value, into: &mut Map<String, Value>) {
    into.insert(text(&domain["id"]).to_owned(), domain["allocatable_pods"].clone());
    list(&domain["children"]).for_each(|child| note_counts(child, into));
}

/// Ids of a recorded tree, level by level down to a depth.
fn recorded_levels(root: &Value, depth: usize) -> Vec<Vec<String>> {
    let mut at = vec![root];
    let mut levels = Vec::new();
    while !at.is_empty() && levels.len() < depth {
        levels.push(at.iter().map(|domain| text(&domain["id"]).to_owned()).collect());
        at = at.into_iter().flat_map(|domain| list(&domain["children"])).collect();
    }
    levels
}

fn order(case: &Case<'_>) -> CallOutcome {
    let (before, after) = (&case.input["root"], &case.output["after"]["root"]);
    if before.is_null() {
        return CallOutcome::NotYet(NO_TREE);
    }
    let free = |domain: &Value| json!({ "allocatable": domain["free"], "idle": domain["free"] });
    let Some(mut tree) = Tree::new(before, Ties::ById, &free) else { return CallOutcome::NotYet(UNEVEN) };
    let Some(depth) = tree.depth(text(&case.input["max_depth_level"])) else {
        return CallOutcome::NotYet(NO_LEVEL);
    };
    let pods = tree.site.settle(&json!([{
        "uid": "all", "status": "Pending", "request": case.input["tasks_resources"],
    }]));
    let expected = recorded_levels(if after.is_null() { before } else { after }, depth);
    same(&json!(expected), &json!(tree.ordered(&pods, depth)))
}

fn level_domains(case: &Case<'_>) -> CallOutcome {
    let Some(mut tree) = Tree::new(&case.input["root"], Ties::Recorded, &empty_node) else {
        return CallOutcome::NotYet(UNEVEN);
    };
    let pods = tree.site.settle(&slot_task());
    let depth = tree.depth(text(&case.input["level"]));
    let found = depth.and_then(|depth| tree.ordered(&pods, depth).pop()).unwrap_or_default();
    let expected: Vec<_> = list(&case.result()[0]).map(|domain| text(&domain["id"])).collect();
    same(&json!(expected), &json!(found))
}

fn inner_levels_first(case: &Case<'_>) -> CallOutcome {
    let root = &case.input["root"];
    if root.is_null() {
        return CallOutcome::NotYet(NO_TREE);
    }
    let Some(mut tree) = Tree::new(root, Ties::Recorded, &empty_node) else {
        return CallOutcome::NotYet(UNEVEN);
    };
    let pods = tree.site.settle(&slot_task());
    let levels = tree.ordered(&pods, tree.levels.len());
    let found: Vec<_> = levels.into_iter().rev().flatten().collect();
    let expected: Vec<_> = list(&case.result()[0]).map(|domain| text(&domain["id"])).collect();
    same(&json!(expected), &json!(found))
}

fn scores(case: &Case<'_>) -> CallOutcome {
    let Some(mut tree) = Tree::new(&case.input["domain"], Ties::Recorded, &empty_node) else {
        return CallOutcome::NotYet(UNEVEN);
    };
    let pods = tree.site.settle(&slot_task());
    let constraint = tree.site.constraint(&json!({ "preferred_level": case.input["preferred_level"] }));
    let cluster = &tree.site.world.cluster;
    let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: &pods, held: &[] };
    let found = candidates(cluster, &request).ok().and_then(|found| found.scores);
    let score = |node: &NodeIdx| {
        let score = found.as_ref()?.score(*node)?;
        Some((tree.site.name(*node).to_owned(), json!(score)))
    };
    let scores: Map<_, _> = cluster.nodes_by_rank.iter().filter_map(score).collect();
    same(&case.result()[0], &Value::Object(scores))
}

/// The children of a domain in a recorded map of levels; an id ends with the id of the domain around it.
fn children<'a>(domains: &'a Value, levels: &[&str], depth: usize, id: &str) -> Vec<&'a Value> {
    let below = levels.get(depth).map_or(&Value::Null, |level| &domains[*level]);
    let inside = |domain: &&Value| id.is_empty() || text(&domain["id"]).ends_with(&format!(".{id}"));
    map(below).map(|(_, domain)| domain).filter(inside).collect()
}

/// A domain with the domains inside it, from a recorded map of levels.
fn nested(domains: &Value, levels: &[&str], depth: usize, domain: &Value) -> Value {
    let mut tree = domain.clone();
    let inside = children(domains, levels, depth + 1, text(&domain["id"]));
    tree["children"] = inside.iter().map(|child| nested(domains, levels, depth + 1, child)).collect();
    tree
}

/// Whether every count is the sum of those inside.
fn adds_up(domain: &Value) -> bool {
    let counts: Vec<i64> = list(&domain["children"]).map(|child| whole(&child["allocatable_pods"])).collect();
    let is_sum = counts.is_empty()
        || counts.contains(&-1)
        || counts.iter().sum::<i64>() == whole(&domain["allocatable_pods"]);
    is_sum && list(&domain["children"]).all(adds_up)
}

fn fitting_domains(case: &Case<'_>) -> CallOutcome {
    let recorded = &case.input["topology_tree"];
    let domains = &recorded["domains_by_level"];
    let levels: Vec<&str> = list(&recorded["levels"]).map(text).collect();
    let present = levels.iter().position(|level| domains[*level].is_object()).unwrap_or(levels.len());
    let outermost = children(domains, &levels, present, "");
    let mut root = json!({ "id": ROOT, "level": ROOT });
    root["children"] = outermost.iter().map(|domain| nested(domains, &levels, present, domain)).collect();
    if !list(&root["children"]).all(adds_up) {
        return CallOutcome::NotYet(NO_SUM);
    }
    let tasks: Vec<&Value> = map(&case.input["pod_sets"]).flat_map(|(_, set)| list(&set["tasks"])).collect();
    let one = tasks.first().map_or(&Value::Null, |task| &task["request"]);
    let node = |domain: &Value| {
        let mut free = domain["free"].clone();
        for (name, amount) in map(one).filter(|_| domain["free"].is_null()) {
            free[name] =
                json!(amount.as_f64().unwrap_or(0.0) * domain["allocatable_pods"].as_f64().unwrap_or(0.0));
        }
        json!({ "allocatable": free, "idle": free })
    };
    // Recorded nodes of a domain have nothing of their own here; the domain's count says what they hold.
    let mut infos = Map::new();
    for domain in levels.iter().flat_map(|level| map(&domains[*level])).map(|(_, domain)| domain) {
        infos.extend(list(&domain["nodes"]).map(|name| (text(name).to_owned(), node(domain))));
    }
    root["node_infos"] = Value::Object(infos);
    let Some(mut tree) = Tree::new(&root, Ties::ById, &node) else { return CallOutcome::NotYet(UNEVEN) };
    let held: Vec<&str> = tasks.iter().filter_map(|task| task["node"].as_str()).collect();
    let wanted = whole(&case.input["tasks_count"]) as usize;
    let pending: Vec<_> = tasks.iter().filter(|task| task["node"].is_null()).take(wanted).collect();
    let pods = tree.site.settle(&json!(pending));
    let held: Vec<_> = held.into_iter().map(|node| tree.site.world.node(node)).collect();
    let constraint = tree.site.constraint(&case.input["sub_group"]["topology_constraint"]);
    let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: &pods, held: &held };
    let found = candidates(&tree.site.world.cluster, &request);
    let mut expected: Vec<_> = list(&case.result()[0]).map(|domain| text(&domain["id"])).collect();
    expected.sort_unstable();
    match found {
        Err(TopologyReason::BadLevel) => with_error(case, None),
        Err(_) => same(&json!(expected), &json!([])),
        Ok(found) => {
            let mut ids = domain_ids(&tree, &found);
            ids.sort_unstable();
            same(&json!(expected), &json!(ids))
        }
    }
}

/// Ids of the domains that candidate sets come from: of domains with the same nodes, the inner one comes first.
fn domain_ids(tree: &Tree, found: &Candidates) -> Vec<String> {
    let cluster = &tree.site.world.cluster;
    let mut taken: Vec<DomainIdx> = Vec::new();
    for set in &found.sets {
        let is_it = |(domain, d): &(DomainIdx, &kai_engine::topology::Domain)| {
            *d.nodes == *set.nodes(cluster) && !taken.contains(domain)
        };
        let same_nodes: Vec<_> = tree.site.topology().domains().filter(is_it).collect();
        taken.extend(same_nodes.last().map(|(domain, _)| *domain));
    }
    taken.into_iter().map(|domain| tree.id(domain)).collect()
}

fn node_sets(case: &Case<'_>) -> CallOutcome {
    let recorded = &case.input["sub_group"]["topology_constraint"];
    if recorded.is_null() {
        return CallOutcome::NotYet(NO_CONSTRAINT);
    }
    let topology = &case.input["self"]["topologies"][text(&recorded["topology"])];
    let mut site = Site::new(list(&topology["levels"]).map(text));
    if topology.is_null() {
        site.world.cluster.apply(Delta::TopologyGone(NAME.to_owned()));
    }
    for node in list(&case.input["node_set"]) {
        site.world.add_node(node);
    }
    let pods = site.settle(&case.input["tasks"]);
    let constraint = site.constraint(recorded);
    let cluster = &site.world.cluster;
    let held: Vec<_> = map(&case.input["pod_sets"])
        .flat_map(|(_, set)| list(&set["tasks"]))
        .filter_map(|task| cluster.node(task["node"].as_str()?))
        .collect();
    let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: &pods, held: &held };
    match candidates(cluster, &request) {
        Err(TopologyReason::BadLevel) => with_error(case, None),
        Err(_) => with_error(case, Some(json!([]))),
        Ok(found) => {
            let names =
                |set: &NodeSet| set.nodes(cluster).iter().map(|node| site.name(*node)).collect::<Vec<_>>();
            with_error(case, Some(found.sets.iter().map(names).collect::<Vec<_>>().into()))
        }
    }
}
