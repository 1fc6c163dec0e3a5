//! One webhook of a configuration: rules, selectors, conditions and call settings.

use super::client::Client;
use super::match_condition::{self, Condition};
use crate::admission::{Attributes, Operation};
use crate::object;
use crate::selector::LabelSelector;
use crate::server::Core;
use serde_json::{Map, Value};
use std::time::Duration;

/// `failurePolicy` of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    /// The request fails.
    Fail,
    /// The webhook is skipped.
    Ignore,
}

#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) policy: FailurePolicy,
    pub(super) timeout: Duration,
    pub(super) client: Client,
    pub(super) conditions: Vec<Condition>,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub(super) again: bool,
    rules: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

/// A `RuleWithOperations`; `*` matches anything.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

impl Webhook {
    /// Parses a webhook of a configuration that passed validation.
    pub(super) fn of(hook: &Value) -> Self {
        let selector = |field: &str| {
            let selector = hook.get(field).cloned().unwrap_or_else(|| Value::Object(Map::new()));
            LabelSelector::from_object(&selector).unwrap_or(LabelSelector::Nothing)
        };
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        let rules = hook.get("rules").and_then(Value::as_array);
        Self {
            name: text(hook, "name").to_owned(),
            policy: if text(hook, "failurePolicy") == "Ignore" {
                FailurePolicy::Ignore
            } else {
                FailurePolicy::Fail
            },
            timeout: Duration::from_secs(seconds),
            client: Client::of(hook.get("clientConfig").unwrap_or(&Value::Null)),
            conditions: match_condition::read(hook),
            again: text(hook, "reinvocationPolicy") == "IfNeeded",
            rules: rules.into_iter().flatten().map(Rule::of).collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Whether the rules and selectors match a request.
    pub(super) fn selects(&self, input: &MatchAttributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(input))
            && (self.namespaces.is_everything() || input.namespace().matches(&self.namespaces))
            && (self.objects.is_everything()
                || input.objects.iter().flatten().any(|object| self.objects.matches_object(object)))
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            scope: text(rule, "scope").to_owned(),
        }
    }

    fn matches(&self, input: &MatchAttributes<'_>) -> bool {
        let any = |list: &[String], own: &str| list.iter().any(|one| one == "*" || one == own);
        let in_scope = match &*self.scope {
            "Namespaced" => input.namespaced,
            "Cluster" => !input.namespaced,
            _ => true,
        };
        in_scope
            && any(&self.operations, input.operation.name())
            && any(&self.groups, input.group)
            && any(&self.versions, input.version)
            && self.resources.iter().any(|pattern| input.is(pattern))
    }
}

/// The request attributes that rules and selectors are matched against.
pub(super) struct MatchAttributes<'a> {
    core: &'a Core,
    attributes: &'a Attributes<'a>,
    operation: Operation,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    part: &'a str,
    namespaced: bool,
    objects: [Option<&'a Value>; 2],
}

/// The labels that `namespaceSelector` is matched against.
#[derive(Debug)]
enum Namespace {
    /// The object is cluster-scoped and not a Namespace.
    None,
    /// Labels of the object's namespace, or of the object if it is a Namespace.
    Labels(Map<String, Value>),
}

impl Namespace {
    fn matches(&self, selector: &LabelSelector) -> bool {
        match self {
            Self::None => true,
            Self::Labels(labels) => selector.matches(Some(labels)),
        }
    }
}

impl<'a> MatchAttributes<'a> {
    pub(super) fn of(
        core: &'a Core,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Self {
        let call = attributes.call;
        let resource = &*call.resource;
        Self {
            core,
            attributes,
            operation: attributes.operation,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            part: call.subresource_name(),
            namespaced: resource.namespaced,
            objects: [object, old],
        }
    }

    /// Reads the namespace lazily, since few webhooks have a `namespaceSelector`.
    fn namespace(&self) -> Namespace {
        let (call, [object, old]) = (self.attributes.call, self.objects);
        let labels = |object: &Value| {
            object::meta(object, "labels").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        if call.resource.is("", "namespaces") {
            Namespace::Labels(object.or(old).map(labels).unwrap_or_default())
        } else if self.namespaced {
            let namespaces = self.core.builtin("", "namespaces");
            let namespace = self.core.store.get(namespaces.table, &call.namespace);
            Namespace::Labels(namespace.map(|one| labels(&one.value())).unwrap_or_default())
        } else {
            Namespace::None
        }
    }

    /// Whether a rule's resource pattern, such as `pods`, `pods/*` or `*/status`, matches.
    fn is(&self, pattern: &str) -> bool {
        let (resource, part) = pattern.split_once('/').unwrap_or((pattern, ""));
        let same = |pattern: &str, own: &str| pattern == "*" || pattern == own;
        same(resource, self.resource) && same(part, self.part)
    }
}
