//! Desired state that all kinds share: name, owner, labels, queue, priority and the other settings of a workload.
//!
//! Every kind starts from [`Workload::metadata`] and changes what is specific to it.

use crate::cluster::{ClusterView, ReadObjects};
use crate::defaults::{Defaults, OfKind};
use crate::error::Invalid;
use crate::fields;
use crate::kind::skip_top;
use crate::objects::{MetaExt, OwnerObject, PodSummary};
use crate::options::Options;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::pod_group::{Preemptibility, SubGroup, TopologyConstraint, name_of};
use kai_api::spelling;
use kai_api::well_known::{annotation, label, name, priority_class};
use kai_units::{Span, duration};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A pod with its owners and what else is needed to group it.
#[derive(Clone, Copy)]
pub struct Workload<'a> {
    pub pod: &'a PodSummary,
    /// Nearest first; empty where the pod has no owner.
    pub owners: &'a [Arc<OwnerObject>],
    pub options: &'a Options,
    pub defaults: &'a Defaults,
    pub cluster: &'a dyn ClusterView,
    /// What the rule of the kind asked for.
    pub objects: &'a ReadObjects,
    /// Labels and annotations of a wrapping object above the owners.
    pub inherited: Option<&'a ObjectMeta>,
    /// The owners below a wrapping object as they are, without what the topmost inherits. As in KAI, rules that read all
    /// owners read these.
    pub wrapped: Option<&'a [Arc<OwnerObject>]>,
}

impl std::fmt::Debug for Workload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workload").field("pod", &self.pod.metadata.name).finish_non_exhaustive()
    }
}

/// The desired pod group of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    pub name: String,
    pub namespace: String,
    pub owner: Owner,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub min_member: i32,
    /// Where set, `min_member` is not written.
    pub min_sub_group: Option<i32>,
    pub queue: String,
    pub priority_class: String,
    pub preemptibility: Option<Preemptibility>,
    pub preemption_delay: Option<String>,
    pub staleness_grace_period: Option<String>,
    pub topology: TopologyConstraint,
    pub sub_groups: Vec<SubGroup>,
    /// The subgroup of the pod.
    pub sub_group: Option<String>,
    /// Settings of the workload that are malformed and have no effect, with what to write instead.
    pub ignored: Vec<String>,
    /// Labels and annotations that are probably misspelt, each with the likely key.
    pub misspelt: Vec<String>,
    /// Whether pods that do not own each other share the group: the first one creates it, and the others only join it.
    pub is_shared: bool,
}

impl Desired {
    /// Refuses what the API server would refuse, with the reason.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let invalid = |problem: String| Invalid::new(&self.owner.kind, &self.owner.name, problem);
        if !is_dns(&self.name, SUBDOMAIN_MAX, &['.']) {
            return Err(invalid(format!("`{}` is no valid name of a pod group", self.name)));
        }
        let mut minima = vec![(String::new(), Some(self.min_member)), (String::new(), self.min_sub_group)];
        for sub_group in &self.sub_groups {
            if !is_dns(&sub_group.name, LABEL_MAX, &[]) {
                return Err(invalid(format!("`{}` is no valid name of a subgroup", sub_group.name)));
            }
            let of = format!(" of subgroup `{}`", sub_group.name);
            minima.extend([(of.clone(), sub_group.min_member), (of, sub_group.min_sub_group)]);
        }
        for (of, minimum) in minima {
            if let Some(minimum) = minimum.filter(|minimum| *minimum < 0) {
                return Err(invalid(format!("the minimum{of} is {minimum}, and must not be negative")));
            }
        }
        Ok(())
    }
}

/// The parts of a time limit, which a group inherits from its owner or pod.
const TIME_LIMIT: [&str; 3] =
    [annotation::MAX_RUNTIME, annotation::MAX_RUNTIME_ACTION, annotation::MAX_RUNTIME_GRACE_PERIOD];

/// What the scheduler records on groups. A workload that has these annotations could outlast its time limit.
const SCHEDULER_OWNED: [&str; 5] = [
    annotation::LAST_START,
    annotation::LAST_EVICTION,
    annotation::STALE_SINCE,
    annotation::MAX_RUNTIME_WARNING,
    annotation::MAX_RUNTIME_ENDED,
];

/// The longest name of an object.
const SUBDOMAIN_MAX: usize = 253;
/// The longest value of a label, which names the subgroup of a pod.
const LABEL_MAX: usize = 63;

/// Whether a text is a name of lower-case letters, digits, dashes and the further characters (RFC 1123).
fn is_dns(text: &str, max: usize, further: &[char]) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= max
        && text.split(further).all(|part| part.starts_with(is_edge) && part.ends_with(is_edge))
        && text.chars().all(|c| is_edge(c) || c == '-' || further.contains(&c))
}

/// The owner reference of a pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The topmost object of a workload: the last owner, or the pod.
#[derive(Clone, Copy, Debug)]
pub struct Top<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub metadata: &'a ObjectMeta,
}

/// Which owners' labels and annotations are read; those of the pod always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    TopOwner,
    /// Nearest first.
    AllOwners,
}

impl<'a> Top<'a> {
    fn of(owner: &'a OwnerObject) -> Self {
        Self { api_version: &owner.api_version, kind: &owner.kind, metadata: &owner.metadata }
    }

    fn group_version_kind(&self) -> (&'a str, &'a str, &'a str) {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        (group, version, self.kind)
    }

    /// The number in an annotation of the object.
    pub(crate) fn annotation_number(&self, name: &str, text: &str) -> Result<i32, Invalid> {
        fields::number(text).map_err(|problem| {
            let problem =
                format!("annotation `{name}` is {problem}; write a number such as `2`, or remove it");
            Invalid::new(self.kind, self.metadata.name_str(), problem)
        })
    }
}

impl<'a> Workload<'a> {
    /// The same pod below other owners.
    pub(crate) fn below<'b>(&'b self, owners: &'b [Arc<OwnerObject>]) -> Workload<'b> {
        Workload { owners, ..*self }
    }

    /// The topmost owner, for rules of kinds that are owners.
    pub fn top_object(&self) -> Result<&'a OwnerObject, Invalid> {
        let top = self.owners.last().map(AsRef::as_ref);
        top.ok_or_else(|| self.pod_invalid("it has no owner"))
    }

    pub fn pod_invalid(&self, problem: impl Into<String>) -> Invalid {
        Invalid::new("Pod", self.pod.metadata.name_str(), problem)
    }

    /// An object with the labels and annotations of the wrapping object that it lacks.
    pub(crate) fn with_inherited(&self, object: &OwnerObject) -> OwnerObject {
        let mut object = object.clone();
        if let Some(inherited) = self.inherited {
            skip_top::inherit(&mut object.metadata, inherited);
        }
        object
    }

    /// Makes a group of the pod alone of the group of a workload.
    pub fn make_per_pod(&self, desired: &mut Desired) {
        let metadata = &self.pod.metadata;
        desired.name = name_of(metadata.name_str(), metadata.uid_str());
        desired.owner = Owner {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: metadata.name_str().to_owned(),
            uid: metadata.uid_str().to_owned(),
        };
    }

    /// The node pool of the pod, unless the workload names one.
    pub(crate) fn add_node_pool(&self, desired: &mut Desired) {
        let pool = &self.options.node_pool_label_key;
        if !pool.is_empty()
            && let Some(value) = self.pod.metadata.label(pool)
        {
            desired.labels.entry(pool.clone()).or_insert_with(|| value.to_owned());
        }
    }

    pub fn top(&self) -> Top<'a> {
        match self.owners.last() {
            Some(owner) => Top::of(owner),
            None => Top { api_version: "v1", kind: "Pod", metadata: &self.pod.metadata },
        }
    }

    /// Group, version and kind of the topmost object.
    pub fn top_kind(&self) -> (&'a str, &'a str, &'a str) {
        self.top().group_version_kind()
    }

    /// What all kinds share; `class` is the priority class where none is named.
    pub fn metadata(&self, sources: Sources, class: &str) -> Desired {
        let top = self.top();
        let all = self.wrapped.unwrap_or(self.owners);
        let read: Vec<Top<'_>> = match sources {
            Sources::AllOwners if !all.is_empty() => all.iter().map(|owner| Top::of(owner)).collect(),
            Sources::AllOwners | Sources::TopOwner => vec![top],
        };
        let owners: Vec<&ObjectMeta> = read.iter().map(|owner| owner.metadata).collect();
        let by_kind: Vec<&OfKind> =
            read.iter().filter_map(|owner| self.defaults.of(owner.group_version_kind())).collect();
        let owner = Owner {
            api_version: top.api_version.to_owned(),
            kind: top.kind.to_owned(),
            name: top.metadata.name_str().to_owned(),
            uid: top.metadata.uid_str().to_owned(),
        };
        Desired {
            name: name_of(&owner.name, &owner.uid),
            namespace: self.pod.metadata.namespace_str().to_owned(),
            labels: self.labels(),
            annotations: self.annotations(&owner, &owners),
            owner,
            min_member: 1,
            min_sub_group: None,
            queue: self.queue(),
            priority_class: self.priority_class(&owners, &by_kind, class),
            preemptibility: self.preemptibility(&owners, &by_kind),
            preemption_delay: self.duration(&owners, annotation::PREEMPTION_DELAY, |span| span.0 >= 0),
            staleness_grace_period: self.duration(&owners, annotation::STALENESS_GRACE_PERIOD, |_| true),
            topology: topology_of(top.metadata),
            sub_groups: Vec::new(),
            sub_group: None,
            ignored: self.ignored(&owners),
            misspelt: self.misspelt(&owners),
            is_shared: false,
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.top().metadata.labels.clone().unwrap_or_default();
        if let Some(user) = self.pod.metadata.label(label::USER) {
            labels.entry(label::USER.to_owned()).or_insert_with(|| user.to_owned());
        }
        labels
    }

    fn annotations(&self, owner: &Owner, owners: &[&ObjectMeta]) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        if let Some(user) = self.pod.metadata.annotation(label::USER) {
            annotations.insert(label::USER.to_owned(), user.to_owned());
        }
        annotations.insert(annotation::TOP_OWNER.to_owned(), as_yaml(owner));
        let of_top = self.top().metadata.annotations.clone().unwrap_or_default();
        annotations.extend(of_top.into_iter().filter(|(key, _)| !SCHEDULER_OWNED.contains(&key.as_str())));
        if !annotations.contains_key(annotation::MAX_RUNTIME) {
            // The parts of a limit belong together: they come from one object.
            let sources = owners.iter().copied().chain([&self.pod.metadata]);
            let source = sources.into_iter().find(|of| of.annotation(annotation::MAX_RUNTIME).is_some());
            for key in TIME_LIMIT {
                if let Some(value) = source.and_then(|of| of.annotation(key)) {
                    annotations.insert(key.to_owned(), value.to_owned());
                }
            }
        }
        annotations
    }

    fn queue(&self) -> String {
        let of = |key: &str| self.top().metadata.label(key).or_else(|| self.pod.metadata.label(key));
        if let Some(queue) = of(&self.options.queue_label_key) {
            return queue.to_owned();
        }
        let pool = Some(self.options.node_pool_label_key.as_str()).filter(|key| !key.is_empty());
        let pool = pool.and_then(|key| self.pod.metadata.label(key));
        match (of(label::PROJECT).filter(|project| !project.is_empty()), pool) {
            (Some(project), Some(pool)) => format!("{project}-{pool}"),
            (Some(project), None) => project.to_owned(),
            (None, _) => name::DEFAULT_QUEUE.to_owned(),
        }
    }

    fn priority_class(&self, owners: &[&ObjectMeta], by_kind: &[&OfKind], class: &str) -> String {
        let of_pod = self.pod.metadata.label(label::PRIORITY_CLASS);
        let of_pod = of_pod.or(self.pod.spec.priority_class_name.as_deref());
        let named = owners.iter().filter_map(|owner| owner.label(label::PRIORITY_CLASS).or(of_pod));
        let by_kind = by_kind.iter().filter_map(|of| of.priority_name.as_deref());
        let mut candidates = named.chain(by_kind).filter(|class| !class.is_empty());
        candidates.find(|class| self.cluster.priority_class_exists(class)).unwrap_or(class).to_owned()
    }

    fn preemptibility(&self, owners: &[&ObjectMeta], by_kind: &[&OfKind]) -> Option<Preemptibility> {
        let mut sources = owners.iter().copied().chain([&self.pod.metadata]);
        let named = sources.find_map(|of| PreemptibilitySetting::parse(of.label(label::PREEMPTIBILITY)?));
        let by_kind = || {
            let words = by_kind.iter().filter_map(|of| of.preemptibility.as_deref());
            let mut words = words.filter(|word| !word.is_empty());
            words.find_map(|word| PreemptibilitySetting::parse(&word.to_lowercase()))
        };
        match named.or_else(by_kind)? {
            PreemptibilitySetting::Explicit(preemptibility) => Some(preemptibility),
            PreemptibilitySetting::ByPriority => None,
        }
    }

    /// Labels and annotations that are skipped because their values are malformed.
    fn ignored(&self, owners: &[&ObjectMeta]) -> Vec<String> {
        let mut ignored = BTreeSet::new();
        for of in owners.iter().copied().chain([&self.pod.metadata]) {
            for name in [annotation::PREEMPTION_DELAY, annotation::STALENESS_GRACE_PERIOD] {
                let Some(text) = of.annotation(name) else { continue };
                let may_be_negative = name == annotation::STALENESS_GRACE_PERIOD;
                if !duration::parse_go(text).is_ok_and(|span| span.0 >= 0 || may_be_negative) {
                    ignored.insert(format!(
                        "annotation `{name}` is `{text}`, which is no duration and has no effect; write a time such as `90s` or `5m`"
                    ));
                }
            }
            let preemptibility = of.label(label::PREEMPTIBILITY);
            if let Some(text) = preemptibility.filter(|text| PreemptibilitySetting::parse(text).is_none()) {
                ignored.insert(format!(
                    "label `{}` is `{text}` and has no effect; write `preemptible` or `non-preemptible`",
                    label::PREEMPTIBILITY
                ));
            }
            let class = of.label(label::PRIORITY_CLASS).filter(|class| !class.is_empty());
            if let Some(class) = class.filter(|class| !self.cluster.priority_class_exists(class)) {
                ignored.insert(format!(
                    "label `{}` is `{class}`, which is no priority class and has no effect; create it, or name another",
                    label::PRIORITY_CLASS
                ));
            }
        }
        ignored.into_iter().collect()
    }

    /// Keys of the owners and the pod that no rule reads, and that resemble one.
    fn misspelt(&self, owners: &[&ObjectMeta]) -> Vec<String> {
        // A key of the installation's own may resemble a default one.
        let own = [&self.options.queue_label_key, &self.options.node_pool_label_key];
        let mut misspelt = BTreeSet::new();
        for of in owners.iter().copied().chain([&self.pod.metadata]) {
            let [labels, annotations] = [&of.labels, &of.annotations].map(|map| {
                map.iter().flat_map(BTreeMap::keys).filter(|key| !own.contains(key)).map(String::as_str)
            });
            misspelt.extend(spelling::check_keys(labels, annotations));
        }
        misspelt.into_iter().collect()
    }

    fn duration(&self, owners: &[&ObjectMeta], name: &str, accepts: impl Fn(Span) -> bool) -> Option<String> {
        let sources = owners.iter().copied().chain([&self.pod.metadata]);
        let named = sources.filter_map(|of| of.annotation(name));
        let mut spans = named.filter_map(|text| duration::parse_go(text).ok()).filter(|span| accepts(*span));
        spans.next().map(duration::format_go)
    }
}

/// The value of a preemptibility label.
enum PreemptibilitySetting {
    Explicit(Preemptibility),
    /// The priority decides.
    ByPriority,
}

impl PreemptibilitySetting {
    /// None for an unknown value, which leaves the decision to the next source.
    fn parse(value: &str) -> Option<Self> {
        match value {
            "preemptible" => Some(Self::Explicit(Preemptibility::Preemptible)),
            "non-preemptible" => Some(Self::Explicit(Preemptibility::NonPreemptible)),
            "" => Some(Self::ByPriority),
            _ => None,
        }
    }
}

pub(crate) fn topology_of(top: &ObjectMeta) -> TopologyConstraint {
    let of = |name| top.annotation(name).unwrap_or_default().to_owned();
    TopologyConstraint {
        topology: of(annotation::TOPOLOGY),
        required_topology_level: of(annotation::TOPOLOGY_REQUIRED),
        preferred_topology_level: of(annotation::TOPOLOGY_PREFERRED),
    }
}

/// The priority class of kinds without another default.
pub const TRAIN: &str = priority_class::TRAIN;
/// The priority class of interactive kinds.
pub const BUILD: &str = priority_class::BUILD;
/// The priority class of kinds that serve.
pub const INFERENCE: &str = priority_class::INFERENCE;

/// The owner as YAML, the value of KAI's top-owner annotation.
fn as_yaml(owner: &Owner) -> String {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let fields = [
        ("name", &*owner.name),
        ("uid", &owner.uid),
        ("group", group),
        ("version", version),
        ("kind", &owner.kind),
    ];
    // Every JSON string is a YAML string; plain words are not quoted.
    let quoted = |value: &str| {
        // A uid is no number and no date, even if it starts with a digit.
        let is_uid = || value.len() == 36 && value.split('-').count() == 5;
        let is_plain = (value.starts_with(|first: char| first.is_ascii_alphabetic()) || is_uid())
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'/'))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&&*value.to_lowercase());
        if is_plain { value.to_owned() } else { Value::from(value).to_string() }
    };
    let lines: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key}: {}\n", quoted(value))).collect();
    lines.concat()
}
