//! The commit for `kai version`: `KAI_COMMIT`, or that of the repository. It depends on the sources alone, so that two builds of
//! a commit are equal.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=KAI_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let set = std::env::var("KAI_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = set.or_else(|| head(&git_folder()?)).unwrap_or_default();
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let short: String = commit.chars().take(12).collect();
    let version = if short.is_empty() { version } else { format!("{version} ({short})") };
    println!("cargo:rustc-env=KAI_COMMIT={commit}");
    println!("cargo:rustc-env=KAI_VERSION={version}");
}

/// The folder of the repository; in a work tree, a file names it.
fn git_folder() -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join("../../.git");
    if path.is_dir() {
        return Some(path);
    }
    let text = std::fs::read_to_string(&path).ok()?;
    Some(path.parent()?.join(text.trim().strip_prefix("gitdir: ")?))
}

fn head(folder: &Path) -> Option<String> {
    let head = read(&folder.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref: ") else { return Some(head) };
    // The references of a work tree are those of its repository.
    let common = read(&folder.join("commondir")).map_or_else(|| folder.to_owned(), |path| folder.join(path));
    read(&common.join(reference)).or_else(|| {
        let packed = read(&common.join("packed-refs"))?;
        packed.lines().find_map(|line| line.strip_suffix(reference)?.strip_suffix(' ').map(str::to_owned))
    })
}

/// A file, on whose changes this is run again.
fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}
