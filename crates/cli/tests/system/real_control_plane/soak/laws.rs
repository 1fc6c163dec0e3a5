//! The laws as plain functions of observed objects. No code of the components is used: objects are JSON, quantities and
//! sums are computed here.
//!
//! At every observed revision: no node has more in use than it has, no GPU is shared beyond one whole, no device is
//! allocated twice, a bound pod keeps its node, no kubelet rejects a pod, a gang is not partly bound for long, and no
//! reservation stays without a user for long. Once nothing changes any more: every pod runs, every shared GPU is reserved,
//! and the status of the queues equals the sum of their pods.

mod quantity;
#[cfg(test)]
mod tests;

pub(super) use quantity::Amounts;
use quantity::{add_requests, amounts};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// On pods of a gang: its name.
pub(super) const GANG: &str = "soak/gang";
/// On pods of a gang: how many of them must run together.
pub(super) const MINIMUM: &str = "soak/minimum";

/// Memory of each GPU of the nodes.
pub(super) const GPU_MEMORY_MIB: i64 = 81_559;

/// A gang may be partly bound this long: KAI's grace period for stale groups (60 s), failed leaders (20 s each), restarts.
const PARTLY_BOUND_MAX: Duration = Duration::from_mins(3);
/// A reservation may have no user this long: its pod is being bound, or the binder is being replaced.
const UNUSED_MAX: Duration = Duration::from_mins(2);

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Pod,
    Node,
    Claim,
}

/// The observed objects, and which laws they broke.
#[derive(Debug, Default)]
pub(super) struct Laws {
    /// Namespace of the workloads.
    namespace: String,
    /// Namespace of the reservation pods.
    reservations: String,
    /// By uid.
    objects: BTreeMap<Kind, BTreeMap<String, Value>>,
    /// The last known allocatable resources; a deleted node keeps its pods until they are deleted.
    allocatable: BTreeMap<String, Amounts>,
    /// Node of every pod that was ever bound, by uid.
    bound: BTreeMap<String, String>,
    /// Since when a gang is partly bound.
    partly: BTreeMap<String, Duration>,
    /// Since when a reservation has no user, by uid.
    unused: BTreeMap<String, Duration>,
    pub(super) violations: BTreeSet<String>,
    pub(super) events: usize,
    pub(super) checks: usize,
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

fn node_of(pod: &Value) -> &str {
    text(pod, "/spec/nodeName")
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Bound and not terminal.
fn is_active(pod: &Value) -> bool {
    !node_of(pod).is_empty() && !is_terminal(pod)
}

fn gpu_group(pod: &Value) -> &str {
    text(pod, "/metadata/labels/runai-gpu-group")
}

/// Thousandths of a GPU that a pod requests as a fraction.
fn requested_fraction(pod: &Value) -> i64 {
    let fraction: f64 = text(pod, "/metadata/annotations/gpu-fraction").parse().unwrap_or(0.0);
    (fraction * 1_000.0).round() as i64
}

/// Thousandths of the GPU that a pod shares: its fraction, or its part of the memory.
fn fraction(pod: &Value) -> i64 {
    let memory: f64 = text(pod, "/metadata/annotations/gpu-memory").parse().unwrap_or(0.0);
    requested_fraction(pod) + (memory / GPU_MEMORY_MIB as f64 * 1_000.0).round() as i64
}

fn gang(pod: &Value) -> Option<(&str, usize)> {
    let annotations = pod.pointer("/metadata/annotations")?;
    Some((annotations.get(GANG)?.as_str()?, annotations.get(MINIMUM)?.as_str()?.parse().ok()?))
}

impl Laws {
    pub(super) fn new(namespace: &str, reservations: &str) -> Self {
        Self { namespace: namespace.to_owned(), reservations: reservations.to_owned(), ..Self::default() }
    }

    /// Applies a watch event; `now` is the time since the start.
    pub(super) fn apply(&mut self, kind: Kind, event: &str, object: Value, now: Duration) {
        self.events += 1;
        self.observe(kind, &object);
        let of_kind = self.objects.entry(kind).or_default();
        if event == "DELETED" {
            of_kind.remove(uid(&object));
        } else {
            of_kind.insert(uid(&object).to_owned(), object);
        }
        self.check(now);
    }

    /// Replaces all objects of a kind, after a list.
    pub(super) fn replace(&mut self, kind: Kind, objects: Vec<Value>, now: Duration) {
        self.events += objects.len();
        for object in &objects {
            self.observe(kind, object);
        }
        let by_uid = objects.into_iter().map(|object| (uid(&object).to_owned(), object)).collect();
        self.objects.insert(kind, by_uid);
        self.check(now);
    }

    /// Laws about a single object.
    fn observe(&mut self, kind: Kind, object: &Value) {
        match kind {
            Kind::Claim => {}
            Kind::Node => {
                self.allocatable
                    .insert(name(object).to_owned(), amounts(object.pointer("/status/allocatable")));
            }
            Kind::Pod => {
                let node = node_of(object);
                let known = self.bound.entry(uid(object).to_owned()).or_default();
                if !known.is_empty() && known != node {
                    let moved = format!("pod {} was on {known} and is on `{node}`", name(object));
                    self.violations.insert(moved);
                }
                node.clone_into(known);
                let reason = text(object, "/status/reason");
                if reason.starts_with("OutOf") || reason == "UnexpectedAdmissionError" {
                    let message = text(object, "/status/message");
                    self.violations
                        .insert(format!("{node} rejected pod {}: {reason}: {message}", name(object)));
                }
                if is_active(object) && fraction(object) > 0 && gpu_group(object).is_empty() {
                    self.violations.insert(format!("pod {} is bound and shares no known GPU", name(object)));
                }
            }
        }
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    fn workload_pods(&self) -> impl Iterator<Item = &Value> {
        self.of_kind(Kind::Pod).filter(|pod| text(pod, "/metadata/namespace") == self.namespace)
    }

    fn reservation_pods(&self) -> impl Iterator<Item = &Value> {
        self.of_kind(Kind::Pod).filter(|pod| text(pod, "/metadata/namespace") == self.reservations)
    }

    /// Laws that hold at every revision.
    pub(super) fn check(&mut self, now: Duration) {
        self.checks += 1;
        let mut found = self.exceeded_nodes();
        found.extend(self.exceeded_gpus());
        found.extend(self.devices_allocated_twice());
        found.extend(self.partly_bound_gangs(now));
        found.extend(self.leaked_reservations(now));
        self.violations.extend(found);
    }

    fn exceeded_nodes(&self) -> Vec<String> {
        let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
        for pod in self.of_kind(Kind::Pod).filter(|pod| is_active(pod)) {
            add_requests(used.entry(node_of(pod)).or_default(), pod);
        }
        let mut found = Vec::new();
        for (node, used) in used {
            let Some(allocatable) = self.allocatable.get(node) else { continue };
            for (resource, amount) in used {
                let limit = allocatable.get(&resource).copied().unwrap_or(0);
                if amount > limit {
                    let (amount, limit) = (amount as f64 / 1e3, limit as f64 / 1e3);
                    found.push(format!("{node} has {limit} {resource}, and {amount} are in use"));
                }
            }
        }
        found
    }

    fn exceeded_gpus(&self) -> Vec<String> {
        let mut used: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for pod in self.workload_pods().filter(|pod| is_active(pod) && fraction(pod) > 0) {
            *used.entry((node_of(pod), gpu_group(pod))).or_default() += fraction(pod);
        }
        let exceeded = used.into_iter().filter(|(_, used)| *used > 1_000);
        exceeded
            .map(|((node, group), used)| format!("{used} ‰ of GPU `{group}` on {node} are in use"))
            .collect()
    }

    fn devices_allocated_twice(&self) -> Vec<String> {
        let mut users: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
        for claim in self.of_kind(Kind::Claim) {
            for device in list(claim, "/status/allocation/devices/results") {
                let device = (text(device, "/driver"), text(device, "/pool"), text(device, "/device"));
                users.entry(device).or_default().push(name(claim));
            }
        }
        let shared = users.into_iter().filter(|(_, claims)| claims.len() > 1);
        shared.map(|(device, claims)| format!("the device {device:?} is allocated to {claims:?}")).collect()
    }

    /// Bound pods, all pods and the minimum of every gang; pods that are being deleted do not count.
    fn gangs(&self) -> BTreeMap<&str, (usize, usize, usize)> {
        let mut gangs: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
        for pod in self.workload_pods().filter(|pod| !is_deleting(pod) && !is_terminal(pod)) {
            if let Some((gang, minimum)) = gang(pod) {
                let gang = gangs.entry(gang).or_default();
                *gang = (gang.0 + usize::from(is_active(pod)), gang.1 + 1, minimum);
            }
        }
        gangs
    }

    fn partly_bound_gangs(&mut self, now: Duration) -> Vec<String> {
        let gangs = self.gangs();
        let partly: BTreeMap<String, String> = gangs
            .into_iter()
            .filter(|(_, (bound, _, minimum))| *bound > 0 && bound < minimum)
            .map(|(gang, (bound, _, minimum))| (gang.to_owned(), format!("{bound} of {minimum}")))
            .collect();
        self.partly.retain(|gang, _| partly.contains_key(gang));
        let mut found = Vec::new();
        for (gang, state) in partly {
            let since = *self.partly.entry(gang.clone()).or_insert(now);
            if now.saturating_sub(since) > PARTLY_BOUND_MAX {
                found.push(format!("{state} pods of {gang} are bound for more than {PARTLY_BOUND_MAX:?}"));
            }
        }
        found
    }

    /// Reservations without a pod that uses their GPU.
    fn unused_reservations(&self) -> Vec<&Value> {
        let used: BTreeSet<&str> =
            self.workload_pods().filter(|pod| !is_terminal(pod)).map(gpu_group).collect();
        self.reservation_pods().filter(|pod| !used.contains(gpu_group(pod))).collect()
    }

    /// One that is being deleted may wait for its node.
    fn leaked_reservations(&mut self, now: Duration) -> Vec<String> {
        let unused = self.unused_reservations().into_iter().filter(|pod| !is_deleting(pod));
        let unused: BTreeMap<String, String> =
            unused.map(|pod| (uid(pod).to_owned(), name(pod).to_owned())).collect();
        self.unused.retain(|uid, _| unused.contains_key(uid));
        let mut found = Vec::new();
        for (uid, name) in unused {
            let since = *self.unused.entry(uid).or_insert(now);
            if now.saturating_sub(since) > UNUSED_MAX {
                found.push(format!("the reservation {name} has no user for more than {UNUSED_MAX:?}"));
            }
        }
        found
    }

    /// What is still to happen until everything that fits runs. A gang that has lost pods for good cannot run.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let gangs = self.gangs();
        let cannot_run = |pod: &Value| {
            let (_, all, minimum) =
                gang(pod).and_then(|(gang, _)| gangs.get(gang)).copied().unwrap_or_default();
            all < minimum
        };
        let waiting = self.workload_pods().filter(|pod| !is_terminal(pod) && !cannot_run(pod));
        let waiting = waiting.filter(|pod| text(pod, "/status/phase") != "Running" || is_deleting(pod));
        let mut found: Vec<String> = waiting.map(describe).collect();
        let unused = self.unused_reservations().into_iter();
        found.extend(unused.map(|pod| format!("the reservation {} has no user", name(pod))));
        let reserved: BTreeSet<(&str, &str)> = self
            .reservation_pods()
            .filter(|pod| is_active(pod))
            .map(|pod| (node_of(pod), gpu_group(pod)))
            .collect();
        let sharing = self.workload_pods().filter(|pod| is_active(pod) && fraction(pod) > 0);
        let unreserved = sharing.filter(|pod| !reserved.contains(&(node_of(pod), gpu_group(pod))));
        found.extend(unreserved.map(|pod| format!("no reservation holds the GPU of pod {}", name(pod))));
        found
    }

    /// Pods of a workload that run: those with this name, or a name of which it is a part.
    pub(super) fn running(&self, workload: &str) -> usize {
        let runs = |pod: &&Value| text(pod, "/status/phase") == "Running" && !is_deleting(pod);
        let ours = |pod: &&Value| name(pod) == workload || name(pod).starts_with(&format!("{workload}-"));
        self.workload_pods().filter(ours).filter(runs).count()
    }

    /// Differences between the status of the queues and their pods.
    pub(super) fn wrong_queues(&self, queues: &[Value]) -> Vec<String> {
        let mut expected: BTreeMap<&str, [Amounts; 2]> = BTreeMap::new();
        let parents: BTreeMap<&str, &str> =
            queues.iter().map(|queue| (name(queue), text(queue, "/spec/parentQueue"))).collect();
        for pod in self.workload_pods().filter(|pod| !is_terminal(pod)) {
            let mut queue = text(pod, "/metadata/labels/kai.scheduler~1queue");
            while !queue.is_empty() {
                let [requested, allocated] = expected.entry(queue).or_default();
                // Memory of a GPU is a part of one only where the node is known.
                let allocated = is_active(pod).then_some((allocated, fraction(pod)));
                for (sum, part) in [(requested, requested_fraction(pod))].into_iter().chain(allocated) {
                    add_requests(sum, pod);
                    *sum.entry("nvidia.com/gpu".to_owned()).or_default() += part;
                }
                queue = parents.get(queue).copied().unwrap_or_default();
            }
        }
        let mut wrong = Vec::new();
        for queue in queues {
            let [requested, allocated] = expected.remove(name(queue)).unwrap_or_default();
            for (field, sum) in [("requested", requested), ("allocated", allocated)] {
                let status = amounts(queue.pointer(&format!("/status/{field}")));
                for resource in ["nvidia.com/gpu", "cpu", "memory"] {
                    let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0) as f64 / 1e3;
                    let (status, pods) = (of(&status), of(&sum));
                    if status.to_bits() != pods.to_bits() {
                        wrong.push(format!(
                            "{field} {resource} of queue {} is {status}, that of its pods {pods}",
                            name(queue)
                        ));
                    }
                }
            }
        }
        wrong
    }

    /// Claims that are reserved for pods that do not exist.
    pub(super) fn leaked_claims(&self) -> Vec<String> {
        let pods: BTreeSet<&str> = self.workload_pods().map(uid).collect();
        let claims = self.of_kind(Kind::Claim);
        let leaked = claims.filter(|claim| {
            list(claim, "/status/reservedFor").any(|user| !pods.contains(text(user, "/uid")))
        });
        leaked.map(|claim| format!("the claim {} is reserved for a pod that is gone", name(claim))).collect()
    }

    /// Pods and claims of the workloads, and reservations.
    pub(super) fn remaining(&self) -> Vec<String> {
        let pods = self.workload_pods().chain(self.reservation_pods());
        pods.chain(self.of_kind(Kind::Claim)).map(|object| format!("{} remains", name(object))).collect()
    }

    /// Pods that were ever seen, and how many of them were bound.
    pub(super) fn pods_seen(&self) -> (usize, usize) {
        (self.bound.len(), self.bound.values().filter(|node| !node.is_empty()).count())
    }

    /// Pods of the workloads, and how many of them run.
    pub(super) fn pods_now(&self) -> (usize, usize) {
        let runs = |pod: &&Value| text(pod, "/status/phase") == "Running";
        (self.workload_pods().count(), self.workload_pods().filter(runs).count())
    }
}

fn describe(pod: &Value) -> String {
    let scheduled =
        list(pod, "/status/conditions").find(|condition| text(condition, "/type") == "PodScheduled");
    let message = scheduled.map_or("", |condition| text(condition, "/message"));
    let deleting = if is_deleting(pod) { " and is being deleted" } else { "" };
    let (name, phase, node) = (name(pod), text(pod, "/status/phase"), node_of(pod));
    format!("pod {name} is {phase} on `{node}`{deleting}: {message}")
}
