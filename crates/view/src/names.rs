//! Pod groups under the names that users submitted: Job `team/hello` instead of `team/pg-hello-1f…`.

use crate::workload::Workload;
use kai_cache::Objects;
use kai_engine::input::Key;

/// A sentence quotes the names of groups.
const QUOTE: char = '`';

/// The workloads of pod groups. Groups that are not known, and those that nothing owns, keep their names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    objects: Option<&'a Objects>,
}

impl<'a> Names<'a> {
    pub fn of(objects: &'a Objects) -> Self {
        Self { objects: Some(objects) }
    }

    fn workload(self, group: &Key) -> Option<Workload> {
        let group = self.objects?.pod_groups.get(group)?;
        Some(Workload::of(group)).filter(|workload| !workload.is_pod_group())
    }

    /// `Job team/hello`, or `team/train` where nothing owns the pod group.
    pub fn group(&self, group: &Key) -> String {
        match self.workload(group) {
            Some(Workload { kind, name }) => format!("{kind} {}/{name}", group.namespace),
            None => group.to_string(),
        }
    }

    /// A sentence with every quoted pod group that a workload owns under the name of the workload.
    pub fn replaced(&self, text: &str) -> String {
        with_names(text, |key| self.workload(key))
    }
}

fn with_names(text: &str, workload: impl Fn(&Key) -> Option<Workload>) -> String {
    let named = |quoted: &str| {
        let (namespace, name) = quoted.split_once('/')?;
        let workload = workload(&Key::new(namespace, name))?;
        Some(format!("{} `{namespace}/{}`", workload.kind, workload.name))
    };
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, quoted, after)) = next_quoted(rest) {
        all.push_str(before);
        match named(quoted) {
            Some(name) => all.push_str(&name),
            None => all.extend(["`", quoted, "`"]),
        }
        rest = after;
    }
    all + rest
}

/// What is before, in and after the next pair of quotes.
fn next_quoted(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(QUOTE)?;
    let (quoted, after) = rest.split_once(QUOTE)?;
    Some((before, quoted, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_cache::object::PodGroup;
    use kai_cache::{Settings, Store};
    use serde_json::{from_value, json};

    #[test]
    fn owned_groups_are_named_by_their_workload() {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "hello", "uid": "u"});
        let mut store = Store::new(Settings::default());
        for (name, owners) in [("pg-hello-1f", json!([owner])), ("train", json!([]))] {
            let metadata = json!({"namespace": "a", "name": name, "ownerReferences": owners});
            let group: PodGroup = from_value(json!({"metadata": metadata})).expect("it is a pod group");
            store.apply(group);
        }
        let names = Names::of(store.objects());
        assert_eq!(
            names.replaced("wait for `a/pg-hello-1f`, `a/train` to finish; raise `vision`\nan ` alone"),
            "wait for Job `a/hello`, `a/train` to finish; raise `vision`\nan ` alone"
        );
        assert_eq!(names.group(&Key::new("a", "pg-hello-1f")), "Job a/hello");
        assert_eq!(names.group(&Key::new("a", "train")), "a/train");
        assert_eq!(names.group(&Key::new("b", "pg-hello-1f")), "b/pg-hello-1f", "it is not known");
    }
}
