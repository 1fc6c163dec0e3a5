//! The images of an installation, built without a container daemon: `cargo xtask image`.
//!
//! One program is in all of them; they differ in its first argument. A static program cannot load the library of the NVIDIA
//! driver, so the images of reservation pods have the same program linked dynamically, with the C library of this machine.
//! Nothing in them depends on the time or the folder of the build; `--verify` builds twice and compares.

mod compile;
mod contents;
mod sbom;

use crate::repository::Repository;
use anyhow::{Context, Result, bail, ensure};
use compile::{Linking, Profile, Target};
use kai_components::images::{IMAGES, ImageSpec};
use kai_kubetest::image::{Image, Layer, Size, write_archive};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable by which tests find the archive.
pub(crate) const VARIABLE: &str = "KAI_IMAGES";
/// Uid and gid of the program.
const USER: &str = "10000:10000";
/// What a node has to download for one image, at most.
const MAX_SIZE: usize = 50_000_000;

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Architectures: amd64, arm64.
    #[arg(long, value_delimiter = ',', default_value = kai_kubetest::image::architecture())]
    architectures: Vec<String>,
    /// `dist` is what is published; `dev` is for tests: the debug build, linked dynamically in all images.
    #[arg(long, value_enum, default_value_t = Profile::Dist)]
    profile: Profile,
    /// The registry in the names of the images, as `global.registry` of the chart.
    #[arg(long, default_value = "registry/local/kai-scheduler")]
    registry: String,
    /// The tag of the images, as `global.tag` of the chart; default: the version of the workspace.
    #[arg(long)]
    tag: Option<String>,
    /// The archive; default: `target/image/kai-images.tar`.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Build twice, the second time from a copy of the sources in another folder, and compare.
    #[arg(long)]
    verify: bool,
}

impl Args {
    /// Images for tests.
    pub(crate) fn for_tests() -> Self {
        Self {
            architectures: vec![kai_kubetest::image::architecture().to_owned()],
            profile: Profile::Dev,
            registry: "registry/local/kai-scheduler".to_owned(),
            tag: None,
            output: None,
            verify: false,
        }
    }
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    if args.tag.as_deref().is_some_and(|tag| tag.ends_with("-fips")) {
        bail!(
            "these images have no validated cryptography, so no tag of theirs may end with `-fips`; hint: docs/installing.md"
        );
    }
    let archive = build(repository, args)?;
    let tag = tag(repository, args)?;
    println!("wrote {}", archive.display());
    println!("import on a node:  ctr --namespace k8s.io images import {}", archive.display());
    println!(
        "install:           helm install kai-scheduler charts/kai-scheduler --namespace kai-scheduler --create-namespace \
         --set global.registry={},global.tag={tag}",
        args.registry
    );
    Ok(())
}

/// Builds the images; returns the archive.
pub(crate) fn build(repository: &Repository, args: &Args) -> Result<PathBuf> {
    let folder = repository.metadata()?.target_directory.join("image");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let archive = args.output.clone().unwrap_or_else(|| folder.join("kai-images.tar"));
    let tag = tag(repository, args)?;
    let mut images = Vec::new();
    for architecture in &args.architectures {
        let layers = layers(repository, args, architecture, &folder)?;
        if args.verify {
            let again = folder.join("again");
            let copy = copy(repository, &again.join("source"))?;
            let again = self::layers(&copy, args, architecture, &again)?;
            for (linking, layer) in &layers {
                ensure!(
                    again.get(linking).is_some_and(|again| again.digest() == layer.digest()),
                    "two builds for {architecture} differ ({linking:?})"
                );
            }
            println!("two builds for {architecture} are equal");
        }
        for spec in IMAGES {
            let name = format!("{}/{}:{tag}", args.registry, spec.name);
            images.push((name, image(spec, architecture, &layers, &tag)?));
        }
    }
    let digests =
        write_archive(&archive, &images).with_context(|| format!("cannot write `{}`", archive.display()))?;
    for ((name, image), digest) in images.iter().zip(digests) {
        println!("{digest} {:>4.1} MB {} {name}", image.layer.size() as f64 / 1e6, image.architecture);
        if args.profile == Profile::Dist && image.layer.size() > MAX_SIZE {
            bail!("`{name}` is larger than {} MB", MAX_SIZE / 1_000_000);
        }
    }
    Ok(archive)
}

/// The files of the images: one layer, or two where the static program does not do.
fn layers(
    repository: &Repository,
    args: &Args,
    architecture: &str,
    folder: &Path,
) -> Result<BTreeMap<Linking, Arc<Layer>>> {
    let linkings: &[Linking] = match args.profile {
        Profile::Dist => &[Linking::Static, Linking::Dynamic],
        Profile::Dev => &[Linking::Dynamic],
    };
    let size = if args.profile == Profile::Dist { Size::Small } else { Size::Any };
    let target = Target::find(architecture)?;
    let mut layers = BTreeMap::new();
    for &linking in linkings {
        let program = compile::program(repository, args.profile, target, linking, folder)?;
        let entries = contents::entries(repository, &program, target, linking)?;
        layers.insert(linking, Arc::new(Layer::new(entries, size).context("cannot pack the files")?));
    }
    Ok(layers)
}

fn image(
    spec: &ImageSpec,
    architecture: &str,
    layers: &BTreeMap<Linking, Arc<Layer>>,
    version: &str,
) -> Result<Image> {
    let linking = if spec.loads_driver { Linking::Dynamic } else { Linking::Static };
    let layer =
        layers.get(&linking).or_else(|| layers.get(&Linking::Dynamic)).context("no layer was built")?;
    let command = std::iter::once("/kai").chain(spec.arguments.iter().copied());
    let labels = [
        ("org.opencontainers.image.title", spec.name),
        ("org.opencontainers.image.version", version),
        ("org.opencontainers.image.licenses", "Apache-2.0"),
    ];
    Ok(Image {
        layer: Arc::clone(layer),
        architecture: architecture.to_owned(),
        entrypoint: command.map(str::to_owned).collect(),
        user: USER.to_owned(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    })
}

/// A copy of the sources in another folder.
fn copy(repository: &Repository, to: &Path) -> Result<Repository> {
    let mut list = std::process::Command::new("git");
    list.current_dir(&repository.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = list.output().context("cannot run `git`")?;
    ensure!(
        listed.status.success(),
        "cannot list the files: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    if to.exists() {
        std::fs::remove_dir_all(to).with_context(|| format!("cannot remove `{}`", to.display()))?;
    }
    let listed = String::from_utf8(listed.stdout).context("the name of a file is not UTF-8")?;
    for file in listed.split_terminator('\0') {
        let (from, to) = (repository.root.join(file), to.join(file));
        // Deleted, and not committed yet.
        if from.is_file() {
            let folder = to.parent().context("a file is in a folder")?;
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create `{}`", folder.display()))?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot write `{}`", to.display()))?;
        }
    }
    Ok(Repository { root: to.to_owned() })
}

fn tag(repository: &Repository, args: &Args) -> Result<String> {
    if let Some(tag) = &args.tag {
        return Ok(tag.clone());
    }
    let metadata = repository.metadata()?;
    let own = metadata.members().find(|package| package.name == "kai-cli");
    own.map(|package| package.version.clone()).context("the workspace has no package `kai-cli`")
}
