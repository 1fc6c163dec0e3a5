//! Assigns zones to a pod as the kubelet's topology manager does.
//!
//! Each request is served from a set of zones that the policy allows; its amounts are charged, zone by zone in order,
//! before the next concurrent request is considered.

use super::{Ignored, NumaNode, NumaRequests, Placement};
use crate::input::{NumaPolicy, NumaScope};
use crate::resource::{Amounts, Dim, GPU, WHOLE_GPU};
use smallvec::SmallVec;

/// Steps after which a search for a set of zones ends; nodes with up to 16 zones never reach it.
const SEARCH_STEPS_MAX: u32 = 100_000;

/// Positions of zones, ascending.
type Mask = SmallVec<[usize; 8]>;

/// The placement of a pod; `None` when its resources cannot be aligned under the node's policy. An empty placement
/// means that no zone reports a requested resource.
pub fn evaluate(node: &NumaNode, requests: &NumaRequests, ignored: &Ignored) -> Option<Placement> {
    let aware = node.aware(requests, ignored);
    let mut placement = Placement::default();
    match node.scope {
        NumaScope::Pod => {
            let whole = std::slice::from_ref(&requests.pod_scope);
            solve(node, &aware, whole, &mut placement).then_some(placement)
        }
        NumaScope::Container => {
            // An init container releases its amounts before the next container starts.
            let alone = |request: &Amounts| {
                solve(node, &aware, std::slice::from_ref(request), &mut Placement::default())
            };
            let fits = requests.serial.iter().all(alone)
                && solve(node, &aware, &requests.concurrent, &mut placement);
            fits.then_some(placement)
        }
    }
}

/// Places concurrent requests in order, each on what the previous ones left. Returns whether all fit; `placement`
/// receives the amounts up to the first failure.
pub fn solve(node: &NumaNode, aware: &[Dim], concurrent: &[Amounts], placement: &mut Placement) -> bool {
    let mut view = View::new(node, aware);
    concurrent.iter().all(|request| {
        let Some(mask) = view.mask(request) else { return false };
        view.draw(request, &mask, placement);
        true
    })
}

/// Free amounts of each zone, in the aligned dimensions.
struct View<'a> {
    node: &'a NumaNode,
    aware: &'a [Dim],
    free: SmallVec<[i64; 24]>,
}

impl<'a> View<'a> {
    fn new(node: &'a NumaNode, aware: &'a [Dim]) -> Self {
        let free = node.zones.iter().flat_map(|zone| aware.iter().map(|dim| zone.available.get(*dim).max(0)));
        Self { node, aware, free: free.collect() }
    }

    fn free(&self, zone: usize, at: usize) -> i64 {
        self.free[zone * self.aware.len() + at]
    }

    fn zones(&self) -> usize {
        self.node.zones.len()
    }

    /// Positions in `aware` of which a request has an amount.
    fn requested(&self, request: &Amounts) -> SmallVec<[(usize, i64); 6]> {
        let amounts = self.aware.iter().map(|dim| request.get(*dim)).enumerate();
        amounts.filter(|(_, amount)| *amount > 0).collect()
    }

    /// The zones that the policy assigns to a request; empty when zones report none of its resources.
    fn mask(&self, request: &Amounts) -> Option<Mask> {
        let requested = self.requested(request);
        if requested.is_empty() {
            return Some(Mask::new());
        }
        match self.node.policy {
            NumaPolicy::SingleNumaNode => {
                let holds =
                    |zone: &usize| requested.iter().all(|(at, amount)| self.free(*zone, *at) >= *amount);
                (0..self.zones()).find(holds).map(|zone| std::iter::once(zone).collect())
            }
            NumaPolicy::Restricted => {
                let width = self.common_width(&requested)?;
                Combination::new(self, &requested, width).find()
            }
            NumaPolicy::None | NumaPolicy::BestEffort => self.greedy(&requested),
        }
    }

    /// The fewest zones that could hold each resource if they were empty; `None` when resources disagree.
    fn common_width(&self, requested: &[(usize, i64)]) -> Option<usize> {
        let mut common = None;
        for (at, amount) in requested {
            let width = self.width(self.aware[*at], *amount)?;
            if *common.get_or_insert(width) != width {
                return None;
            }
        }
        common
    }

    fn width(&self, dim: Dim, amount: i64) -> Option<usize> {
        let mut sizes: SmallVec<[i64; 8]> =
            self.node.zones.iter().map(|z| z.allocatable.get(dim).max(0)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        sizes
            .iter()
            .position(|size| {
                sum += size;
                sum >= amount
            })
            .map(|last| last + 1)
    }

    /// Adds the zone that covers most of the remaining request, lowest first among equals, until it is covered.
    fn greedy(&self, requested: &[(usize, i64)]) -> Option<Mask> {
        let mut unmet: SmallVec<[(usize, i64); 6]> = requested.into();
        let mut mask = Mask::new();
        while unmet.iter().any(|(_, amount)| *amount > 0) {
            let mut best: Option<(i128, usize)> = None;
            for zone in (0..self.zones()).filter(|zone| !mask.contains(zone)) {
                let covered =
                    unmet.iter().map(|(at, amount)| self.weigh(*at, self.free(zone, *at).min(*amount)));
                let covered: i128 = covered.sum();
                if covered > 0 && best.is_none_or(|(most, _)| covered > most) {
                    best = Some((covered, zone));
                }
            }
            let (_, zone) = best?;
            for (at, amount) in &mut unmet {
                *amount -= self.free(zone, *at).min(*amount);
            }
            mask.push(zone);
        }
        mask.sort_unstable();
        Some(mask)
    }

    /// An amount in units that are summed over resources: devices, millicores and bytes count alike, as in KAI.
    fn weigh(&self, at: usize, amount: i64) -> i128 {
        let unit = if self.aware[at] == GPU { 1 } else { WHOLE_GPU };
        i128::from(amount) * i128::from(unit)
    }

    /// Charges a request to the zones of a mask, from the lowest on.
    fn draw(&mut self, request: &Amounts, mask: &[usize], placement: &mut Placement) {
        for (at, amount) in self.requested(request) {
            let mut left = amount;
            for &zone in mask {
                let slot = zone * self.aware.len() + at;
                let drawn = self.free[slot].min(left);
                self.free[slot] -= drawn;
                placement.add(zone, self.aware[at], drawn);
                left -= drawn;
            }
        }
    }
}

/// The search for the lowest combination of a number of zones that holds a request.
struct Combination<'a> {
    view: &'a View<'a>,
    requested: &'a [(usize, i64)],
    width: usize,
    mask: Mask,
    steps: u32,
}

impl<'a> Combination<'a> {
    fn new(view: &'a View<'a>, requested: &'a [(usize, i64)], width: usize) -> Self {
        Self { view, requested, width, mask: Mask::new(), steps: 0 }
    }

    fn find(mut self) -> Option<Mask> {
        let missing: SmallVec<[i64; 6]> = self.requested.iter().map(|(_, amount)| *amount).collect();
        self.extend(0, &missing).then_some(self.mask)
    }

    /// Whether the zones chosen so far can be completed by zones from `from` on to hold what is missing.
    fn extend(&mut self, from: usize, missing: &[i64]) -> bool {
        let left = self.width - self.mask.len();
        if left == 0 {
            return missing.iter().all(|amount| *amount <= 0);
        }
        self.steps += 1;
        if self.steps > SEARCH_STEPS_MAX || !self.reachable(from, left, missing) {
            return false;
        }
        for zone in from..=self.view.zones().saturating_sub(left) {
            let rest = self.requested.iter().zip(missing).map(|((at, _), m)| m - self.view.free(zone, *at));
            let rest: SmallVec<[i64; 6]> = rest.collect();
            self.mask.push(zone);
            if self.extend(zone + 1, &rest) {
                return true;
            }
            self.mask.pop();
        }
        false
    }

    /// Whether the `left` zones with the most free amount from `from` on could hold what is missing, per resource.
    fn reachable(&self, from: usize, left: usize, missing: &[i64]) -> bool {
        self.requested.iter().zip(missing).all(|((at, _), missing)| {
            let mut sizes: SmallVec<[i64; 8]> =
                (from..self.view.zones()).map(|zone| self.view.free(zone, *at)).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.iter().take(left).sum::<i64>() >= *missing
        })
    }
}
