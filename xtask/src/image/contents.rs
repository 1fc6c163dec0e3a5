//! The files of an image: the program, what it is made of, and the C library where it needs one.

use super::compile::{Linking, Target};
use super::sbom;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use kai_kubetest::image::Entry;
use std::collections::BTreeSet;
use std::path::Path;
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
        // The C library looks names up in the way that this says, without loading a library.
        Entry::file("etc/nsswitch.conf", b"hosts: files dns\n".to_vec()),
        Entry::file("etc/ssl/certs/ca-certificates.crt", root_certificates().into_bytes()),
    ];
    // Beside the program or in it.
    for package in ["libc6", "libgcc-s1"] {
        let licence = Path::new("/usr/share/doc").join(package).join("copyright");
        entries.push(Entry::file(&format!("licenses/{package}"), read(&licence)?));
    }
    if linking == Linking::Dynamic {
        entries.extend(c_library(program, target)?);
    }
    Ok(entries)
}

/// The certificates that a Prometheus outside of the cluster may be signed with. Clusters have their own.
fn root_certificates() -> String {
    let mut file = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        file.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(64) {
            file.push_str(&String::from_utf8_lossy(line));
            file.push('\n');
        }
        file.push_str("-----END CERTIFICATE-----\n");
    }
    file
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The program without symbols; a debug build is several times larger with them.
fn stripped(program: &Path, target: Target) -> Result<Vec<u8>> {
    let strip = target.tool("strip");
    let copy = program.with_extension("stripped");
    let mut command = Command::new(&strip);
    command.arg("-o").arg(&copy).arg(program);
    let status =
        command.status().with_context(|| format!("cannot run `{strip}`; hint: apt-get install binutils"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    read(&copy)
}

/// Where a C library is on the machine that builds, and in images.
struct Places {
    /// Folder of the libraries here.
    folder: &'static str,
    /// Name of the folder below `/usr/lib` in images: the container runtime of NVIDIA mounts the driver there.
    multiarch: &'static str,
    /// The loader, as programs name it.
    loader: &'static str,
}

fn places(target: Target) -> Places {
    if target.architecture == "amd64" {
        Places {
            folder: "/lib/x86_64-linux-gnu",
            multiarch: "x86_64-linux-gnu",
            loader: "lib64/ld-linux-x86-64.so.2",
        }
    } else {
        Places {
            folder: "/usr/aarch64-linux-gnu/lib",
            multiarch: "aarch64-linux-gnu",
            loader: "lib/ld-linux-aarch64.so.1",
        }
    }
}

/// The C library and the loader, where the program looks for them.
fn c_library(program: &Path, target: Target) -> Result<Vec<Entry>> {
    let Places { folder, multiarch, loader } = places(target);
    let loader_name = loader.rsplit('/').next().unwrap_or(loader);
    let mut names: BTreeSet<String> = needed(program)?.into_iter().collect();
    names.extend(DRIVER_NEEDS.map(str::to_owned));
    names.remove(loader_name);
    let here = Path::new(folder);
    let mut entries = vec![
        Entry::program(loader, read(&here.join(loader_name))?),
        // The loader looks there.
        Entry::link(&format!("lib/{multiarch}"), &format!("../usr/lib/{multiarch}")),
    ];
    for name in names {
        entries.push(Entry::file(&format!("usr/lib/{multiarch}/{name}"), read(&here.join(&name))?));
    }
    Ok(entries)
}

/// The libraries that a program names.
fn needed(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("readelf").args(["--dynamic", "--wide"]).arg(program).output();
    let output = output.context("cannot run `readelf`; hint: apt-get install binutils")?;
    if !output.status.success() {
        bail!("`readelf` cannot read `{}`", program.display());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    Ok(lines.filter_map(|line| line.split_once('[')?.1.strip_suffix(']').map(str::to_owned)).collect())
}
