//! Decisions as API writes, in KAI's form. Pure, except for [`evict`] and [`look_up`], which send their requests themselves.

pub(crate) mod bind;
pub(crate) mod condition;
mod device_config;
pub(crate) mod direct_bind;
pub(crate) mod evict;
pub(crate) mod look_up;
