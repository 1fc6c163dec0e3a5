//! What a pod requests, in the engine's dimensions and base units.
//!
//! The rules are those of [`kai_api::request()`]; here amounts that make no sense are reported on the pod.

use super::amount::{Totals, dimension, read_amount};
use crate::finding::Report;
use crate::object::Pod;
use crate::object::pod::ContainerResources;
use kai_api::request::Stage;
use kai_engine::input::{self, ContainerRequest};

/// What a pod requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest<'a> {
    /// Everything, overhead included. GPUs are mentioned even when the request is for 0 of them.
    pub total: Totals<'a>,
    /// The part that is overhead.
    pub overhead: Totals<'a>,
    /// Containers one by one.
    parts: Vec<(&'a str, Stage, Totals<'a>)>,
}

impl PodRequest<'_> {
    /// Containers one by one, for rules that tell them apart.
    pub fn containers(self) -> Vec<ContainerRequest> {
        let described = |(name, stage, request): (&str, Stage, Totals<'_>)| ContainerRequest {
            name: name.to_owned(),
            request: request.into_list(),
            init: stage != Stage::Main,
            sidecar: stage == Stage::Sidecar,
        };
        self.parts.into_iter().map(described).collect()
    }
}

/// What a pod requests.
pub fn pod_request<'a>(pod: &'a Pod, report: &mut Report<'_>) -> PodRequest<'a> {
    let request = kai_api::request(pod);
    for invalid in request.invalid.iter().filter(|invalid| dimension(invalid.resource).is_some()) {
        read_amount(invalid.resource, invalid.amount, invalid.field, report);
    }
    let parts = request.containers.iter().map(|container| {
        let mut totals = Totals::counted(&container.amounts, "spec.containers.resources.requests", report);
        totals.remove(input::PODS);
        (container.name, container.stage, totals)
    });
    let parts = parts.collect();
    let mut overhead = Totals::counted(&request.overhead, "spec.overhead", report);
    overhead.remove(input::PODS);
    let mut total = Totals::sum(&request.total);
    total.remove(input::PODS);
    PodRequest { total, overhead, parts }
}

/// Whether a pod is of the class `Guaranteed`: as reported, else worked out from requests and limits.
pub fn is_guaranteed(pod: &Pod) -> bool {
    if let Some(class) = pod.status.qos_class.some() {
        return class == "Guaranteed";
    }
    if let Some(resources) = &pod.spec.resources {
        return is_exact(resources);
    }
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers).peekable();
    containers.peek().is_some() && containers.all(|container| is_exact(&container.resources))
}

/// Whether CPU and memory are limited to what is requested.
fn is_exact(resources: &ContainerResources) -> bool {
    ["cpu", "memory"].iter().all(|resource| {
        let limit = resources.limits.get(resource);
        let request = resources.requests.get(resource);
        limit.is_some() && (request.is_none() || request == limit)
    })
}
