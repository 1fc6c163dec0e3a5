//! Whether a node or a volume is one that a selector picks.

use kai_object as object;
use serde_json::Value;

/// Whether a volume can be used on a node: one of its terms must hold, if it has any.
pub(crate) fn reaches(volume: &Value, node: &Value) -> bool {
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array);
    terms.is_none_or(|terms| terms.iter().any(|term| term_holds(term, node)))
}

fn term_holds(term: &Value, node: &Value) -> bool {
    let rules = |field: &str| term.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (labels, fields) = (rules("matchExpressions"), rules("matchFields"));
    let empty = labels.is_empty() && fields.is_empty();
    let label = |name: &str| object::meta(node, "labels")?.get(name)?.as_str();
    let field = |name: &str| (name == "metadata.name").then(|| object::name(node));
    !empty
        && labels.iter().all(|rule| holds(rule, label(object::str_at(rule, "/key"))))
        && fields.iter().all(|rule| holds(rule, field(object::str_at(rule, "/key"))))
}

/// Whether a label selector picks an object.
pub(crate) fn selects(selector: &Value, candidate: &Value) -> bool {
    let label = |name: &str| object::meta(candidate, "labels")?.get(name)?.as_str();
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let rules = selector.get("matchExpressions").and_then(Value::as_array);
    equal.into_iter().flatten().all(|(name, value)| label(name) == value.as_str())
        && rules.into_iter().flatten().all(|rule| holds(rule, label(object::str_at(rule, "/key"))))
}

/// Whether a value is as a rule wants it.
fn holds(rule: &Value, value: Option<&str>) -> bool {
    let values = || rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    match object::str_at(rule, "/operator") {
        "In" => value.is_some_and(|value| values().any(|wanted| wanted == value)),
        "NotIn" => value.is_none_or(|value| values().all(|unwanted| unwanted != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(number(values().next())).is_some_and(|(value, limit)| value > limit),
        "Lt" => number(value).zip(number(values().next())).is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_read_labels_as_kubernetes_does() {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a", "disks": "4"}}});
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
        for (rule, wanted) in table {
            let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}});
            assert_eq!(reaches(&volume, &node), wanted, "{rule}");
        }
    }

    #[test]
    fn a_volume_reaches_where_one_of_its_terms_holds() {
        let node = json!({"metadata": {"name": "n1", "labels": {}}});
        let volume =
            |terms: Value| json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        let by_name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(reaches(&json!({}), &node));
        assert!(reaches(&volume(json!([by_name("n2"), by_name("n1")])), &node));
        assert!(!reaches(&volume(json!([by_name("n2")])), &node));
        assert!(!reaches(&volume(json!([{}])), &node), "a term that says nothing picks nothing");
    }
}
