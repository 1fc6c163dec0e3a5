//! What the custom resources promise to others: their JSON form and their schemas.

mod crd_files;
mod round_trip;
