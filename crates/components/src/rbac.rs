//! RBAC manifests of the components, as objects and as the YAML files in `deploy/rbac`.
//!
//! One file per component: its service account, a `ClusterRole` for `watches` and `rules`, and a `Role` in each
//! namespace where it has further rights (a `ClusterRole` where KAI has one), each with its binding. A process that runs
//! several components has the rights of all.

use crate::spec::{Component, ComponentSpec, MEMBERS, NamespacedRules, Rule, ServiceAccount};
use crate::workload_rules::workload_rules;
use kai_api::well_known::name::NAMESPACE;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// First line of a generated file.
const HEADER: &str = "# Generated from crates/components/src/table.rs by `UPDATE=1 cargo test -p kai-components`; do not edit.\n";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const API_GROUP: &str = "rbac.authorization.k8s.io";
const LIST_AND_WATCH: &[&str] = &["list", "watch"];
/// The lease of leader election, in the namespace of the components.
const LEASE: Rule = Rule {
    api_group: "coordination.k8s.io",
    resources: &["leases"],
    verbs: &["get", "create", "patch"],
    resource_names: &[],
    reason: "leader election",
};

/// Of components that record no other events.
const LEASE_EVENTS: Rule = Rule {
    api_group: "",
    resources: &["events"],
    verbs: &["create"],
    reason: "events of leader election",
    ..LEASE
};

/// A role with its rules, bound in a namespace or in all of them.
struct Role {
    namespace: Option<&'static str>,
    rules: Vec<Rule>,
}

/// A binding never changes the role that it refers to, so where KAI's chart has a binding of the same name, the role has
/// KAI's kind and name: else neither `helm upgrade` from KAI nor the way back would be possible.
struct Kind {
    role: &'static str,
    role_name: &'static str,
    binding: &'static str,
}

impl Kind {
    fn of(spec: &ComponentSpec, role: &Role) -> Self {
        let is_of_reservation = spec.component == Component::ResourceReservation;
        let cluster_role =
            if spec.component == Component::QueueController { "queuecontroller" } else { spec.role };
        match role.namespace {
            None => Self { role: "ClusterRole", role_name: cluster_role, binding: "ClusterRoleBinding" },
            Some(_) if is_of_reservation => {
                Self { role: "ClusterRole", role_name: cluster_role, binding: "RoleBinding" }
            }
            Some(_) => Self { role: "Role", role_name: spec.role, binding: "RoleBinding" },
        }
    }

    /// Whether the role itself is in the namespace of its binding.
    fn is_namespaced(&self) -> bool {
        self.role == "Role"
    }
}

/// The components whose rights a process needs.
pub fn members(spec: &ComponentSpec) -> Vec<&ComponentSpec> {
    if spec.component == Component::Combined { MEMBERS.map(Component::spec).to_vec() } else { vec![spec] }
}

/// Rights in all namespaces.
fn cluster_rules(spec: &ComponentSpec) -> Vec<Rule> {
    let watched = spec.watches.iter().map(|watch| Rule {
        api_group: watch.api_group,
        resources: watch.resources,
        verbs: LIST_AND_WATCH,
        resource_names: &[],
        reason: watch.reason,
    });
    let of_workloads: &[Rule] = if spec.component == Component::PodGrouper { workload_rules() } else { &[] };
    watched.chain(spec.rules.iter().chain(of_workloads).copied()).collect()
}

/// The rules of several components, each once.
fn distinct(all: impl Iterator<Item = Rule>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for rule in all {
        let grants = |rule: &Rule| (rule.api_group, rule.resources, rule.verbs, rule.resource_names);
        if !rules.iter().any(|known| grants(known) == grants(&rule)) {
            rules.push(rule);
        }
    }
    rules
}

fn roles(spec: &ComponentSpec) -> Vec<Role> {
    let members = members(spec);
    let rules = distinct(members.iter().flat_map(|member| cluster_rules(member)));
    let records_events = rules.iter().any(|rule| rule.resources.contains(&"events"));
    let cluster = Role { namespace: None, rules };
    let lease_rules = if records_events { vec![LEASE] } else { vec![LEASE, LEASE_EVENTS] };
    let lease = spec.lease.map(|_| Role { namespace: Some(NAMESPACE), rules: lease_rules });
    let role =
        |rules: &NamespacedRules| Role { namespace: Some(rules.namespace), rules: rules.rules.to_vec() };
    let namespaced = members.iter().flat_map(|member| member.namespaced_rules).map(role);
    let mut roles: Vec<Role> = Vec::new();
    for role in [cluster].into_iter().chain(lease).chain(namespaced).filter(|role| !role.rules.is_empty()) {
        // One role per namespace, since all have the same name.
        match roles.iter_mut().find(|known| known.namespace == role.namespace) {
            Some(known) => known.rules.extend(role.rules),
            None => roles.push(role),
        }
    }
    roles
}

/// The objects of a component, in the order in which they can be created.
pub fn objects(spec: &ComponentSpec) -> Vec<Value> {
    let ServiceAccount { name, namespace } = spec.service_account;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
    });
    let mut objects = vec![account];
    for role in roles(spec) {
        let kind = Kind::of(spec, &role);
        let mut bound = json!({"name": spec.role});
        let mut metadata = json!({"name": kind.role_name});
        if let Some(namespace) = role.namespace {
            bound["namespace"] = Value::from(namespace);
            if kind.is_namespaced() {
                metadata["namespace"] = Value::from(namespace);
            }
        }
        let rules = role.rules.iter().map(|rule| {
            let mut made =
                json!({"apiGroups": [rule.api_group], "resources": rule.resources, "verbs": rule.verbs});
            if !rule.resource_names.is_empty() {
                made["resourceNames"] = json!(rule.resource_names);
            }
            made
        });
        objects.push(json!({
            "apiVersion": API_VERSION, "kind": kind.role, "metadata": metadata, "rules": rules.collect::<Vec<_>>(),
        }));
        objects.push(json!({
            "apiVersion": API_VERSION, "kind": kind.binding, "metadata": bound,
            "roleRef": {"apiGroup": API_GROUP, "kind": kind.role, "name": kind.role_name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }));
    }
    objects
}

/// The name of the file of a component.
pub fn file_name(spec: &ComponentSpec) -> String {
    // The client is called `kai-scheduler`, its command, service account and file are not.
    let name = if spec.command == "scheduler" { spec.command } else { spec.name };
    format!("{name}.yaml")
}

/// The file of a component; every rule carries its reason as a comment.
pub fn yaml(spec: &ComponentSpec) -> String {
    let ServiceAccount { name, namespace } = spec.service_account;
    let mut text = HEADER.to_owned();
    let mut write = |part: std::fmt::Arguments<'_>| text.write_fmt(part).expect("writing to a string");
    write(format_args!(
        "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {namespace}\n"
    ));
    for role in roles(spec) {
        let kind = Kind::of(spec, &role);
        let mut bound = format!("metadata:\n  name: {}\n", spec.role);
        let mut metadata = format!("metadata:\n  name: {}\n", kind.role_name);
        if let Some(namespace) = role.namespace {
            writeln!(bound, "  namespace: {namespace}").expect("writing to a string");
            if kind.is_namespaced() {
                writeln!(metadata, "  namespace: {namespace}").expect("writing to a string");
            }
        }
        write(format_args!("---\napiVersion: {API_VERSION}\nkind: {}\n{metadata}rules:\n", kind.role));
        for Rule { api_group, resources, verbs, resource_names, reason } in role.rules {
            let api_group = if api_group.is_empty() { "\"\"" } else { api_group };
            write(format_args!(
                "  # {reason}\n  - apiGroups: [{api_group}]\n    resources: [{}]\n    verbs: [{}]\n",
                resources.join(", "),
                verbs.join(", ")
            ));
            if !resource_names.is_empty() {
                write(format_args!("    resourceNames: [{}]\n", resource_names.join(", ")));
            }
        }
        write(format_args!(
            "---\napiVersion: {API_VERSION}\nkind: {}\n{bound}roleRef:\n  apiGroup: {API_GROUP}\n  \
             kind: {}\n  name: {}\nsubjects:\n  - kind: ServiceAccount\n    name: {name}\n    \
             namespace: {namespace}\n",
            kind.binding, kind.role, kind.role_name
        ));
    }
    text
}
