//! Label and field selectors, case by case.

use super::*;
use serde_json::json;

fn labels(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("labels are a map") };
    map
}

fn selects(selector: &str, object: Value) -> bool {
    LabelSelector::parse(selector).unwrap().matches(Some(&labels(object)))
}

fn error(selector: &str) -> String {
    LabelSelector::parse(selector).unwrap_err().0
}

#[test]
fn equality_and_sets_select_by_label() {
    let cases = [
        ("", json!({}), true),
        ("a=1", json!({"a": "1"}), true),
        ("a==1", json!({"a": "1"}), true),
        ("a=1", json!({"a": "2"}), false),
        ("a=1", json!({}), false),
        ("a!=1", json!({}), true),
        ("a!=1", json!({"a": "1"}), false),
        ("a in (1,2)", json!({"a": "2"}), true),
        ("a in (1,2)", json!({"a": "3"}), false),
        ("a notin (1, 2)", json!({"a": "3"}), true),
        ("a notin (1,2)", json!({}), true),
        ("a notin (1,2)", json!({"a": "1"}), false),
        ("a", json!({"a": ""}), true),
        ("a", json!({}), false),
        ("!a", json!({}), true),
        ("! a", json!({"a": "1"}), false),
        ("a>1", json!({"a": "2"}), true),
        ("a>1", json!({"a": "1"}), false),
        ("a<1", json!({"a": "0"}), true),
        ("a<1", json!({"a": "x"}), false),
        ("a<1", json!({}), false),
        ("a=", json!({"a": ""}), true),
        ("a=,b", json!({"a": "", "b": "x"}), true),
        ("a in ()", json!({"a": ""}), true),
        ("a in (,x)", json!({"a": ""}), true),
        ("a in (x,)", json!({"a": ""}), true),
        ("a in (x,,y)", json!({"a": ""}), true),
        ("in in (in)", json!({"in": "in"}), true),
        ("notin=in", json!({"notin": "in"}), true),
        (" x/y = a , !b ", json!({}), false),
        ("a=1,b=2", json!({"a": "1", "b": "2", "c": "3"}), true),
        ("a=1,b=2", json!({"a": "1"}), false),
    ];
    for (selector, object, expected) in cases {
        assert_eq!(selects(selector.trim(), object.clone()), expected, "{selector} on {object}");
    }
}

#[test]
fn missing_labels_match_negated_requirements() {
    assert!(LabelSelector::parse("!a").unwrap().matches(None));
    assert!(LabelSelector::parse("a!=b").unwrap().matches_object(&json!({"metadata": {}})));
    assert!(!LabelSelector::parse("a").unwrap().matches_object(&json!({})));
    assert!(LabelSelector::parse("").unwrap().is_everything());
}

#[test]
fn selector_errors_equal_kube_apiserver() {
    let cases = [
        ("a,", "found '', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b,(", "unable to parse requirement: found '(', expected: ',', or identifier"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=b)", "found ')', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ];
    for (selector, expected) in cases {
        assert_eq!(error(selector), expected, "{selector}");
    }
    assert!(
        error("-a=b").starts_with(
            r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist"#
        )
    );
    assert!(
        error("a=-").starts_with(
            r#"unable to parse requirement: values[0][a]: Invalid value: "-": a valid label must"#
        )
    );
}

#[test]
fn selectors_are_formatted_sorted_and_round_trip() {
    let cases = [
        ("b,a=1", "a=1,b"),
        ("a==1", "a=1"),
        ("z notin (y,x,x)", "z notin (x,y)"),
        ("!a,b!=2,c in (q)", "!a,b!=2,c in (q)"),
        ("a>1,b<2", "a>1,b<2"),
    ];
    for (text, printed) in cases {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.to_string(), printed);
        assert_eq!(LabelSelector::parse(printed).unwrap(), selector);
    }
}

#[test]
fn label_selector_objects_combine_labels_and_expressions() {
    let selector = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    });
    let selector = LabelSelector::from_object(&selector).unwrap();
    assert_eq!(selector.to_string(), "app=web,!old,tier in (a,b)");
    assert!(selector.matches(Some(&labels(json!({"app": "web", "tier": "a"})))));
    assert!(!selector.matches(Some(&labels(json!({"app": "web", "tier": "a", "old": ""})))));
    assert!(LabelSelector::from_object(&json!({})).unwrap().matches(None));
    assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(None));
    let map = labels(json!({"a": "1"}));
    assert!(LabelSelector::from_map(&map).unwrap().matches(Some(&map)));
}

#[test]
fn malformed_label_selector_objects_are_rejected() {
    let of = |expression: Value| {
        LabelSelector::from_object(&json!({"matchExpressions": [expression]})).unwrap_err().0
    };
    assert_eq!(
        of(json!({"key": "a", "operator": "Like"})),
        r#""Like" is not a valid label selector operator"#
    );
    assert_eq!(
        of(json!({"key": "a", "operator": "In"})),
        "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(
        of(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
        r#"values: Invalid value: ["b"]: values set must be empty for exists and does not exist"#
    );
}

const POD: FieldTarget<'static> = FieldTarget::BuiltIn { api_version: "v1", kind: "Pod" };

fn matches(selector: &str, target: FieldTarget<'_>, object: &Value) -> bool {
    FieldSelector::parse(selector, target).unwrap().matches(object)
}

#[test]
fn pods_are_selected_by_fields() {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"nodeName": "n1", "schedulerName": "kai"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    for (selector, expected) in [
        ("", true),
        ("metadata.name=p,metadata.namespace=ns", true),
        ("spec.nodeName=n1", true),
        ("spec.host==n1", true),
        ("spec.nodeName!=n1", false),
        ("spec.nodeName!=", true),
        ("status.phase!=Succeeded,status.phase!=Failed", true),
        ("spec.hostNetwork=false", true),
        ("status.podIP=10.0.0.1", true),
        ("status.podIPs=10.0.0.1", false),
        ("spec.schedulerName=kai,,", true),
        ("spec.serviceAccountName=", true),
    ] {
        assert_eq!(matches(selector, POD, &pod), expected, "{selector}");
    }
}

#[test]
fn exact_name_is_extracted_from_the_selector() {
    let selector = FieldSelector::parse("metadata.name=a,spec.nodeName!=b", POD).unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a"));
    assert_eq!(selector.exact("spec.nodeName"), None);
    assert!(FieldSelector::parse("", POD).unwrap().is_everything());
}

#[test]
fn other_kinds_have_selectable_fields() {
    let of = |api_version, kind| FieldTarget::BuiltIn { api_version, kind };
    let event = json!({"source": {"component": "kubelet"}, "involvedObject": {"name": "p"}, "type": "Warning", "reason": "r"});
    assert!(matches("involvedObject.name=p,type=Warning,reason=r,source=kubelet", of("v1", "Event"), &event));
    assert!(matches("source=x", of("v1", "Event"), &json!({"reportingComponent": "x"})));
    assert!(matches(
        "regarding.name=p",
        of("events.k8s.io/v1", "Event"),
        &json!({"regarding": {"name": "p"}})
    ));
    assert!(matches("spec.unschedulable=false", of("v1", "Node"), &json!({})));
    assert!(matches("spec.unschedulable=true", of("v1", "Node"), &json!({"spec": {"unschedulable": true}})));
    assert!(matches("status.successful=2", of("batch/v1", "Job"), &json!({"status": {"succeeded": 2}})));
    assert!(matches("status.phase=Active", of("v1", "Namespace"), &json!({"status": {"phase": "Active"}})));
    assert!(matches(
        "spec.driver=d",
        of("resource.k8s.io/v1", "ResourceSlice"),
        &json!({"spec": {"driver": "d"}})
    ));
    assert!(matches(
        "metadata.namespace=",
        of("storage.k8s.io/v1", "StorageClass"),
        &json!({"metadata": {"name": "a"}})
    ));
}

#[test]
fn unknown_field_labels_are_rejected_per_kind() {
    let refuse = |selector: &str, target| FieldSelector::parse(selector, target).unwrap_err().0;
    let of = |api_version, kind| FieldTarget::BuiltIn { api_version, kind };
    assert_eq!(refuse("spec.x=1", POD), "field label not supported: spec.x");
    assert_eq!(refuse("x=1", of("batch/v1", "Job")), r#"field label "x" not supported for Job"#);
    assert_eq!(
        refuse("metadata.namespace=x", of("v1", "Node")),
        "field label not supported: metadata.namespace"
    );
    assert_eq!(
        refuse("x=1", of("resource.k8s.io/v1", "ResourceSlice")),
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x"
    );
    assert_eq!(
        refuse("x=1", of("apps/v1", "Deployment")),
        r#""x" is not a known field selector: only "metadata.name", "metadata.namespace""#
    );
    assert_eq!(refuse("a", POD), "invalid selector: 'a'; can't understand 'a'");
    assert_eq!(refuse("a=\\x", POD), "invalid field selector: invalid escape sequence: \\x");
    assert_eq!(refuse("a=b=c", POD), "invalid field selector: unescaped character in value: 61");
    assert_eq!(refuse("a=\\", POD), "invalid field selector: invalid escape sequence: \\");
}

#[test]
fn custom_resources_support_selectable_fields() {
    let selectable = [".spec.color".to_owned()];
    let namespaced = FieldTarget::Custom { namespaced: true, selectable: &selectable };
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"color": "a,b=c"}});
    assert!(matches(r"spec.color=a\,b\=c,metadata.namespace=b", namespaced, &object));
    assert_eq!(
        FieldSelector::parse("spec.size=1", namespaced).unwrap_err().0,
        "field label not supported: spec.size"
    );
    let cluster = FieldTarget::Custom { namespaced: false, selectable: &[] };
    assert!(FieldSelector::parse("metadata.namespace=b", cluster).is_err());
    assert!(matches("metadata.name=a", cluster, &object));
}
