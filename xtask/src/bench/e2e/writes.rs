//! Writes by resource and verb, as the API server itself counts them.

use super::load::Load;
use anyhow::Result;
use std::collections::BTreeMap;

const COUNTER: &str = "apiserver_request_total{";
/// How the server calls requests that change something.
const VERBS: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// What the server writes about itself.
const ITS_OWN: [&str; 4] =
    ["coordination.k8s.io", "flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io"];

/// How often something was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// By resource, verb and answer.
    counts: BTreeMap<(String, String, String), u64>,
}

impl Writes {
    /// All writes so far.
    pub(super) async fn read(load: &Load) -> Result<Self> {
        Ok(Self::parse(&load.text("/metrics").await?))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let mut found = labels.split(',').filter_map(|label| label.split_once('='));
                let value = found.find(|(key, _)| *key == name).map_or("", |(_, value)| value);
                value.trim_matches('"').to_owned()
            };
            let verb = label("verb");
            if !VERBS.contains(&verb.as_str()) || ITS_OWN.contains(&label("group").as_str()) {
                continue;
            }
            let resource = match (label("resource"), label("subresource")) {
                (resource, part) if part.is_empty() => resource,
                (resource, part) => format!("{resource}/{part}"),
            };
            // Counters are written as floating point.
            let value = value.parse::<f64>().unwrap_or(0.0).max(0.0) as u64;
            *counts.entry((resource, verb, label("code"))).or_default() += value;
        }
        Self { counts }
    }

    /// What was written since an earlier look, less the pods that the load made.
    pub(super) fn since(&self, before: &Self, load: usize) -> Self {
        let mut counts = self.counts.clone();
        for (key, count) in &mut counts {
            *count -= before.counts.get(key).copied().unwrap_or(0).min(*count);
            if (key.0.as_str(), key.1.as_str(), key.2.as_str()) == ("pods", "POST", "201") {
                *count = count.saturating_sub(load as u64);
            }
        }
        counts.retain(|_, count| *count > 0);
        Self { counts }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Resource, verb, answer and count, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, &str, &str, u64)> {
        self.counts
            .iter()
            .map(|((resource, verb, code), count)| (resource.as_str(), verb.as_str(), code.as_str(), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# TYPE apiserver_request_total counter\n\
        apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"POST\"} 1\n";
    const AFTER: &str = "\
        apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"POST\"} 11\n\
        apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",subresource=\"binding\",verb=\"POST\"} 1e+01\n\
        apiserver_request_total{code=\"200\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"LIST\"} 7\n\
        apiserver_request_total{code=\"200\",group=\"coordination.k8s.io\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 7\n";

    #[test]
    fn what_the_load_and_the_server_wrote_is_left_out() {
        let writes = Writes::parse(AFTER).since(&Writes::parse(BEFORE), 10);
        assert_eq!(writes.rows().collect::<Vec<_>>(), [("pods/binding", "POST", "201", 10)]);
    }
}
