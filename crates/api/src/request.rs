//! Computes the resource request of a pod by the rules of Kubernetes.
//!
//! Only requests count, never limits. Regular containers and sidecars (KEP-753) are summed; a regular init container
//! runs with the sidecars declared before it, and per resource the maximum of both phases counts. Pod-level CPU, memory
//! and huge pages (KEP-2837) replace the sum of the containers. Overhead (KEP-688) is added. During an in-place resize
//! (KEP-1287) the maximum of the allocated and the requested amount counts, unless the resize is infeasible.
//! Invariant: scheduler, pod group status and queue status all use this function.
//! Not here: GPU fractions, which are annotations (see [`share`](crate::share)), and devices of resource claims.

#[cfg(test)]
mod tests;

use crate::pod::{Container, ContainerStatus, Pod};
use crate::value::{Amount, Resources};
use crate::well_known::resource;
use kai_units::Quantity;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The resource request of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// The total with overhead. Resources with a request of 0 are included.
    pub total: Amounts<'a>,
    /// The overhead alone.
    pub overhead: Amounts<'a>,
    /// The containers: the regular ones, then init containers and sidecars.
    pub containers: Vec<ContainerRequest<'a>>,
    /// Invalid amounts, which count as 0.
    pub invalid: Vec<InvalidAmount<'a>>,
}

/// The resource request of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest<'a> {
    /// Name of the container.
    pub name: &'a str,
    /// The phase of the pod in which it runs.
    pub stage: Stage,
    /// Requested amounts.
    pub amounts: Amounts<'a>,
}

/// The phase of a pod in which a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A regular container.
    Main,
    /// A regular init container, which runs to completion first.
    Init,
    /// A restartable init container, which runs until the pod ends.
    Sidecar,
}

/// An amount that is not a quantity, or is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAmount<'a> {
    /// Field of the pod that contains it.
    pub field: &'static str,
    /// Name of the resource.
    pub resource: &'a str,
    /// The amount as decoded.
    pub amount: &'a Amount,
}

/// Computes the resource request of a pod.
pub fn request(pod: &Pod) -> Request<'_> {
    const OF_CONTAINERS: &str = "spec.containers.resources.requests";
    let spec = &pod.spec;
    let infeasible = pod.status.is_resize_infeasible();
    let mut invalid = Vec::new();
    let mut containers = Vec::with_capacity(spec.containers.len() + spec.init_containers.len());
    let mut total = Amounts::default();
    for container in &spec.containers {
        let amounts = Amounts::read(&container.resources.requests, OF_CONTAINERS, &mut invalid);
        let amounts = held(amounts, container, &pod.status.container_statuses, infeasible, &mut invalid);
        total.add_all(&amounts);
        containers.push(ContainerRequest::new(container, Stage::Main, amounts));
    }
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in &spec.init_containers {
        let amounts = Amounts::read(&container.resources.requests, OF_CONTAINERS, &mut invalid);
        if container.is_sidecar() {
            let given = &pod.status.init_container_statuses;
            let amounts = held(amounts, container, given, infeasible, &mut invalid);
            sidecars.add_all(&amounts);
            containers.push(ContainerRequest::new(container, Stage::Sidecar, amounts));
        } else {
            let mut alone = amounts.clone();
            alone.add_all(&sidecars);
            peak.raise_to(&alone);
            containers.push(ContainerRequest::new(container, Stage::Init, amounts));
        }
    }
    total.add_all(&sidecars);
    total.raise_to(&peak);
    if let Some(resources) = &spec.resources {
        let own = Amounts::read(&resources.requests, "spec.resources.requests", &mut invalid);
        for (name, amount) in own.iter().filter(|(name, _)| counts_for_pods(name)) {
            total.set(name, amount);
        }
    }
    let overhead = Amounts::read(&spec.overhead, "spec.overhead", &mut invalid);
    total.add_all(&overhead);
    Request { total, overhead, containers, invalid }
}

/// The amounts that a container with this request holds during an in-place resize.
fn held<'a>(
    requested: Amounts<'a>,
    container: &Container,
    statuses: &'a [ContainerStatus],
    infeasible: bool,
    invalid: &mut Vec<InvalidAmount<'a>>,
) -> Amounts<'a> {
    const ALLOCATED: &str = "status.containerStatuses.resources.requests";
    let status = statuses.iter().find(|status| status.name == container.name);
    let Some((status, resources)) = status.and_then(|status| Some((status, status.resources.as_ref()?)))
    else {
        return requested;
    };
    let mut held = Amounts::read(&resources.requests, ALLOCATED, invalid);
    held.raise_to(&Amounts::read(&status.allocated_resources, ALLOCATED, invalid));
    if !infeasible {
        held.raise_to(&requested);
    }
    held
}

/// Whether a resource can be requested at pod level.
fn counts_for_pods(name: &str) -> bool {
    name == resource::CPU || name == resource::MEMORY || name.starts_with(resource::HUGE_PAGES_PREFIX)
}

impl<'a> ContainerRequest<'a> {
    fn new(container: &'a Container, stage: Stage, amounts: Amounts<'a>) -> Self {
        Self { name: &container.name, stage, amounts }
    }
}

/// Amounts by resource, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts<'a>(SmallVec<[(&'a str, Quantity); 4]>);

impl<'a> Amounts<'a> {
    /// Reads a list; invalid amounts are collected and left out.
    fn read(resources: &'a Resources, field: &'static str, invalid: &mut Vec<InvalidAmount<'a>>) -> Self {
        let mut amounts = SmallVec::new();
        for (name, amount) in resources.iter() {
            match amount {
                // The list is sorted by name, and has each once.
                Amount::Exact(quantity) if *quantity >= Quantity::default() => {
                    amounts.push((name, *quantity));
                }
                Amount::Exact(_) | Amount::Bad(_) => {
                    invalid.push(InvalidAmount { field, resource: name, amount });
                }
            }
        }
        Self(amounts)
    }

    /// The amount of a resource, if the list has it.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(self.position(name).ok()?).map(|(_, amount)| *amount)
    }

    /// Names and amounts in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> + '_ {
        self.0.iter().copied()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn set(&mut self, name: &'a str, amount: Quantity) {
        match self.position(name) {
            Ok(at) => {
                if let Some((_, known)) = self.0.get_mut(at) {
                    *known = amount;
                }
            }
            Err(at) => self.0.insert(at, (name, amount)),
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.merge(other, Quantity::plus);
    }

    /// Raises every amount to at least the other's.
    fn raise_to(&mut self, other: &Self) {
        self.merge(other, |a, b| if b > a { b } else { a });
    }

    /// Merges two sorted lists in one pass; an entry of only one list is copied.
    fn merge(&mut self, other: &Self, combine: impl Fn(Quantity, Quantity) -> Quantity) {
        if other.0.is_empty() {
            return;
        }
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        let mut merged = SmallVec::with_capacity(self.0.len().max(other.0.len()));
        let (mut ours, mut theirs) = (self.0.iter().copied().peekable(), other.0.iter().copied().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            match a.0.cmp(b.0) {
                Ordering::Less => merged.extend(ours.next()),
                Ordering::Greater => merged.extend(theirs.next()),
                Ordering::Equal => {
                    merged.push((a.0, combine(a.1, b.1)));
                    ours.next();
                    theirs.next();
                }
            }
        }
        merged.extend(ours);
        merged.extend(theirs);
        self.0 = merged;
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (*known).cmp(name))
    }
}
