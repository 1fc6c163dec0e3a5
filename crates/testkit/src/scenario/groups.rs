//! Parses groups of a scenario with their pods: `train queue=a min=2 pods=2x{gpu=1} running@n1`.

use super::pods::pod_template;
use super::syntax::{Entry, listed, pair, span};
use anyhow::{Context, Result, bail, ensure};
use kai_engine::Delta;
use kai_engine::input::{
    Backoff, BackoffScope, GroupInput, Key, LimitAction, PodInput, PodPhase, Received, SubGroupInput,
    TimeLimit, TopologyConstraint, Utility,
};
use kai_units::{Span, Timestamp};

/// The namespace of objects without one.
pub(super) const NAMESPACE: &str = "default";
/// Groups below this priority may be evicted.
const PREEMPTIBLE_BELOW: i32 = 100;

pub(super) struct GroupTemplate {
    pub(super) deltas: Vec<Delta>,
    /// Pod names with the name of their block.
    pub(super) pods: Vec<(String, Option<String>)>,
}

/// Parses an entry. Earlier entries (`position`) are older.
pub(super) fn group(entry: &Entry, position: usize, now: Timestamp) -> Result<GroupTemplate> {
    let key = key(&entry.words[0]);
    let mut group = GroupInput {
        uid: format!("group-{}", key.name),
        priority: 50,
        created: Timestamp(0) + Span::from_secs(position as i64),
        mark_unschedulable: true,
        key: key.clone(),
        ..GroupInput::default()
    };
    let mut preemptible = None;
    let mut blocks: Vec<Block> = Vec::new();
    for word in &entry.words[1..] {
        let (name, value) = pair(word);
        match name {
            "queue" => value.clone_into(&mut group.queue),
            "priority" => group.priority = value.parse()?,
            "preemptible" => preemptible = Some(value != "no"),
            "min" => group.min_member = Some(value.parse()?),
            "minsub" => group.min_sub_group = Some(value.parse()?),
            "topology" => group.topology = Some(constraint(value)?),
            "sub" => group.sub_groups.push(sub_group(value)?),
            "broken" => group.invalid_reason = Some(value.to_owned()),
            "age" => group.created = ago(value, now)?,
            "started" => group.last_start = Some(ago(value, now)?),
            "evicted" => group.last_eviction = Some(ago(value, now)?),
            "stale" => group.stale_since = Some(ago(value, now)?),
            "grace" => group.staleness_grace = Some(span(value)?),
            "backoff" => {
                let until = now + span(value)?;
                let scope = BackoffScope::Placement;
                group.backoff = Some(Backoff { cause: "bind failed".to_owned(), failures: 1, until, scope });
            }
            "evictionbackoff" => {
                let (until, scope) = (now + span(value)?, BackoffScope::Evictions);
                let cause = "eviction rejected".to_owned();
                group.backoff = Some(Backoff { cause, failures: 1, until, scope });
            }
            "maxrun" => group.time_limit = Some(time_limit(value)?),
            "warned" => group.limit_warned = Some(ago(value, now)?),
            "ended" => group.ended = Some(ago(value, now)?),
            "delay" => group.preemption_delay = Some(span(value)?),
            "pods" => blocks.push(Block::read(value)?),
            _ => match blocks.last_mut() {
                Some(block) if block.state.is_none() => block.state = Some(word.clone()),
                _ => bail!("line {}: a group has no `{word}`", entry.line),
            },
        }
    }
    group.preemptible = preemptible.unwrap_or(group.priority < PREEMPTIBLE_BELOW);
    if let Some(block) = blocks.first().filter(|_| blocks.len() == 1 && group.sub_groups.is_empty()) {
        group.min_member.get_or_insert(block.count);
    }
    let mut done = GroupTemplate { deltas: vec![Delta::Group(Box::new(group))], pods: Vec::new() };
    for block in blocks {
        block.build(&key, now, &mut done)?;
    }
    Ok(done)
}

/// `LIMIT[:end][:grace=SPAN]`
pub(super) fn time_limit(text: &str) -> Result<TimeLimit> {
    let mut parts = text.split(':');
    let limit = span(parts.next().unwrap_or_default())?;
    let mut limit = TimeLimit { limit, ..TimeLimit::default() };
    for part in parts {
        match pair(part) {
            ("end", _) => limit.action = LimitAction::End,
            ("grace", value) => limit.grace = span(value)?,
            _ => bail!("a time limit has no `{part}`"),
        }
    }
    Ok(limit)
}

fn ago(text: &str, now: Timestamp) -> Result<Timestamp> {
    Ok(now + Span(-span(text)?.0))
}

/// `NAME`, or `NAMESPACE/NAME`.
pub(super) fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap_or((NAMESPACE, text));
    Key::new(namespace, name)
}

/// `TOPOLOGY[:required=LEVEL][:preferred=LEVEL]`
fn constraint(text: &str) -> Result<TopologyConstraint> {
    let mut parts = text.split(':');
    let topology = parts.next().unwrap_or_default().to_owned();
    let mut constraint = TopologyConstraint { topology, required: None, preferred: None };
    for part in parts {
        match pair(part) {
            ("required", level) => constraint.required = Some(level.to_owned()),
            ("preferred", level) => constraint.preferred = Some(level.to_owned()),
            _ => bail!("a topology constraint has no `{part}`"),
        }
    }
    Ok(constraint)
}

/// `{NAME,min=2,minsub=1,in=PARENT,topology=T:required=L}`
fn sub_group(text: &str) -> Result<SubGroupInput> {
    let words = listed(text);
    let mut sub = SubGroupInput {
        name: (*words.first().context("a sub-group needs a name")?).to_owned(),
        ..SubGroupInput::default()
    };
    for word in &words[1..] {
        match pair(word) {
            ("min", value) => sub.min_member = Some(value.parse()?),
            ("minsub", value) => sub.min_sub_group = Some(value.parse()?),
            ("in", value) => sub.parent = Some(value.to_owned()),
            ("topology", value) => sub.topology = Some(constraint(value)?),
            _ => bail!("a sub-group has no `{word}`"),
        }
    }
    Ok(sub)
}

/// Equal pods: `4x{gpu=2}`, and their state.
struct Block {
    count: u32,
    words: Vec<String>,
    state: Option<String>,
}

impl Block {
    fn read(text: &str) -> Result<Self> {
        let (count, words) =
            text.split_once('x').with_context(|| format!("`{text}` is not a block of pods"))?;
        ensure!(words.starts_with('{'), "`{text}` is not a block of pods");
        Ok(Self {
            count: count.parse()?,
            words: listed(words).into_iter().map(str::to_owned).collect(),
            state: None,
        })
    }

    fn build(&self, group: &Key, now: Timestamp, done: &mut GroupTemplate) -> Result<()> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        for i in 0..self.count {
            let mut template = pod_template(&words, &group.namespace)?;
            let name = format!("{}-{}", group.name, done.pods.len());
            template.pod.key = Key::new(&group.namespace, &name);
            template.pod.uid.clone_from(&name);
            template.pod.group = Some(group.name.clone());
            template.pod.created = Timestamp(0) + Span::from_secs(done.pods.len() as i64);
            place(&mut template.pod, self.state.as_deref().unwrap_or("pending"), i as usize, now)?;
            done.deltas.push(Delta::Pod(Box::new(template.pod)));
            done.pods.push((name, template.label));
        }
        Ok(())
    }
}

/// `pending`, `gated`, `running@n1`, `running@{n1,n2}` in turn, `running@n1#0` on the shared GPU 0, `running@n1#0!` if that
/// has lost its reservation.
fn place(pod: &mut PodInput, state: &str, position: usize, now: Timestamp) -> Result<()> {
    let (phase, place) = state.split_once('@').unwrap_or((state, ""));
    pod.phase = match phase {
        "pending" => PodPhase::Pending,
        "gated" => PodPhase::Gated,
        "binding" => PodPhase::Binding,
        "bound" => PodPhase::Bound,
        "running" => PodPhase::Running,
        "leaving" => PodPhase::Releasing(now),
        "stuck" => PodPhase::Releasing(now + Span::from_secs(-3600)),
        "succeeded" => PodPhase::Succeeded,
        "unknown" => PodPhase::Unknown,
        _ => bail!("`{state}` is not a state of a pod"),
    };
    let places = listed(place);
    let place = places[position % places.len()];
    if place.is_empty() {
        return Ok(());
    }
    let (node, groups) = place.split_once('#').unwrap_or((place, ""));
    pod.node = Some(node.to_owned());
    for group in groups.split('+').filter(|g| !g.is_empty()) {
        let name = group.trim_end_matches('!');
        pod.gpu_groups.push(name.to_owned());
        if name != group {
            pod.drained_gpus.push(name.to_owned());
        }
    }
    pod.received = Some(if pod.gpu_groups.is_empty() { Received::Regular } else { Received::Fraction });
    Ok(())
}

/// Pods without a group, such as another scheduler's: `NAME {cpu=2} running@n1`.
pub(super) fn lone_pod(entry: &Entry, now: Timestamp) -> Result<Delta> {
    let key = key(&entry.words[0]);
    let words: Vec<&str> = entry.words.get(1).map(|w| listed(w)).unwrap_or_default();
    let reservation = words.contains(&"reservation");
    let words: Vec<&str> = words.into_iter().filter(|w| *w != "reservation").collect();
    let mut pod = pod_template(&words, &key.namespace)?.pod;
    pod.utility = reservation.then_some(Utility::Reservation);
    pod.uid.clone_from(&key.name);
    pod.key = key;
    place(&mut pod, entry.words.get(2).map_or("pending", String::as_str), 0, now)?;
    Ok(Delta::Pod(Box::new(pod)))
}
