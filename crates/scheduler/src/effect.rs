//! Decisions as API writes: what is written, in KAI's form. Pure but for [`evict`], which asks the server step by step.

pub(crate) mod bind;
pub(crate) mod condition;
mod device_config;
pub(crate) mod evict;
