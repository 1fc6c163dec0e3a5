//! Labels and annotations of workloads that are probably misspelt. Kubernetes accepts any key, so a typing error would only
//! show by its missing effect.

use crate::well_known::{annotation, label};
use serde_json::Value;
use std::sync::LazyLock;

/// Labels that users write on workloads.
const LABELS: [&str; 6] = [
    label::QUEUE,
    label::NODE_POOL,
    label::SUBGROUP,
    label::PREEMPTIBILITY,
    label::PRIORITY_CLASS,
    label::TASK_PRIORITY,
];

/// Annotations that users write on workloads.
const ANNOTATIONS: [&str; 19] = [
    annotation::POD_GROUP,
    annotation::SKIP_GROUPING,
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::GPU_FRACTION_CONTAINER,
    annotation::SHARED_GPU_CONFIG_MAP,
    annotation::PREEMPTION_DELAY,
    annotation::STALENESS_GRACE_PERIOD,
    annotation::MAX_RUNTIME,
    annotation::MAX_RUNTIME_ACTION,
    annotation::MAX_RUNTIME_GRACE_PERIOD,
    annotation::TOPOLOGY,
    annotation::TOPOLOGY_REQUIRED,
    annotation::TOPOLOGY_PREFERRED,
    annotation::SEGMENT_SIZE,
    annotation::SEGMENT_TOPOLOGY_REQUIRED,
    annotation::SEGMENT_TOPOLOGY_PREFERRED,
    annotation::BATCH_MIN_MEMBER,
];

/// Keys that are read in one place only, but are often written in the other.
const ANNOTATIONS_ONLY: [&str; 4] = [
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::GPU_FRACTION_CONTAINER,
];
const LABELS_ONLY: [&str; 1] = [label::QUEUE];

/// Prefixes that users confuse with each other.
const PREFIXES: [&str; 4] = ["kai.scheduler", "run.ai", "runai", "kai"];

/// Edits up to which two keys count as the same, misspelt.
const EDITS_MAX: usize = 2;

/// The object may have any number of keys; the first problems are enough to find the others.
const PROBLEMS_MAX: usize = 8;

/// One sentence for each label and annotation of an object that is probably misspelt or misplaced.
pub fn check(object: &Value) -> Vec<String> {
    let keys = |field: &str| {
        let all = kai_object::meta(object, field).and_then(Value::as_object);
        all.into_iter().flatten().map(|(key, _)| key.as_str())
    };
    check_keys(keys("labels"), keys("annotations"))
}

/// As [`check`], of the keys alone.
pub fn check_keys<'a>(
    labels: impl Iterator<Item = &'a str>,
    annotations: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let labels = labels.filter_map(|key| problem("label", key, &ANNOTATIONS_ONLY));
    let annotations = annotations.filter_map(|key| problem("annotation", key, &LABELS_ONLY));
    labels.chain(annotations).take(PROBLEMS_MAX).collect()
}

/// What is wrong with a key in a place; `elsewhere` are keys that are read in the other place only.
fn problem(place: &str, key: &str, elsewhere: &[&str]) -> Option<String> {
    let known = if elsewhere.contains(&key) {
        key
    } else if is_known(key) {
        return None;
    } else {
        likely(key)?
    };
    let likely_place = if LABELS.contains(&known) { "label" } else { "annotation" };
    Some(format!("{place} `{key}` has no effect; hint: the likely key is the {likely_place} `{known}`"))
}

fn is_known(key: &str) -> bool {
    // Some are read as both.
    LABELS.contains(&key) || ANNOTATIONS.contains(&key)
}

/// The known key that an unknown one was meant to be.
fn likely(key: &str) -> Option<&'static str> {
    let known = || LABELS.into_iter().chain(ANNOTATIONS);
    let lower = key.to_ascii_lowercase();
    if let Some((prefix, name)) = lower.split_once('/')
        && PREFIXES.contains(&prefix)
        && let Some(same) = known().find(|known| name_of(known) == name)
    {
        return Some(same);
    }
    let letters = letters(&lower);
    let mut best: Option<(usize, &'static str)> = None;
    for (known, lower_known, letters_known) in KNOWN.iter() {
        // An edit adds a letter, removes one, or does both.
        if (letters ^ letters_known).count_ones() as usize > 2 * EDITS_MAX {
            continue;
        }
        let edits = edits(&lower, lower_known);
        if edits <= EDITS_MAX && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, known));
        }
    }
    best.map(|(_, known)| known)
}

/// Each known key, also in lower case, with its letters: every key of every pod is compared with all of them.
static KNOWN: LazyLock<Vec<(&'static str, String, u64)>> = LazyLock::new(|| {
    let with_letters = |known: &'static str| {
        let lower = known.to_ascii_lowercase();
        let letters = letters(&lower);
        (known, lower, letters)
    };
    LABELS.into_iter().chain(ANNOTATIONS).map(with_letters).collect()
});

/// The letters that a key has, as a set; some share a place in it.
fn letters(key: &str) -> u64 {
    key.bytes().fold(0, |set, byte| set | 1 << (byte & 63))
}

/// The part of a key after its prefix.
fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

/// Insertions, deletions, replacements and transpositions of neighbours between two keys; more than [`EDITS_MAX`] where
/// their lengths differ by more.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > EDITS_MAX {
        return EDITS_MAX + 1;
    }
    // Three rows of the table of the optimal string alignment distance.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut a_before = None;
    for (row, from) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut b_before = None;
        for (column, to) in b.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let mut least = at(&last, column) + usize::from(from != to);
            least = least.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if a_before == Some(to) && b_before == Some(from) && column > 0 {
                least = least.min(at(&before, column - 1) + 1);
            }
            current.push(least);
            b_before = Some(to);
        }
        before = std::mem::replace(&mut last, current);
        a_before = Some(from);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn likely_key_of_a_misspelt_one_is_named() {
        for (key, known) in [
            ("gpu-fractoin", Some("gpu-fraction")),
            ("gpu_fraction", Some("gpu-fraction")),
            ("GPU-Fraction", Some("gpu-fraction")),
            ("kai.scheduler/gpu-fraction", Some("gpu-fraction")),
            ("gpu-memroy", Some("gpu-memory")),
            ("kai.scheduler/queu", Some("kai.scheduler/queue")),
            ("kai.schduler/queue", Some("kai.scheduler/queue")),
            ("runai/queue", Some("kai.scheduler/queue")),
            ("kai.scheduler/topology-required-placment", Some("kai.scheduler/topology-required-placement")),
            ("priorityClasName", Some("priorityClassName")),
            ("gpu-fraction", None),
            ("kai.scheduler/queue", None),
            ("kai.scheduler/made-by", None),
            ("example.com/gpu-fraction", None),
            ("app", None),
            ("", None),
            ("größe", None),
        ] {
            let found = if is_known(key) { None } else { likely(key) };
            assert_eq!(found, known, "{key}");
        }
    }

    #[test]
    fn misspelt_and_misplaced_keys_of_an_object_are_listed() {
        let object = json!({"metadata": {
            "labels": {"app": "a", "kai.scheduler/quue": "q", "gpu-memory": "1"},
            "annotations": {"gpu-fractoin": "0.5", "kai.scheduler/queue": "q", "pod-group-name": "g"},
        }});
        assert_eq!(
            check(&object),
            [
                "label `gpu-memory` has no effect; hint: the likely key is the annotation `gpu-memory`",
                "label `kai.scheduler/quue` has no effect; hint: the likely key is the label `kai.scheduler/queue`",
                "annotation `gpu-fractoin` has no effect; hint: the likely key is the annotation `gpu-fraction`",
                "annotation `kai.scheduler/queue` has no effect; hint: the likely key is the label `kai.scheduler/queue`",
            ]
        );
        assert!(check(&json!({"metadata": {"labels": 1, "annotations": null}})).is_empty());
    }

    #[test]
    fn enormous_number_of_keys_yields_few_problems() {
        let labels: serde_json::Map<String, Value> =
            (0..50_000).map(|number| (format!("gpu-fractoin{}", number % 10), json!(number))).collect();
        let many: serde_json::Map<String, Value> =
            (0..50_000).map(|number| (format!("key-{number}"), json!(""))).collect();
        let object = json!({"metadata": {"labels": labels, "annotations": many}});
        assert_eq!(check(&object).len(), PROBLEMS_MAX);
    }
}
