//! Formats the result of a scenario as in its `expect`, `shares`, `evictions` and `notices` sections.

use kai_engine::Outcome;
use kai_engine::cluster::Cluster;
use kai_engine::cluster::pod::Status;
use kai_engine::input::{Key, WHOLE_GPU};
use kai_engine::outcome::{Decision, LimitNotice};
use kai_engine::resource::QueueResource;
use kai_engine::verdict::{NodeFit, NodeRejection, PodRejection, QueueExcess, TopologyReason, Verdict};
use std::collections::BTreeMap;

/// The pods of a group in the order of the scenario.
pub(super) struct Listed {
    /// The name as written in the file.
    pub(super) title: String,
    pub(super) key: Key,
    /// Pod names with the name of their block.
    pub(super) pods: Vec<(String, Option<String>)>,
}

/// The state of every pod of every group: `train running@n1*2 pending -- VERDICT`.
pub(super) fn states(cluster: &Cluster, groups: &[Listed]) -> BTreeMap<Key, String> {
    let mut fresh: Vec<String> = Vec::new();
    let mut states = BTreeMap::new();
    for group in groups {
        let mut counts: Vec<(String, usize)> = Vec::new();
        for (name, label) in &group.pods {
            let state = state(cluster, &Key::new(&group.key.namespace, name), &mut fresh);
            let state = label.as_ref().map_or(state.clone(), |label| format!("{label}:{state}"));
            match counts.iter_mut().find(|(known, _)| *known == state) {
                Some((_, count)) => *count += 1,
                None => counts.push((state, 1)),
            }
        }
        counts.sort();
        let words: Vec<String> = counts
            .into_iter()
            .map(|(state, count)| if count == 1 { state } else { format!("{state}*{count}") })
            .collect();
        states.insert(group.key.clone(), words.join(" "));
    }
    states
}

fn state(cluster: &Cluster, key: &Key, fresh: &mut Vec<String>) -> String {
    let Some(pod) = cluster.pod(key) else { return "gone".to_owned() };
    let state = &cluster.pods[pod].state;
    let word = match state.status {
        Status::Pending => "pending",
        Status::Gated => "gated",
        Status::Pipelined => "waiting",
        Status::Allocated | Status::Binding | Status::Bound | Status::Running => "running",
        Status::Releasing => "leaving",
        Status::Stuck => "stuck",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Unknown => "unknown",
        Status::InBackoff => "backoff",
    };
    let Some(place) = &state.place else { return word.to_owned() };
    let node = cluster.text(cluster.nodes[place.node].name);
    let mut groups: Vec<String> =
        place.gpu_groups.iter().map(|group| short(cluster.text(*group), fresh)).collect();
    groups.sort();
    let groups = if groups.is_empty() { String::new() } else { format!("#{}", groups.join("+")) };
    format!("{word}@{node}{groups}")
}

/// Generated GPU groups are printed as `a`, `b` … in order of appearance.
fn short(group: &str, fresh: &mut Vec<String>) -> String {
    if group.len() < 30 {
        return group.to_owned();
    }
    let at = fresh.iter().position(|known| known == group).unwrap_or_else(|| {
        fresh.push(group.to_owned());
        fresh.len() - 1
    });
    char::from(b'a' + (at % 26) as u8).to_string()
}

/// The leading verdict in short; none for placed groups.
pub(super) fn verdict(outcome: &Outcome, group: &Key) -> Option<String> {
    let found = outcome.verdicts.iter().find(|v| v.group == *group)?;
    (found.leading != Verdict::Placed).then(|| words(&found.leading))
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::OverLimit(excess) => format!("over limit: {}", excess_words(excess)),
        Verdict::NonPreemptibleOverQuota(excess) => {
            format!("non-preemptible over quota: {}", excess_words(excess))
        }
        Verdict::NotReady { sub_group, ready, needed } => {
            format!("not ready: {ready} of {needed}{}", in_sub_group(sub_group))
        }
        Verdict::GangNotSatisfied { sub_group, found, needed, fit } => {
            format!("gang short: {found} of {needed}{}; {}", in_sub_group(sub_group), fit_words(fit))
        }
        Verdict::NoNode(fit) => format!("no node: {}", fit_words(fit)),
        Verdict::Topology(miss) => {
            let (topology, level) = (&miss.topology, &miss.level);
            format!(
                "topology {topology} {level}{}: {}",
                in_sub_group(&miss.sub_group),
                too_small(&miss.reason)
            )
        }
        Verdict::PodUnschedulable { pod, reason, .. } => {
            format!("impossible: {} {}", pod.name, impossible(reason))
        }
        Verdict::BeyondQueueDepth { depth } => format!("beyond depth {depth}"),
        Verdict::NoVictims(miss) => format!("{} found no victims", miss.cause.action()),
        Verdict::InBackoff { cause, failures, .. } => format!("in backoff: {cause}, {failures} failed"),
        Verdict::EvictionBackoff { cause, failures, .. } => {
            format!("no evictions: {cause}, {failures} refused")
        }
        Verdict::TimeLimitReached { .. } => "ended at its time limit".to_owned(),
        Verdict::WaitingForVictims { waiting } => format!("{waiting} pipelined"),
        Verdict::InvalidGroup(why) => format!("broken: {why}"),
        Verdict::PreemptionDelay { delay, .. } => {
            format!("preemption delay of {} s", delay / 1_000_000)
        }
        Verdict::Placed
        | Verdict::QueueMissing
        | Verdict::QueueNotLeaf
        | Verdict::NotAttempted
        | Verdict::Quarantined(_) => format!("{verdict:?}"),
    }
}

fn in_sub_group(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" in {name}") }
}

fn excess_words(excess: &QueueExcess) -> String {
    let QueueExcess { queue, resource, bound, used, requested, .. } = excess;
    format!("{queue} {resource:?} {used}+{requested} of {bound}")
}

fn fit_words(fit: &NodeFit) -> String {
    let head = format!("{} nodes:", fit.nodes);
    fit.reasons.iter().fold(head, |text, (miss, count)| format!("{text} {}*{count}", miss_words(miss)))
}

fn miss_words(miss: &NodeRejection) -> String {
    if let NodeRejection::OverCapacity(excess, rule) = miss {
        return format!("{rule:?}({})", excess_words(excess));
    }
    format!("{miss:?}")
}

fn impossible(reason: &PodRejection) -> String {
    if let PodRejection::PoolTooSmall(gap) = reason {
        return format!("pool too small: {} {} of {}", gap.resource, gap.wanted, gap.largest);
    }
    format!("{reason:?}")
}

fn too_small(reason: &TopologyReason) -> String {
    match reason {
        TopologyReason::TooSmall { domain, pods, wanted, .. } => {
            let pods = pods.map_or("?".to_owned(), |pods| pods.to_string());
            format!("{domain} holds {pods} of {wanted}")
        }
        TopologyReason::Unknown | TopologyReason::BadLevel => format!("{reason:?}"),
    }
}

/// Fair shares of GPUs: `team/alice 4`.
pub(super) fn shares(outcome: &Outcome) -> Vec<String> {
    let share = |micro: i64| micro as f64 / WHOLE_GPU as f64;
    outcome.queues.iter().map(|q| format!("{} {}", q.name, share(q.fair_share[QueueResource::Gpu]))).collect()
}

/// Evictions by preemptor: `reclaim for train: old-0 older-0>n2`, with the new node of a moved pod.
pub(super) fn evictions(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    let moves: BTreeMap<&Key, &str> = outcome
        .decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Pipeline { pod, node, moved: true, .. } => Some((pod, node.as_str())),
            Decision::Pipeline { .. } | Decision::Bind(_) | Decision::Evict { .. } => None,
        })
        .collect();
    for decision in &outcome.decisions {
        let Decision::Evict { pod, preemptor, action, .. } = decision else { continue };
        let head =
            preemptor.as_ref().map_or(format!("{action}:"), |group| format!("{action} for {}:", group.name));
        let word = moves.get(pod).map_or(pod.name.clone(), |node| format!("{}>{node}", pod.name));
        match lines.last_mut().filter(|(last, _)| *last == head) {
            Some((_, words)) => words.push(word),
            None => lines.push((head, vec![word])),
        }
    }
    lines.into_iter().map(|(head, words)| format!("{head} {}", words.join(" "))).collect()
}

/// Notices of time limits: `warn train`, `preemptible train by queue team`, `end train`.
pub(super) fn notices(outcome: &Outcome) -> Vec<String> {
    let limits = &outcome.time_limits;
    let line = |what: &str, notice: &LimitNotice| {
        let by = notice.queue.as_ref().map_or_else(String::new, |queue| format!(" by queue {queue}"));
        format!("{what} {}{by}", notice.group.name)
    };
    let all = [("warn", &limits.warn), ("preemptible", &limits.exceeded), ("end", &limits.end)];
    all.into_iter().flat_map(|(what, list)| list.iter().map(move |notice| line(what, notice))).collect()
}
