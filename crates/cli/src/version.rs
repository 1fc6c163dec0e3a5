//! `kai version`: version and commit. `build.rs` says which commit it is.

use crate::args::{Version, VersionFormat};
use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

/// Such as `0.1.0 (1a2b3c4d5e6f)`.
pub(crate) const TEXT: &str = env!("KAI_VERSION");

#[derive(JsonSchema, Serialize)]
pub(crate) struct VersionView {
    pub(crate) version: &'static str,
    /// The commit of the sources; absent where they were built without a repository.
    commit: Option<&'static str>,
    /// The release of KAI whose objects, configuration and decisions these are.
    compatible_with: &'static str,
    platform: String,
}

impl VersionView {
    fn current() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: Some(env!("KAI_COMMIT")).filter(|commit| !commit.is_empty()),
            compatible_with: "KAI v0.17",
            platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

pub(crate) fn text(args: &Version) -> Result<String> {
    let view = VersionView::current();
    Ok(match args.output {
        None => format!(
            "kai {}, commit {}\ncompatible with {}\n{}\n",
            view.version,
            view.commit.unwrap_or("unknown"),
            view.compatible_with,
            view.platform
        ),
        Some(VersionFormat::Json) => serde_json::to_string_pretty(&view)? + "\n",
        Some(VersionFormat::Yaml) => serde_saphyr::to_string(&serde_json::to_value(&view)?)?,
    })
}
