//! Segments: pods of a workload that are placed close to each other, as subgroups with a topology of their own.

use crate::error::Invalid;
use crate::fields::{self, template_annotation};
use crate::objects::MetaExt;
use crate::workload::Workload;
use kai_api::pod_group::TopologyConstraint;
use kai_api::well_known::annotation;
use serde_json::Value;

/// More segments of one workload are refused: an object of that size would not be stored.
pub(crate) const SEGMENTS_MAX: i32 = 10_000;

/// The topology of every segment; none without a topology or without a level.
pub(crate) fn topology(workload: &Workload<'_>, template: Option<&Value>) -> Option<TopologyConstraint> {
    let is_set = |text: &&str| !text.is_empty();
    let of_pod_or_template = |name: &str| {
        let of_pod = workload.pod.metadata.annotation(name).filter(is_set);
        of_pod.or_else(|| template_annotation(template, name).filter(is_set))
    };
    let constraint = TopologyConstraint {
        topology: of_pod_or_template(annotation::TOPOLOGY)
            .or_else(|| workload.top().metadata.annotation(annotation::TOPOLOGY))
            .unwrap_or_default()
            .to_owned(),
        required_topology_level: of_pod_or_template(annotation::SEGMENT_TOPOLOGY_REQUIRED)
            .unwrap_or_default()
            .to_owned(),
        preferred_topology_level: of_pod_or_template(annotation::SEGMENT_TOPOLOGY_PREFERRED)
            .unwrap_or_default()
            .to_owned(),
    };
    with_level(constraint)
}

/// A constraint without a topology or without a level has no effect.
pub(crate) fn with_level(constraint: TopologyConstraint) -> Option<TopologyConstraint> {
    let has_level =
        !constraint.required_topology_level.is_empty() || !constraint.preferred_topology_level.is_empty();
    (!constraint.topology.is_empty() && has_level).then_some(constraint)
}

/// Parses a segment size that an annotation sets.
pub(crate) fn size(text: &str) -> Result<i32, String> {
    fields::number(text).map_err(|problem| {
        format!(
            "annotation `{}` is {problem}; write a number such as `2`, or remove it",
            annotation::SEGMENT_SIZE
        )
    })
}

/// An index from a label of the pod; none where the label is absent.
pub(crate) fn index(workload: &Workload<'_>, label: &str) -> Result<Option<i32>, Invalid> {
    let Some(text) = workload.pod.metadata.label(label) else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(index) if index >= 0 => Ok(Some(index)),
        Ok(_) | Err(_) => Err(workload.pod_invalid(format!(
            "label `{label}` is `{text}`, which is not a whole number from 0 up; the controller of \
                                  the workload sets it, so leave it out of the pod template"
        ))),
    }
}
