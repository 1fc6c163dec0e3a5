//! The report of a snapshot import: created, excluded and rejected objects.

use kai_cache::Kind;
use kai_runtime::{Key, api};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum rejections that are printed; the others are counted.
const PRINTED_MAX: usize = 5;

#[derive(Debug, Default)]
pub(in super::super) struct Report {
    created: BTreeMap<Kind, usize>,
    left_out: BTreeMap<(Kind, &'static str), usize>,
    /// The first `PRINTED_MAX`.
    rejections: Vec<String>,
    rejected: usize,
}

impl Report {
    pub(super) fn created(&mut self, kind: Kind) {
        *self.created.entry(kind).or_default() += 1;
    }

    pub(super) fn leave_out(&mut self, kind: Kind, why: &'static str) {
        *self.left_out.entry((kind, why)).or_default() += 1;
    }

    pub(super) fn leave_out_all(&mut self, kind: Kind, count: usize) {
        if count > 0 {
            self.left_out.insert((kind, "snapshots do not contain their spec"), count);
        }
    }

    pub(super) fn rejected(&mut self, kind: Kind, key: &Key, error: api::Error) {
        self.note(format!("{kind} `{key}` was rejected: {}", cause(error)));
    }

    pub(super) fn status_rejected(&mut self, kind: Kind, key: &Key, error: api::Error) {
        self.note(format!("the status of {kind} `{key}` was rejected: {}", cause(error)));
    }

    fn note(&mut self, rejection: String) {
        self.rejected += 1;
        if self.rejections.len() < PRINTED_MAX {
            self.rejections.push(rejection);
        }
    }

    pub(in super::super) fn text(&self, file: &str) -> String {
        let mut text = String::new();
        let mut line = |line: &str| writeln!(text, "{line}").expect("writing to a string");
        let created: Vec<String> =
            self.created.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let created = if created.is_empty() { "nothing".to_owned() } else { created.join(", ") };
        line(&format!("imported from {file}: {created}"));
        for ((kind, why), count) in &self.left_out {
            line(&format!("left out: {count} {kind} ({why})"));
        }
        for rejection in &self.rejections {
            line(&format!("left out: {rejection}"));
        }
        if self.rejected > self.rejections.len() {
            line(&format!("left out: {} more rejected objects", self.rejected - self.rejections.len()));
        }
        line(
            "snapshots do not contain images, commands, ConfigMap data, and the Jobs and Deployments that own pods; \
             bound pods are restarted on their nodes\n",
        );
        text
    }
}

/// The message of the server, without the request.
fn cause(error: api::Error) -> String {
    let error = anyhow::Error::from(error);
    // Kind and key identify the request.
    error.root_cause().to_string()
}
