//! What a pod wants in total: containers, sidecars, init containers, overhead.
//!
//! Only requests count, never limits. Ordinary init containers run one after another before the others, together with
//! the sidecars declared before them; whatever is larger decides.

use super::amount::Totals;
use crate::finding::Report;
use crate::object::Pod;
use crate::object::pod::Container;
use kai_engine::input::{self, ContainerRequest};

/// What a pod wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest<'a> {
    /// Everything, overhead included. GPUs are mentioned even when the request is for 0 of them.
    pub total: Totals<'a>,
    /// The part that is overhead.
    pub overhead: Totals<'a>,
    /// Containers one by one.
    parts: Vec<(&'a Container, Totals<'a>, Stage)>,
}

impl PodRequest<'_> {
    /// Containers one by one, for rules that tell them apart.
    pub fn containers(self) -> Vec<ContainerRequest> {
        self.parts
            .into_iter()
            .map(|(container, request, stage)| described(container, request, stage))
            .collect()
    }
}

/// Adds up what a pod wants.
pub fn pod_request<'a>(pod: &'a Pod, report: &mut Report<'_>) -> PodRequest<'a> {
    let spec = &pod.spec;
    let mut parts = Vec::with_capacity(spec.containers.len() + spec.init_containers.len());
    let mut total = Totals::default();
    for container in &spec.containers {
        let request = container_request(container, report);
        total.add_all(&request);
        parts.push((container, request, Stage::Main));
    }
    let mut sidecars = Totals::default();
    let mut largest_init = Totals::default();
    for container in &spec.init_containers {
        let mut request = container_request(container, report);
        if container.restart_policy == "Always" {
            sidecars.add_all(&request);
            parts.push((container, request, Stage::Sidecar));
        } else {
            parts.push((container, request.clone(), Stage::Init));
            request.add_all(&sidecars);
            largest_init.raise_to(&request);
        }
    }
    total.add_all(&sidecars);
    total.raise_to(&largest_init);
    let mut overhead = Totals::read(&spec.overhead, "spec.overhead", report);
    overhead.remove(input::GPU);
    overhead.remove(input::PODS);
    total.add_all(&overhead);
    PodRequest { total, overhead, parts }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Main,
    Init,
    Sidecar,
}

fn container_request<'a>(container: &'a Container, report: &mut Report<'_>) -> Totals<'a> {
    let mut request =
        Totals::read(&container.resources.requests, "spec.containers.resources.requests", report);
    request.remove(input::PODS);
    request
}

fn described(container: &Container, request: Totals<'_>, stage: Stage) -> ContainerRequest {
    ContainerRequest {
        name: container.name.to_string(),
        request: request.into_list(),
        init: stage != Stage::Main,
        sidecar: stage == Stage::Sidecar,
    }
}

/// Whether a pod is of the class `Guaranteed`: as reported, else worked out from requests and limits.
pub fn is_guaranteed(pod: &Pod) -> bool {
    if let Some(class) = pod.status.qos_class.some() {
        return class == "Guaranteed";
    }
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers).peekable();
    containers.peek().is_some()
        && containers.all(|container| {
            ["cpu", "memory"].iter().all(|resource| {
                let limit = container.resources.limits.get(resource);
                let request = container.resources.requests.get(resource);
                limit.is_some() && (request.is_none() || request == limit)
            })
        })
}
