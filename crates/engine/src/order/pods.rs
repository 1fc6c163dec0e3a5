//! The task order: compares pods of a pod set.

use crate::cluster::Cluster;
use crate::cluster::pod::Pod;
use crate::ids::PodIdx;
use crate::input::TaskPriority;
use crate::plugin::{PodOrder, Registry};
use std::cmp::Ordering;

/// Compares two pods; `Less` comes first.
pub fn compare(cluster: &Cluster, registry: &Registry, left: PodIdx, right: PodIdx) -> Ordering {
    let (l, r) = (&cluster.pods[left], &cluster.pods[right]);
    for entry in &registry.pod_order {
        let ordering = match entry {
            PodOrder::Kubeflow => r.kubeflow_leader.cmp(&l.kubeflow_leader),
            PodOrder::Ray => r.ray_head.cmp(&l.ray_head),
            PodOrder::TaskPriority => by_task_priority(l.task_priority, r.task_priority),
            PodOrder::Custom(order) => order.compare(cluster, left, right),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    fallback(cluster, l, r)
}

fn fallback(cluster: &Cluster, l: &Pod, r: &Pod) -> Ordering {
    l.created.cmp(&r.created).then_with(|| cluster.names.text(l.uid).cmp(cluster.names.text(r.uid)))
}

/// Pods with the label first, larger values first, invalid values after valid ones.
pub fn by_task_priority(left: TaskPriority, right: TaskPriority) -> Ordering {
    use TaskPriority::{Absent, Invalid, Value};
    match (left, right) {
        (Absent, Absent) => Ordering::Equal,
        (Absent | Invalid, Invalid | Value(_)) => Ordering::Greater,
        (Invalid | Value(_), Absent) | (Value(_), Invalid) => Ordering::Less,
        (Value(l), Value(r)) => r.cmp(&l),
    }
}
