//! What the custom resources promise to others: their JSON form and their schemas.

mod round_trip;
