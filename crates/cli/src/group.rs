//! `kai group`: the pod groups that workloads would get, offline.
//!
//! Exit codes: 0 all pods are grouped, 1 a workload cannot be grouped, 2 a file cannot be read.

use crate::documents::{self, Document};
use crate::{args, render};
use anyhow::{Context as _, Result};
use args::Format;
use kai_podgrouper::Options;
use kai_podgrouper::expand::Uids;
use kai_podgrouper::offline::{self, PlannedGroup, Remark, Report};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

pub(crate) fn run(args: &args::Group) -> Result<ExitCode> {
    let mut documents = Vec::new();
    for file in &args.files {
        documents.extend(documents::read(file)?);
    }
    let options = Options {
        scheduler_name: args.scheduler_name.clone(),
        queue_label_key: args.queue_label_key.clone(),
        node_pool_label_key: args.nodepool_label_key.clone(),
        knative_gang_schedule: args.knative_gang_schedule,
        ..Options::default()
    };
    let objects: Vec<Value> = documents.iter().map(|document| document.object.clone()).collect();
    let report = offline::group(&objects, &options);
    let format = if args.json { Format::Json } else { args.output };
    let text = match format {
        Format::Table => table(&documents, &report),
        Format::Yaml => yaml(&report)?,
        Format::Json => {
            serde_json::to_string_pretty(&serde_json::to_value(GroupsView::new(&documents, &report))?)? + "\n"
        }
    };
    crate::print(&text)?;
    if format == Format::Yaml {
        // Standard output has only PodGroups.
        for remark in remarks(&documents, &report) {
            to_stderr(&remark);
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn to_stderr(text: &str) {
    use std::io::Write as _;
    // A closed output is not an error.
    let _ = writeln!(anstream::stderr(), "{text}");
}

fn yaml(report: &Report) -> Result<String> {
    let mut text = String::new();
    for group in &report.groups {
        let yaml = serde_saphyr::to_string(&group.object()).context("cannot write YAML")?;
        write!(text, "---\n{yaml}")?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// The pod groups of some manifests.
#[derive(JsonSchema, Serialize)]
pub(crate) struct GroupsView {
    groups: Vec<GroupView>,
    /// Workloads that cannot be grouped.
    problems: Vec<RemarkView>,
    notes: Vec<RemarkView>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupView {
    /// The workload.
    of: Place,
    /// The object that the grouper would create, with `<uid>` for uids that only an API server gives.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pod_group: Value,
    /// How many such groups there are.
    groups: u32,
    pods: Vec<PodsView>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodsView {
    name: String,
    sub_group: Option<String>,
    count: u32,
}

#[derive(JsonSchema, Serialize)]
struct RemarkView {
    of: Place,
    message: String,
}

#[derive(JsonSchema, Serialize)]
struct Place {
    file: String,
    /// Where the document begins, from 1.
    line: usize,
    /// Such as `Job train`.
    object: Option<String>,
}

impl GroupsView {
    fn new(documents: &[Document], report: &Report) -> Self {
        let at = |object: usize| {
            let document = documents.get(object);
            let (file, line) = document.map_or(("", 0), |document| (document.file.as_str(), document.line));
            Place { file: file.to_owned(), line, object: document.map(Document::subject) }
        };
        let groups = report.groups.iter().map(|group| {
            let pods = group.members.iter().map(|of| PodsView {
                name: of.pod.clone(),
                sub_group: of.sub_group.clone(),
                count: of.count,
            });
            GroupView {
                of: at(group.object),
                pod_group: group.object(),
                groups: group.groups,
                pods: pods.collect(),
            }
        });
        let all = |remarks: &[Remark]| {
            let view = |remark: &Remark| RemarkView { of: at(remark.object), message: remark.text.clone() };
            remarks.iter().map(view).collect()
        };
        Self { groups: groups.collect(), problems: all(&report.problems), notes: all(&report.notes) }
    }
}

/// A table of the groups, and below it what is to say.
fn table(documents: &[Document], report: &Report) -> String {
    let rows = report.groups.iter().map(row).collect();
    let headings = ["POD GROUP", "QUEUE", "PRIORITY", "MINIMUM", "PODS"];
    let body = render::table_of(headings, rows, usize::MAX).unwrap_or_else(|| "No pod groups".to_owned());
    let mut text = body + "\n";
    let remarks = remarks(documents, report);
    if !remarks.is_empty() {
        text.push('\n');
    }
    for remark in remarks {
        text.push_str(&remark);
        text.push('\n');
    }
    text
}

fn row(group: &PlannedGroup) -> [String; 5] {
    let desired = &group.desired;
    let mut name = Uids::masked(&desired.name);
    if group.groups != 1 {
        name = format!("{} × {name}", group.groups);
    }
    let mut priority = desired.priority_class.clone();
    if let Some(preemptibility) = desired.preemptibility {
        let _ = write!(priority, "\n{}", json!(preemptibility).as_str().unwrap_or_default());
    }
    [name, desired.queue.clone(), priority, minimum(group), pods(group)]
}

/// How much must run at once, with the subgroups as a tree.
fn minimum(group: &PlannedGroup) -> String {
    let desired = &group.desired;
    let mut lines = vec![match desired.min_sub_group {
        Some(count) => counted(i64::from(count), "subgroup"),
        None => counted(i64::from(desired.min_member), "pod"),
    }];
    lines.extend(placement(&desired.topology));
    let top = desired.sub_groups.iter().filter(|of| of.parent.as_deref().unwrap_or_default().is_empty());
    for sub_group in top {
        lines.push(line(sub_group, ""));
        let children = desired.sub_groups.iter().filter(|of| of.parent.as_ref() == Some(&sub_group.name));
        lines.extend(children.map(|child| line(child, "  ")));
    }
    lines.join("\n")
}

/// `1 pod`, `2 pods`.
fn counted(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn line(sub_group: &kai_api::pod_group::SubGroup, indent: &str) -> String {
    let least = match (sub_group.min_sub_group, sub_group.min_member) {
        (Some(count), _) => counted(i64::from(count), "subgroup"),
        (None, count) => count.unwrap_or_default().to_string(),
    };
    let place = sub_group.topology_constraint.as_ref().and_then(placement);
    let place = place.map_or_else(String::new, |place| format!(", {place}"));
    format!("{indent}{}: {least}{place}", sub_group.name)
}

/// Where pods are together.
fn placement(of: &kai_api::pod_group::TopologyConstraint) -> Option<String> {
    let level = [("required", &of.required_topology_level), ("preferred", &of.preferred_topology_level)];
    let levels: Vec<String> = level
        .iter()
        .filter(|(_, level)| !level.is_empty())
        .map(|(how, level)| format!("{how} {level}"))
        .collect();
    (!levels.is_empty()).then(|| levels.join(", "))
}

/// The number of pods in every subgroup.
fn pods(group: &PlannedGroup) -> String {
    let counts = group.pods();
    let lines = counts.iter().map(|(sub_group, count)| match *sub_group {
        "" => count.to_string(),
        name => format!("{name}: {count}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Problems, then notes, each with its place.
fn remarks(documents: &[Document], report: &Report) -> Vec<String> {
    let place = |remark: &Remark| match documents.get(remark.object) {
        Some(document) => format!("{}:{}: {}", document.file, document.line, document.subject()),
        None => String::new(),
    };
    let problems = report.problems.iter().map(|remark| format!("error: {}: {}", place(remark), remark.text));
    let notes = report.notes.iter().map(|remark| format!("note: {}: {}", place(remark), remark.text));
    problems.chain(notes).collect()
}
