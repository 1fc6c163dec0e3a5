//! In which batches the pods of a group are evicted, and until when it causes no evictions itself.
//!
//! Pods beyond the minimum are evicted one by one and members beyond the required number as a whole. The rest is
//! evicted at once, since a gang below its minimum cannot work.

#[cfg(test)]
mod tests;

use super::member::by_ratio;
use crate::cluster::Cluster;
use crate::cluster::group::{ElasticState, Group, MemberKind};
use crate::ids::{GroupIdx, IndexVec, MemberIdx, PodIdx};
use crate::input::{Backoff, BackoffScope};
use crate::plugin::{MemberOrder, Registry};
use crate::share::{QueueAmounts, sum};
use crate::verdict::Verdict;
use kai_units::{Span, Timestamp};
use std::cmp::Ordering;

/// The evictable pods of a group.
///
/// Batches are removed one after the other while the cluster stays unchanged; the caller evicts them.
#[derive(Clone, Debug)]
pub struct EvictablePods {
    group: GroupIdx,
    /// By pod set, in task order; empty for inner members.
    pods: IndexVec<MemberIdx, Vec<PodIdx>>,
}

#[derive(Clone, Copy)]
enum Pick {
    /// The last pod of a pod set.
    Last(MemberIdx),
    /// All pods below a member.
    All(MemberIdx),
}

/// Counts of a group that has only these pods.
struct Tally<'a> {
    cluster: &'a Cluster,
    registry: &'a Registry,
    index: GroupIdx,
    group: &'a Group,
    /// Pods of a pod set, or satisfied children of an inner member.
    has: IndexVec<MemberIdx, u32>,
    /// Pods below a member.
    held: IndexVec<MemberIdx, u32>,
    /// Whether the member, or one below it, has more than its minimum.
    surplus: IndexVec<MemberIdx, bool>,
}

impl EvictablePods {
    /// All placed pods of a group.
    pub fn of(cluster: &Cluster, group: GroupIdx) -> Self {
        Self::without(cluster, group, |_| false)
    }

    /// The placed pods of a group except those already taken.
    pub fn without(cluster: &Cluster, group: GroupIdx, is_taken: impl Fn(PodIdx) -> bool) -> Self {
        let held = |pod: &PodIdx| cluster.pods[*pod].state.status.is_active_allocated() && !is_taken(*pod);
        let pods = cluster.groups[group].members.iter().map(|member| {
            member.pod_set().map_or_else(Vec::new, |set| set.pods.iter().copied().filter(held).collect())
        });
        Self { group, pods: pods.collect() }
    }

    /// How these pods compare with the group's minimum.
    pub fn elastic_state(&self, cluster: &Cluster) -> ElasticState {
        let mut state = ElasticState::AtMinimum;
        for (member, set) in cluster.groups[self.group].pod_sets() {
            match self.pods[member].len().cmp(&(set.min as usize)) {
                Ordering::Less => return ElasticState::BelowMinimum,
                Ordering::Greater => state = ElasticState::AboveMinimum,
                Ordering::Equal => {}
            }
        }
        state
    }

    /// The queue resources that these pods hold.
    pub fn amounts(&self, cluster: &Cluster) -> QueueAmounts {
        let mut held = [0; 3];
        for pod in self.pods() {
            let state = &cluster.pods[pod].state;
            if let (true, Some(place)) = (state.status.is_allocated(), &state.place) {
                held = sum(&held, &cluster.accepted(pod, place));
            }
        }
        held
    }

    /// The group of these pods.
    pub fn group(&self) -> GroupIdx {
        self.group
    }

    /// Number of remaining pods.
    pub fn len(&self) -> usize {
        self.pods.iter().map(Vec::len).sum()
    }

    /// Whether no pod remains.
    pub fn is_empty(&self) -> bool {
        self.pods.iter().all(Vec::is_empty)
    }

    /// The remaining pods by pod set in tree order, each in task order.
    pub fn pods(&self) -> impl Iterator<Item = PodIdx> + '_ {
        self.pods.iter().flatten().copied()
    }

    /// Removes the pods that `is_taken` selects.
    pub fn remove(&mut self, is_taken: impl Fn(PodIdx) -> bool) {
        for pods in &mut self.pods {
            pods.retain(|pod| !is_taken(*pod));
        }
    }

    /// Removes the next pods that are evicted together, in eviction order; empty when no pod remains.
    pub fn next_batch(&mut self, cluster: &Cluster, registry: &Registry) -> Vec<PodIdx> {
        let tally = Tally::of(self, cluster, registry);
        let mut batch = Vec::new();
        match tally.pick(Group::root()).unwrap_or(Pick::All(Group::root())) {
            Pick::Last(member) => batch.extend(self.pods[member].pop()),
            Pick::All(member) => {
                tally.leaves(member, &mut |leaf| batch.extend(self.pods[leaf].drain(..).rev()));
            }
        }
        batch
    }
}

impl<'a> Tally<'a> {
    fn of(held: &EvictablePods, cluster: &'a Cluster, registry: &'a Registry) -> Self {
        let group = &cluster.groups[held.group];
        let count = group.members.len();
        let mut tally = Self {
            cluster,
            registry,
            index: held.group,
            group,
            has: IndexVec::filled(0, count),
            held: IndexVec::filled(0, count),
            surplus: IndexVec::filled(false, count),
        };
        tally.count(held, Group::root());
        tally
    }

    fn count(&mut self, held: &EvictablePods, member: MemberIdx) {
        let group = self.group;
        match &group.members[member].kind {
            MemberKind::Pods(_) => {
                let pods = u32::try_from(held.pods[member].len()).expect("fewer than 2^32 pods");
                (self.has[member], self.held[member]) = (pods, pods);
            }
            MemberKind::Set { children, .. } => {
                for &child in children {
                    self.count(held, child);
                    self.has[member] += u32::from(self.is_satisfied(child));
                    self.held[member] += self.held[child];
                    self.surplus[member] |= self.surplus[child];
                }
            }
        }
        self.surplus[member] |= self.has[member] > group.needed(member);
    }

    fn is_satisfied(&self, member: MemberIdx) -> bool {
        self.has[member] >= self.group.needed(member)
    }

    /// The next batch below a member; `None` where all pods are needed.
    fn pick(&self, member: MemberIdx) -> Option<Pick> {
        let surplus = self.has[member] > self.group.needed(member);
        let children = match &self.group.members[member].kind {
            MemberKind::Pods(_) => return surplus.then_some(Pick::Last(member)),
            MemberKind::Set { children, .. } => children,
        };
        if self.has[member] == 0 {
            return (self.held[member] > 0).then_some(Pick::All(member));
        }
        let sorted = self.sorted(children);
        let surplus_below = children.iter().any(|child| self.surplus[*child]);
        let below = if surplus_below { sorted.iter().find_map(|child| self.pick(*child)) } else { None };
        if below.is_some() || !surplus {
            return below;
        }
        sorted.into_iter().find(|child| self.held[*child] > 0).map(Pick::All)
    }

    /// Visits the pod sets below a member in reverse order.
    fn leaves(&self, member: MemberIdx, visit: &mut impl FnMut(MemberIdx)) {
        match &self.group.members[member].kind {
            MemberKind::Pods(_) => visit(member),
            MemberKind::Set { children, .. } => {
                for child in self.sorted(children) {
                    self.leaves(child, visit);
                }
            }
        }
    }

    /// Children in reverse order.
    fn sorted(&self, children: &[MemberIdx]) -> Vec<MemberIdx> {
        let mut sorted = children.to_vec();
        sorted.sort_by(|&l, &r| self.compare(r, l));
        sorted
    }

    /// The member order for these pods; custom orders see the whole group.
    fn compare(&self, left: MemberIdx, right: MemberIdx) -> Ordering {
        let state = |m: MemberIdx| (self.has[m], self.group.needed(m));
        for entry in &self.registry.member_order {
            let order = match entry {
                MemberOrder::BySatisfaction => by_ratio(state(left), state(right)),
                MemberOrder::Custom(order) => order.compare(self.cluster, self.index, left, right),
            };
            if order.is_ne() {
                return order;
            }
        }
        let name = |m: MemberIdx| self.cluster.text(self.group.members[m].name);
        name(left).cmp(name(right))
    }
}

/// End of the preemption delay, counted from creation or the last eviction; `None` without a delay.
pub fn preemption_delay_end(group: &Group) -> Option<Timestamp> {
    let delay = group.preemption_delay.filter(|delay| *delay > Span(0))?;
    let from = group.last_eviction.map_or(group.created, |evicted| evicted.max(group.created));
    Some(from + delay)
}

/// The verdict of a group that causes no evictions for now: evictions for it were refused, or it is within its
/// preemption delay.
pub fn evictions_deferred(group: &Group, now: Timestamp) -> Option<Verdict> {
    let refused = group.backoff.as_deref().filter(|backoff| backoff.scope == BackoffScope::Evictions);
    let refused = refused.map(|Backoff { cause, failures, until, .. }| Verdict::EvictionBackoff {
        cause: cause.clone(),
        failures: *failures,
        until: until.0,
    });
    refused.or_else(|| preemption_delay(group, now))
}

/// The verdict of a group within its preemption delay.
pub fn preemption_delay(group: &Group, now: Timestamp) -> Option<Verdict> {
    let until = preemption_delay_end(group).filter(|end| now < *end)?;
    let delay = group.preemption_delay.map_or(0, |delay| delay.0);
    Some(Verdict::PreemptionDelay { delay, until: until.0 })
}
