//! Compares candidates on random clusters with an independent reference implementation.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;

const LEVELS: [&str; 3] = ["zone", "rack", "host"];

/// A node: the value of each level label (0: no label), GPUs, and GPUs and cores in use.
#[derive(Clone, Debug)]
struct NodeCase {
    labels: [u8; 3],
    gpus: i64,
    used_gpus: i64,
    used_cores: i64,
    usable: bool,
}

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<NodeCase>,
    /// Whole GPUs and cores of each pod.
    pods: Vec<(u32, i64)>,
    required: usize,
    preferred: usize,
    held: Option<usize>,
    /// Every node is usable.
    all_nodes: bool,
}

fn node_case() -> impl Strategy<Value = NodeCase> {
    let labels = [0..4_u8, 0..4_u8, 0..12_u8].prop_map(|labels| labels.map(|label| label.saturating_sub(1)));
    // Label 0 should be rare: most nodes take part.
    let labels =
        (labels, 0..8_u8).prop_map(|(labels, bare)| if bare == 0 { labels } else { labels.map(|l| l + 1) });
    (labels, 0..=8_i64, 0..=8_i64, 1..=64_i64, 0..4_u8).prop_map(
        |(labels, gpus, used, used_cores, usable)| NodeCase {
            labels,
            gpus,
            used_gpus: used.min(gpus),
            used_cores,
            usable: usable > 0,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let pods = prop_oneof![
        (1..=3_u32, 1..=8_i64, 1..=10_usize).prop_map(|(gpus, cores, count)| vec![(gpus, cores); count]),
        prop::collection::vec((0..=3_u32, 1..=32_i64), 1..8),
    ];
    let nodes = prop::collection::vec(node_case(), 1..14);
    (nodes, pods, 0..=3_usize, 0..=3_usize, prop::option::weighted(0.3, 0..14_usize), any::<bool>()).prop_map(
        |(nodes, pods, required, preferred, held, all_nodes)| {
            let preferred = if preferred > 0 { preferred.max(required) } else { 0 };
            let required = if required + preferred == 0 { 1 } else { required };
            let held = held.map(|held| held % nodes.len());
            let all_nodes = all_nodes || nodes.iter().all(|node| !node.usable);
            Case { nodes, pods, required, preferred, held, all_nodes }
        },
    )
}

/// The reference implementation; nodes are positions in the case.
struct Oracle<'a> {
    case: &'a Case,
}

impl Oracle<'_> {
    /// The label values of a node that takes part.
    fn path(&self, node: usize) -> Option<[u8; 3]> {
        let labels = self.case.nodes[node].labels;
        (!labels.contains(&0)).then_some(labels)
    }
    fn inside(&self, domain: &[u8]) -> Vec<usize> {
        let is_inside = |node: &usize| self.path(*node).is_some_and(|path| path.starts_with(domain));
        (0..self.case.nodes.len()).filter(is_inside).collect()
    }
    fn usable(&self, domain: &[u8]) -> Vec<usize> {
        let usable = |node: &usize| self.case.all_nodes || self.case.nodes[*node].usable;
        self.inside(domain).into_iter().filter(usable).collect()
    }
    /// All domains of a depth inside one.
    fn domains(&self, around: &[u8], depth: usize) -> Vec<Vec<u8>> {
        let paths = self.inside(around).into_iter().filter_map(|node| self.path(node));
        let mut domains: Vec<_> = paths.map(|path| path[..depth].to_vec()).collect();
        domains.sort();
        domains.dedup();
        domains
    }
    fn deepest(&self) -> usize {
        if self.case.preferred > 0 { self.case.preferred } else { self.case.required }
    }
    fn start(&self) -> Option<Vec<u8>> {
        let all = self.usable(&[]);
        let first = self.path(*all.first()?)?;
        let depth = (0..=self.deepest()).rev().find(|depth| self.usable(&first[..*depth]) == all);
        Some(first[..depth?].to_vec())
    }
    fn free(&self, node: usize) -> (i64, i64) {
        let node = &self.case.nodes[node];
        (node.gpus - node.used_gpus, 64 - node.used_cores)
    }
    /// Requested over free, as a fraction.
    fn ratio(&self, domain: &[u8]) -> (i64, i64) {
        let sum = |(a, b): (i64, i64), (c, d): (i64, i64)| (a + c, b + d);
        let free = self.inside(domain).into_iter().map(|node| self.free(node)).fold((0, 0), sum);
        let requested = self.case.pods.iter().map(|pod| (i64::from(pod.0), pod.1)).fold((0, 0), sum);
        let each = [(requested.0, free.0), (requested.1, free.1)]
            .into_iter()
            .filter(|(requested, _)| *requested > 0);
        let each = each.map(|(requested, free)| if free > 0 { (requested, free) } else { (1000, 1) });
        each.max_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1))).expect("cores are always requested")
    }
    fn fits(&self, domain: &[u8]) -> bool {
        let with_gpus = self.case.pods.iter().filter(|pod| pod.0 > 0).count();
        if with_gpus > 0 && with_gpus < self.case.pods.len() {
            let (requested, free) = self.ratio(domain);
            return requested <= free;
        }
        let largest_gpus = self.case.pods.iter().map(|pod| i64::from(pod.0)).max().unwrap_or(0);
        let largest_cores = self.case.pods.iter().map(|pod| pod.1).max().unwrap_or(0);
        let on = |node: usize| {
            let (gpus, cores) = self.free(node);
            (0..=64).take_while(|n| n * largest_gpus <= gpus && n * largest_cores <= cores).count() - 1
        };
        self.inside(domain).into_iter().map(on).sum::<usize>() >= self.case.pods.len()
    }
    /// Tighter domains first at each step from the start domain, then smaller values.
    fn rank(&self, start: &[u8], domain: &[u8]) -> Vec<(Reverse<u64>, u8)> {
        let step = |depth: usize| {
            let (requested, free) = self.ratio(&domain[..depth]);
            // Fine enough to tell any two of the small fractions here apart.
            (Reverse((requested * 720_720_000 / free) as u64), domain[depth - 1])
        };
        (start.len() + 1..=domain.len()).map(step).collect()
    }
    fn ordered(&self, start: &[u8], depth: usize) -> Vec<Vec<u8>> {
        let mut domains = self.domains(start, depth);
        domains.sort_by_key(|domain| self.rank(start, domain));
        domains
    }
    fn allowed(&self, domain: &[u8]) -> bool {
        let held = self.case.held.filter(|_| self.case.required > 0);
        held.is_none_or(|held| self.path(held).is_some_and(|p| p.starts_with(&domain[..self.case.required])))
    }
    fn sets(&self) -> Vec<Vec<usize>> {
        let Some(start) = self.start().filter(|start| self.fits(start)) else { return Vec::new() };
        let depths = self.case.required.max(start.len())..=self.deepest();
        let domains = depths.rev().flat_map(|depth| self.ordered(&start, depth));
        let domains = domains.filter(|domain| self.fits(domain) && self.allowed(domain));
        domains.map(|domain| self.usable(&domain)).filter(|set| !set.is_empty()).collect()
    }
    fn score(&self, node: usize) -> Option<f64> {
        let order = self.ordered(&self.start()?, self.case.preferred);
        let path = self.path(node)?;
        let position = order.iter().position(|domain| path.starts_with(domain))?;
        Some((10.0 * (position + 1) as f64 / order.len() as f64).floor() * 100_000.0)
    }
}

/// Builds the cluster of a case and computes candidates; nodes are added in turn from position `first`.
///
/// Node `i` is named so that names sort by position.
fn candidates_of(case: &Case, first: usize) -> Result<Sets, TopologyReason> {
    let mut fixture = TestCluster::new(&LEVELS);
    let name = |node: usize| format!("n{node:02}");
    for i in (first..case.nodes.len()).chain(0..first) {
        let node = &case.nodes[i];
        let labels = LEVELS.iter().zip(node.labels).filter(|(_, value)| *value > 0);
        // One letter per value: text order is the order of the values.
        let labels: Vec<_> =
            labels.map(|(level, value)| format!("{level}={}", (b'a' + value) as char)).collect();
        fixture.node(&name(i), &labels.join(" "), node.gpus);
        fixture.running(&name(i), gpus(node.used_gpus as u32));
        fixture.running(&name(i), cores(node.used_cores - 1));
    }
    let spec = |(count, cores): &(u32, i64)| {
        let request = vec![("cpu".into(), cores * 1000), ("gpu".into(), i64::from(*count) * WHOLE_GPU)];
        SpecInput { request, ..gpus(*count) }
    };
    let pods: Vec<_> = case.pods.iter().flat_map(|pod| fixture.pending(1, &spec(pod))).collect();
    let usable = (0..case.nodes.len()).filter(|node| !case.all_nodes && case.nodes[*node].usable);
    let level = |depth: usize| if depth > 0 { LEVELS[depth - 1] } else { "" };
    fixture.candidates(&Query {
        required: level(case.required),
        preferred: level(case.preferred),
        pods: &pods,
        nodes: &usable.map(name).collect::<Vec<_>>().join(" "),
        held: &case.held.map(name).unwrap_or_default(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn candidates_equal_those_of_the_reference_implementation(case in case()) {
        let oracle = Oracle { case: &case };
        let names = |set: &Vec<usize>| set.iter().map(|node| format!("n{node:02}")).collect::<Vec<_>>().join(" ");
        let expected: Vec<_> = oracle.sets().iter().map(names).collect();
        match candidates_of(&case, 0) {
            Ok(candidates_of) => {
                prop_assert_eq!(candidates_of.sets, expected);
                let scored = 0..if case.preferred > 0 { case.nodes.len() } else { 0 };
                prop_assert_eq!(candidates_of.scores, scored.map(|node| oracle.score(node)).collect::<Vec<_>>());
            }
            Err(TopologyReason::TooSmall { .. }) => prop_assert_eq!(Vec::<String>::new(), expected),
            Err(reason) => prop_assert!(false, "refused for {:?}", reason),
        }
    }

    #[test]
    fn node_arrival_order_does_not_change_the_result(case in case(), first in 0..14_usize) {
        prop_assert_eq!(candidates_of(&case, 0), candidates_of(&case, first % case.nodes.len()));
    }
}
