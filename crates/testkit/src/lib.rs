//! What tests and benches are made of: snapshot shapes, object builders, scenarios.
//!
//! Used from `tests/` folders and `xtask`, never linked into a shipped binary.

pub mod calls;
pub mod random;
pub mod report;
pub mod scenario;
pub mod session;
pub mod shapes;
pub mod test_cluster;
