//! Tolerations of a specification, matched against taints.

use super::Taint;
use crate::ids::Sym;
use crate::input::{TaintEffect, Toleration, TolerationOp};
use crate::intern::Interner;

/// Tolerations in a canonical order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tolerations(Box<[Tolerated]>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tolerated {
    /// None tolerates every key.
    key: Option<Sym>,
    value: Value,
    /// None tolerates every effect.
    effect: Option<TaintEffect>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    Any,
    Equal(Sym),
    Above(i64),
    Below(i64),
}

impl Tolerations {
    pub(super) fn resolve(tolerations: &[Toleration], names: &mut Interner) -> Self {
        let mut resolved: Vec<Tolerated> = tolerations
            .iter()
            .map(|toleration| Tolerated {
                key: (!toleration.key.is_empty()).then(|| names.intern(&toleration.key)),
                value: match &toleration.op {
                    TolerationOp::Exists => Value::Any,
                    TolerationOp::Equal(value) => Value::Equal(names.intern(value)),
                    TolerationOp::Gt(bound) => Value::Above(*bound),
                    TolerationOp::Lt(bound) => Value::Below(*bound),
                },
                effect: toleration.effect,
            })
            .collect();
        resolved.sort_unstable();
        resolved.dedup();
        Self(resolved.into())
    }

    /// Whether some toleration covers a taint.
    pub(super) fn tolerate(&self, taint: &Taint, names: &Interner) -> bool {
        self.0.iter().any(|tolerated| {
            tolerated.key.is_none_or(|key| key == taint.key)
                && tolerated.effect.is_none_or(|effect| effect == taint.effect)
                && tolerated.value.covers(taint.value, names)
        })
    }
}

impl Value {
    fn covers(&self, taint: Sym, names: &Interner) -> bool {
        let number = || names.text(taint).parse::<i64>().ok();
        match self {
            Self::Any => true,
            Self::Equal(value) => *value == taint,
            Self::Above(bound) => number().is_some_and(|n| n > *bound),
            Self::Below(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}
