//! Decisions as API writes, in KAI's form. Pure, except for [`evict`], which sends its requests itself.

pub(crate) mod bind;
pub(crate) mod condition;
mod device_config;
pub(crate) mod evict;
