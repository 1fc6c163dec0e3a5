//! What tests and benches are made of: snapshot shapes, object builders, scenarios.
//!
//! Used from `tests/` folders and `xtask`, never linked into a shipped binary.

pub mod calls;
pub mod shapes;
