//! CustomResourceDefinitions: what they add to the server while it runs.

use crate::kinds::Resource;
use crate::server::Core;
use crate::store::Record;
use std::sync::Arc;

/// One version of a custom resource.
#[derive(Debug)]
pub struct CustomVersion {
    /// The name of the definition.
    pub definition: Box<str>,
    /// Paths of fields that field selectors may name.
    pub selectable_fields: Vec<String>,
}

/// Serves what a definition says, once it is stored.
pub fn stored(_core: &Core, _record: &Arc<Record>) {}

/// Follows up on an object that is gone.
pub fn gone(_core: &Core, _resource: &Resource, _record: &Arc<Record>) {}
