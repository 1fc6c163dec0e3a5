//! What became of a snapshot: how much lives, what was left out, and what a snapshot does not have.

use kai_cache::Kind;
use kai_runtime::{Key, api};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// So many refusals are told in words; the others are counted.
const TOLD_MAX: usize = 5;

/// What became of a snapshot.
#[derive(Debug, Default)]
pub(in super::super) struct Report {
    made: BTreeMap<Kind, usize>,
    left_out: BTreeMap<(Kind, &'static str), usize>,
    refused: Vec<String>,
    refusals: usize,
}

impl Report {
    pub(super) fn made(&mut self, kind: Kind) {
        *self.made.entry(kind).or_default() += 1;
    }

    pub(super) fn leave_out(&mut self, kind: Kind, why: &'static str) {
        *self.left_out.entry((kind, why)).or_default() += 1;
    }

    pub(super) fn leave_out_all(&mut self, kind: Kind, count: usize) {
        if count > 0 {
            self.left_out.insert((kind, "a snapshot has too little of it"), count);
        }
    }

    pub(super) fn refuse(&mut self, kind: Kind, key: &Key, error: api::Error) {
        self.note(format!("{kind} `{key}` was refused: {}", cause(error)));
    }

    pub(super) fn refuse_status(&mut self, kind: Kind, key: &Key, error: api::Error) {
        self.note(format!("the status of {kind} `{key}` was refused: {}", cause(error)));
    }

    fn note(&mut self, refusal: String) {
        self.refusals += 1;
        if self.refused.len() < TOLD_MAX {
            self.refused.push(refusal);
        }
    }

    /// In lines.
    pub(in super::super) fn text(&self, file: &str) -> String {
        let mut text = String::new();
        let mut line = |line: &str| writeln!(text, "{line}").expect("writing to a string");
        let made: Vec<String> = self.made.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let made = if made.is_empty() { "nothing".to_owned() } else { made.join(", ") };
        line(&format!("brought to life from {file}: {made}"));
        for ((kind, why), count) in &self.left_out {
            line(&format!("left out: {count} {kind} ({why})"));
        }
        for refusal in &self.refused {
            line(&format!("left out: {refusal}"));
        }
        if self.refusals > self.refused.len() {
            line(&format!("left out: {} more that were refused", self.refusals - self.refused.len()));
        }
        line(
            "not in a snapshot: images, commands, data of config maps, and the jobs and deployments that own pods; \
             pods that were bound start anew on their nodes\n",
        );
        text
    }
}

/// What the server said, without the request.
fn cause(error: api::Error) -> String {
    let error = anyhow::Error::from(error);
    // The request names the path, which says nothing that the kind and the key do not.
    error.root_cause().to_string()
}
