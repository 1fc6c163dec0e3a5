//! Translates the specification of a pod; equal specifications of consecutive pods are shared.
//!
//! Most pods have the same specification as the previous pod in name order, since both come from one template. Comparing
//! two objects is much cheaper than translating one, so the last translation is kept.

use super::pod::TranslationContext;
use super::{affinity, gpu, request, selector};
use crate::finding::Report;
use crate::object::Pod;
use crate::object::pod::{PodSpec, PodStatus};
use kai_api::well_known::annotation;
use kai_engine::input::{HostPort, SharedSpec, SpecInput};

/// The last translated pod and its specification. Valid only as long as the context is the same.
#[derive(Debug, Default)]
pub struct Recent<'a> {
    last: Option<(&'a Pod, SharedSpec)>,
}

impl<'a> Recent<'a> {
    pub(super) fn spec(
        &mut self,
        pod: &'a Pod,
        context: TranslationContext<'_>,
        report: &mut Report<'_>,
    ) -> SharedSpec {
        if let Some((last, spec)) = &self.last
            && has_equal_spec(last, pod)
        {
            return spec.clone();
        }
        let found = report.len();
        let spec = SharedSpec::from(read(pod, context, report));
        // Findings must be reported for each pod, so a specification with findings is not shared.
        self.last = (report.len() == found && is_shareable(pod)).then(|| (pod, spec.clone()));
        spec
    }
}

/// Whether the specification depends only on the fields that [`has_equal_spec`] compares. Affinity rules also read the
/// pod's namespace and labels.
fn is_shareable(pod: &Pod) -> bool {
    pod.spec.affinity.is_none() && pod.spec.topology_spread_constraints.is_empty()
}

/// Whether two pods certainly have the same specification, the first of them being shareable.
fn has_equal_spec(a: &Pod, b: &Pod) -> bool {
    let PodSpec {
        node_name: _,
        scheduler_name: _,
        priority_class_name,
        priority,
        node_selector,
        affinity,
        tolerations,
        containers,
        init_containers,
        ephemeral_containers: _,
        resources,
        overhead,
        volumes: _,
        resource_claims: _,
        scheduling_gates: _,
        topology_spread_constraints,
        scheduling_group: _,
    } = &a.spec;
    let PodStatus { qos_class, container_statuses, init_container_statuses, conditions, resize, .. } =
        &a.status;
    *containers == b.spec.containers
        && *priority == b.spec.priority
        && *priority_class_name == b.spec.priority_class_name
        && *node_selector == b.spec.node_selector
        && *affinity == b.spec.affinity
        && *tolerations == b.spec.tolerations
        && *init_containers == b.spec.init_containers
        && *resources == b.spec.resources
        && *overhead == b.spec.overhead
        && *topology_spread_constraints == b.spec.topology_spread_constraints
        && *qos_class == b.status.qos_class
        && *container_statuses == b.status.container_statuses
        && *init_container_statuses == b.status.init_container_statuses
        && *conditions == b.status.conditions
        && *resize == b.status.resize
        && spec_annotations(a).eq(spec_annotations(b))
}

/// The annotations that may affect the specification: all except those that differ for every pod or group.
fn spec_annotations(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let all = pod.metadata.annotations.iter().map(|(name, value)| (name, &**value));
    let own = [annotation::POD_GROUP, annotation::LAST_START, annotation::IMPLICIT_GROUP];
    all.filter(move |(name, _)| !own.contains(name))
}

fn read(pod: &Pod, context: TranslationContext<'_>, report: &mut Report<'_>) -> SpecInput {
    let mut request = request::pod_request(pod, report);
    let wanted = gpu::demand(pod, &mut request.total, report);
    let rules = affinity::rules(pod, context.namespaces, report);
    // Only NUMA zones and devices depend on the single containers.
    let by_container = context.settings.numa_zones || context.settings.device_claims;
    let (total, overhead) = (std::mem::take(&mut request.total), std::mem::take(&mut request.overhead));
    SpecInput {
        request: total.into_list(),
        overhead: overhead.into_list(),
        gpu: wanted.gpu,
        legacy_mig: wanted.legacy_mig,
        guaranteed: request::is_guaranteed(pod),
        containers: if by_container { request.containers() } else { Vec::new() },
        node_selector: selector::labels(&pod.spec.node_selector),
        node_terms: rules.node_terms,
        node_preferences: rules.node_preferences,
        tolerations: selector::tolerations(&pod.spec.tolerations, "spec.tolerations", report),
        ports: host_ports(pod),
        affinity: rules.affinity,
        anti_affinity: rules.anti_affinity,
        preferred_affinity: rules.preferred,
        spread: pod
            .spec
            .topology_spread_constraints
            .iter()
            .map(|constraint| affinity::spread(constraint, pod, report))
            .collect(),
        priority_class: (pod.spec.priority_class_name.to_string(), pod.spec.priority.unwrap_or(0)),
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod.spec.init_containers.iter().filter(|c| c.is_sidecar());
    let mut ports: Vec<HostPort> = pod
        .spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| &c.ports)
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.some().unwrap_or("0.0.0.0").to_owned(),
                protocol: port.protocol.some().unwrap_or("TCP").to_owned(),
                port: u16::try_from(port.host_port).ok().filter(|p| *p > 0)?,
            })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}
