//! Builds the program of the images.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

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
///
/// Both kinds of linking have the target of the GNU C library, which every toolchain has for its own machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    pub(super) architecture: &'static str,
    c_compiler: &'static str,
    packages: &'static str,
}

const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        architecture: "amd64",
        c_compiler: "x86_64-linux-gnu-gcc",
        packages: "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        architecture: "arm64",
        c_compiler: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    },
];

impl Target {
    pub(super) fn find(architecture: &str) -> Result<Self> {
        let found = TARGETS.into_iter().find(|target| target.architecture == architecture);
        found
            .with_context(|| format!("there are no images for `{architecture}`; hint: amd64 and arm64 exist"))
    }

    fn is_native(self) -> bool {
        self.architecture == kai_kubetest::image::architecture()
    }

    /// A program of the compiler's tools, as this machine calls it.
    pub(super) fn tool(self, name: &str) -> String {
        if self.is_native() { name.to_owned() } else { self.c_compiler.replace("gcc", name) }
    }

    /// Says what is missing before cargo fails with the first crate.
    fn check(self, repository: &Repository) -> Result<()> {
        let mut rustc = std::process::Command::new("rustc");
        rustc.current_dir(&repository.root).args(["--print", "target-libdir", "--target", self.triple]);
        let output = rustc.output().context("cannot run `rustc`")?;
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if !output.status.success() || !folder.is_dir() {
            bail!(
                "the toolchain has no standard library for {}; hint: `rustup target add {}`",
                self.triple,
                self.triple
            );
        }
        let compiler = self.tool("gcc");
        let found = std::process::Command::new(&compiler).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            let packages = if self.is_native() { "gcc libc6-dev" } else { self.packages };
            bail!("`{compiler}` is missing; hint: `apt-get install {packages}`");
        }
        Ok(())
    }
}

/// Builds the program without the simulated cluster, and returns its path. `folder` is where cargo writes.
pub(super) fn program(
    repository: &Repository,
    profile: Profile,
    target: Target,
    linking: Linking,
    folder: &Path,
) -> Result<PathBuf> {
    if profile == Profile::Dev {
        // As `cargo test` builds it: a test has it already.
        run(repository.cargo().args(["build", "--locked", "--package", "kai-cli", "--bin", "kai"]))?;
        return Ok(repository.metadata()?.target_directory.join("debug/kai"));
    }
    target.check(repository)?;
    // One folder for each, because both have the same names for their files.
    let own = folder.join(match linking {
        Linking::Static => "static",
        Linking::Dynamic => "dynamic",
    });
    let variable = target.triple.replace('-', "_");
    let mut build = repository.cargo();
    build
        .args(["build", "--locked", "--profile", "dist", "--package", "kai-cli", "--bin", "kai"])
        .args(["--no-default-features", "--features", "mimalloc", "--target", target.triple, "--target-dir"])
        .arg(&own)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(repository, linking, &own)?.join("\u{1f}"))
        .env(format!("CC_{variable}"), target.tool("gcc"))
        // Assertions of C sources contain their paths.
        .env("CFLAGS", "-DNDEBUG -U_FORTIFY_SOURCE");
    if !target.is_native() {
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), target.tool("gcc"));
    }
    run(&mut build).with_context(|| format!("cannot build for {}", target.architecture))?;
    Ok(own.join(target.triple).join("dist/kai"))
}

/// Flags by which the program is the same from whatever folder it is built. The last that matches a path counts.
fn flags(repository: &Repository, linking: Linking, target_directory: &Path) -> Result<Vec<String>> {
    let mut names = vec![(repository.root.clone(), "/kai")];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    if let Some(home) = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))) {
        // One folder for each registry, named after it: mirrors have the same packages.
        let sources = home.join("registry/src");
        let registries =
            sources.read_dir().with_context(|| format!("cannot list `{}`", sources.display()))?;
        for registry in registries {
            names.push((registry?.path(), "/registry"));
        }
    }
    names.push((target_directory.to_owned(), "/target"));
    let mut flags: Vec<String> =
        names.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())).collect();
    flags.push(match linking {
        Linking::Static => "-Ctarget-feature=+crt-static".to_owned(),
        Linking::Dynamic => "-Ctarget-feature=-crt-static".to_owned(),
    });
    Ok(flags)
}

fn run(command: &mut std::process::Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
