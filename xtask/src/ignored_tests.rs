//! Runs the ignored tests: those that need a tool or a folder that a bare machine does not have, or take long.
//!
//! Tests whose requirement is missing are left out by their path, and the reason is printed. A test without a known
//! requirement always runs, so no ignored test is left out silently.

use crate::repository::{REFERENCE_VARIABLE, Repository};
use crate::{helm, image, kubernetes, soak};
use anyhow::{Context, Result, bail};
use kai_kubetest::control_plane::CACHE_VARIABLE;
use kai_kubetest::kubectl::Kubectl;
use kai_kubetest::node;
use std::process::{Command, Stdio};

/// Environment variable: a folder with `prometheus` and `promtool`, where they are not installed.
const PROMETHEUS_VARIABLE: &str = "KAI_PROMETHEUS";

const REAL_NODE: &str = "a real node";
const REAL_NODE_TESTS: &[&str] = &["real_node"];
/// Both need the machine's node for themselves, and the long life has all of the short one.
const SHORT_LIFE: &str = "short_life_of_an_installation";
const LONG_LIFE: &str = "installation_lives_and_leaves_nothing";

/// A missing requirement, with parts of the paths of the tests that need it.
struct Missing {
    what: &'static str,
    tests: &'static [&'static str],
    why: String,
}

/// How much of the life of an installation is tested on a real node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Two minutes: install, run workloads, change, remove.
    Short,
    /// More than six minutes: also upgrades, faults and the operator's footprint.
    Long,
}

/// Runs all ignored tests whose requirements are met.
pub(crate) fn run(repository: &Repository, life: Life) -> Result<()> {
    let mut command = repository.cargo();
    command.args(["test", "--workspace", "--tests", "--locked", "--", "--ignored"]);
    // It needs the machine for itself and prints its progress: a step of its own runs it.
    command.args(["--skip", soak::TEST]);
    // They need programs that CI does not build: `cargo xtask kubernetes --with … --test`. What the controllers of workloads
    // created is in `tests/grouper`.
    for test in kubernetes::controllers::TESTS {
        command.args(["--skip", test]);
    }
    let other_life = match life {
        Life::Short => LONG_LIFE,
        Life::Long => SHORT_LIFE,
    };
    command.args(["--skip", other_life]);
    for Missing { what, tests, why } in configure(repository, &mut command)? {
        println!("tests that need {what} are left out: {why}");
        for test in tests {
            command.args(["--skip", test]);
        }
    }
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Passes the available tools to the tests, and returns the missing ones.
fn configure(repository: &Repository, command: &mut Command) -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    match kubernetes::missing() {
        // The built programs include kubectl.
        None => {
            let programs = kubernetes::built(repository)?;
            helm::program(repository)?;
            match node::unsupported() {
                None => {
                    kubernetes::node::build(repository, &programs)?;
                    let images = image::build(repository, &image::Args::for_tests())?;
                    command.env(image::VARIABLE, images);
                }
                Some(why) => missing.push(Missing { what: REAL_NODE, tests: REAL_NODE_TESTS, why }),
            }
            command.env(CACHE_VARIABLE, programs);
        }
        Some(why) => {
            if Kubectl::available().is_empty() {
                let why = "kubectl is not installed".to_owned();
                missing.push(Missing { what: "kubectl", tests: &["kubectl"], why });
            }
            missing.push(Missing { what: REAL_NODE, tests: REAL_NODE_TESTS, why: why.clone() });
            missing.push(Missing { what: "a real control plane", tests: &["real_control_plane"], why });
        }
    }
    if std::env::var_os(PROMETHEUS_VARIABLE).is_none() && !runs("prometheus") {
        let why = format!("prometheus is not installed, and `{PROMETHEUS_VARIABLE}` is not set");
        missing.push(Missing { what: "Prometheus", tests: &["prometheus_tests"], why });
    }
    if !runs("chromium") {
        let why = "chromium is not installed".to_owned();
        missing.push(Missing { what: "a browser", tests: &["in_a_browser"], why });
    }
    match repository.reference() {
        Ok(folder) => {
            command.env(REFERENCE_VARIABLE, folder);
        }
        Err(why) => {
            let tests = &["reference", "recorded_calls"];
            missing.push(Missing { what: "the reference folder", tests, why });
        }
    }
    Ok(missing)
}

fn runs(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
