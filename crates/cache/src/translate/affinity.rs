//! Translates node affinity, pod affinity and anti-affinity, and topology spread constraints.

use super::selector;
use crate::finding::Report;
use crate::object::Namespace;
use crate::object::pod::{Pod, PodAffinity, PodAffinityTerm, SpreadConstraint as RawSpread};
use crate::object::value::Text;
use kai_engine::input::{
    AffinityTerm, Key, LabelSelector, NodePreference, NodeTerm, SelectorOp, SpreadConstraint, WeightedTerm,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespaces by key, for terms that select them by label.
pub type Namespaces = BTreeMap<Key, Arc<Namespace>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub node_terms: Vec<NodeTerm>,
    pub node_preferences: Vec<NodePreference>,
    pub affinity: Vec<AffinityTerm>,
    pub anti_affinity: Vec<AffinityTerm>,
    /// Preferred affinity, and preferred anti-affinity with a negative weight.
    pub preferred: Vec<WeightedTerm>,
}

pub fn rules(pod: &Pod, namespaces: &Namespaces, report: &mut Report<'_>) -> Rules {
    let mut rules = Rules::default();
    let Some(affinity) = &pod.spec.affinity else {
        return rules;
    };
    if let Some(nodes) = &affinity.node_affinity {
        if let Some(required) = &nodes.required_during_scheduling_ignored_during_execution {
            rules.node_terms = selector::node_terms(required, "spec.affinity.nodeAffinity", report);
        }
        for preferred in &nodes.preferred_during_scheduling_ignored_during_execution {
            let empty = preferred.preference.match_expressions.is_empty()
                && preferred.preference.match_fields.is_empty();
            if preferred.weight != 0 && !empty {
                let term = selector::node_term(&preferred.preference, "spec.affinity.nodeAffinity", report);
                rules.node_preferences.push(NodePreference { weight: preferred.weight, term });
            }
        }
    }
    let mut read = |side: &Option<PodAffinity>, required: &mut Vec<AffinityTerm>, sign: i32, field: &str| {
        let Some(side) = side else { return };
        for term in &side.required_during_scheduling_ignored_during_execution {
            required.push(affinity_term(term, pod, namespaces, field, report));
        }
        for weighted in &side.preferred_during_scheduling_ignored_during_execution {
            let term = affinity_term(&weighted.pod_affinity_term, pod, namespaces, field, report);
            rules.preferred.push(WeightedTerm { weight: sign * weighted.weight.clamp(0, 100), term });
        }
    };
    read(&affinity.pod_affinity, &mut rules.affinity, 1, "spec.affinity.podAffinity");
    read(&affinity.pod_anti_affinity, &mut rules.anti_affinity, -1, "spec.affinity.podAntiAffinity");
    rules
}

/// Whether a term of the pod selects namespaces by label, so that its input depends on namespace objects.
pub fn reads_namespaces(pod: &Pod) -> bool {
    let side = |side: &Option<PodAffinity>| {
        side.as_ref().is_some_and(|side| {
            let required = side.required_during_scheduling_ignored_during_execution.iter();
            let preferred = side.preferred_during_scheduling_ignored_during_execution.iter();
            required.chain(preferred.map(|w| &w.pod_affinity_term)).any(|t| t.namespace_selector.is_some())
        })
    };
    pod.spec.affinity.as_ref().is_some_and(|a| side(&a.pod_affinity) || side(&a.pod_anti_affinity))
}

fn affinity_term(
    term: &PodAffinityTerm,
    pod: &Pod,
    namespaces: &Namespaces,
    field: &str,
    report: &mut Report<'_>,
) -> AffinityTerm {
    let mut pods = term.label_selector.as_ref().map(|s| selector::label_selector(Some(s), field, report));
    if let Some(pods) = &mut pods {
        add_own_labels(pods, &term.match_label_keys, pod, Own::Same);
        add_own_labels(pods, &term.mismatch_label_keys, pod, Own::Different);
    }
    AffinityTerm {
        selector: pods,
        namespaces: term_namespaces(term, pod, namespaces, field, report),
        topology_key: term.topology_key.to_string(),
    }
}

/// Namespaces of a term: those listed, those selected, or the pod's own; `None` is every namespace.
fn term_namespaces(
    term: &PodAffinityTerm,
    pod: &Pod,
    namespaces: &Namespaces,
    field: &str,
    report: &mut Report<'_>,
) -> Option<Vec<String>> {
    let mut names: BTreeSet<String> = term.namespaces.iter().map(ToString::to_string).collect();
    match &term.namespace_selector {
        None if names.is_empty() => {
            names.insert(pod.metadata.namespace.to_string());
        }
        None => {}
        Some(chosen) if chosen.match_labels.is_empty() && chosen.match_expressions.is_empty() => return None,
        Some(chosen) => {
            let chosen = selector::label_selector(Some(chosen), field, report);
            for (key, namespace) in namespaces {
                if selector::selects(&chosen, |label| namespace_label(namespace, label)) {
                    names.insert(key.name.clone());
                }
            }
        }
    }
    Some(names.into_iter().collect())
}

/// Kubernetes labels every namespace with `kubernetes.io/metadata.name`; snapshots may lack the label.
fn namespace_label(namespace: &Namespace, label: &str) -> Option<String> {
    let given = namespace.metadata.label(label).map(str::to_owned);
    given.or_else(|| {
        (label == kai_api::well_known::label::NAMESPACE_NAME).then(|| namespace.metadata.name.to_string())
    })
}

#[derive(Clone, Copy)]
enum Own {
    Same,
    Different,
}

/// Adds the pod's own values of `matchLabelKeys` and `mismatchLabelKeys` to a selector (KEP-3633). The API server may have
/// done so already; the operation is idempotent.
fn add_own_labels(pods: &mut LabelSelector, keys: &[Text], pod: &Pod, own: Own) {
    for key in keys {
        if let Some(value) = pod.metadata.label(key) {
            let values = vec![value.to_owned()];
            let op = match own {
                Own::Same => SelectorOp::In(values),
                Own::Different => SelectorOp::NotIn(values),
            };
            let requirement = (key.to_string(), op);
            if !pods.requirements.contains(&requirement) {
                pods.requirements.push(requirement);
            }
        }
    }
}

pub fn spread(constraint: &RawSpread, pod: &Pod, report: &mut Report<'_>) -> SpreadConstraint {
    const FIELD: &str = "spec.topologySpreadConstraints";
    let mut pods = selector::label_selector(constraint.label_selector.as_ref(), FIELD, report);
    add_own_labels(&mut pods, &constraint.match_label_keys, pod, Own::Same);
    SpreadConstraint {
        max_skew: constraint.max_skew.max(1),
        topology_key: constraint.topology_key.to_string(),
        hard: constraint.when_unsatisfiable != "ScheduleAnyway",
        selector: pods,
        namespace: pod.metadata.namespace.to_string(),
        min_domains: constraint.min_domains.and_then(|n| u32::try_from(n).ok()),
        honor_affinity: constraint.node_affinity_policy != "Ignore",
        honor_taints: constraint.node_taints_policy == "Honor",
    }
}
