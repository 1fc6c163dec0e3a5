//! Builds the program of the images.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Which build an image contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    Dist,
    Dev,
}

/// Whether the program contains the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Linking {
    Static,
    Dynamic,
}

/// A target of the compiler, with the C compiler and linker that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    pub(super) architecture: &'static str,
    c_compiler: &'static str,
    package: &'static str,
}

const TARGETS: [(Linking, Target); 4] = [
    (
        Linking::Static,
        Target {
            triple: "x86_64-unknown-linux-musl",
            architecture: "amd64",
            c_compiler: "musl-gcc",
            package: "musl-tools",
        },
    ),
    (
        Linking::Dynamic,
        Target {
            triple: "x86_64-unknown-linux-gnu",
            architecture: "amd64",
            c_compiler: "cc",
            package: "gcc",
        },
    ),
    (
        Linking::Static,
        Target {
            triple: "aarch64-unknown-linux-musl",
            architecture: "arm64",
            c_compiler: "aarch64-linux-gnu-gcc",
            package: "gcc-aarch64-linux-gnu",
        },
    ),
    (
        Linking::Dynamic,
        Target {
            triple: "aarch64-unknown-linux-gnu",
            architecture: "arm64",
            c_compiler: "aarch64-linux-gnu-gcc",
            package: "gcc-aarch64-linux-gnu",
        },
    ),
];

pub(super) fn target(architecture: &str, linking: Linking) -> Result<Target> {
    let found = TARGETS.iter().find(|(of, target)| *of == linking && target.architecture == architecture);
    let (_, target) = found
        .with_context(|| format!("there are no images for `{architecture}`; hint: amd64 and arm64 exist"))?;
    Ok(*target)
}

/// Builds the program without the simulated cluster, and returns its path. `folder` is below the target directory.
pub(super) fn program(
    repository: &Repository,
    profile: Profile,
    target: Target,
    folder: &str,
) -> Result<PathBuf> {
    let target_directory = repository.metadata()?.target_directory;
    if profile == Profile::Dev {
        // As `cargo test` builds it: a test has it already.
        run(repository.cargo().args(["build", "--locked", "--package", "kai-cli", "--bin", "kai"]))?;
        return Ok(target_directory.join("debug/kai"));
    }
    let own = target_directory.join(folder);
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let mut flags = format!("--remap-path-prefix={}=/kai", repository.root.display());
    if let Ok(home) = home {
        flags.push_str(" --remap-path-prefix=");
        flags.push_str(&home);
        flags.push_str("=/cargo");
    }
    let variable = target.triple.replace('-', "_");
    let mut build = repository.cargo();
    build
        .args(["build", "--locked", "--profile", "dist", "--package", "kai-cli", "--bin", "kai"])
        .args(["--no-default-features", "--features", "mimalloc", "--target", target.triple, "--target-dir"])
        .arg(&own)
        .env("RUSTFLAGS", flags)
        .env(format!("CC_{variable}"), target.c_compiler)
        // Assertions of C sources contain their paths.
        .env("CFLAGS", "-DNDEBUG -U_FORTIFY_SOURCE");
    if target.architecture != kai_kubetest::image::architecture() {
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), target.c_compiler);
    }
    run(&mut build).with_context(|| {
        format!(
            "cannot build for {}; hint: `rustup target add {}` and `apt-get install {}`",
            target.architecture, target.triple, target.package
        )
    })?;
    Ok(own.join(target.triple).join("dist/kai"))
}

fn run(command: &mut std::process::Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
