//! The schemas of built-in kinds.

/// Compiled schemas.
#[derive(Debug, Default)]
pub struct Schemas {}
