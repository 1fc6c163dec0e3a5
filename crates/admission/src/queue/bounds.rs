//! Quotas, limits and weights of one queue that are legal but surely not intended.

use kai_api::queue::{QueueResource, QueueResources};

/// Reads the bounds of one resource.
pub type Pick = fn(&QueueResources) -> Option<QueueResource>;

/// The resources that queues bound.
pub const RESOURCES: [(&str, Pick); 3] =
    [("cpu", |of| of.cpu), ("gpu", |of| of.gpu), ("memory", |of| of.memory)];

/// What is wrong with the bounds of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    NoLimit,
    ZeroLimit,
    LimitBelowQuota,
    WeightWithoutQuota,
    Negative,
}

impl Rule {
    /// Whether the webhook warns about it. Queues that are extended step by step have no limit or quota at first.
    fn is_warning(self) -> bool {
        matches!(self, Self::LimitBelowQuota | Self::Negative)
    }
}

/// The warnings of the webhook about a queue.
pub(super) fn warnings(resources: &QueueResources) -> Vec<String> {
    let all = RESOURCES.into_iter().flat_map(|(resource, pick)| check(resource, pick(resources)));
    all.filter(|(rule, _)| rule.is_warning()).map(|(_, problem)| problem).collect()
}

/// All problems of the bounds of a resource, with a sentence each.
pub fn check(resource: &str, bounds: Option<QueueResource>) -> Vec<(Rule, String)> {
    let mut problems = Vec::new();
    let QueueResource { quota, limit, over_quota_weight: weight } = bounds.unwrap_or_default();
    match limit {
        None => problems.push((
            Rule::NoLimit,
            format!(
                "no limit of {resource} is set, which is 0: no pod that requests it will run; hint: write `limit: -1` for unlimited"
            ),
        )),
        Some(0.0) => problems.push((
            Rule::ZeroLimit,
            format!(
                "the limit of {resource} is 0: no pod that requests it will run; hint: write `limit: -1` for unlimited"
            ),
        )),
        Some(limit) if limit >= 0.0 && quota.is_some_and(|quota| quota > limit || quota < 0.0) => {
            problems.push((
                Rule::LimitBelowQuota,
                format!(
                    "the limit of {resource} ({limit}) is below the quota, which can never be used completely; hint: raise it"
                ),
            ));
        }
        Some(_) => {}
    }
    if quota.is_none() && weight.is_some_and(|weight| weight > 0.0) {
        problems.push((
            Rule::WeightWithoutQuota,
            format!(
                "{resource} has an overQuotaWeight but no quota: nothing is guaranteed; hint: write `quota: 0` if that is meant"
            ),
        ));
    }
    let below = |value: Option<f64>, least: f64| value.is_some_and(|value| value < least);
    if below(quota, -1.0) || below(limit, -1.0) || below(weight, 0.0) {
        problems.push((
            Rule::Negative,
            format!(
                "a quota, limit or weight of {resource} is negative; hint: only -1 has a meaning, for quota and limit"
            ),
        ));
    }
    problems
}
