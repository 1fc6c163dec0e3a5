//! The real control plane, built from its own packages: `cargo xtask kubernetes`.
//!
//! `tests/kubernetes/go.mod` names the versions. The programs go to a folder under `target`, or to the one that
//! `KAI_KUBERNETES_CACHE` names, and are built again only when that file changes. `--version` builds another version
//! beside them, from a module that is derived from that version's own. `--with` builds third-party controllers,
//! `--node` what a real node needs.

pub(crate) mod controllers;
pub(crate) mod node;
mod version;

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{CACHE_VARIABLE, ControlPlane, Controllers, Programs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Go's own installer puts it, which need not be on the search path.
const GO_INSTALLED: &str = "/usr/local/go/bin/go";

/// The version in `tests/kubernetes/go.mod`, which the programs cannot know by themselves.
const VERSION: &str = "v1.36.3";

/// Programs and the packages that they are built from.
const PACKAGES: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

/// Options of `cargo xtask kubernetes`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Start a control plane and keep it until Ctrl-C.
    #[arg(long)]
    run: bool,
    /// Start it without controllers: nothing changes an object but a request.
    #[arg(long, requires = "run")]
    alone: bool,
    /// Build this version instead, such as v1.34.1.
    #[arg(long)]
    version: Option<String>,
    /// Also build what real nodes need, and with `--run` start this many, with 8 GPUs each that do not exist.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "1", conflicts_with = "alone")]
    node: Option<u8>,
    /// Also build these third-party controllers: jobset, lws, kuberay, mpi-operator, training-operator, trainer, karpenter.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    with: Vec<String>,
    /// Run the tests that need the controllers.
    #[arg(long, requires = "with")]
    test: bool,
}

/// Builds what is missing and prints where it is, or starts it.
pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let folder = match &args.version {
        None => built(repository)?,
        Some(version) => built_version(repository, version)?,
    };
    controllers::build(repository, &folder, &args.with)?;
    if args.node.is_some() {
        node::build(repository, &folder)?;
    }
    if args.test {
        return controllers::test(&folder, &args.with);
    }
    if !args.run {
        println!("{}", folder.display());
        if args.version.is_some() {
            println!("tests run on this version with\n  export {CACHE_VARIABLE}={}", folder.display());
        }
        return Ok(());
    }
    if let Some(count) = args.node {
        return node::run(&folder, count);
    }
    let controllers = if args.alone { Controllers::None } else { Controllers::Run };
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        let plane = ControlPlane::start(&Programs::in_folder(&folder)?, controllers).await?;
        println!("export KUBECONFIG={}", plane.kubeconfig_file().display());
        println!("export PATH={}:$PATH", folder.display());
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
    })
}

/// The built programs, building what is missing.
pub(crate) fn programs(repository: &Repository) -> Result<Programs> {
    Ok(Programs::in_folder(&built(repository)?)?)
}

/// The built kube-scheduler.
pub(crate) fn scheduler(repository: &Repository) -> Result<PathBuf> {
    let folder = built(repository)?;
    let package = ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
    build_packages(&repository.root.join("tests/kubernetes"), &folder, VERSION, &[package])?;
    Ok(folder.join(package.0))
}

/// The folder of the built programs, building what is missing.
pub(crate) fn built(repository: &Repository) -> Result<PathBuf> {
    let folder = folder(repository)?;
    build(&repository.root.join("tests/kubernetes"), &folder, VERSION)?;
    Ok(folder)
}

/// The folder of the built programs of another version, building what is missing.
fn built_version(repository: &Repository, version: &str) -> Result<PathBuf> {
    let version = version::Version::parse(version)?;
    let folder = folder(repository)?.join(version.to_string());
    let module = folder.join("module");
    version::write_module(version, &module)?;
    build(&module, &folder, &version.to_string())?;
    Ok(folder)
}

/// Why there can be no real control plane on this machine, if so.
pub(crate) fn missing() -> Option<String> {
    let mut version = go();
    version.arg("version").stdout(Stdio::null()).stderr(Stdio::null());
    match version.status() {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("`go version` ended with {status}")),
        Err(error) => Some(format!("Go, which builds it, cannot be run: {error}")),
    }
}

/// The Go command: from the search path, or from where its installer puts it.
pub(crate) fn go() -> Command {
    let installed = Path::new(GO_INSTALLED);
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("go").is_file()));
    if on_path || !installed.is_file() { Command::new("go") } else { Command::new(installed) }
}

pub(crate) fn folder(repository: &Repository) -> Result<PathBuf> {
    match std::env::var_os(CACHE_VARIABLE) {
        Some(named) => Ok(repository.root.join(named)),
        None => Ok(repository.metadata()?.target_directory.join("kubernetes")),
    }
}

fn build(module: &Path, folder: &Path, version: &str) -> Result<()> {
    build_packages(module, folder, version, &PACKAGES)
}

/// Builds those programs that are missing, or were built from another `go.mod`.
fn build_packages(module: &Path, folder: &Path, version: &str, packages: &[(&str, &str)]) -> Result<()> {
    let wanted = std::fs::read_to_string(module.join("go.mod"))
        .with_context(|| format!("cannot read the module in `{}`", module.display()))?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    for (number, (program, package)) in packages.iter().enumerate() {
        let built = folder.join(program);
        let stamp = folder.join(format!("{program}.go.mod"));
        if built.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
            continue;
        }
        println!("[{}/{}] building {program}; the first time takes some minutes", number + 1, packages.len());
        let watch = Stopwatch::start();
        build_one(module, package, &built, version)?;
        std::fs::write(&stamp, &wanted).with_context(|| format!("cannot write `{}`", stamp.display()))?;
        println!(
            "[{}/{}] built {program} in {:.0} s",
            number + 1,
            packages.len(),
            watch.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

fn build_one(module: &Path, package: &str, built: &Path, version: &str) -> Result<()> {
    let minor = version::Version::parse(version)?.minor.to_string();
    let mut flags = vec!["-s -w".to_owned()];
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", version), ("gitMajor", "1"), ("gitMinor", &minor)] {
            flags.push(format!("-X {package}.{name}={value}"));
        }
    }
    let status = go()
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags.join(" "), "-o"])
        .arg(built)
        .arg(package)
        .status()
        .context("cannot run `go`; hint: the real control plane needs Go 1.26")?;
    if !status.success() {
        bail!("building `{package}` ended with {status}");
    }
    Ok(())
}
