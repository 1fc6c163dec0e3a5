//! Scores nodes by the number of NUMA zones that a pod spans.

use super::{Ignored, NumaNode, NumaRequests, evaluate};

/// The score of a node that keeps a pod within one zone.
const SCORE_MAX: f64 = 100.0;

/// The largest zone count of a cluster, assumed for nodes without a report.
pub fn max_zones<'a>(nodes: impl IntoIterator<Item = &'a NumaNode>) -> usize {
    nodes.into_iter().map(|node| node.zones.len()).max().unwrap_or(0)
}

/// Number of zones that a pod spans. `None` when alignment does not apply, or the pod cannot be aligned.
///
/// Without alignment (no zones, no policy, or none of the pod's resources reported) the maximum is assumed: all
/// zones.
pub fn span(
    node: Option<&NumaNode>,
    requests: &NumaRequests,
    ignored: &Ignored,
    max_zones: usize,
) -> Option<usize> {
    if !requests.needs_alignment() {
        return None;
    }
    let Some(node) = node else { return Some(max_zones).filter(|zones| *zones > 0) };
    if !node.aligns() || !node.concerns(requests, ignored) {
        return Some(node.zones.len());
    }
    match evaluate(node, requests, ignored)?.zones() {
        0 => Some(node.zones.len()),
        used => Some(used),
    }
}

/// The score of a node: 100 divided by the number of zones; 0 when that is unknown or impossible.
pub fn score(node: Option<&NumaNode>, requests: &NumaRequests, ignored: &Ignored, max_zones: usize) -> f64 {
    span(node, requests, ignored, max_zones).map_or(0.0, |zones| SCORE_MAX / zones as f64)
}
