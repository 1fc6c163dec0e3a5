//! `kai schema`: the JSON schema of what a command prints with `-o json` or `--json`.

use crate::args::{Schema, Subject};
use crate::lint::finding::Finding;
use crate::migrate::MigrateView;
use crate::plan::summary::Summary;
use crate::simulate::json::SimulationView;
use crate::version::VersionView;
use anyhow::Result;
use kai_view::groups::GroupsView;
use kai_view::nodes::NodesView;
use kai_view::queues::QueuesView;
use kai_view::usage::UsageView;
use kai_view::what_if::WhatIfView;
use kai_view::why::WhyView;
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};

pub(crate) fn text(args: &Schema) -> Result<String> {
    let schema = match args.subject {
        Subject::Queues => dated::<QueuesView>(),
        Subject::Usage => dated::<UsageView>(),
        Subject::Jobs => dated::<GroupsView>(),
        Subject::Nodes => dated::<NodesView>(),
        Subject::Why => dated::<WhyView>(),
        Subject::WhatIf => schema_for!(WhatIfView),
        Subject::Version => schema_for!(VersionView),
        Subject::Plan => schema_for!(Summary),
        Subject::Simulate => schema_for!(SimulationView),
        Subject::Lint => schema_for!(Vec<Finding>),
        Subject::Group => schema_for!(crate::group::GroupsView),
        Subject::Migrate => schema_for!(MigrateView<'static>),
    };
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// The schema of a view, with the time at which the cluster was read.
fn dated<T: JsonSchema>() -> schemars::Schema {
    let mut schema = schema_for!(T);
    let add = |object: &mut Map<String, Value>| {
        let at =
            json!({"type": "string", "format": "date-time", "description": "When the cluster was read."});
        if let Some(properties) = object.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
            properties.insert("at".to_owned(), at);
        }
        if let Some(required) = object.entry("required").or_insert_with(|| json!([])).as_array_mut() {
            required.push("at".into());
        }
    };
    let object = schema.ensure_object();
    match object.get_mut("anyOf").and_then(Value::as_array_mut) {
        Some(alternatives) => alternatives.iter_mut().filter_map(Value::as_object_mut).for_each(add),
        None => add(object),
    }
    schema
}
