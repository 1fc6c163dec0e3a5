//! Replaces names of pod groups in sentences by what the user submitted: Job `team/hello` instead of `team/pg-hello-1f…`.

use kai_engine::input::Key;
use kai_view::ClusterView;
use kai_view::workload::Workload;

/// A sentence quotes the names of groups.
const QUOTE: char = '`';

/// The text with every quoted pod group that a workload owns under the name of the workload.
pub(super) fn replaced(text: &str, view: &ClusterView) -> String {
    let groups = &view.store.objects().pod_groups;
    with_names(text, |key| groups.get(key).map(|group| Workload::of(group)))
}

fn with_names(text: &str, workload: impl Fn(&Key) -> Option<Workload>) -> String {
    let named = |quoted: &str| {
        let (namespace, name) = quoted.split_once('/')?;
        let workload = workload(&Key::new(namespace, name)).filter(|workload| !workload.is_pod_group())?;
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

    #[test]
    fn owned_groups_are_named_by_their_workload() {
        let workload = |key: &Key| match key.name.as_str() {
            "pg-hello-1f" => Some(Workload { kind: "Job".to_owned(), name: "hello".to_owned() }),
            "train" => Some(Workload { kind: "PodGroup".to_owned(), name: "train".to_owned() }),
            _ => None,
        };
        assert_eq!(
            with_names("wait for `a/pg-hello-1f`, `a/train` to finish; raise `vision`\nan ` alone", workload),
            "wait for Job `a/hello`, `a/train` to finish; raise `vision`\nan ` alone"
        );
    }
}
