//! Example plugins: a pod with the label `license` gets a seat of that license before it is bound.
//!
//! The scheduler plugin passes the name of the license on as an annotation of the BindRequest. The binder plugin takes a
//! seat, which is a config map that belongs to the pod, and gives it back if the pod cannot be bound.

mod seats;

pub use seats::Seats;

use kai_engine::Cluster;
use kai_engine::ids::{NodeIdx, PodIdx};
use kai_engine::plugin::{Args, BindAnnotations, Plugin, Registry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation of a BindRequest with the license.
pub const ANNOTATION: &str = "licenses.kai.scheduler/license";
/// The label of a pod with the license.
const LABEL: &str = "license";

/// The scheduler plugin `licenses`.
pub struct Licenses;

impl Plugin for Licenses {
    fn name(&self) -> &'static str {
        "licenses"
    }

    fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
        to.bind_annotations.push(Arc::new(Self));
    }
}

impl BindAnnotations for Licenses {
    fn annotations(&self, cluster: &Cluster, pod: PodIdx, _: NodeIdx) -> BTreeMap<String, String> {
        let license = cluster.pod_label(pod, LABEL);
        license.map(|license| (ANNOTATION.to_owned(), license.to_owned())).into_iter().collect()
    }
}
