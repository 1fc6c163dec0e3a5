//! Required topology constraints are satisfied.

use super::after::{After, Presence};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::cluster::group::{Constraint, Group};
use crate::ids::{GroupIdx, MemberIdx, NodeIdx, Sym};
use std::collections::BTreeSet;

/// Label values down to a level.
type Domain = Vec<Sym>;

pub(super) fn check(before: &Cluster, after: &After, findings: &mut Findings) {
    let touched: BTreeSet<GroupIdx> = after.placed(before).filter_map(|h| before.pods[h.pod].group).collect();
    for index in touched {
        let group = &before.groups[index];
        for (member, m) in group.members.enumerated() {
            let Some(constraint) = &m.topology else { continue };
            let Some(required) = constraint.required else { continue };
            check_member(before, after, (index, member), constraint, required, findings);
        }
    }
}

fn check_member(
    before: &Cluster,
    after: &After,
    (index, member): (GroupIdx, MemberIdx),
    constraint: &Constraint,
    required: Sym,
    findings: &mut Findings,
) {
    let group = &before.groups[index];
    let key = before.group_key(index);
    let level = before.text(required);
    let mine = |pod| {
        let p = &before.pods[pod];
        p.group == Some(index) && p.member.is_some_and(|m| is_below(group, m, member))
    };
    let (mut old, mut new): (BTreeSet<Domain>, BTreeSet<Domain>) = (BTreeSet::new(), BTreeSet::new());
    for held in after.held.iter().filter(|h| mine(h.pod)) {
        let domain = domain(before, constraint.topology, required, held.node);
        if held.presence == Presence::Released {
            continue;
        }
        if !held.presence.is_new() {
            old.extend(domain.filter(|_| before.pods[held.pod].state.status.is_active_allocated()));
            continue;
        }
        if let Some(domain) = domain {
            new.insert(domain);
        } else {
            let node = before.text(before.nodes[held.node].name);
            let what = format!("node `{node}` is in no domain of `{level}`, which group `{key}` requires");
            findings.add(Invariant::Topology, what);
        }
    }
    let apart = if old.is_empty() { new.len() > 1 } else { new.iter().any(|d| !old.contains(d)) };
    if apart {
        let what = format!("pods of group `{key}` are in several domains of `{level}`; one is required");
        findings.add(Invariant::Topology, what);
    }
}

fn is_below(group: &Group, member: MemberIdx, above: MemberIdx) -> bool {
    std::iter::successors(Some(member), |m| group.members[*m].parent).any(|m| m == above)
}

/// The domain of a node; `None` when it lacks one of the topology's labels.
fn domain(before: &Cluster, topology: Sym, level: Sym, node: NodeIdx) -> Option<Domain> {
    let levels = before.topologies.get(topology)?.levels();
    let depth = levels.iter().position(|l| *l == level)?;
    let values: Option<Domain> = levels.iter().map(|l| before.nodes[node].label(*l)).collect();
    values.map(|mut values| {
        values.truncate(depth + 1);
        values
    })
}
