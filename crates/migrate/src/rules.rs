//! Intended differences from KAI as predicates, one module per kind of input. `docs/differences.md` has their texts.
//!
//! The replay of recorded cases and [`check`](crate::check()) use the same predicates.

pub mod chart;
pub mod installation;
pub mod page;
pub mod scheduling;
