//! Which objects a command shows: names, labels and namespaces as with kubectl.

use super::connection::Connection;
use crate::args;
use anyhow::{Context as _, Result, bail};
use kai_engine::input::Key;
use kai_object as object;
use kai_runtime::kind::ResourceKind;
use kai_runtime::url::query_value;
use kai_view::workload::{Workload, is_type_of};
use std::collections::BTreeSet;

/// The objects that a label selector selects; `None` without one. The server selects, so that the grammar is Kubernetes'.
pub(super) async fn selected(
    connection: &Connection,
    kind: &ResourceKind,
    selector: &args::Selector,
) -> Result<Option<BTreeSet<Key>>> {
    let Some(selector) = &selector.selector else { return Ok(None) };
    let path = format!("{}?labelSelector={}", kind.path(""), query_value(selector));
    let list = match connection.api.send("GET", &path, None).await {
        Ok(list) => list,
        Err(error) if error.code() == 400 => {
            bail!("--selector `{selector}`: {}; hint: use the form `team=a,tier!=web`", error.message())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("the cluster at {} cannot be read", connection.url));
        }
    };
    let items = list.get("items").and_then(serde_json::Value::as_array).into_iter().flatten();
    Ok(Some(items.map(|item| Key::new(object::namespace(item), object::name(item))).collect()))
}

/// Names of cluster-scoped objects, each with its type or without.
pub(super) fn plain_names(names: &[String], kind: &str) -> Result<Vec<String>> {
    let plain = |name: &String| match name.split_once('/') {
        None => Ok(name.clone()),
        Some((of, name)) if is_type_of(of, kind) => Ok(name.to_owned()),
        Some((of, _)) => {
            bail!("`{of}` in `{name}` is not a type of {}; hint: use the name alone", kind.to_lowercase())
        }
    };
    names.iter().map(plain).collect()
}

/// A pod group by its own name or that of its workload, with the type or without.
#[derive(Debug)]
pub(super) struct WorkloadName<'a> {
    pub(super) typed: &'a str,
    kind: Option<&'a str>,
    name: &'a str,
}

impl<'a> WorkloadName<'a> {
    pub(super) fn read(typed: &'a str) -> Self {
        match typed.split_once('/') {
            Some((kind, name)) => Self { typed, kind: Some(kind), name },
            None => Self { typed, kind: None, name: typed },
        }
    }

    pub(super) fn is_of(&self, key: &Key, workload: &Workload) -> bool {
        let is_kind = |kind: &str| self.kind.is_none_or(|typed| is_type_of(typed, kind));
        self.name == key.name && is_kind("PodGroup") || self.name == workload.name && is_kind(&workload.kind)
    }
}

/// The namespace that a command shows; `None` shows all.
pub(super) fn namespace<'a>(args: &'a args::Namespace, connection: &'a Connection) -> Option<&'a str> {
    if args.all_namespaces {
        return None;
    }
    Some(args.namespace.as_deref().unwrap_or(&connection.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_their_type() {
        let names = |names: &[&str]| {
            plain_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), "Node")
        };
        assert_eq!(names(&["a", "node/b", "nodes/c", "no/d"]).expect("all are nodes"), ["a", "b", "c", "d"]);
        let error = names(&["queue/a"]).expect_err("it is another type").to_string();
        assert!(error.contains("hint: "), "{error}");
    }

    #[test]
    fn pod_group_has_the_names_of_its_workload_and_its_own() {
        let key = Key::new("a", "pg-hello-1f");
        let workload = Workload { kind: "Job".to_owned(), name: "hello".to_owned() };
        for (typed, expected) in [
            ("hello", true),
            ("job/hello", true),
            ("jobs.batch/hello", true),
            ("pg-hello-1f", true),
            ("podgroup/pg-hello-1f", true),
            ("podgroup/hello", false),
            ("job/pg-hello-1f", false),
            ("pod/hello", false),
            ("hell", false),
        ] {
            assert_eq!(WorkloadName::read(typed).is_of(&key, &workload), expected, "{typed}");
        }
    }
}
