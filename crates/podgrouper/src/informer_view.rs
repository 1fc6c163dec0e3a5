//! The informers of the pod grouper, and what the rules see of their stores.

use crate::cluster::{ClusterView, StoredGroupView};
use crate::objects::{MetaExt, PodSummary, trim_to_identity};
use crate::options::Options;
use crate::stored_group::StoredGroup;
use crate::stored_pod::StoredPod;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kai_api::PodGroup;
use kai_api::well_known::{annotation, label};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind::POD;
use kai_runtime::url::query_value;
use kai_runtime::{Key, ResourceKind};
use std::sync::Arc;

/// The index of pods by the key of the group that they are assigned to.
pub(crate) const BY_GROUP: &str = "group";
/// The index of pods by the uid of their first owner, or their own where they have none.
pub(crate) const BY_OWNER: &str = "owner";
/// The index of pods by the labels that rules search for.
const BY_LABEL: &str = "label";
/// The index of groups by the first part of their name, up to the uid of an owner.
const BY_BASE: &str = "base";

/// The labels that rules search for.
const SEARCHED: [&str; 2] = [label::KNATIVE_REVISION, label::KUBEFLOW_JOB_NAME];

pub(crate) fn informers(options: &Options) -> Informers {
    let mut informers = Informers::default()
        .with(
            Informer::partial(POD, StoredPod::identity)
                .query(pod_query(options))
                .index(BY_GROUP, |pod: &StoredPod| {
                    pod.group().map(|key| key.to_string()).into_iter().collect()
                })
                .index(BY_OWNER, |pod| pod.owner_uid().map(str::to_owned).into_iter().collect())
                .index(BY_LABEL, |pod| {
                    let of = |key: &&str| Some(label_value(pod.namespace(), key, pod.label(key)?));
                    SEARCHED.iter().filter_map(of).collect()
                }),
        )
        .with(Informer::partial(ResourceKind::of::<PodGroup>(), StoredGroup::identity).index(
            BY_BASE,
            |group: &StoredGroup| {
                let Key { namespace, name } = group.key();
                base_of(name).map(|base| format!("{namespace}/{base}")).into_iter().collect()
            },
        ))
        .with(Informer::<PriorityClass>::metadata().trim(|class| {
            trim_to_identity(&mut class.metadata);
        }));
    if !options.namespace_label_selector.is_empty() {
        informers = informers.with(Informer::<Namespace>::metadata().trim(|namespace| {
            let labels = namespace.metadata.labels.take();
            trim_to_identity(&mut namespace.metadata);
            namespace.metadata.labels = labels;
        }));
    }
    if let Some(key) = &options.default_priorities {
        let selector = format!("metadata.name={},metadata.namespace={}", key.name, key.namespace);
        let query = format!("fieldSelector={}", query_value(&selector));
        informers = informers.with(Informer::<ConfigMap>::typed().query(query));
    }
    informers
}

fn label_value(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

/// A group name up to and with the uid that it contains.
fn base_of(name: &str) -> Option<&str> {
    const UID: usize = 36;
    let is_uid = |text: &str| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut ends = UID..=name.len();
    ends.find(|end| name.get(end - UID..*end).is_some_and(is_uid)).and_then(|end| name.get(..end))
}

pub(crate) fn pod_query(options: &Options) -> String {
    let field = query_value(&format!("spec.schedulerName={}", options.scheduler_name));
    let labels: Vec<String> =
        options.pod_label_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() {
        return format!("fieldSelector={field}");
    }
    format!("fieldSelector={field}&labelSelector={}", query_value(&labels.join(",")))
}

/// The group that a pod is assigned to; an empty name assigns it to none.
pub(crate) fn assigned_group(pod: &PodSummary) -> Option<Key> {
    let name = pod.metadata.annotation(annotation::POD_GROUP).filter(|name| !name.is_empty())?;
    Some(Key::new(pod.metadata.namespace_str(), name))
}

/// What the rules see of the stores.
pub(crate) struct InformerView<'a>(pub(crate) &'a Informers);

impl ClusterView for InformerView<'_> {
    fn priority_class_exists(&self, name: &str) -> bool {
        self.0.get::<PriorityClass>(&Key::new("", name)).is_some()
    }

    fn group(&self, key: &Key) -> Option<StoredGroupView> {
        let groups = self.0.store::<StoredGroup>();
        // An invalid group exists, and nothing is known of it.
        let invalid =
            || groups.invalid(key).map(|_| StoredGroupView { owner_kind: None, has_sub_groups: true });
        groups.get(key).map(|group| view(&group)).or_else(invalid)
    }

    fn groups_named(&self, namespace: &str, base: &str) -> Vec<StoredGroupView> {
        let groups = self.0.store::<StoredGroup>().by_index(BY_BASE, &format!("{namespace}/{base}"));
        let is_named =
            |name: &str| name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        groups.iter().filter(|group| is_named(&group.key().name)).map(|group| view(group)).collect()
    }

    fn pods_labelled(&self, namespace: &str, key: &str, value: &str) -> Vec<Arc<PodSummary>> {
        let pods = self.0.store::<StoredPod>().by_index(BY_LABEL, &label_value(namespace, key, value));
        pods.iter().map(|pod| Arc::new(pod.summary())).collect()
    }
}

fn view(group: &StoredGroup) -> StoredGroupView {
    StoredGroupView {
        owner_kind: group.owner_kind().map(str::to_owned),
        has_sub_groups: StoredGroupView::has_sub_groups(group.spec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_of_a_group_name_ends_with_the_uid() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let base = format!("pg-sim-{uid}");
        assert_eq!(base_of(&base), Some(base.as_str()));
        assert_eq!(base_of(&format!("{base}-workers")), Some(base.as_str()));
        assert_eq!(base_of("pg-sim-u1"), None);
        assert_eq!(base_of("größe-größe-größe-größe-größe-größe-größe"), None);
    }
}
