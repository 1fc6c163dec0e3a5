//! Builds clusters from recorded trees of topology domains.
//!
//! The engine derives a tree from node labels only. Each innermost domain therefore gets a node unless it names some,
//! and a branch that ends above the innermost level is extended by placeholder domains, which results omit.

use super::super::record::{list, text};
use super::super::recorded_cluster::RecordedCluster;
use kai_engine::Delta;
use kai_engine::cluster::group::Constraint;
use kai_engine::ids::{DomainIdx, NodeIdx, PodIdx};
use kai_engine::input::TopologyInput;
use kai_engine::topology::{Demand, FreeCapacity, Topology};
use serde_json::{Map, Value, json};

/// The name of every topology here.
pub(super) const NAME: &str = "recorded-topology";
/// The id of a domain that is in no record.
pub(super) const STAND_IN: &str = "(stand-in)";

/// A cluster with one topology.
pub(super) struct Site {
    pub(super) recorded: RecordedCluster,
}

impl Site {
    pub(super) fn new<'a>(levels: impl Iterator<Item = &'a str>) -> Self {
        let mut recorded = RecordedCluster::new(&[]);
        let levels = levels.map(str::to_owned).collect();
        recorded.cluster.apply(Delta::Topology(TopologyInput { name: NAME.to_owned(), levels }));
        Self { recorded }
    }

    pub(super) fn topology(&self) -> &Topology {
        let name = self.recorded.cluster.names.find(NAME).expect("the topology was added first");
        self.recorded.cluster.topologies.get(name).expect("the topology was added first")
    }

    /// Adds recorded tasks as pods, and makes the cluster ready.
    pub(super) fn settle(&mut self, tasks: &Value) -> Vec<PodIdx> {
        let keys: Vec<_> =
            list(tasks).map(|task| self.recorded.add_task(task, text(&task["status"]), None, "")).collect();
        self.recorded.settle();
        keys.iter().map(|key| self.recorded.pod(key)).collect()
    }

    pub(super) fn constraint(&mut self, recorded: &Value) -> Constraint {
        let mut level = |key: &str| {
            let name = text(&recorded[key]);
            (!name.is_empty()).then(|| self.recorded.cluster.names.intern(name))
        };
        let (required, preferred) = (level("required_level"), level("preferred_level"));
        Constraint { topology: self.recorded.cluster.names.intern(NAME), required, preferred }
    }

    pub(super) fn name(&self, node: NodeIdx) -> &str {
        self.recorded.cluster.text(self.recorded.cluster.nodes[node].name)
    }
}

/// A tree made from a recorded one: each domain by the recorded id of its innermost label.
pub(super) struct Tree {
    pub(super) site: Site,
    /// Names of the levels, outermost first.
    pub(super) levels: Vec<String>,
    /// How many nodes were made for domains that name none.
    made: usize,
}

/// Which of two equally tight siblings comes first: label values begin with a number that says so.
#[derive(Clone, Copy)]
pub(super) enum Ties {
    /// The one recorded first.
    Recorded,
    /// The one with the smaller id.
    ById,
}

/// How a recorded tree is read.
struct Reading<'a> {
    node_infos: &'a Value,
    ties: Ties,
    node: &'a dyn Fn(&Value) -> Value,
}

impl Tree {
    /// A tree with one level, or none, and without nodes.
    pub(super) fn empty(level: Option<&str>) -> Self {
        let levels: Vec<String> = level.map(str::to_owned).into_iter().collect();
        Self { site: Site::new(levels.iter().map(String::as_str)), levels, made: 0 }
    }

    /// Reads a domain with its children; `node` describes the node of an innermost domain that names none.
    pub(super) fn new(root: &Value, ties: Ties, node: &dyn Fn(&Value) -> Value) -> Self {
        let mut levels = Vec::new();
        let mut at = vec![root];
        while let Some(domain) = at.first() {
            levels.push(text(&domain["level"]).to_owned());
            at = at.into_iter().flat_map(|domain| list(&domain["children"])).collect();
        }
        let mut tree = Self { site: Site::new(levels.iter().map(String::as_str)), levels, made: 0 };
        let reading = Reading { node_infos: &root["node_infos"], ties, node };
        tree.add(&reading, root, 0, &Map::new());
        tree
    }

    fn add(&mut self, reading: &Reading<'_>, domain: &Value, position: usize, around: &Map<String, Value>) {
        let position = match reading.ties {
            Ties::Recorded => position,
            Ties::ById => 0,
        };
        let mut labels = around.clone();
        labels.insert(
            text(&domain["level"]).to_owned(),
            json!(format!("{position:03} {}", text(&domain["id"]))),
        );
        for (position, child) in list(&domain["children"]).enumerate() {
            self.add(reading, child, position, &labels);
        }
        if list(&domain["children"]).next().is_some() {
            return;
        }
        for level in &self.levels {
            labels.entry(level).or_insert_with(|| json!(format!("{:03} {STAND_IN}", 0)));
        }
        let named: Vec<&str> = list(&domain["nodes"]).map(text).collect();
        for name in &named {
            self.add_node(&reading.node_infos[name], name, &labels);
        }
        if named.is_empty() {
            // Ids of domains may be the same in different branches.
            self.made += 1;
            self.add_node(
                &(reading.node)(domain),
                &format!("{} {}", text(&domain["id"]), self.made),
                &labels,
            );
        }
    }

    fn add_node(&mut self, recorded: &Value, name: &str, labels: &Map<String, Value>) {
        let mut node = if recorded.is_object() { recorded.clone() } else { json!({}) };
        let mut all = node["labels"].as_object().cloned().unwrap_or_default();
        all.extend(labels.clone());
        node["labels"] = Value::Object(all);
        node["name"] = json!(name);
        self.site.recorded.add_node(&node);
    }

    /// The recorded id of a domain; none for a stand-in.
    pub(super) fn id(&self, domain: DomainIdx) -> Option<String> {
        let id = &self.site.topology().domain(domain).id;
        let id = id.rsplit_once(' ').map_or(&**id, |(_, id)| id);
        (id != STAND_IN).then(|| id.to_owned())
    }

    /// The depth of a recorded level.
    pub(super) fn depth(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|name| name == level).map(|position| position + 1)
    }

    /// Ids of the domains of each level down to a depth, the tree's root first.
    pub(super) fn ordered(&self, pods: &[PodIdx], depth: usize) -> Vec<Vec<String>> {
        let cluster = &self.site.recorded.cluster;
        let demand = Demand::of(cluster, pods);
        let capacity =
            FreeCapacity::measure(&cluster.nodes, self.site.topology(), &demand, Topology::root(), depth);
        self.ids(capacity.order().into_iter().skip(1))
    }

    /// Ids of the domains of each level, as they are when nothing was compared.
    pub(super) fn unordered(&self) -> Vec<Vec<String>> {
        let topology = self.site.topology();
        let at = |depth| topology.domains().filter(move |(_, d)| d.depth == depth).map(|(domain, _)| domain);
        self.ids((1..=self.levels.len()).map(|depth| at(depth).collect()))
    }

    fn ids(&self, levels: impl Iterator<Item = Vec<DomainIdx>>) -> Vec<Vec<String>> {
        let levels = levels.map(|level| level.into_iter().filter_map(|domain| self.id(domain)).collect());
        levels.filter(|level: &Vec<String>| !level.is_empty()).collect()
    }
}
