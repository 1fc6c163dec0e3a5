//! JSON form and schemas of the custom resources.
//!
//! Tests that compare with KAI's definitions need `KAI_REFERENCE`, a folder with the definitions under `spec/crds`.

mod admission;
mod crd_files;
mod definitions;
mod equivalence;
mod round_trip;
mod structural;
