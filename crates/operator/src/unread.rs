//! What the operator cannot read, and what follows from that.
//!
//! An object that cannot be read is neither written nor deleted: what is deployed stays, and the conditions say which rights
//! are missing. Everything else is reconciled.

use crate::{Desired, Object, ObjectKey, Operand};
use std::collections::{BTreeMap, BTreeSet};

/// The service account and the role of the operator, as the chart names both.
const ACCOUNT: &str = "kai-operator";

/// Why the objects of a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The roles of the operator do not grant it.
    Denied,
    /// The API server does not answer, or does not serve the kind.
    Failed(String),
}

/// Kinds that cannot be read, each in a namespace; an empty namespace stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread(BTreeMap<(String, String), (String, Why)>);

impl Unread {
    /// Adds a kind with its resource, such as `deployments.apps`.
    pub fn add(&mut self, kind: &str, namespace: &str, resource: String, why: Why) {
        self.0.insert((kind.to_owned(), namespace.to_owned()), (resource, why));
    }

    pub fn covers(&self, key: &ObjectKey) -> bool {
        self.scope(&key.kind, &key.namespace).is_some()
    }

    /// Why the objects of a kind cannot be read; none where they can.
    pub fn problem(&self, kind: &str, namespace: &str) -> Option<String> {
        let scope = self.scope(kind, namespace)?;
        Some(self.text(&BTreeSet::from([scope])))
    }

    fn scope(&self, kind: &str, namespace: &str) -> Option<(&str, &str)> {
        let found = [namespace, ""].into_iter().find_map(|namespace| {
            self.0.get_key_value(&(kind.to_owned(), namespace.to_owned())).map(|(scope, _)| scope)
        });
        found.map(|(kind, namespace)| (kind.as_str(), namespace.as_str()))
    }

    /// What cannot be read and why, as one text.
    fn text(&self, scopes: &BTreeSet<(&str, &str)>) -> String {
        let mut denied: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut texts = Vec::new();
        for (kind, namespace) in scopes {
            match self.0.get(&((*kind).to_owned(), (*namespace).to_owned())) {
                Some((resource, Why::Denied)) => denied.entry(namespace).or_default().push(resource),
                Some((resource, Why::Failed(why))) => {
                    texts.push(format!("{resource}{} cannot be read: {why}", place(namespace)));
                }
                None => {}
            }
        }
        let denied = denied.into_iter().map(|(namespace, resources)| {
            format!("the operator may not list and watch {}{}", resources.join(", "), place(namespace))
        });
        texts.splice(..0, denied);
        texts.join("; ")
    }

    fn has_denied(&self, scopes: &BTreeSet<(&str, &str)>) -> bool {
        scopes.iter().any(|(kind, namespace)| {
            let entry = self.0.get(&((*kind).to_owned(), (*namespace).to_owned()));
            matches!(entry, Some((_, Why::Denied)))
        })
    }
}

fn place(namespace: &str) -> String {
    if namespace.is_empty() { " in the cluster".to_owned() } else { format!(" in namespace `{namespace}`") }
}

/// Takes out of the desired state what cannot be compared with the cluster, with an error that says why. `home` is the
/// namespace of the operator, `installed` that of the installation. Returns whether anything was withheld.
pub fn withhold(desired: &mut Desired, unread: &Unread, home: &str, installed: &str) -> bool {
    let mut all = BTreeSet::new();
    for operand in &mut desired.config {
        all.extend(withhold_from(operand, unread, installed));
    }
    // Nothing of the Config is deleted either: what shards use is not known.
    if let Some(scope) = unread.scope("SchedulingShard", "") {
        let error = Some(unread.text(&BTreeSet::from([scope])));
        desired.config.push(Operand { name: "SchedulingShards", error, ..Operand::default() });
        all.insert(scope);
    }
    // Certificates that cannot be read are errors of their operands already.
    if let Some(scope) = unread.scope("Secret", installed).filter(|_| !desired.config.is_empty()) {
        all.insert(scope);
    }
    let hint = hint(unread, &all, home, installed);
    if let Some(error) = hint.clone() {
        desired.config.push(Operand { name: "Rights", error: Some(error), ..Operand::default() });
    }
    for (_, operand) in &mut desired.shards {
        let scopes = withhold_from(operand, unread, installed);
        if let (Some(error), Some(hint)) = (&mut operand.error, self::hint(unread, &scopes, home, installed))
        {
            error.push_str("; ");
            error.push_str(&hint);
        }
        all.extend(scopes);
    }
    !all.is_empty()
}

fn withhold_from<'u>(
    operand: &mut Operand,
    unread: &'u Unread,
    installed: &str,
) -> BTreeSet<(&'u str, &'u str)> {
    let is_unread = |object: &Object| unread.covers(&ObjectKey::of(object));
    let mut scopes: BTreeSet<_> = operand
        .objects
        .iter()
        .filter_map(|object| unread.scope(kai_object::kind(object), kai_object::namespace(object)))
        .collect();
    let mut without_workload = operand.objects.iter().any(|object| is_workload(object) && is_unread(object));
    let has =
        |operand: &Operand, kind: &str| operand.objects.iter().any(|object| kai_object::kind(object) == kind);
    // The arguments of the binder follow from the nodes.
    if ["Binder", "Combined"].contains(&operand.name)
        && has(operand, "Deployment")
        && let Some(nodes) = unread.scope("Node", "")
    {
        scopes.insert(nodes);
        without_workload = true;
    }
    // Whether a binder of the other topology still runs follows from its pods.
    if operand.name == "Combined"
        && has(operand, "Deployment")
        && let Some(pods) = unread.scope("Pod", installed)
    {
        scopes.insert(pods);
        without_workload = true;
    }
    // The leading scheduler follows from its lease and its pod.
    let leader = ["Lease", "Pod"].into_iter().filter_map(|kind| unread.scope(kind, installed));
    let leader: Vec<_> = if has(operand, "EndpointSlice") { leader.collect() } else { Vec::new() };
    let without_leader = !leader.is_empty();
    scopes.extend(leader);
    if scopes.is_empty() {
        return scopes;
    }
    if without_workload {
        // Services, accounts and webhook configurations belong to pods that are not deployed.
        operand.objects.clear();
    }
    operand.objects.retain(|object| {
        let is_of_unknown_leader = without_leader && kai_object::kind(object) == "EndpointSlice";
        !is_unread(object) && !is_of_unknown_leader
    });
    let text = unread.text(&scopes);
    operand.error = Some(match operand.error.take() {
        Some(error) => format!("{error}\n{text}"),
        None => text,
    });
    scopes
}

fn is_workload(object: &Object) -> bool {
    ["Deployment", "DaemonSet"].contains(&kai_object::kind(object))
}

/// What to do about rights that are missing.
fn hint(unread: &Unread, scopes: &BTreeSet<(&str, &str)>, home: &str, installed: &str) -> Option<String> {
    if !unread.has_denied(scopes) {
        return None;
    }
    let elsewhere = home != installed && scopes.iter().any(|(_, namespace)| *namespace == installed);
    Some(if elsewhere {
        format!(
            "spec.namespace of the Config is `{installed}`, the operator has its Role in `{home}`; hint: set \
             spec.namespace to `{home}`, or create Role and RoleBinding `{ACCOUNT}` of `{home}` in `{installed}` too"
        )
    } else {
        format!(
            "hint: grant list and watch of them to service account `{ACCOUNT}` of namespace `{home}`, as Role and \
             ClusterRole `{ACCOUNT}` of the chart do"
        )
    })
}
