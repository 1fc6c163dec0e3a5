//! Translates the resource request of a pod to the engine's dimensions and base units.
//!
//! The rules are those of [`kai_api::request()`]; invalid amounts are reported on the pod.

use super::amount::{Totals, dimension, read_amount};
use crate::finding::Report;
use crate::object::Pod;
use crate::object::pod::ContainerResources;
use kai_api::request::Stage;
use kai_engine::input::{self, ContainerRequest};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest<'a> {
    /// Total with overhead. Contains GPUs even when the request is 0.
    pub total: Totals<'a>,
    pub overhead: Totals<'a>,
    parts: Vec<(&'a str, Stage, Totals<'a>)>,
}

impl PodRequest<'_> {
    /// Requests by container, for rules that depend on single containers.
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

/// Whether the pod's QoS class is `Guaranteed`: from its status, else derived from requests and limits.
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

/// Whether limits of CPU and memory equal the requests.
fn is_exact(resources: &ContainerResources) -> bool {
    ["cpu", "memory"].iter().all(|resource| {
        let limit = resources.limits.get(resource);
        let request = resources.requests.get(resource);
        limit.is_some() && (request.is_none() || request == limit)
    })
}
