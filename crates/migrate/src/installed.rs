//! The installation of KAI that is found: its version, and what is in progress.

use crate::check::subject;
use crate::finding::{Finding, Level, named};
use kai_api::well_known::label;
use serde_json::Value;

/// The minor version whose objects and settings ours are compatible with.
const SUPPORTED_MINOR: u64 = 17;
const OPERATOR: &str = "kai-operator";

pub(crate) fn check(objects: &[Value], findings: &mut Vec<Finding>) {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| kai_object::kind(object) == kind);
    for deployment in of_kind("Deployment").filter(|one| kai_object::name(one) == OPERATOR) {
        findings.extend(version(deployment));
    }
    let in_flight: Vec<String> = of_kind("BindRequest")
        .filter(|request| !matches!(kai_object::str_at(request, "/status/phase"), "Succeeded" | "Failed"))
        .map(subject)
        .collect();
    if let Some(subjects) = named(&in_flight) {
        let finding = Finding::new(Level::Note, "in-flight", subjects);
        let message = format!("{} pods are being bound", in_flight.len());
        findings.push(finding.message(message).action("nothing: the binder takes them over"));
    }
    let is_reservation = |pod: &&Value| {
        kai_object::meta(pod, "labels").is_some_and(|labels| labels.get(label::GPU_GROUP).is_some())
            && kai_object::namespace(pod).ends_with("-reservation")
    };
    let reservations: Vec<String> = of_kind("Pod").filter(is_reservation).map(subject).collect();
    if let Some(subjects) = named(&reservations) {
        let finding = Finding::new(Level::Note, "reservations", subjects);
        let message = format!("{} shared GPUs are in use", reservations.len());
        findings.push(finding.message(message).action("nothing: reservation pods are kept"));
    }
}

/// Whether the installed version is one that can be replaced directly.
fn version(deployment: &Value) -> Option<Finding> {
    let image = kai_object::str_at(deployment, "/spec/template/spec/containers/0/image");
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let mut numbers = tag.trim_start_matches('v').split('.').map(|number| number.parse::<u64>().ok());
    let (major, minor) = (numbers.next().flatten()?, numbers.next().flatten()?);
    // Builds between releases are tagged 0.0.0-COMMIT.
    if (major, minor) >= (0, SUPPORTED_MINOR) || (major, minor) == (0, 0) {
        return None;
    }
    let finding = Finding::new(Level::Unsupported, "version", subject(deployment));
    let message =
        format!("version {tag} is installed; objects and settings are those of v0.{SUPPORTED_MINOR}");
    Some(finding.message(message).action(format!("upgrade KAI to v0.{SUPPORTED_MINOR} first")))
}
