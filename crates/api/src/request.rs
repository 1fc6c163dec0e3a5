//! Says what a pod requests, by Kubernetes' own rules.
//!
//! Only requests count, never limits. Containers and sidecars run together; an ordinary init container runs alone but
//! for the sidecars declared before it, and whatever is larger decides, resource by resource. Where the pod itself
//! names CPU, memory or huge pages, that replaces what its containers add up to. Overhead comes on top. While the
//! requests of a running pod are being changed, the larger of what it has and what it wants counts; a change that its
//! node can never make does not.
//! Invariant: everybody who counts pods (the scheduler's view, the status of groups and queues) counts by this.
//! Not here: parts of GPUs, which annotations ask for (see [`share`](crate::share)), and devices of claims.

#[cfg(test)]
mod tests;

use crate::pod::{Container, ContainerStatus, Pod};
use crate::value::{Amount, Resources};
use crate::well_known::resource;
use kai_units::Quantity;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// What a pod requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Everything, overhead included. What is requested 0 times is mentioned too.
    pub total: Amounts<'a>,
    /// The part that is overhead.
    pub overhead: Amounts<'a>,
    /// Containers one by one: the ordinary ones, then init containers and sidecars.
    pub containers: Vec<ContainerRequest<'a>>,
    /// Amounts that are none, and count as nothing.
    pub odd: Vec<Odd<'a>>,
}

/// What one container requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it runs.
    pub stage: Stage,
    /// What it requests.
    pub amounts: Amounts<'a>,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// For as long as the pod does.
    Main,
    /// Before the others, to its end.
    Init,
    /// From its turn among the init containers until the pod ends.
    Sidecar,
}

/// An amount that is no quantity, or a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd<'a> {
    /// Which list of the pod has it.
    pub field: &'static str,
    /// Of which resource.
    pub resource: &'a str,
    /// The amount as given.
    pub amount: &'a Amount,
}

/// Says what a pod requests.
pub fn request(pod: &Pod) -> Request<'_> {
    const OF_CONTAINERS: &str = "spec.containers.resources.requests";
    let spec = &pod.spec;
    let infeasible = pod.status.is_resize_infeasible();
    let mut odd = Vec::new();
    let mut containers = Vec::with_capacity(spec.containers.len() + spec.init_containers.len());
    let mut total = Amounts::default();
    for container in &spec.containers {
        let amounts = Amounts::read(&container.resources.requests, OF_CONTAINERS, &mut odd);
        let amounts = held(amounts, container, &pod.status.container_statuses, infeasible, &mut odd);
        total.add_all(&amounts);
        containers.push(ContainerRequest::new(container, Stage::Main, amounts));
    }
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in &spec.init_containers {
        let amounts = Amounts::read(&container.resources.requests, OF_CONTAINERS, &mut odd);
        if container.is_sidecar() {
            let given = &pod.status.init_container_statuses;
            let amounts = held(amounts, container, given, infeasible, &mut odd);
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
        let own = Amounts::read(&resources.requests, "spec.resources.requests", &mut odd);
        for (name, amount) in own.iter().filter(|(name, _)| counts_for_pods(name)) {
            total.set(name, amount);
        }
    }
    let overhead = Amounts::read(&spec.overhead, "spec.overhead", &mut odd);
    total.add_all(&overhead);
    Request { total, overhead, containers, odd }
}

/// What a container holds that requests these amounts and may have been given others.
fn held<'a>(
    wanted: Amounts<'a>,
    container: &Container,
    statuses: &'a [ContainerStatus],
    infeasible: bool,
    odd: &mut Vec<Odd<'a>>,
) -> Amounts<'a> {
    const GIVEN: &str = "status.containerStatuses.resources.requests";
    let status = statuses.iter().find(|status| status.name == container.name);
    let Some((status, resources)) = status.and_then(|status| Some((status, status.resources.as_ref()?)))
    else {
        return wanted;
    };
    let mut held = Amounts::read(&resources.requests, GIVEN, odd);
    held.raise_to(&Amounts::read(&status.allocated_resources, GIVEN, odd));
    if !infeasible {
        held.raise_to(&wanted);
    }
    held
}

/// Whether a pod as a whole can request a resource.
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
    /// Reads a list; what is no amount is noted and left out.
    fn read(resources: &'a Resources, field: &'static str, odd: &mut Vec<Odd<'a>>) -> Self {
        let mut amounts = SmallVec::new();
        for (name, amount) in resources.iter() {
            match amount {
                // The list is sorted by name, and has each once.
                Amount::Exact(quantity) if *quantity >= Quantity::default() => {
                    amounts.push((name, *quantity));
                }
                Amount::Exact(_) | Amount::Bad(_) => odd.push(Odd { field, resource: name, amount }),
            }
        }
        Self(amounts)
    }

    /// The amount of a resource, where it is mentioned.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.position(name).ok().map(|at| self.0[at].1)
    }

    /// Names and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> + '_ {
        self.0.iter().copied()
    }

    /// Whether nothing is mentioned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn set(&mut self, name: &'a str, amount: Quantity) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = amount,
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

    /// Combines two sorted lists in one pass; what only one of them mentions is taken as it is.
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
