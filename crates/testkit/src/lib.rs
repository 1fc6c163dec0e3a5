//! Test support: scenario files, replays of KAI's recordings, generated snapshot shapes, and hostile objects.
//!
//! Used from `tests/` folders and `xtask`, never linked into a shipped binary.

pub mod calls;
pub mod chart;
pub mod console;
pub mod grouper;
pub mod hostile;
pub mod immutable;
pub mod installed;
pub mod operator;
pub mod random;
mod recorded;
pub mod report;
pub mod scenario;
pub mod session;
pub mod shapes;
pub mod test_cluster;
pub mod workloads;
