//! Builds a group's sub-group tree from its specification.

use super::FixedNames;
use super::group::{Constraint, Group, Member, MemberKind, PodSet};
use crate::ids::{IndexVec, MemberIdx, Sym};
use crate::input::{GroupInput, TopologyConstraint};
use crate::intern::Interner;
use rustc_hash::FxHashMap;

/// Levels of sub-groups. Rules descend a tree level by level, each on the stack, and a tenant may write any tree.
pub const LEVELS_MAX: usize = 64;

/// The members of a group, root first. A specification that is not a tree yields a root without members and a reason.
pub(super) fn build(
    input: &GroupInput,
    fixed: FixedNames,
    names: &mut Interner,
) -> (IndexVec<MemberIdx, Member>, Option<String>) {
    let mut members = IndexVec::with_capacity(1 + input.sub_groups.len().max(1));
    let root = members.push(Member {
        name: fixed.empty,
        parent: None,
        kind: MemberKind::Set { children: Vec::new(), min: input.min_sub_group },
        topology: constraint(input.topology.as_ref(), names),
    });
    if input.invalid_reason.is_some() {
        return (members, input.invalid_reason.clone());
    }
    if input.sub_groups.is_empty() {
        // `minSubGroup` has no effect without sub-groups.
        let min = input.min_member.unwrap_or(1);
        let child = leaf(fixed.default_set, root, min, None);
        let child = members.push(child);
        members[root].kind = MemberKind::Set { children: vec![child], min: None };
        return (members, None);
    }
    match add_sub_groups(input, &mut members, names) {
        Ok(()) => (members, None),
        Err(reason) => {
            let mut only_root = IndexVec::new();
            only_root.push(Member {
                kind: MemberKind::Set { children: Vec::new(), min: None },
                ..members[root].clone()
            });
            (only_root, Some(reason))
        }
    }
}

fn leaf(name: Sym, parent: MemberIdx, min: u32, topology: Option<Constraint>) -> Member {
    Member { name, parent: Some(parent), kind: MemberKind::Pods(PodSet::new(min)), topology }
}

fn add_sub_groups(
    input: &GroupInput,
    members: &mut IndexVec<MemberIdx, Member>,
    names: &mut Interner,
) -> Result<(), String> {
    let mut sorted: Vec<_> = input.sub_groups.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut by_name: FxHashMap<&str, MemberIdx> = FxHashMap::default();
    let root = Group::root();
    for sub in &sorted {
        let name = names.intern(&sub.name);
        let topology = constraint(sub.topology.as_ref(), names);
        let member = members.push(leaf(name, root, sub.min_member.unwrap_or(0), topology));
        if by_name.insert(&sub.name, member).is_some() {
            return Err(format!("sub-group `{}` is there twice", sub.name));
        }
    }
    for sub in &sorted {
        let member = by_name[sub.name.as_str()];
        let parent = match &sub.parent {
            None => root,
            Some(parent) => *by_name.get(parent.as_str()).ok_or_else(|| {
                format!("sub-group `{}` names the parent `{parent}`, which is not there", sub.name)
            })?,
        };
        members[member].parent = Some(parent);
        match &mut members[parent].kind {
            MemberKind::Set { children, .. } => children.push(member),
            kind @ MemberKind::Pods(_) => *kind = MemberKind::Set { children: vec![member], min: None },
        }
    }
    for sub in &sorted {
        let member = by_name[sub.name.as_str()];
        if let MemberKind::Set { min, .. } = &mut members[member].kind {
            *min = sub.min_sub_group;
        }
        let mut up = members[member].parent;
        for _ in 0..LEVELS_MAX {
            up = up.and_then(|m| members[m].parent);
        }
        if up.is_some() {
            return Err(format!(
                "sub-group `{}` is its own ancestor, or on a level below the {LEVELS_MAX}th",
                sub.name
            ));
        }
    }
    Ok(())
}

fn constraint(input: Option<&TopologyConstraint>, names: &mut Interner) -> Option<Constraint> {
    let input = input.filter(|c| !c.topology.is_empty())?;
    Some(Constraint {
        topology: names.intern(&input.topology),
        required: input.required.as_deref().filter(|l| !l.is_empty()).map(|l| names.intern(l)),
        preferred: input.preferred.as_deref().filter(|l| !l.is_empty()).map(|l| names.intern(l)),
    })
}

/// Finds the pod set that a pod's label names.
pub(super) fn pod_set_of(
    members: &IndexVec<MemberIdx, Member>,
    label: Option<Sym>,
    default: Sym,
) -> Option<MemberIdx> {
    let name = label.unwrap_or(default);
    members.enumerated().find(|(_, m)| m.name == name && m.pod_set().is_some()).map(|(i, _)| i)
}
