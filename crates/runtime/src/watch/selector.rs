//! Selectors that a client applies itself, to the objects of a watch that it shares with clients with other selectors.

use super::Source;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How an object relates to a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Selected,
    /// Not in this state; in an earlier one it may have been.
    Deselected,
    /// In no state: it differs in a field that never changes.
    Never,
}

/// The selectors of a source, as far as components use such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    scheduler_name: Option<String>,
    /// `status.phase!=…`
    other_phase: Option<String>,
    /// `key=value`
    labels: Vec<(String, String)>,
}

impl Selector {
    /// The selector of a source; none where the source needs a watch of its own: with a selector of another form, such as
    /// that of a single object, since a watch of all objects would be far larger.
    pub(crate) fn of(source: &Source) -> Option<Self> {
        let mut selector = Self::default();
        for parameter in source.query.iter().flat_map(|query| query.split('&')) {
            let (name, value) = parameter.split_once('=')?;
            let value = percent_decode_str(value).decode_utf8().ok()?;
            for term in value.split(',') {
                match name {
                    "fieldSelector" => selector.add_field(term)?,
                    "labelSelector" => selector.add_label(term)?,
                    _ => return None,
                }
            }
        }
        Some(selector)
    }

    fn add_field(&mut self, term: &str) -> Option<()> {
        if let Some(phase) = term.strip_prefix("status.phase!=") {
            self.other_phase = Some(phase.to_owned());
        } else {
            self.scheduler_name = Some(term.strip_prefix("spec.schedulerName=")?.to_owned());
        }
        Some(())
    }

    fn add_label(&mut self, term: &str) -> Option<()> {
        let (key, value) = term.split_once('=')?;
        // `!=`, `==` and sets.
        if key.contains(['!', ' ', '(']) || value.starts_with('=') {
            return None;
        }
        self.labels.push((key.to_owned(), value.to_owned()));
        Some(())
    }

    /// An object whose fields have unexpected types is selected: its subscriber reports it.
    pub(crate) fn select(&self, object: &str) -> Selection {
        if self.scheduler_name.is_none() && self.other_phase.is_none() && self.labels.is_empty() {
            return Selection::Selected;
        }
        let Ok(Selected { metadata, spec, status }) = serde_json::from_str(object) else {
            return Selection::Selected;
        };
        let text = |field: Option<&Cow<'_, str>>| field.map(Cow::to_string).unwrap_or_default();
        let scheduler = text(spec.as_ref().and_then(|spec| spec.scheduler_name.as_ref()));
        if self.scheduler_name.as_ref().is_some_and(|name| *name != scheduler) {
            return Selection::Never;
        }
        let phase = text(status.as_ref().and_then(|status| status.phase.as_ref()));
        let labels = metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        let has_label =
            |(key, value): &(String, String)| labels.get(key.as_str()).is_some_and(|is| is == value);
        let is_selected = self.other_phase.as_ref().is_none_or(|other| *other != phase)
            && self.labels.iter().all(has_label);
        if is_selected { Selection::Selected } else { Selection::Deselected }
    }
}

/// The fields that selectors read.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Selected<'a> {
    #[serde(default)]
    metadata: Option<Metadata<'a>>,
    #[serde(default)]
    spec: Option<Spec<'a>>,
    #[serde(default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    #[serde(default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    #[serde(default, rename = "schedulerName")]
    scheduler_name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Status<'a> {
    #[serde(default)]
    phase: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::POD;

    const NOT_FAILED: &str = "fieldSelector=status.phase%21%3DFailed";
    const OF_A: &str = "fieldSelector=spec.schedulerName%3Da";
    const OF_A_AND_X: &str = "fieldSelector=spec.schedulerName%3Da&labelSelector=team%3Dx";

    fn selector(query: &str) -> Option<Selector> {
        Selector::of(&Source::all(POD).query(query))
    }

    #[test]
    fn objects_are_selected_as_the_server_would() {
        let pod = |scheduler: &str, phase: &str, team: &str| {
            format!(
                r#"{{"metadata": {{"labels": {{"team": "{team}"}}}}, "spec": {{"schedulerName": "{scheduler}"}},
                    "status": {{"phase": "{phase}"}}}}"#
            )
        };
        let table = [
            (NOT_FAILED, pod("a", "Running", "x"), Selection::Selected),
            (NOT_FAILED, pod("a", "Failed", "x"), Selection::Deselected),
            (NOT_FAILED, r#"{"status": null}"#.to_owned(), Selection::Selected),
            (OF_A, pod("a", "Failed", "x"), Selection::Selected),
            (OF_A, pod("b", "Failed", "x"), Selection::Never),
            (OF_A_AND_X, pod("a", "", "y"), Selection::Deselected),
            (OF_A_AND_X, pod("a", "", "x"), Selection::Selected),
            ("labelSelector=team%3Dx", r#"{"metadata": {"labels": null}}"#.to_owned(), Selection::Deselected),
            ("labelSelector=team%3Dx", r#"{"metadata": 7}"#.to_owned(), Selection::Selected),
        ];
        for (query, object, expected) in table {
            assert_eq!(selector(query).unwrap().select(&object), expected, "{query} {object}");
        }
    }

    #[test]
    fn selectors_of_single_objects_and_of_other_forms_are_not_shared() {
        assert_eq!(Selector::of(&Source::all(POD)), Some(Selector::default()));
        for query in [
            "fieldSelector=metadata.name%3Da",
            "fieldSelector=spec.nodeName%3Da",
            "labelSelector=a%21%3Db",
            "labelSelector=a%20in%20(b)",
            "labelSelector=a",
            "limit=1",
        ] {
            assert_eq!(selector(query), None, "{query}");
        }
    }
}
