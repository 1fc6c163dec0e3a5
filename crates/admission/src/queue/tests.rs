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

fn update(old: &Queue, new: &Queue) -> Change {
    Change::Update { old: Box::new(old.clone()), new: Box::new(new.clone()) }
}

#[test]
fn queue_without_resources_is_denied() {
    let old = queue("q", &json!({"resources": {}}));
    for (spec, expected) in
        [(json!({"resources": {}}), (0, 0)), (json!({}), (1, 1)), (json!({"parentQueue": "x"}), (1, 1))]
    {
        let new = queue("q", &spec);
        for change in [Change::Create(new.clone().into()), update(&old, &new)] {
            assert_eq!(outcome(&check(&change, QuotaValidation::Disabled, &[])), expected, "{spec}");
        }
    }
}

#[test]
fn deletion_of_a_queue_with_children_or_pods_is_denied() {
    let all = [queue("root", &json!({})), queue("b", &json!({"parentQueue": "root"}))];
    let delete =
        |queue: &Queue| check(&Change::Delete(queue.clone().into()), QuotaValidation::Disabled, &all);
    assert_eq!(delete(&all[0]).errors, ["queue `root` has child queues: `b`; hint: delete those first"]);
    assert!(delete(&all[1]).is_allowed());
    let mut used = all[1].clone();
    for (status, allowed) in [
        (json!({"requested": {"cpu": "0"}, "allocated": {}}), true),
        (json!({"requested": {"nvidia.com/gpu": "500m"}}), false),
        (json!({"allocated": {"cpu": "1"}}), false),
    ] {
        used.status = serde_json::from_value(status.clone()).unwrap();
        let verdict = delete(&used);
        assert_eq!(verdict.is_allowed(), allowed, "{status}");
        assert!(verdict.errors.iter().all(|problem| !problem.contains("  ")), "{verdict:?}");
    }
}

#[test]
fn terminating_queue_is_a_parent_but_no_child() {
    let terminating = |mut queue: Queue| {
        queue.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        queue
    };
    let all = [
        terminating(sized("root", "", 10, 10, 10)),
        sized("a", "root", 5, 5, 5),
        terminating(sized("b", "a", 5, 5, 5)),
        terminating(sized("c", "root", 9, 9, 9)),
    ];
    let quotas = QuotaValidation::Enabled;
    let below = Change::Create(sized("new", "root", 1, 1, 1).into());
    assert_eq!(outcome(&check(&below, quotas, &all)), (0, 0), "its parent exists, a sibling does not count");
    let cycle = update(&all[1], &sized("a", "b", 1, 1, 1));
    assert!(!check(&cycle, quotas, &all).is_allowed());
    assert!(check(&Change::Delete(all[1].clone().into()), quotas, &all).is_allowed());
}

#[test]
fn queue_below_itself_is_denied() {
    let of = |name: &str, parent: &str| queue(name, &json!({"parentQueue": parent, "resources": {}}));
    let all = [of("a", ""), of("b", "a"), of("c", "b"), of("x", "y"), of("y", "x")];
    let allowed = |change: &Change| check(change, QuotaValidation::Disabled, &all).is_allowed();
    assert!(!allowed(&Change::Create(of("new", "new").into())));
    assert!(!allowed(&update(&all[0], &of("a", "a"))));
    assert!(!allowed(&update(&all[0], &of("a", "c"))));
    assert!(allowed(&update(&all[2], &of("c", "a"))));
    assert!(allowed(&Change::Create(of("new", "c").into())));
    assert!(allowed(&Change::Create(of("new", "gone").into())));
    // Below a cycle of others, and inside one without a change of the parent: both can be repaired.
    assert!(allowed(&Change::Create(of("new", "x").into())));
    assert!(allowed(&update(&all[3], &all[3])));
}

#[test]
fn quotas_are_compared_where_enabled() {
    let all = [sized("root", "", 1000, 8, 100), sized("a", "root", 600, 4, 60), queue("bare", &json!({}))];
    let cases = [
        ("fits", sized("b", "root", 400, 4, 40), (0, 0)),
        ("more cpu than is left", sized("b", "root", 401, 4, 40), (0, 1)),
        ("more gpus than is left", sized("b", "root", 400, 8, 40), (0, 1)),
        ("more of everything than the parent", sized("b", "root", 1001, 9, 101), (0, 6)),
        ("no parent", sized("b", "gone", 1, 1, 1), (1, 0)),
        ("a parent without resources", sized("b", "bare", 1, 1, 1), (1, 0)),
        ("a parent that shrinks below its child", sized("root", "", 500, 3, 50), (0, 6)),
        ("a parent without limit", sized("root", "", -1, -1, -1), (0, 0)),
        ("a child without limit", sized("b", "root", -1, 1, 1), (0, 2)),
    ];
    for (case, changed, expected) in cases {
        let change = update(&changed, &changed);
        let verdict = check(&change, QuotaValidation::Enabled, &all);
        assert_eq!(outcome(&verdict), expected, "{case}: {verdict:?}");
        assert!(check(&change, QuotaValidation::Disabled, &all).is_allowed(), "{case}");
    }
}

#[test]
fn missing_parent_is_not_found_and_bad_duration_undecodable() {
    let orphan = Change::Create(sized("b", "gone", 1, 1, 1).into());
    assert_eq!(check(&orphan, QuotaValidation::Enabled, &[]).cause.code(), 404);
    let bad = json!({"metadata": {"name": "q"}, "spec": {"preemptMinRuntime": "soon"}});
    assert_eq!(decode(&bad).unwrap_err().cause.code(), 400);
}

#[test]
fn bounds_that_are_surely_not_intended_are_warnings_once() {
    let of = |gpu: Value| queue("q", &json!({"resources": {"gpu": gpu}}));
    for (gpu, expected) in [
        (json!({"quota": 4, "limit": 8, "overQuotaWeight": 1}), 0),
        (json!({"quota": -1, "limit": -1}), 0),
        (json!({"quota": 4}), 0),
        (json!({"quota": 4, "limit": 0}), 0),
        (json!({"quota": 8, "limit": 4}), 1),
        (json!({"quota": -1, "limit": 4}), 1),
        (json!({"quota": -2, "limit": -1}), 1),
        (json!({"quota": 1, "limit": 2, "overQuotaWeight": -1}), 1),
        (json!({"quota": 8, "limit": 4, "overQuotaWeight": -1}), 2),
    ] {
        let new = of(gpu.clone());
        let warnings = Change::Create(new.clone().into()).warnings();
        assert_eq!(warnings.len(), expected, "{gpu}: {warnings:?}");
        // The API server cuts warnings off at 256 characters.
        assert!(warnings.iter().all(|text| text.contains("hint:") && text.len() < 256), "{warnings:?}");
        let mut labelled = new.clone();
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert!(update(&new, &labelled).warnings().is_empty(), "{gpu}");
        assert_eq!(update(&of(json!({})), &new).warnings().len(), expected, "{gpu}");
        assert!(Change::Delete(new.into()).warnings().is_empty());
    }
}

#[test]
fn pod_group_uses_its_queue_until_its_resources_are_counted_as_zero() {
    let group = |queue: &str, status: Value| json!({"metadata": {"name": "g"}, "spec": {"queue": queue}, "status": status});
    let counted = |requested: Value| json!({"resourcesStatus": {"requested": requested, "allocated": {}}});
    for (status, used) in [
        (Value::Null, true),
        (json!({"conditions": []}), true),
        (json!({"resourcesStatus": {}}), false),
        (counted(json!({"cpu": "0"})), false),
        (counted(json!({"cpu": "100m"})), true),
        (counted(json!({"nvidia.com/gpu": 1})), true),
    ] {
        assert_eq!(uses(&group("q", status.clone()), "q"), used, "{status}");
        assert!(!uses(&group("other", status), "q"));
    }
    let mut terminating = group("q", Value::Null);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(!uses(&terminating, "q"));
}
