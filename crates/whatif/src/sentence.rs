//! Changes as sentences.

use crate::change::{Bound, Change};
use kai_engine::input::WHOLE_GPU;
use kai_engine::verdict::QueueResource;

/// A change as an instruction.
pub fn sentence(change: &Change) -> String {
    match change {
        Change::QueueBound { queue, bound, resource, from, to } => {
            let text = |bound: &Option<i64>| {
                bound.map_or_else(|| "unlimited".to_owned(), |of| number(*resource, of))
            };
            format!(
                "set the {} {} of queue `{queue}` to {} (now {})",
                resource_name(*resource),
                bound_name(*bound),
                text(to),
                text(from)
            )
        }
        Change::MinMember { sub_group, from, to, .. } => {
            let of = sub_group.as_ref().map_or_else(String::new, |name| format!(" of sub-group `{name}`"));
            format!("lower `minMember`{of} from {from} to {to}")
        }
        Change::TopologyLevel { sub_group, from, to, .. } => {
            let of = sub_group.as_ref().map_or_else(String::new, |name| format!(" of sub-group `{name}`"));
            match to {
                Some(to) => format!("relax the required topology level{of} from `{from}` to `{to}`"),
                None => format!("remove the required topology level `{from}`{of}"),
            }
        }
        Change::PriorityClass { from, to, .. } if from.is_empty() => format!("use the priority class `{to}`"),
        Change::PriorityClass { from, to, .. } => {
            format!("use the priority class `{to}` instead of `{from}`")
        }
        Change::AddNodesLike { node, count: 1 } => format!("add a node like `{node}`"),
        Change::AddNodesLike { node, count } => format!("add {count} nodes like `{node}`"),
        Change::AddNodes { gpus, count } => format!("add {count} nodes with {gpus} GPUs each"),
        Change::Finish { groups } => {
            let names: Vec<String> = groups.iter().map(|group| format!("`{group}`")).collect();
            format!("wait for {} to finish", names.join(", "))
        }
        Change::Drain { node } => format!("drain `{node}`"),
        Change::Put(object) => format!("apply {} `{}`", object.kind(), object.key()),
    }
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Quota => "quota",
        Bound::Limit => "limit",
    }
}

fn resource_name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Gpu => "GPU",
        QueueResource::Cpu => "CPU",
        QueueResource::Memory => "memory",
    }
}

/// An amount without the name of its resource: GPUs, cores, megabytes.
fn number(resource: QueueResource, amount: i64) -> String {
    // The precision of GPU amounts.
    let rounded = |number: f64| ((number * 1e6).round() / 1e6).to_string();
    match resource {
        QueueResource::Gpu => rounded(amount as f64 / WHOLE_GPU as f64),
        QueueResource::Cpu => rounded(amount as f64 / 1_000.0),
        QueueResource::Memory => format!("{} MB", amount / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_in_the_units_of_a_queue() {
        let text = |resource, from: i64, to: Option<i64>| {
            let (queue, bound) = ("a".to_owned(), Bound::Limit);
            sentence(&Change::QueueBound { queue, bound, resource, from: Some(from), to })
        };
        let gpu = text(QueueResource::Gpu, 2_000_000, Some(2_500_000));
        assert_eq!(gpu, "set the GPU limit of queue `a` to 2.5 (now 2)");
        let cpu = text(QueueResource::Cpu, 1_500, Some(16_000));
        assert_eq!(cpu, "set the CPU limit of queue `a` to 16 (now 1.5)");
        let memory = text(QueueResource::Memory, 1_000_000, None);
        assert_eq!(memory, "set the memory limit of queue `a` to unlimited (now 1 MB)");
    }
}
