//! Rules for maximum run times: invalid values, and limits that contradict minimum run times or each other.

use super::finding::{Finding, Level};
use super::workloads::templates;
use crate::documents::Document;
use kai_api::well_known::{annotation, label};
use kai_cache::translate::time_limit;
use kai_cache::{Kind, Report};
use kai_engine::input::{Key, TimeLimit};
use kai_object as object;
use kai_units::{Span, duration};
use serde_json::Value;
use std::collections::BTreeMap;

const RULE: &str = "time-limit";

pub(super) fn check(documents: &[Document], findings: &mut Vec<Finding>) {
    let queues = Queues(documents.iter().filter(|document| document.kind() == "Queue").collect());
    for document in documents.iter().filter(|document| !document.kind().is_empty()) {
        let warn = |text: String| document.finding(Level::Warning, RULE, text);
        let (limit, problems) = limit(&document.object);
        findings.extend(problems.into_iter().map(warn));
        if document.kind() == "Queue" {
            findings.extend(limit.and_then(|limit| queues.below_minimum(document.name(), limit)).map(warn));
            continue;
        }
        let is_template = document.kind() != "Pod";
        for pod in templates(document).iter().filter(|_| is_template) {
            findings.extend(self::limit(pod).1.into_iter().map(warn));
        }
        let Some(limit) = limit else { continue };
        let queue = queue_of(&document.object);
        findings.extend(queues.below_minimum(queue, limit).map(warn));
        findings.extend(queues.above_limit(queue, limit).map(warn));
    }
}

/// The limit of an object, and what is wrong with its annotations.
fn limit(object: &Value) -> (Option<TimeLimit>, Vec<String>) {
    let annotations: BTreeMap<String, String> = object::meta(object, "annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let key = Key::new("", "");
    let mut report = Report::on(Kind::PodGroup, &key);
    let limit = time_limit::translate(Some(&annotations), &mut report);
    let text = |finding: kai_cache::Finding| {
        format!("`{}`: {}; hint: {}", finding.field, finding.problem, finding.hint)
    };
    (limit, report.into_findings().into_iter().map(text).collect())
}

fn queue_of(object: &Value) -> &str {
    let labels = object::meta(object, "labels").and_then(|labels| labels.get(label::QUEUE));
    labels.and_then(Value::as_str).unwrap_or_else(|| object::str_at(object, "/spec/queue"))
}

struct Queues<'a>(Vec<&'a Document>);

impl<'a> Queues<'a> {
    /// The queue and its ancestors, as far as they are given.
    fn path(&self, queue: &str) -> Vec<&'a Document> {
        let find = |name: &str| self.0.iter().copied().find(|document| document.name() == name);
        let next = |at: &&'a Document| find(object::str_at(&at.object, "/spec/parentQueue"));
        // As many steps as there are queues: a cycle ends there.
        std::iter::successors(find(queue), next).take(self.0.len()).collect()
    }

    /// A limit that a minimum run time on the path exceeds.
    fn below_minimum(&self, queue: &str, limit: TimeLimit) -> Option<String> {
        for (field, pointer) in [
            ("preemptMinRuntime", "/spec/preemptMinRuntime"),
            ("reclaimMinRuntime", "/spec/reclaimMinRuntime"),
        ] {
            let min = |of: &&Document| duration::parse_extended(object::str_at(&of.object, pointer)).ok();
            let path = self.path(queue);
            let Some((of, min)) = path.iter().find_map(|of| Some((of.name(), min(of)?))) else { continue };
            if min > limit.limit {
                return Some(format!(
                    "the maximum run time ({}) is shorter than `{field}` of queue `{of}` ({}), which protects groups only \
                     until then; hint: raise `{}`, or lower `{field}`",
                    text(limit.limit),
                    text(min),
                    annotation::MAX_RUNTIME
                ));
            }
        }
        None
    }

    /// A limit of a workload beyond that of its queue, which takes effect first.
    fn above_limit(&self, queue: &str, own: TimeLimit) -> Option<String> {
        let path = self.path(queue);
        let (of, limit) = path.iter().find_map(|of| Some((of.name(), limit(&of.object).0?)))?;
        let is_later = own.effective_after() > limit.effective_after();
        is_later.then(|| {
            format!(
                "the maximum run time ({}) is longer than that of queue `{of}` ({}), which takes effect first; hint: lower \
                 it, or use another queue",
                text(own.limit),
                text(limit.limit)
            )
        })
    }
}

fn text(span: Span) -> String {
    duration::format_go(span)
}
