//! What the custom resources promise to others: their JSON form and their schemas.
//!
//! Tests that compare with the definitions of another implementation run only where the environment variable
//! `KAI_REFERENCE` names a folder that has them under `spec/crds`.

mod admission;
mod crd_files;
mod definitions;
mod equivalence;
mod round_trip;
mod structural;
