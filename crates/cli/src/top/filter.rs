//! What is shown: the objects of a queue, of a namespace, or with some text in their names.

use super::panes;
use super::state::PaneKind;
use kai_view::groups::GroupView;
use kai_view::queues::{QueueView, QueuesView};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// As it was typed.
    pub(super) text: String,
    /// Text in the names of one pane.
    words: Vec<String>,
    pane: Option<PaneKind>,
    /// The queue and those below it.
    queue: Option<String>,
    namespace: Option<String>,
}

impl Filter {
    /// Reads `queue:NAME`, `ns:NAME` and text in the names of a pane, separated by blanks.
    pub(super) fn read(text: &str, pane: PaneKind) -> Self {
        let mut filter = Self { text: text.trim().to_owned(), pane: Some(pane), ..Self::default() };
        for word in text.split_whitespace() {
            if let Some(queue) = word.strip_prefix("queue:") {
                filter.queue = Some(queue.to_owned());
            } else if let Some(namespace) = word.strip_prefix("ns:") {
                filter.namespace = Some(namespace.to_owned());
            } else {
                filter.words.push(word.to_lowercase());
            }
        }
        filter
    }

    /// The filter of options.
    pub(super) fn of(namespace: Option<&str>, queue: Option<&str>) -> Self {
        let namespace = namespace.map(|name| format!("ns:{name}"));
        let queue = queue.map(|name| format!("queue:{name}"));
        let text: Vec<String> = namespace.into_iter().chain(queue).collect();
        Self::read(&text.join(" "), PaneKind::Groups)
    }

    /// The queues of the filter's subtree; all without one.
    pub(super) fn queues<'a>(&self, view: &'a QueuesView) -> BTreeSet<&'a str> {
        let mut shown: BTreeSet<&str> = BTreeSet::new();
        // Children follow their parents.
        for queue in &view.queues {
            let is_below = queue.parent.as_deref().is_some_and(|parent| shown.contains(parent));
            if self.queue.as_ref().is_none_or(|wanted| *wanted == queue.name) || is_below {
                shown.insert(queue.name.as_str());
            }
        }
        shown
    }

    pub(super) fn has_queue(&self, queue: &QueueView, shown: &BTreeSet<&str>) -> bool {
        shown.contains(queue.name.as_str()) && self.has_name(PaneKind::Queues, &queue.name)
    }

    pub(super) fn has_group(&self, group: &GroupView, shown: &BTreeSet<&str>) -> bool {
        let is_in_queue = match &self.queue {
            None => true,
            Some(queue) => shown.contains(group.queue.as_str()) || *queue == group.queue,
        };
        let is_in_namespace = self.namespace.as_ref().is_none_or(|name| group.key.namespace == *name);
        is_in_queue && is_in_namespace && self.has_name(PaneKind::Groups, &panes::workload(group))
    }

    pub(super) fn has_name(&self, pane: PaneKind, name: &str) -> bool {
        let name = name.to_lowercase();
        self.pane != Some(pane) || self.words.iter().all(|word| name.contains(word))
    }
}
