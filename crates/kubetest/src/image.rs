//! OCI images, written without a container daemon.
//!
//! The same files give the same bytes: entries are sorted, owned by root and without a time. The archive is an OCI image
//! layout as a tar file, which `ctr images import`, `skopeo copy oci-archive:` and `podman load` read.

mod tar;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
pub use tar::Entry;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image of one layer.
#[derive(Clone, Debug)]
pub struct Image {
    pub layer: Arc<Layer>,
    /// As Go names it: `amd64`, `arm64`.
    pub architecture: String,
    pub entrypoint: Vec<String>,
    /// `USER:GROUP`; root when empty.
    pub user: String,
    pub labels: BTreeMap<String, String>,
}

/// Files that several images may share.
#[derive(Debug)]
pub struct Layer {
    compressed: Vec<u8>,
    /// Digest of the uncompressed files.
    contents: String,
}

/// Whether a layer is worth the time of compressing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Small,
    /// For tests.
    Any,
}

impl Layer {
    /// Packs files; their order does not matter.
    pub fn new(entries: Vec<Entry>, size: Size) -> io::Result<Self> {
        let packed = tar::pack(entries)?;
        let level = match size {
            Size::Small => Compression::default(),
            Size::Any => Compression::none(),
        };
        let mut compressed = GzBuilder::new().mtime(0).write(Vec::new(), level);
        compressed.write_all(&packed)?;
        Ok(Self { compressed: compressed.finish()?, contents: digest(&packed) })
    }

    /// Digest of the uncompressed files.
    pub fn digest(&self) -> &str {
        &self.contents
    }

    /// Size as it is downloaded.
    pub fn size(&self) -> usize {
        self.compressed.len()
    }
}

impl Image {
    /// An image with nothing but a static program, which gets these arguments before those of its container.
    pub fn of_program(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let layer = Layer::new(vec![Entry::program("program", std::fs::read(program)?)], Size::Any)?;
        let command = std::iter::once("/program").chain(arguments.iter().copied());
        Ok(Self {
            layer: Arc::new(layer),
            architecture: architecture().to_owned(),
            entrypoint: command.map(str::to_owned).collect(),
            user: String::new(),
            labels: BTreeMap::new(),
        })
    }

    fn config(&self) -> Vec<u8> {
        let config = json!({
            "architecture": self.architecture, "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint, "User": self.user, "WorkingDir": "/", "Labels": self.labels,
                "Env": ["PATH=/"],
            },
            "rootfs": {"type": "layers", "diff_ids": [self.layer.contents]},
        });
        config.to_string().into_bytes()
    }
}

/// The architecture of this machine.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The name by which container runtimes know an image: one without a registry is of Docker Hub.
pub fn full_name(name: &str) -> String {
    match name.split_once('/') {
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

/// Writes images, each with its name, as one archive; returns the digest of each manifest.
///
/// Several images of one name are one image for several architectures.
pub fn write_archive(path: &Path, images: &[(String, Image)]) -> io::Result<Vec<String>> {
    let mut blobs = BTreeMap::new();
    let mut by_name: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut digests = Vec::new();
    for (name, image) in images {
        let descriptor = manifest(&mut blobs, image);
        digests.push(descriptor["digest"].as_str().unwrap_or_default().to_owned());
        by_name.entry(name).or_default().push(descriptor);
    }
    let named = by_name.into_iter().map(|(name, mut descriptors)| {
        let mut descriptor = if descriptors.len() == 1 {
            descriptors.remove(0)
        } else {
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors});
            add(&mut blobs, INDEX, index.to_string().into_bytes())
        };
        let name = full_name(name);
        descriptor["annotations"] =
            json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
        descriptor
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": named.collect::<Vec<_>>()});
    let mut entries = vec![
        Entry::file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes()),
        Entry::file("index.json", index.to_string().into_bytes()),
    ];
    let blobs = blobs.into_iter();
    entries.extend(blobs.map(|(digest, bytes)| Entry::file(&format!("blobs/sha256/{digest}"), bytes)));
    std::fs::write(path, tar::pack(entries)?)?;
    Ok(digests)
}

fn manifest(blobs: &mut BTreeMap<String, Vec<u8>>, image: &Image) -> Value {
    let config = add(blobs, CONFIG, image.config());
    let layer = add(blobs, LAYER, image.layer.compressed.clone());
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut descriptor = add(blobs, MANIFEST, manifest.to_string().into_bytes());
    descriptor["platform"] = json!({"architecture": image.architecture, "os": "linux"});
    descriptor
}

/// Adds a blob; returns its descriptor.
fn add(blobs: &mut BTreeMap<String, Vec<u8>>, media_type: &str, bytes: Vec<u8>) -> Value {
    let digest = digest(&bytes);
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
    blobs.insert(digest.trim_start_matches("sha256:").to_owned(), bytes);
    descriptor
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(entries: Vec<Entry>) -> Image {
        Image {
            layer: Arc::new(Layer::new(entries, Size::Small).unwrap()),
            architecture: "amd64".to_owned(),
            entrypoint: vec!["/program".to_owned()],
            user: "10000:10000".to_owned(),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn names_without_registry_are_of_docker_hub() {
        assert_eq!(full_name("busybox:1"), "docker.io/library/busybox:1");
        assert_eq!(full_name("registry/local/kai:1"), "docker.io/registry/local/kai:1");
        for full in ["ghcr.io/a/b:1", "localhost/a:1", "host:5000/a:1"] {
            assert_eq!(full_name(full), full);
        }
    }

    #[test]
    fn same_files_give_the_same_archive_in_any_order() {
        let folder = std::env::temp_dir().join(format!("kubetest-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let entries = || {
            vec![
                Entry::program("bin/a", b"a".to_vec()),
                Entry::file("etc/b", vec![7; 700]),
                Entry::link("lib", "usr/lib"),
            ]
        };
        let mut reversed = entries();
        reversed.reverse();
        let name = |tag: &str| format!("registry.example/team/program:{tag}");
        let write = |file: &str, entries: Vec<Entry>| {
            let path = folder.join(file);
            let digests =
                write_archive(&path, &[(name("1"), image(entries.clone())), (name("2"), image(entries))]);
            (digests.unwrap(), std::fs::read(path).unwrap())
        };
        let first = write("1.tar", entries());
        assert_eq!(first, write("2.tar", reversed));
        assert_eq!(first.0.len(), 2);
        // What another program reads.
        let listed =
            std::process::Command::new("tar").arg("-tvf").arg(folder.join("1.tar")).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            listed.lines().filter(|line| line.starts_with('-') && line.contains("blobs/sha256/")).count(),
            3,
            "{listed}"
        );
        assert!(listed.contains("root/root") || listed.contains("0/0"), "{listed}");
        assert!(listed.contains("1970-01-01"), "{listed}");
    }
}
