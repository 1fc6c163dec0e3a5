//! Test support: scenario files, replays of KAI's recordings, and generated snapshot shapes.
//!
//! Used from `tests/` folders and `xtask`, never linked into a shipped binary.

pub mod calls;
pub mod random;
pub mod report;
pub mod scenario;
pub mod session;
pub mod shapes;
pub mod test_cluster;
