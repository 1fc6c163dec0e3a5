//! `kai schema`: the JSON schema of what a command prints with `-o json`.

use crate::args::{Schema, Subject};
use crate::version::VersionView;
use anyhow::Result;
use kai_view::groups::GroupsView;
use kai_view::nodes::NodesView;
use kai_view::queues::QueuesView;
use kai_view::usage::UsageView;
use kai_view::what_if::WhatIfView;
use kai_view::why::WhyView;
use schemars::{JsonSchema, schema_for};

pub(crate) fn text(args: &Schema) -> Result<String> {
    let schema = match args.subject {
        Subject::Queues => dated::<QueuesView>(),
        Subject::Usage => dated::<UsageView>(),
        Subject::Jobs => dated::<GroupsView>(),
        Subject::Nodes => dated::<NodesView>(),
        Subject::Why => dated::<WhyView>(),
        Subject::WhatIf => schema_for!(WhatIfView),
        Subject::Version => schema_for!(VersionView),
    };
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// The schema of a view, with the time at which the cluster was read.
fn dated<T: JsonSchema>() -> schemars::Schema {
    let mut schema = schema_for!(T);
    let at = serde_json::json!({"type": "string", "format": "date-time", "description": "When the cluster was read."});
    let object = schema.ensure_object();
    let properties = object.entry("properties").or_insert_with(|| serde_json::json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("at".to_owned(), at);
    }
    let required = object.entry("required").or_insert_with(|| serde_json::json!([]));
    if let Some(required) = required.as_array_mut() {
        required.push("at".into());
    }
    schema
}
