//! Scheduling classes: node selector, node affinity and tolerations of pods.
//!
//! Specifications with equal node requirements share a class, so that one result per class and node serves them all
//! while the node's description is unchanged. Preferences (preferred node affinity, `PreferNoSchedule` taints) only
//! break ties: each weighs at most 0.3, so that together with soft spread they stay below the smallest step of the
//! main scores.

mod node_terms;
#[cfg(test)]
mod tests;
mod tolerations;

pub(crate) use node_terms::NodeTerms;

use crate::ids::Sym;
use crate::input::{SpecInput, TaintEffect};
use crate::intern::Interner;
use crate::verdict::NodeRejection;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tolerations::Tolerations;

/// A class of specifications with equal node requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIdx(pub u32);

/// A taint with interned parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: Sym,
    /// Value.
    pub value: Sym,
    /// Effect.
    pub effect: TaintEffect,
}

/// Maximum that preferred node affinity adds to a score.
pub const NODE_PREFERENCE_WEIGHT: f64 = 0.3;
/// Maximum that `PreferNoSchedule` taints subtract from a score.
pub const SOFT_TAINT_WEIGHT: f64 = 0.3;

/// All classes.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    classes: Vec<Arc<Class>>,
    by_value: FxHashMap<Arc<Class>, ClassIdx>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    /// Labels that a node must have, sorted by key symbol.
    selector: Box<[(Sym, Sym)]>,
    /// One of these terms must hold, where there are any.
    terms: NodeTerms,
    tolerations: Tolerations,
    /// Preferred node affinity: weights and terms.
    preferences: Box<[(i32, NodeTerms)]>,
}

impl Classes {
    /// The class of a specification.
    pub fn resolve(&mut self, spec: &SpecInput, names: &mut Interner) -> ClassIdx {
        let mut selector: Vec<(Sym, Sym)> =
            spec.node_selector.iter().map(|(k, v)| (names.intern(k), names.intern(v))).collect();
        selector.sort_unstable();
        let class = Class {
            selector: selector.into(),
            terms: NodeTerms::resolve(&spec.node_terms, names),
            tolerations: Tolerations::resolve(&spec.tolerations, names),
            preferences: spec
                .node_preferences
                .iter()
                .filter(|preference| preference.weight > 0)
                .map(|p| (p.weight, NodeTerms::resolve(std::slice::from_ref(&p.term), names)))
                .collect(),
        };
        if let Some(&known) = self.by_value.get(&class) {
            return known;
        }
        let index = ClassIdx(self.classes.len() as u32);
        let class = Arc::new(class);
        self.classes.push(Arc::clone(&class));
        self.by_value.insert(class, index);
        index
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there is no class.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Whether a class accepts a node description. Labels are sorted by key symbol.
    pub fn accepts(
        &self,
        class: ClassIdx,
        node_name: Sym,
        labels: &[(Sym, Sym)],
        taints: &[Taint],
        names: &Interner,
    ) -> Result<(), NodeRejection> {
        if !self.matches_affinity(class, node_name, labels, names) {
            return Err(NodeRejection::NodeAffinity);
        }
        match self.untolerated(class, taints, names) {
            None => Ok(()),
            Some(taint) => {
                Err(NodeRejection::Taint(names.text(taint.key).into(), names.text(taint.value).into()))
            }
        }
    }

    /// Whether node selector and required node affinity accept a node.
    pub fn matches_affinity(
        &self,
        class: ClassIdx,
        node_name: Sym,
        labels: &[(Sym, Sym)],
        names: &Interner,
    ) -> bool {
        let Class { selector, terms, .. } = &*self.classes[class.0 as usize];
        selector.iter().all(|pair| labels.binary_search(pair).is_ok())
            && (terms.is_empty() || terms.matches(node_name, labels, names))
    }

    /// The first taint that a class does not tolerate.
    pub fn untolerated<'a>(
        &self,
        class: ClassIdx,
        taints: &'a [Taint],
        names: &Interner,
    ) -> Option<&'a Taint> {
        let tolerations = &self.classes[class.0 as usize].tolerations;
        taints.iter().find(|taint| match taint.effect {
            TaintEffect::NoSchedule | TaintEffect::NoExecute => !tolerations.tolerate(taint, names),
            TaintEffect::PreferNoSchedule => false,
        })
    }

    /// Whether a class tolerates all `NoSchedule` and `NoExecute` taints.
    pub fn tolerates(&self, class: ClassIdx, taints: &[Taint], names: &Interner) -> bool {
        self.untolerated(class, taints, names).is_none()
    }

    /// Score of preferences: up to 0.3 for preferred node affinity, by the satisfied share of its weights, and down
    /// to -0.3 for untolerated `PreferNoSchedule` taints.
    pub fn soft_score(
        &self,
        class: ClassIdx,
        node_name: Sym,
        labels: &[(Sym, Sym)],
        taints: &[Taint],
        names: &Interner,
    ) -> f64 {
        let Class { tolerations, preferences, .. } = &*self.classes[class.0 as usize];
        let total: i64 = preferences.iter().map(|(weight, _)| i64::from(*weight)).sum();
        let met = preferences.iter().filter(|(_, term)| term.matches(node_name, labels, names));
        let met: i64 = met.map(|(weight, _)| i64::from(*weight)).sum();
        let is_bad = |taint: &&Taint| {
            taint.effect == TaintEffect::PreferNoSchedule && !tolerations.tolerate(taint, names)
        };
        let bad = taints.iter().filter(is_bad).count() as f64;
        NODE_PREFERENCE_WEIGHT * met as f64 / total.max(1) as f64 - SOFT_TAINT_WEIGHT * bad / (bad + 1.0)
    }
}
