//! What the groups of all kinds have in common: name, owner, labels, queue, priority and the rest that users write on
//! their workloads.
//!
//! Kinds start from [`Workload::metadata`] and change what is special about them.

use super::defaults::Defaults;
use super::{Options, text};
use kai_api::pod_group::{Preemptibility, SubGroup, TopologyConstraint};
use kai_api::well_known::{annotation, label, name, priority_class};
use kai_object as object;
use kai_runtime::kind::{Key, POD};
use kai_units::{Span, duration};
use serde_json::Value;
use std::collections::BTreeMap;

/// A pod, what it belongs to, and what is needed to group it.
pub struct Workload<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// Its owners, nearest first; empty where it has none that can be read.
    pub owners: &'a [Value],
    /// How the component behaves.
    pub options: &'a Options,
    /// Defaults by kind.
    pub(super) defaults: &'a Defaults,
    /// Whether there is a priority class of this name.
    pub class_exists: &'a dyn Fn(&str) -> bool,
    /// Whether there is a pod group of this name.
    pub group_exists: &'a dyn Fn(&Key) -> bool,
}

/// The group that a pod should be in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The object that it goes with.
    pub owner: Owner,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// How many pods must run at once.
    pub min_member: i32,
    /// How many top-level subgroups must run at once; then `min_member` is not written.
    pub min_sub_group: Option<i32>,
    /// Its queue.
    pub queue: String,
    /// Its priority class.
    pub priority_class: String,
    /// Whether it may be evicted.
    pub preemptibility: Option<Preemptibility>,
    /// How long it waits before others are evicted for it.
    pub preemption_delay: Option<String>,
    /// How long it may run below its minimum.
    pub staleness_grace_period: Option<String>,
    /// Where its pods must or should be together.
    pub topology: TopologyConstraint,
    /// Subsets of its pods.
    pub sub_groups: Vec<SubGroup>,
    /// The subset that the pod at hand is in.
    pub sub_group: Option<String>,
}

/// The object that a group goes with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl Owner {
    /// An object as an owner.
    pub fn of(of: &Value) -> Self {
        let owned = str::to_owned;
        Self {
            api_version: owned(object::api_version(of)),
            kind: owned(object::kind(of)),
            name: owned(object::name(of)),
            uid: owned(object::uid(of)),
        }
    }
}

/// Which owners may say what a workload wants, besides the topmost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voices {
    /// None.
    Top,
    /// All of them, nearest first.
    All,
}

impl<'a> Workload<'a> {
    /// The object at the top: the last owner, or the pod.
    pub fn top(&self) -> &'a Value {
        self.owners.last().unwrap_or(self.pod)
    }

    /// Group, version and kind of the object at the top.
    pub fn top_kind(&self) -> (&'a str, &'a str, &'a str) {
        let Some(top) = self.owners.last() else { return ("", "v1", "Pod") };
        let (group, version) =
            object::api_version(top).split_once('/').unwrap_or(("", object::api_version(top)));
        (group, version, object::kind(top))
    }

    /// What all kinds share; `class` is the priority class where nobody names one.
    pub fn metadata(&self, voices: Voices, class: &str) -> Desired {
        let top = self.top();
        let owners: Vec<&Value> = match voices {
            Voices::All if !self.owners.is_empty() => self.owners.iter().collect(),
            Voices::All | Voices::Top => vec![top],
        };
        let mut owner = Owner::of(top);
        if self.owners.is_empty() {
            // Pods from a list do not say what they are.
            owner.api_version = POD.api_version();
            owner.kind = POD.kind.to_string();
        }
        Desired {
            name: name_of(&owner.name, &owner.uid),
            namespace: object::namespace(self.pod).to_owned(),
            labels: self.labels(),
            annotations: self.annotations(&owner),
            owner,
            min_member: 1,
            min_sub_group: None,
            queue: self.queue(),
            priority_class: self.priority_class(&owners, class),
            preemptibility: self.preemptibility(&owners),
            preemption_delay: self.duration(&owners, annotation::PREEMPTION_DELAY, |span| span.0 >= 0),
            staleness_grace_period: self.duration(&owners, annotation::STALENESS_GRACE_PERIOD, |_| true),
            topology: topology(top),
            sub_groups: Vec::new(),
            sub_group: None,
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = texts(self.top(), "labels");
        if let Some(user) = text(self.pod, "labels", label::USER) {
            labels.entry(label::USER.to_owned()).or_insert_with(|| user.to_owned());
        }
        labels
    }

    fn annotations(&self, owner: &Owner) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        if let Some(user) = text(self.pod, "annotations", label::USER) {
            annotations.insert(label::USER.to_owned(), user.to_owned());
        }
        annotations.insert(annotation::TOP_OWNER.to_owned(), as_yaml(owner));
        annotations.extend(texts(self.top(), "annotations"));
        annotations
    }

    fn queue(&self) -> String {
        let of = |key: &str| text(self.top(), "labels", key).or_else(|| text(self.pod, "labels", key));
        if let Some(queue) = of(&self.options.queue_label_key) {
            return queue.to_owned();
        }
        let pool = Some(self.options.node_pool_label_key.as_str()).filter(|key| !key.is_empty());
        let pool = pool.and_then(|key| text(self.pod, "labels", key));
        match (of(label::PROJECT).filter(|project| !project.is_empty()), pool) {
            (Some(project), Some(pool)) => format!("{project}-{pool}"),
            (Some(project), None) => project.to_owned(),
            (None, _) => name::DEFAULT_QUEUE.to_owned(),
        }
    }

    fn priority_class(&self, owners: &[&Value], class: &str) -> String {
        let of_pod = text(self.pod, "labels", label::PRIORITY_CLASS)
            .or_else(|| self.pod.pointer("/spec/priorityClassName").and_then(Value::as_str));
        let named = owners.iter().filter_map(|owner| text(owner, "labels", label::PRIORITY_CLASS).or(of_pod));
        let by_kind = self.defaults.of(self.top_kind()).and_then(|of| of.priority_name.as_deref());
        let mut candidates = named.chain(by_kind).filter(|class| !class.is_empty());
        candidates.find(|class| (self.class_exists)(class)).unwrap_or(class).to_owned()
    }

    fn preemptibility(&self, owners: &[&Value]) -> Option<Preemptibility> {
        let mut labels = owners.iter().copied().chain([self.pod]);
        let named = labels.find_map(|of| Said::read(text(of, "labels", label::PREEMPTIBILITY)?));
        let by_kind = || {
            let word = self.defaults.of(self.top_kind())?.preemptibility.as_deref()?;
            Said::read(&word.to_lowercase())
        };
        match named.or_else(by_kind)? {
            Said::This(preemptibility) => Some(preemptibility),
            Said::Nothing => None,
        }
    }

    fn duration(&self, owners: &[&Value], name: &str, accepts: impl Fn(Span) -> bool) -> Option<String> {
        let named = owners.iter().copied().chain([self.pod]).filter_map(|of| text(of, "annotations", name));
        let mut spans = named.filter_map(|text| duration::parse_go(text).ok()).filter(|span| accepts(*span));
        spans.next().map(duration::format_go)
    }
}

/// What a word says of being evicted.
enum Said {
    This(Preemptibility),
    /// That the priority decides.
    Nothing,
}

impl Said {
    /// Nothing at all where the word cannot be understood.
    fn read(word: &str) -> Option<Self> {
        match word {
            "preemptible" => Some(Self::This(Preemptibility::Preemptible)),
            "non-preemptible" => Some(Self::This(Preemptibility::NonPreemptible)),
            "" => Some(Self::Nothing),
            _ => None,
        }
    }
}

fn topology(top: &Value) -> TopologyConstraint {
    let of = |name| text(top, "annotations", name).unwrap_or_default().to_owned();
    TopologyConstraint {
        topology: of(annotation::TOPOLOGY),
        required_topology_level: of(annotation::TOPOLOGY_REQUIRED),
        preferred_topology_level: of(annotation::TOPOLOGY_PREFERRED),
    }
}

fn texts(of: &Value, which: &str) -> BTreeMap<String, String> {
    let all = object::meta(of, which).and_then(Value::as_object);
    let pairs =
        all.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    pairs.collect()
}

/// The name of the group of an object.
pub fn name_of(name: &str, uid: &str) -> String {
    format!("pg-{name}-{uid}")
}

/// The hard default of most kinds.
pub const TRAIN: &str = priority_class::TRAIN;

/// The owner as YAML, for whoever shows it.
fn as_yaml(owner: &Owner) -> String {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let fields = [
        ("name", &*owner.name),
        ("uid", &owner.uid),
        ("group", group),
        ("version", version),
        ("kind", &owner.kind),
    ];
    // A JSON string is a YAML string, whatever is in it; plain words go without quotes.
    let quoted = |value: &str| {
        let is_plain = value.starts_with(|first: char| first.is_ascii_alphabetic())
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'/'))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&&*value.to_lowercase());
        if is_plain { value.to_owned() } else { Value::from(value).to_string() }
    };
    let lines: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key}: {}\n", quoted(value))).collect();
    lines.concat()
}
