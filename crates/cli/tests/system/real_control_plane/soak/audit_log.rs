//! What the audit log of kube-apiserver says about the run: every pod was bound once.

use super::laws::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// Counts of the audit log.
#[derive(Debug, Default)]
pub(super) struct AuditLog {
    /// Completed requests by service account.
    requests: BTreeMap<String, usize>,
    /// Successful bindings by pod and its uid: a StatefulSet uses names again.
    bindings: BTreeMap<String, usize>,
}

impl AuditLog {
    pub(super) fn read(path: &Path, namespace: &str) -> Self {
        let mut this = Self::default();
        for line in BufReader::new(File::open(path).unwrap()).lines() {
            // The last line before the server was killed may be incomplete.
            if let Ok(request) = serde_json::from_str::<Value>(&line.unwrap()) {
                this.add(&request, namespace);
            }
        }
        this
    }

    fn add(&mut self, request: &Value, namespace: &str) {
        if text(request, "/stage") != "ResponseComplete" {
            return;
        }
        let prefix = format!("system:serviceaccount:{namespace}:");
        if let Some(account) = text(request, "/user/username").strip_prefix(&prefix) {
            *self.requests.entry(account.to_owned()).or_default() += 1;
        }
        let created = request.pointer("/responseStatus/code").and_then(Value::as_i64) == Some(201);
        if created && text(request, "/objectRef/subresource") == "binding" {
            let part = |name: &str| text(request, &format!("/objectRef/{name}"));
            let pod = format!("{}/{} {}", part("namespace"), part("name"), part("uid"));
            *self.bindings.entry(pod).or_default() += 1;
        }
    }

    pub(super) fn assert_bound_once(&self) {
        assert!(!self.bindings.is_empty(), "the audit log has no binding");
        let twice = self.bound_twice();
        assert!(twice.is_empty(), "pods that were bound more than once: {twice:?}");
    }

    fn bound_twice(&self) -> Vec<&str> {
        self.bindings.iter().filter(|(_, count)| **count > 1).map(|(pod, _)| pod.as_str()).collect()
    }

    pub(super) fn summary(&self) -> String {
        let requests: Vec<String> =
            self.requests.iter().map(|(account, count)| format!("{account} {count}")).collect();
        format!("{} bindings; requests: {}", self.bindings.len(), requests.join(", "))
    }
}

#[test]
fn second_successful_binding_of_a_pod_is_reported() {
    let request = |pod: &str, uid: &str, code: i64| {
        let object =
            serde_json::json!({"namespace": "work", "name": pod, "uid": uid, "subresource": "binding"});
        serde_json::json!({
            "stage": "ResponseComplete", "user": {"username": "system:serviceaccount:kai:binder"},
            "objectRef": object, "responseStatus": {"code": code},
        })
    };
    let mut log = AuditLog::default();
    // A StatefulSet has created `a` again.
    for (pod, uid, code) in [("a", "1", 201), ("a", "2", 201), ("b", "3", 201), ("b", "3", 409)] {
        log.add(&request(pod, uid, code), "kai");
    }
    assert_eq!(log.bound_twice(), Vec::<&str>::new());
    log.add(&request("a", "1", 201), "kai");
    assert_eq!(
        (log.bound_twice(), log.summary().as_str()),
        (vec!["work/a 1"], "3 bindings; requests: binder 5")
    );
}
