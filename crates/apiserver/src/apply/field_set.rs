//! Field sets and their `fieldsV1` encoding (structured-merge-diff).
//!
//! A set is a tree of path elements. In JSON an element is a key: `f:name` for a field, `k:{…}` for a list element by
//! its key fields, `v:…` for a set element, `i:…` for an index; `.` means that the path itself is in the set and not
//! only paths below it.

use super::Scope;
use crate::field::quote;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One element of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    Field(String),
    /// A list element by its key fields, as JSON with sorted names.
    Key(String),
    /// A set element, as JSON.
    Value(String),
    /// A list element by index.
    Index(usize),
}

impl PathElement {
    pub fn key(fields: Map<String, Value>) -> Self {
        Self::Key(Value::Object(fields).to_string())
    }

    pub fn value(value: &Value) -> Self {
        Self::Value(value.to_string())
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(fields) => Some(Self::key(fields)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
            },
            "v" => serde_json::from_str(rest).ok().map(|value: Value| Self::value(&value)),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        let scalar = |value: &Value| value.as_str().map_or_else(|| value.to_string(), quote);
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(key) => {
                let fields: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name}={}", scalar(value))).collect();
                format!("[{}]", fields.join(","))
            }
            Self::Value(value) => {
                format!(
                    "[={}]",
                    serde_json::from_str(value).map_or_else(|_| value.clone(), |value| scalar(&value))
                )
            }
            Self::Index(index) => format!("[{index}]"),
        }
    }
}

/// Formats a path, such as `.spec.containers[name="c"].image`.
pub fn shown(path: &[PathElement]) -> String {
    path.iter().map(PathElement::shown).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    children: BTreeMap<PathElement, Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Adds a path; the empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let [first, rest @ ..] = path else { return };
        // Most paths share a prefix with an existing one; only new elements are cloned.
        if !self.children.contains_key(first) {
            self.children.insert(first.clone(), Node::default());
        }
        if let Some(node) = self.children.get_mut(first) {
            if rest.is_empty() {
                node.member = true;
            } else {
                node.below.insert(rest);
            }
        }
    }

    /// Adds one element and the paths below it.
    pub(super) fn graft(&mut self, element: PathElement, member: bool, below: FieldSet) {
        if member || !below.is_empty() {
            let node = self.children.entry(element).or_default();
            node.member |= member;
            node.below.absorb(below);
        }
    }

    /// Whether the path of this single element is in the set.
    pub fn has(&self, element: &PathElement) -> bool {
        self.children.get(element).is_some_and(|node| node.member)
    }

    /// The paths that begin with this element, without it.
    pub fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.children.get(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// The first elements of all paths, whether the element itself is in the set, and the paths below it.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&PathElement, bool, &FieldSet)> {
        self.children.iter().map(|(element, node)| (element, node.member, &node.below))
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.absorb(other.clone());
        union
    }

    pub(super) fn absorb(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (element, node) in other.children {
            let own = self.children.entry(element).or_default();
            own.member |= node.member;
            own.below.absorb(node.below);
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.keep(|element, node| {
            let other = other.children.get(element)?;
            Some(Node { member: node.member && other.member, below: node.below.intersection(&other.below) })
        })
    }

    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut difference = self.clone();
        difference.remove(other);
        difference
    }

    pub(super) fn remove(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.children.retain(|element, node| {
            if let Some(other) = other.children.get(element) {
                node.member &= !other.member;
                node.below.remove(&other.below);
            }
            !node.is_empty()
        });
    }

    /// Removes the paths that are in the other set or have a prefix in it.
    pub fn remove_below(&mut self, other: &Self) {
        self.children.retain(|element, node| match other.children.get(element) {
            None => true,
            Some(other) if other.member => false,
            Some(other) => {
                node.below.remove_below(&other.below);
                !node.is_empty()
            }
        });
    }

    fn keep(&self, change: impl Fn(&PathElement, &Node) -> Option<Node>) -> Self {
        let changed = |(element, node): (&PathElement, &Node)| {
            change(element, node).filter(|node| !node.is_empty()).map(|node| (element.clone(), node))
        };
        Self { children: self.children.iter().filter_map(changed).collect() }
    }

    /// Visits every path, parents before children.
    pub fn for_each(&self, mut call: impl FnMut(&[PathElement])) {
        self.walk(&mut Vec::new(), &mut call);
    }

    fn walk(&self, path: &mut Vec<PathElement>, call: &mut impl FnMut(&[PathElement])) {
        for (element, node) in &self.children {
            path.push(element.clone());
            if node.member {
                call(path);
            }
            node.below.walk(path, call);
            path.pop();
        }
    }

    pub fn encode(&self) -> Value {
        let entry = |(element, node): (&PathElement, &Node)| {
            let mut below = node.below.encode();
            if let (Value::Object(fields), true, false) = (&mut below, node.member, node.below.is_empty()) {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.encode(), below)
        };
        Value::Object(self.children.iter().map(entry).collect())
    }

    /// Parses `fieldsV1`; `None` if malformed.
    pub fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (text, value) in fields.as_object()? {
            if text == "." {
                continue;
            }
            let inner = value.as_object()?;
            let node =
                Node { member: inner.is_empty() || inner.contains_key("."), below: Self::decode(value)? };
            set.children.insert(PathElement::decode(text)?, node);
        }
        Some(set)
    }
}

/// The subset inside the scope of a write.
pub(super) fn within(mut set: FieldSet, scope: Scope<'_>) -> FieldSet {
    let path =
        |dotted: &str| dotted.split('.').map(|name| PathElement::Field(name.to_owned())).collect::<Vec<_>>();
    match scope {
        Scope::Whole => set,
        Scope::Except(fields) => {
            let mut outside = FieldSet::default();
            for field in fields {
                outside.insert(&path(field));
            }
            set.remove_below(&outside);
            set
        }
        Scope::Only(field) => {
            let element = PathElement::Field(field.to_owned());
            set.children.retain(|name, _| *name == element);
            set
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::decode(fields).unwrap()
    }

    fn paths(set: &FieldSet) -> Vec<String> {
        let mut paths = Vec::new();
        set.for_each(|path| paths.push(shown(path)));
        paths
    }

    #[test]
    fn field_sets_round_trip_through_fields_v1() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}},
                "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}, "f:l": {"i:3": {}}},
        });
        assert_eq!(set(&fields).encode(), fields);
        assert_eq!(
            paths(&set(&fields)),
            [
                ".metadata.finalizers[=\"x/y\"]",
                ".metadata.labels",
                ".metadata.labels.app",
                ".spec.containers[name=\"c\"]",
                ".spec.containers[name=\"c\"].image",
                ".spec.l[3]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
            ]
        );
    }

    #[test]
    fn key_elements_ignore_field_order() {
        let one = set(&json!({"k:{\"b\":1,\"a\":\"x\"}": {}}));
        assert_eq!(one, set(&json!({"k:{\"a\":\"x\",\"b\":1}": {}})));
    }

    #[test]
    fn malformed_fields_v1_is_rejected() {
        for bad in [
            json!([]),
            json!({"x:y": {}}),
            json!({"f:a": 1}),
            json!({"k:x": {}}),
            json!({"i:x": {}}),
            json!({"f": {}}),
        ] {
            assert_eq!(FieldSet::decode(&bad), None, "{bad}");
        }
    }

    #[test]
    fn union_intersection_and_difference() {
        let a = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = set(&json!({"f:a": {"f:b": {}}, "f:d": {}}));
        assert_eq!(paths(&a.union(&b)), [".a", ".a.b", ".c", ".d"]);
        assert_eq!(paths(&a.intersection(&b)), [".a.b"]);
        assert_eq!(paths(&a.difference(&b)), [".a", ".c"]);
        let mut rest = b.clone();
        rest.remove_below(&set(&json!({"f:a": {}})));
        assert_eq!(paths(&rest), [".d"]);
        assert!(a.difference(&a).is_empty());
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let element = prop_oneof![
            "[a-c]".prop_map(PathElement::Field),
            (0..3_i64).prop_map(|n| PathElement::value(&json!(n))),
            "[a-b]".prop_map(|name| PathElement::key(Map::from_iter([("name".to_owned(), json!(name))]))),
        ];
        prop::collection::vec(prop::collection::vec(element, 1..4), 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                set.insert(&path);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn encoding_round_trips(set in any_set()) {
            prop_assert_eq!(FieldSet::decode(&set.encode()).unwrap(), set);
        }

        #[test]
        fn difference_and_intersection_partition_the_set(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.union(&b), b.union(&a));
        }
    }
}
