//! Translates maximum run times: annotations of pod groups and of queues.
//!
//! An invalid value voids the whole limit, so that no mistake ends or evicts a group.

use crate::finding::{Report, quoted};
use kai_api::well_known::annotation::{MAX_RUNTIME, MAX_RUNTIME_ACTION, MAX_RUNTIME_GRACE_PERIOD};
use kai_engine::input::{LimitAction, TimeLimit};
use kai_units::{Span, duration};
use std::collections::BTreeMap;

/// Value of the action annotation: the group is preemptible.
pub const PREEMPTIBLE: &str = "preemptible";
/// Value of the action annotation: the group ends.
pub const END: &str = "end";

/// The limit in the annotations of a pod group or a queue. Engine input and timers both use it, so that they accept the
/// same values.
pub fn translate(
    annotations: Option<&BTreeMap<String, String>>,
    report: &mut Report<'_>,
) -> Option<TimeLimit> {
    let get = |name: &str| annotations?.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    let Some(limit) = get(MAX_RUNTIME) else {
        for name in [MAX_RUNTIME_ACTION, MAX_RUNTIME_GRACE_PERIOD] {
            if get(name).is_some() {
                let problem = format!("it has no effect without `{MAX_RUNTIME}`");
                report.warn(field(name), problem, format!("add `{MAX_RUNTIME}`, or remove it"));
            }
        }
        return None;
    };
    let limit = span(MAX_RUNTIME, limit, 1, report);
    let grace = get(MAX_RUNTIME_GRACE_PERIOD)
        .map_or(Some(Span(0)), |text| span(MAX_RUNTIME_GRACE_PERIOD, text, 0, report));
    let action = match get(MAX_RUNTIME_ACTION) {
        None | Some(PREEMPTIBLE) => Some(LimitAction::Preemptible),
        Some(END) => Some(LimitAction::End),
        Some(other) => {
            let problem = format!("{} is not an action, so the limit has no effect", quoted(other));
            report.warn(field(MAX_RUNTIME_ACTION), problem, format!("write `{PREEMPTIBLE}` or `{END}`"));
            None
        }
    };
    Some(TimeLimit { limit: limit?, grace: grace?, action: action? })
}

fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

fn span(name: &str, text: &str, least: i64, report: &mut Report<'_>) -> Option<Span> {
    let problem = match duration::parse_extended(text) {
        Ok(span) if span.0 >= least => return Some(span),
        Ok(_) => format!("{} is too short", quoted(text)),
        Err(error) => error.to_string(),
    };
    report.warn(
        field(name),
        format!("{problem}, so the limit has no effect"),
        "write a duration such as `8h`",
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use kai_engine::input::Key;

    fn read(pairs: &[(&str, &str)]) -> (Option<TimeLimit>, Vec<String>) {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let key = Key::new("a", "g");
        let mut report = Report::on(Kind::PodGroup, &key);
        let limit = translate(Some(&annotations), &mut report);
        (limit, report.into_findings().into_iter().map(|finding| finding.problem).collect())
    }

    #[test]
    fn limit_has_a_default_action_and_no_grace_period() {
        let (limit, findings) = read(&[(MAX_RUNTIME, "8h")]);
        let expected = TimeLimit { limit: Span::from_secs(28_800), ..TimeLimit::default() };
        assert_eq!((limit, findings.len()), (Some(expected), 0));
        let all = [(MAX_RUNTIME, "1d"), (MAX_RUNTIME_ACTION, "end"), (MAX_RUNTIME_GRACE_PERIOD, "10m")];
        let expected = TimeLimit {
            limit: Span::from_secs(86_400),
            grace: Span::from_secs(600),
            action: LimitAction::End,
        };
        assert_eq!(read(&all), (Some(expected), Vec::new()));
    }

    #[test]
    fn any_invalid_value_voids_the_limit_and_is_reported() {
        for wrong in [
            &[(MAX_RUNTIME, "soon")][..],
            &[(MAX_RUNTIME, "0s")],
            &[(MAX_RUNTIME, "-1h"), (MAX_RUNTIME_ACTION, "end")],
            &[(MAX_RUNTIME, "1h"), (MAX_RUNTIME_ACTION, "kill")],
            &[(MAX_RUNTIME, "1h"), (MAX_RUNTIME_GRACE_PERIOD, "-5m")],
            &[(MAX_RUNTIME, "1h"), (MAX_RUNTIME_ACTION, "End")],
            &[(MAX_RUNTIME_ACTION, "end")],
        ] {
            let (limit, findings) = read(wrong);
            assert_eq!((limit, findings.len()), (None, 1), "{wrong:?}: {findings:?}");
        }
    }
}
