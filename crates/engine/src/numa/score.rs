//! Prefers nodes on which a pod touches few zones.

use super::{Ignored, NumaNode, NumaRequests, evaluate};

/// The score of a node that keeps a pod within one zone.
const SCORE_MAX: f64 = 100.0;

/// The largest zone count of a cluster: what is assumed of nodes that do not tell.
pub fn max_zones<'a>(nodes: impl IntoIterator<Item = &'a NumaNode>) -> usize {
    nodes.into_iter().map(|node| node.zones.len()).max().unwrap_or(0)
}

/// How many zones a pod's resources would come from. `None` when the pod does not care, or cannot be aligned.
///
/// Where nothing keeps the pod together (no zones known, no policy, nothing of the pod reported by zones) the worst
/// is assumed: all zones.
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

/// The score of a node: 100 divided by the zones a pod would span; 0 when that is not known or not possible.
pub fn score(node: Option<&NumaNode>, requests: &NumaRequests, ignored: &Ignored, max_zones: usize) -> f64 {
    span(node, requests, ignored, max_zones).map_or(0.0, |zones| SCORE_MAX / zones as f64)
}
