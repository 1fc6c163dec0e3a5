//! Parts of the documentation that follow from the code: rights of the components, and keys of the configuration.
//!
//! `UPDATE=1 cargo test -p kai-cli --test it generated_pages` writes them.

#![expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]

use kai_components::{COMPONENTS, Component, rbac};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- generated -->\n";
const END: &str = "<!-- end of the generated part -->";

/// Compares the generated part of a page, or writes it.
#[track_caller]
fn assert_generated(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let stored = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = stored.split_once(BEGIN).expect("the page has a generated part");
    let (found, after) = rest.split_once(END).expect("the part ends");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{text}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            found, text,
            "{page} is stale; hint: UPDATE=1 cargo test -p kai-cli --test it generated_pages"
        );
    }
}

#[test]
fn security_page_lists_every_right_with_its_reason() {
    let mut text = String::new();
    for spec in COMPONENTS {
        let account = spec.service_account;
        writeln!(text, "\n### {}\n\nService account `{}/{}`.\n", spec.name, account.namespace, account.name)
            .unwrap();
        if spec.component == Component::Combined {
            let members: Vec<&str> = rbac::members(spec).iter().map(|member| member.name).collect();
            writeln!(text, "The rights of {} together.", members.join(", ")).unwrap();
            continue;
        }
        writeln!(text, "| resources | verbs | where | why |\n| --- | --- | --- | --- |").unwrap();
        let name = |group: &str, resources: &[&str]| {
            let suffix = if group.is_empty() { String::new() } else { format!(" ({group})") };
            format!("{}{suffix}", resources.join(", "))
        };
        for watch in spec.watches {
            let resources = name(watch.api_group, watch.resources);
            writeln!(text, "| {resources} | list, watch | cluster | {} |", watch.reason).unwrap();
        }
        let everywhere = spec.rules.iter().map(|rule| ("cluster", rule));
        let inside =
            spec.namespaced_rules.iter().flat_map(|one| one.rules.iter().map(|rule| (one.namespace, rule)));
        for (place, rule) in everywhere.chain(inside) {
            let resources = name(rule.api_group, rule.resources);
            writeln!(text, "| {resources} | {} | {place} | {} |", rule.verbs.join(", "), rule.reason)
                .unwrap();
        }
        if spec.lease.is_some() {
            let namespace = account.namespace;
            writeln!(
                text,
                "| leases (coordination.k8s.io) | get, create, patch | {namespace} | leader election |"
            )
            .unwrap();
        }
    }
    assert_generated("docs/security.md", &text);
}

/// Types of Kubernetes, whose fields are not listed.
const KUBERNETES: [&str; 9] = [
    "affinity",
    "tolerations",
    "securityContext",
    "podSecurityContext",
    "resources",
    "podResources",
    "podAntiAffinity",
    "updatePolicy",
    "resourcePolicy",
];

fn keys(path: &str, schema: &Value, text: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_leaf = field.get("properties").is_none() || KUBERNETES.contains(&name.as_str());
        if !is_leaf {
            keys(&path, field, text);
            continue;
        }
        let mut kind = field["type"].as_str().unwrap_or("any").to_owned();
        if kind == "object" && field.get("additionalProperties").is_some_and(Value::is_object) {
            let of = field["additionalProperties"]["type"].as_str().unwrap_or("any");
            kind = format!("map of {of}");
        }
        let description =
            field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        writeln!(text, "| `{path}` | {kind} | {description} |").unwrap();
    }
}

#[test]
fn configuration_page_lists_every_key() {
    let mut text = String::new();
    for kind in ["Config", "SchedulingShard", "Queue"] {
        let crds = kai_api::crds();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let crd = serde_json::to_value(crd).unwrap();
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
        writeln!(text, "\n## {kind}: `spec`\n\n| key | type | meaning |\n| --- | --- | --- |").unwrap();
        keys("", &stored["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut text);
    }
    assert_generated("docs/configuration.md", &text);
}
