//! Why the scheduler does not have the queue of a group: which queue on the way to the top is missing, and why.

use crate::suggestions::suggestions;
use kai_api::well_known::label;
use kai_cache::store::Store;
use kai_cache::translate::queue::is_selected;
use kai_engine::explain::Sentence;
use kai_engine::input::Key;
use std::collections::BTreeSet;

/// The first queue on the way from a queue to the top that the scheduler cannot use.
pub(crate) struct Gap<'a> {
    /// The queue below it; empty for the queue itself.
    pub below: &'a str,
    pub queue: &'a str,
    pub problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Absent,
    OtherNodePool,
    /// It is its own ancestor.
    Cycle,
}

pub(crate) fn find<'a>(store: &'a Store, queue: &'a str) -> Option<Gap<'a>> {
    let queues = &store.objects().queues;
    let mut passed = BTreeSet::new();
    let (mut below, mut at) = ("", queue);
    loop {
        let gap = |problem| Some(Gap { below, queue: at, problem });
        let Some(object) = queues.get(&Key::new("", at)) else { return gap(Problem::Absent) };
        if !is_selected(object, store.settings()) {
            return gap(Problem::OtherNodePool);
        }
        if !passed.insert(at) {
            return gap(Problem::Cycle);
        }
        (below, at) = (at, object.spec.parent_queue.as_str());
        if at.is_empty() || !store.settings().full_hierarchy_fairness {
            return None;
        }
    }
}

/// What is wrong with a queue or one of its parents; `None` where nothing is.
pub(crate) fn explain(store: &Store, queue: &str) -> Option<Sentence> {
    let Gap { below, queue: at, problem } = find(store, queue)?;
    Some(match problem {
        Problem::Absent => absent(store, below, at),
        Problem::OtherNodePool => of_another_pool(store, below, at),
        Problem::Cycle => Sentence {
            text: format!("queue `{at}` is below itself, so it and the queues below it run nothing"),
            hint: Some(format!("name another `spec.parentQueue` in queue `{at}`, or none")),
        },
    })
}

fn absent(store: &Store, below: &str, name: &str) -> Sentence {
    if !below.is_empty() {
        return Sentence {
            text: format!("queue `{name}`, the parent of queue `{below}`, does not exist"),
            hint: Some(format!("create it, or name another `spec.parentQueue` in queue `{below}`")),
        };
    }
    let known = store.objects().queues.keys().map(|key| ("", key.name.as_str()));
    let similar: Vec<String> =
        suggestions(("", name), known).iter().map(|name| name.trim_start_matches('/').to_owned()).collect();
    let did_you_mean =
        if similar.is_empty() { String::new() } else { format!(", such as `{}`", similar.join("` or `")) };
    Sentence {
        text: format!("queue `{name}` does not exist"),
        hint: Some(format!(
            "create the queue, or correct its name in the label `{}`{did_you_mean}",
            label::QUEUE
        )),
    }
}

fn of_another_pool(store: &Store, below: &str, name: &str) -> Sentence {
    let parent = if below.is_empty() { String::new() } else { format!(", the parent of queue `{below}`,") };
    let queue = store.objects().queues.get(&Key::new("", name));
    let pool = queue.and_then(|queue| queue.metadata.labels.as_ref()?.get(label::NODE_POOL));
    let pool = pool.map_or_else(|| "no node pool".to_owned(), |pool| format!("node pool `{pool}`"));
    Sentence {
        text: format!("queue `{name}`{parent} belongs to {pool}, which this scheduler does not serve"),
        hint: Some(format!(
            "give all queues from the top to the group's the same label `{}`",
            label::NODE_POOL
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::object::Objects;
    use kai_cache::settings::Settings;
    use serde_json::{Value, json};

    fn store(queues: &[Value]) -> Store {
        let mut objects = Objects::default();
        for queue in queues {
            let name = queue["metadata"]["name"].as_str().expect("a name");
            let queue = serde_json::from_value(queue.clone()).expect("a queue");
            objects.queues.insert(Key::new("", name), queue);
        }
        let settings = Settings { node_pool_key: label::NODE_POOL.to_owned(), ..Settings::default() };
        Store::of(settings, objects)
    }

    fn queue(name: &str, parent: &str, pool: Option<&str>) -> Value {
        let labels = pool.map_or_else(|| json!({}), |pool| json!({ label::NODE_POOL: pool }));
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentQueue": parent}})
    }

    #[test]
    fn queue_on_the_way_to_the_top_that_is_missing_is_named() {
        let store = store(&[
            queue("team", "", None),
            queue("leaf", "gone", None),
            queue("a", "b", None),
            queue("b", "a", None),
            queue("east", "", Some("east")),
            queue("mixed", "east", None),
        ]);
        let text =
            |name: &str| explain(&store, name).map(|sentence| sentence.to_string()).unwrap_or_default();
        assert_eq!(text("team"), "");
        assert_eq!(
            text("taem"),
            "queue `taem` does not exist; hint: create the queue, or correct its name in the label \
             `kai.scheduler/queue`, such as `team`"
        );
        assert_eq!(
            text("leaf"),
            "queue `gone`, the parent of queue `leaf`, does not exist; hint: create it, or name another \
             `spec.parentQueue` in queue `leaf`"
        );
        assert_eq!(
            text("a"),
            "queue `a` is below itself, so it and the queues below it run nothing; hint: name another \
             `spec.parentQueue` in queue `a`, or none"
        );
        assert_eq!(
            text("mixed"),
            "queue `east`, the parent of queue `mixed`, belongs to node pool `east`, which this scheduler does not \
             serve; hint: give all queues from the top to the group's the same label `kai.scheduler/node-pool`"
        );
    }
}
