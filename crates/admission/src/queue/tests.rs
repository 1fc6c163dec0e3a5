//! Validation of queues, as tables.

use super::*;
use serde_json::{Value, json};

fn queue(name: &str, spec: &Value) -> Queue {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn sized(name: &str, parent: &str, cpu: i64, gpu: i64, memory: i64) -> Queue {
    let of = |quota| json!({"quota": quota});
    queue(
        name,
        &json!({"parentQueue": parent, "resources": {"cpu": of(cpu), "gpu": of(gpu), "memory": of(memory)}}),
    )
}

fn outcome(verdict: &Verdict) -> (usize, usize) {
    (verdict.errors.len(), verdict.warnings.len())
}

#[test]
fn queue_without_resources_is_denied() {
    for operation in [Operation::Create, Operation::Update] {
        let check = |spec| outcome(&check(&queue("q", &spec), operation, QuotaValidation::Disabled, &[]));
        assert_eq!(check(json!({"resources": {}})), (0, 0));
        assert_eq!(check(json!({})), (1, 1));
        assert_eq!(check(json!({"parentQueue": "x"})), (1, 1));
    }
}

#[test]
fn deletion_of_a_queue_with_children_is_denied() {
    let all = [queue("root", &json!({})), queue("b", &json!({"parentQueue": "root"}))];
    let denied = check(&all[0], Operation::Delete, QuotaValidation::Disabled, &all);
    assert_eq!(denied.errors, ["queue `root` has child queues: `b`; hint: delete those first"]);
    assert!(check(&all[1], Operation::Delete, QuotaValidation::Disabled, &all).is_allowed());
}

#[test]
fn quotas_are_compared_where_enabled() {
    let all = [sized("root", "", 1000, 8, 100), sized("a", "root", 600, 4, 60), queue("bare", &json!({}))];
    let cases = [
        ("fits", sized("b", "root", 400, 4, 40), (0, 0)),
        ("more cpu than is left", sized("b", "root", 401, 4, 40), (0, 1)),
        ("more gpus than is left, which is allowed", sized("b", "root", 400, 8, 40), (0, 0)),
        ("more of everything than the parent", sized("b", "root", 1001, 9, 101), (0, 4)),
        ("no parent", sized("b", "gone", 1, 1, 1), (1, 0)),
        ("a parent without resources", sized("b", "bare", 1, 1, 1), (1, 0)),
        ("a parent that shrinks below its child", sized("root", "", 500, 3, 50), (0, 4)),
        ("a parent without limit", sized("root", "", -1, -1, -1), (0, 0)),
        ("a child without limit", sized("b", "root", -1, 1, 1), (0, 2)),
    ];
    for (case, changed, expected) in cases {
        let verdict = check(&changed, Operation::Update, QuotaValidation::Enabled, &all);
        assert_eq!(outcome(&verdict), expected, "{case}: {verdict:?}");
        assert!(check(&changed, Operation::Update, QuotaValidation::Disabled, &all).is_allowed(), "{case}");
    }
}
