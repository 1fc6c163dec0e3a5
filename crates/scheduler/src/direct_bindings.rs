//! Bindings that the scheduler posts itself, from the decision until the watch has delivered the pod with its node.
//!
//! The pod counts as bound by its assumed bind request (`assumed_bindings`), which the server never gets. Each decision has a
//! number: a response that arrives after the binding was withdrawn and decided anew concerns the earlier one.

use kai_api::BindRequest;
use kai_engine::input::Key;
use kai_units::Timestamp;
use std::collections::BTreeMap;
use tokio::time::Instant;

#[derive(Clone, Debug)]
pub(crate) struct DirectBinding {
    /// Given by [`DirectBindings::add`].
    pub(crate) number: u64,
    /// The bind request that the pod is assumed by, and that it gets when it cannot be bound directly.
    pub(crate) request: BindRequest,
    /// What the Binding adds to the annotations of the pod.
    pub(crate) annotations: BTreeMap<&'static str, String>,
    pub(crate) pod_created: Option<Timestamp>,
    pub(crate) decided: Timestamp,
    /// Attempts that failed transiently.
    pub(crate) failures: u32,
    /// Whether the server has confirmed the binding.
    pub(crate) is_confirmed: bool,
}

impl DirectBinding {
    pub(crate) fn new(
        request: BindRequest,
        annotations: BTreeMap<&'static str, String>,
        pod_created: Option<Timestamp>,
        decided: Timestamp,
    ) -> Self {
        Self { number: 0, request, annotations, pod_created, decided, failures: 0, is_confirmed: false }
    }
}

/// By pod.
#[derive(Debug, Default)]
pub(crate) struct DirectBindings {
    bindings: BTreeMap<Key, DirectBinding>,
    decided: u64,
    /// The role of the scheduler did not grant the right; it is tried again then.
    denied_until: Option<Instant>,
}

impl DirectBindings {
    pub(crate) fn is_permitted(&self, now: Instant) -> bool {
        self.denied_until.is_none_or(|until| until <= now)
    }

    pub(crate) fn deny_until(&mut self, until: Instant) {
        self.denied_until = Some(until);
    }

    /// Adds a decision; returns its number.
    pub(crate) fn add(&mut self, pod: Key, mut binding: DirectBinding) -> u64 {
        self.decided += 1;
        binding.number = self.decided;
        self.bindings.insert(pod, binding);
        self.decided
    }

    /// The binding of a pod, unless another one was decided meanwhile.
    pub(crate) fn get(&mut self, pod: &Key, number: u64) -> Option<&mut DirectBinding> {
        self.bindings.get_mut(pod).filter(|binding| binding.number == number)
    }

    pub(crate) fn of_pod(&self, pod: &Key) -> Option<&DirectBinding> {
        self.bindings.get(pod)
    }

    pub(crate) fn remove(&mut self, pod: &Key) -> Option<DirectBinding> {
        self.bindings.remove(pod)
    }

    /// The pods, with the numbers of their bindings and whether they are confirmed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &DirectBinding)> {
        self.bindings.iter()
    }
}
