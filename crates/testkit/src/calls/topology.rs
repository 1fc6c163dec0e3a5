//! Replays topologies: trees of domains, their allocatable pods, and candidate node sets.

mod tree;

use super::compare::same;
use super::record::{Case, list, map, text, whole};
use super::recorded_cluster::{NOW, RecordedCluster};
use super::{Adapter, Area, CallOutcome};
use kai_engine::ids::{DomainIdx, NodeIdx};
use kai_engine::input::{QueueInput, TopologyInput};
use kai_engine::node_set::NodeSet;
use kai_engine::outcome::Decision;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params, PluginConfig, Policy};
use kai_engine::topology::{Candidates, Demand, FreeCapacity, Levels, Request, Topology, candidates};
use kai_engine::verdict::TopologyReason;
use kai_engine::{Cycle, Delta, plan};
use serde_json::{Map, Value, json};
use tree::{NAME, STAND_IN, Site, Ties, Tree};

pub(super) const AREA: Area = Area { name: "unit-topology", adapter };

/// The recorded name of the domain, and of the level, around all others.
const ROOT: &str = "root";
/// The queue of a job whose pods are placed.
const QUEUE: &str = "queue";

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

/// A task that requests only a pod slot, so that no domain is tighter than another.
fn slot_task() -> Value {
    json!([{ "uid": "slot", "status": "Pending", "request": {} }])
}

fn empty_node(_: &Value) -> Value {
    json!({})
}

fn takes_part(case: &Case<'_>) -> CallOutcome {
    let mut site = Site::new(list(&case.input["levels"]).map(|level| text(&level["nodeLabel"])));
    site.recorded.add_node(&case.input["node_info"]);
    site.settle(&Value::Null);
    let node = site.recorded.node(text(&case.input["node_info"]["name"]));
    same(case.result(), &json!([site.topology().innermost(node).is_some()]))
}

fn start_domain(case: &Case<'_>) -> CallOutcome {
    let levels: Vec<&str> = list(&case.input["levels"]).map(|level| text(&level["nodeLabel"])).collect();
    let mut site = Site::new(levels.iter().copied());
    for node in list(&case.input["node_set"]) {
        site.recorded.add_node(node);
    }
    site.settle(&Value::Null);
    let preferred = text(&case.input["topology_constraint"]["preferred_level"]);
    let depth =
        levels.iter().position(|level| *level == preferred).map_or(levels.len(), |position| position + 1);
    let nodes = &site.recorded.cluster.nodes_by_rank;
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
    let mut tree = Tree::new(before, Ties::Recorded, &empty_node);
    let pods = tree.site.settle(&case.input["tasks"]);
    let cluster = &tree.site.recorded.cluster;
    let demand = Demand::of(cluster, &pods);
    let topology = tree.site.topology();
    let capacity =
        FreeCapacity::measure(&cluster.nodes, topology, &demand, Topology::root(), tree.levels.len());
    let count = |(domain, _)| Some((tree.id(domain)?, json!(capacity.pods(domain))));
    let counts: Map<_, _> = topology.domains().skip(1).filter_map(count).collect();
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
    let mut at: Vec<_> = (!root.is_null()).then_some(root).into_iter().collect();
    let mut levels = Vec::new();
    while !at.is_empty() && levels.len() < depth {
        levels.push(at.iter().map(|domain| text(&domain["id"]).to_owned()).collect());
        at = at.into_iter().flat_map(|domain| list(&domain["children"])).collect();
    }
    levels
}

fn order(case: &Case<'_>) -> CallOutcome {
    let (before, after) = (&case.input["root"], &case.output["after"]["root"]);
    let deepest = case.input["max_depth_level"].as_str();
    let ties = if deepest.is_some() { Ties::ById } else { Ties::Recorded };
    let free = |domain: &Value| json!({ "allocatable": domain["free"], "idle": domain["free"] });
    let mut tree = if before.is_null() { Tree::empty(deepest) } else { Tree::new(before, ties, &free) };
    let pods = tree.site.settle(&json!([{
        "uid": "all", "status": "Pending", "request": case.input["tasks_resources"],
    }]));
    let constraint = tree.site.constraint(&json!({ "preferred_level": deepest }));
    let levels = Levels::of(tree.site.topology(), &constraint);
    let found = levels.map_or_else(|| tree.unordered(), |levels| tree.ordered(&pods, levels.deepest()));
    let depth = levels.map_or(tree.levels.len(), Levels::deepest);
    let expected = recorded_levels(if after.is_null() { before } else { after }, depth);
    same(&json!(expected), &json!(found))
}

fn level_domains(case: &Case<'_>) -> CallOutcome {
    let mut tree = Tree::new(&case.input["root"], Ties::Recorded, &empty_node);
    let pods = tree.site.settle(&slot_task());
    let depth = tree.depth(text(&case.input["level"]));
    let found = depth.and_then(|depth| tree.ordered(&pods, depth).pop()).unwrap_or_default();
    let expected: Vec<_> = list(&case.result()[0]).map(|domain| text(&domain["id"])).collect();
    same(&json!(expected), &json!(found))
}

fn inner_levels_first(case: &Case<'_>) -> CallOutcome {
    let root = &case.input["root"];
    let mut tree =
        if root.is_null() { Tree::empty(None) } else { Tree::new(root, Ties::Recorded, &empty_node) };
    let pods = tree.site.settle(&slot_task());
    let levels = tree.ordered(&pods, tree.levels.len());
    let found: Vec<_> = levels.into_iter().rev().flatten().collect();
    let expected: Vec<_> = list(&case.result()[0]).map(|domain| text(&domain["id"])).collect();
    same(&json!(expected), &json!(found))
}

fn scores(case: &Case<'_>) -> CallOutcome {
    let mut tree = Tree::new(&case.input["domain"], Ties::Recorded, &empty_node);
    let pods = tree.site.settle(&slot_task());
    let constraint = tree.site.constraint(&json!({ "preferred_level": case.input["preferred_level"] }));
    let cluster = &tree.site.recorded.cluster;
    let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: &pods, held: &[] };
    let found = candidates(cluster, &request).ok().and_then(|found| found.scores);
    let score = |node: &NodeIdx| {
        let score = found.as_ref()?.score(*node)?;
        Some((tree.site.name(*node).to_owned(), json!(score)))
    };
    let scores: Map<_, _> = cluster.nodes_by_rank.iter().filter_map(score).collect();
    same(&case.result()[0], &Value::Object(scores))
}

/// A recorded map from level to domains: ids of domains may be missing or the same, keys are not.
struct Domains<'a> {
    by_level: &'a Value,
    levels: &'a [&'a str],
    /// Levels and keys of the domains that have been put inside one.
    taken: Vec<(&'a str, &'a str)>,
}

impl<'a> Domains<'a> {
    /// The domains at a depth that are inside one: those it lists, or else those whose id ends with its own.
    fn inside(&mut self, depth: usize, domain: &Value) -> Vec<&'a Value> {
        let Some(level) = self.levels.get(depth).copied() else { return Vec::new() };
        let around = format!(".{}", text(&domain["id"]));
        let listed: Vec<&str> = list(&domain["children"]).map(text).collect();
        let mut wanted: Vec<_> = listed.iter().map(|id| Some(*id)).collect();
        if listed.is_empty() {
            wanted.resize(map(&self.by_level[level]).count(), None);
        }
        let mut found = Vec::new();
        for wanted in wanted {
            let is_it = |(key, domain): &(&String, &Value)| {
                let id = text(&domain["id"]);
                !self.taken.contains(&(level, key.as_str()))
                    && wanted.map_or(around == "." || id.ends_with(&around), |wanted| wanted == id)
            };
            if let Some((key, domain)) = map(&self.by_level[level]).find(is_it) {
                self.taken.push((level, key));
                found.push(domain);
            }
        }
        found
    }

    /// A domain with everything inside it, which is at a depth. A stand-in takes the pods that fit into the domain and
    /// into nothing inside it; where more fits inside than into the domain, what fits inside counts.
    fn nested(&mut self, depth: usize, domain: &Value) -> Value {
        let mut tree = domain.clone();
        let mut inside: Vec<Value> = Vec::new();
        for child in self.inside(depth, domain) {
            inside.push(self.nested(depth + 1, child));
        }
        let counts: Vec<i64> = inside.iter().map(|child| whole(&child["allocatable_pods"])).collect();
        let rest = whole(&domain["allocatable_pods"]) - counts.iter().sum::<i64>();
        if rest > 0 && counts.iter().all(|count| *count >= 0) && !counts.is_empty() {
            let level = self.levels[depth];
            inside.push(json!({ "id": STAND_IN, "level": level, "allocatable_pods": rest }));
        }
        tree["children"] = inside.into();
        tree
    }
}

fn fitting_domains(case: &Case<'_>) -> CallOutcome {
    let recorded = &case.input["topology_tree"];
    let domains = &recorded["domains_by_level"];
    let levels: Vec<&str> = list(&recorded["levels"]).map(text).collect();
    let present = levels.iter().position(|level| domains[*level].is_object()).unwrap_or(levels.len());
    let mut reading = Domains { by_level: domains, levels: &levels, taken: Vec::new() };
    let mut root = reading.nested(present, &Value::Null);
    root["id"] = json!(ROOT);
    root["level"] = json!(ROOT);
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
    let mut tree = Tree::new(&root, Ties::ById, &node);
    let held: Vec<&str> = tasks.iter().filter_map(|task| task["node"].as_str()).collect();
    let wanted = whole(&case.input["tasks_count"]) as usize;
    let pending: Vec<_> = tasks.iter().filter(|task| task["node"].is_null()).take(wanted).collect();
    let pods = tree.site.settle(&json!(pending));
    let held: Vec<_> = held.into_iter().map(|node| tree.site.recorded.node(node)).collect();
    let constraint = tree.site.constraint(&case.input["sub_group"]["topology_constraint"]);
    let request = Request { constraint: &constraint, nodes: &NodeSet::All, pods: &pods, held: &held };
    let found = candidates(&tree.site.recorded.cluster, &request);
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
    let cluster = &tree.site.recorded.cluster;
    let mut taken: Vec<DomainIdx> = Vec::new();
    for set in &found.sets {
        let is_it = |(domain, d): &(DomainIdx, &kai_engine::topology::Domain)| {
            *d.nodes == *set.nodes(cluster) && !taken.contains(domain)
        };
        let same_nodes: Vec<_> = tree.site.topology().domains().filter(is_it).collect();
        taken.extend(same_nodes.last().map(|(domain, _)| *domain));
    }
    taken.into_iter().filter_map(|domain| tree.id(domain)).collect()
}

fn node_sets(case: &Case<'_>) -> CallOutcome {
    let recorded = &case.input["sub_group"]["topology_constraint"];
    if recorded.is_null() {
        return unconstrained(case);
    }
    let topology = &case.input["self"]["topologies"][text(&recorded["topology"])];
    let mut site = Site::new(list(&topology["levels"]).map(text));
    if topology.is_null() {
        site.recorded.cluster.apply(Delta::TopologyGone(NAME.to_owned()));
    }
    for node in list(&case.input["node_set"]) {
        site.recorded.add_node(node);
    }
    let pods = site.settle(&case.input["tasks"]);
    let constraint = site.constraint(recorded);
    let cluster = &site.recorded.cluster;
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

/// A member without a constraint has no candidate sets: its pods may use any node.
fn unconstrained(case: &Case<'_>) -> CallOutcome {
    let config = Config {
        actions: vec!["allocate".to_owned()],
        plugins: vec![PluginConfig { name: "topology".to_owned(), ..PluginConfig::default() }],
        ..Config::default()
    };
    let policy = Policy::resolve(&config, &Params::default(), &PluginSet::builtin());
    let mut job = case.input["job"].clone();
    job["queue"] = json!(QUEUE);
    let mut usable = Vec::new();
    for node in list(&case.input["node_set"]) {
        let mut recorded = RecordedCluster::new(&[]);
        for (name, topology) in map(&case.input["self"]["topologies"]) {
            let levels = list(&topology["levels"]).map(|level| text(level).to_owned()).collect();
            recorded.cluster.apply(Delta::Topology(TopologyInput { name: name.clone(), levels }));
        }
        let queue = QueueInput { name: QUEUE.to_owned(), ..QueueInput::default() };
        recorded.cluster.apply(Delta::Queue(Box::new(queue)));
        recorded.add_node(node);
        recorded.add_job(&job);
        let outcome = plan(&mut recorded.cluster, &policy, Cycle { now: NOW, seed: 0 });
        let binds = outcome.decisions.iter().filter(|decision| matches!(decision, Decision::Bind(_)));
        if binds.count() == list(&case.input["tasks"]).count() {
            usable.push(&node["name"]);
        }
    }
    with_error(case, Some(json!([usable])))
}
