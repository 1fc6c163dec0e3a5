//! Files that are written from code must be what the code writes.

use crate::repository::SourceFile;
use kai_api::crds;

const FOLDER: &str = "charts/kai-scheduler/crds";

/// Complains about definitions of custom resources that are missing, stale, or nobody's.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let wanted: Vec<(String, String)> = crds::crds()
        .iter()
        .map(|crd| (format!("{FOLDER}/{}", crds::crd_file_name(crd)), crds::crd_yaml(crd)))
        .collect();
    let found = |path: &str| files.iter().find(|file| file.path == path);
    let mut complaints: Vec<String> = wanted
        .iter()
        .filter(|(path, text)| found(path).and_then(|file| file.text.as_deref()).map(body) != Some(text))
        .map(|(path, _)| format!("{path}: it is not what `kai crds` prints"))
        .collect();
    complaints.extend(
        files
            .iter()
            .filter(|file| {
                file.path.starts_with(FOLDER) && !wanted.iter().any(|(path, _)| *path == file.path)
            })
            .map(|file| format!("{}: no code writes this file", file.path)),
    );
    complaints
}

/// What follows the heading comment.
fn body(text: &str) -> &str {
    text.split_once("---\n").map_or(text, |(_, body)| body)
}
