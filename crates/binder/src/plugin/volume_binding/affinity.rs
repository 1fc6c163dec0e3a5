//! Evaluates node selectors of volumes and label selectors of claims.

use crate::objects::name;
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PersistentVolume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// Whether the node affinity of a volume selects a node. The terms are ORed.
pub(crate) fn is_accessible(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| selects(term, node)))
}

/// Whether a term selects a node. An empty term selects none.
fn selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let field = |key: &str| (key == "metadata.name").then(|| name(node));
    let holds = |operator: &str, values: Option<&Vec<String>>, value| {
        requirement_holds(operator, values.map_or(&[][..], Vec::as_slice), value)
    };
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|rule| holds(&rule.operator, rule.values.as_ref(), label(&rule.key)))
        && fields.iter().all(|rule| holds(&rule.operator, rule.values.as_ref(), field(&rule.key)))
}

/// Whether a label selector selects an object.
pub(crate) fn matches_labels(selector: &LabelSelector, candidate: &impl ResourceExt) -> bool {
    let labels = candidate.labels();
    let mut equal = selector.match_labels.iter().flatten();
    let mut rules = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && rules.all(|rule| {
            let values = rule.values.as_deref().unwrap_or_default();
            requirement_holds(&rule.operator, values, labels.get(&rule.key).map(String::as_str))
        })
}

/// Evaluates one requirement; an unknown operator does not hold.
fn requirement_holds(operator: &str, values: &[String], value: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = || number(values.first().map(String::as_str));
    match operator {
        "In" => value.is_some_and(|value| values.iter().any(|allowed| allowed == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|excluded| excluded != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(labels: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}})).unwrap()
    }

    fn volume(terms: &Value) -> PersistentVolume {
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        serde_json::from_value(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}})).unwrap()
    }

    #[test]
    fn requirements_follow_kubernetes() {
        let node = node(&json!({"zone": "a", "disks": "4"}));
        let table = [
            (json!({"key": "zone", "operator": "In", "values": ["b", "a"]}), true),
            (json!({"key": "zone", "operator": "In", "values": ["b"]}), false),
            (json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "none", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "none", "operator": "Exists"}), false),
            (json!({"key": "none", "operator": "DoesNotExist"}), true),
            (json!({"key": "disks", "operator": "Gt", "values": ["3"]}), true),
            (json!({"key": "disks", "operator": "Lt", "values": ["4"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["3"]}), false),
            (json!({"key": "zone", "operator": "Near"}), false),
        ];
        for (rule, expected) in table {
            let volume = volume(&json!([{"matchExpressions": [rule]}]));
            assert_eq!(is_accessible(&volume, &node), expected, "{rule}");
        }
    }

    #[test]
    fn volume_is_accessible_where_one_of_its_terms_selects_the_node() {
        let node = node(&json!({}));
        let by_name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(is_accessible(&PersistentVolume::default(), &node));
        assert!(is_accessible(&volume(&json!([by_name("n2"), by_name("n1")])), &node));
        assert!(!is_accessible(&volume(&json!([by_name("n2")])), &node));
        assert!(!is_accessible(&volume(&json!([{}])), &node), "an empty term selects no node");
    }
}
