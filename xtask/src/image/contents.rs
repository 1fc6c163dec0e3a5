//! The files of an image: the program, what it is made of, and the C library where it needs one.

use super::compile::{Linking, Target};
use super::sbom;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_kubetest::image::Entry;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that the NVIDIA driver's own need besides those of the program.
const DRIVER_NEEDS: [&str; 4] = ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"];

/// All files of an image.
pub(super) fn entries(
    repository: &Repository,
    program: &Path,
    target: Target,
    linking: Linking,
) -> Result<Vec<Entry>> {
    let packages = sbom::packages(repository, target.triple)?;
    let mut entries = vec![
        Entry::program("kai", stripped(program, target)?),
        Entry::file("licenses/LICENSE", read(&repository.root.join("LICENSE"))?),
        Entry::file("licenses/third-party.txt", sbom::licences(&packages)?.into_bytes()),
        Entry::file("sbom.cdx.json", sbom::cyclonedx(&packages).into_bytes()),
        Entry::file("etc/passwd", b"kai:x:10000:10000:kai:/:/sbin/nologin\n".to_vec()),
        Entry::file("etc/group", b"kai:x:10000:\n".to_vec()),
    ];
    if linking == Linking::Dynamic {
        entries.extend(c_library(program, target)?);
    }
    Ok(entries)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The program without symbols; a debug build is several times larger with them.
fn stripped(program: &Path, target: Target) -> Result<Vec<u8>> {
    let strip = if target.triple.starts_with("aarch64") { "aarch64-linux-gnu-strip" } else { "strip" };
    let copy = program.with_extension("stripped");
    let mut command = Command::new(strip);
    command.arg("-o").arg(&copy).arg(program);
    let status =
        command.status().with_context(|| format!("cannot run `{strip}`; hint: apt-get install binutils"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    read(&copy)
}

/// The C library and the loader, where the program looks for them, with their licence.
fn c_library(program: &Path, target: Target) -> Result<Vec<Entry>> {
    let (folder, loader) = match target.architecture {
        "amd64" => (PathBuf::from("/lib/x86_64-linux-gnu"), "lib64/ld-linux-x86-64.so.2"),
        _ => (PathBuf::from("/usr/aarch64-linux-gnu/lib"), "lib/ld-linux-aarch64.so.1"),
    };
    let mut names = needed(program)?;
    names.extend(DRIVER_NEEDS.map(str::to_owned));
    names.sort();
    names.dedup();
    let within = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let within = if target.architecture == "amd64" { within } else { "aarch64-linux-gnu".to_owned() };
    let mut entries = Vec::new();
    for name in names {
        let path = folder.join(&name);
        if name.starts_with("ld-linux") {
            entries.push(Entry::program(loader, read(&path)?));
        } else {
            entries.push(Entry::file(&format!("usr/lib/{within}/{name}"), read(&path)?));
        }
    }
    // The loader looks into both; the container runtime of NVIDIA mounts into the second.
    if target.architecture == "amd64" {
        entries.push(Entry::link("lib/x86_64-linux-gnu", "../usr/lib/x86_64-linux-gnu"));
    } else {
        entries.push(Entry::link("lib/aarch64-linux-gnu", "../usr/lib/aarch64-linux-gnu"));
    }
    let licence = read(Path::new("/usr/share/doc/libc6/copyright")).unwrap_or_default();
    entries.push(Entry::file("licenses/libc6", licence));
    Ok(entries)
}

/// The libraries that a program names, with those that they name: the loader needs all of them.
fn needed(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("readelf").args(["--dynamic", "--wide"]).arg(program).output();
    let output = output.context("cannot run `readelf`; hint: apt-get install binutils")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter(|line| line.contains("(NEEDED)"));
    let mut names: Vec<String> =
        names.filter_map(|line| line.split_once('[')?.1.strip_suffix(']').map(str::to_owned)).collect();
    if !names.iter().any(|name| name.starts_with("ld-linux")) {
        let loader = if program.to_string_lossy().contains("aarch64") {
            "ld-linux-aarch64.so.1"
        } else {
            "ld-linux-x86-64.so.2"
        };
        names.push(loader.to_owned());
    }
    Ok(names)
}
