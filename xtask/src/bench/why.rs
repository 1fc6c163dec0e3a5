//! How long the hints of `kai why` take in large clusters: `crates/whatif/benches/why.rs`.

use super::page::{self, Part};
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::shapes::{self, Shape};
use serde::Deserialize;
use std::fmt::Write as _;
use std::process::Command;

/// Shapes with pending groups that cannot run.
const SHAPES: [&str; 4] = ["mixed", "unschedulable", "reclaim-many", "topology"];
/// Targets: up to so many nodes, milliseconds for the hints of a group.
const TARGETS: [(usize, f64); 2] = [(500, 200.0), (5_000, 2_000.0)];

/// Options of `cargo xtask bench why`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Cluster sizes.
    #[arg(long, value_delimiter = ',', default_value = "500,5000")]
    nodes: Vec<usize>,
    /// Only these shapes.
    #[arg(long = "shape", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Pending groups for each cluster.
    #[arg(long, default_value_t = 20)]
    groups: usize,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// What the bench prints for a cluster.
#[derive(Deserialize)]
struct Found {
    pending: usize,
    asked: usize,
    plan_ms: f64,
    median_ms: f64,
    max_ms: f64,
    plans: u64,
    proofs: u64,
    steps: u64,
    hints: usize,
    without: usize,
    incomplete: usize,
}

/// What it printed for which cluster.
struct Measured {
    shape: &'static str,
    nodes: usize,
    found: Found,
}

impl Measured {
    fn target_ms(&self) -> Option<f64> {
        TARGETS.into_iter().find(|(nodes, _)| self.nodes <= *nodes).map(|(_, ms)| ms)
    }
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let program = super::steady::build(repository, "kai-whatif", "why")?;
    let folder = repository.metadata()?.target_directory.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let all: Vec<&Shape> = SHAPES.into_iter().filter_map(shapes::find).chain([&shapes::BACKLOG]).collect();
    let is_wanted =
        |shape: &&&Shape| args.shapes.is_empty() || args.shapes.iter().any(|name| name == shape.name);
    let mut measured = Vec::new();
    for &nodes in &args.nodes {
        for shape in all.iter().filter(is_wanted) {
            let name = shape.name;
            let file = folder.join(format!("why-{name}-{nodes}.zip"));
            shapes::write_zip(shape, nodes, &file)
                .with_context(|| format!("cannot write `{}`", file.display()))?;
            let output = Command::new(&program)
                .arg(&file)
                .arg(args.groups.to_string())
                .output()
                .context("cannot run the bench")?;
            if !output.status.success() {
                bail!("the bench failed: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            let found: Found =
                serde_json::from_slice(&output.stdout).context("the bench printed something else")?;
            eprintln!("{name} with {nodes} nodes: at most {:.0} ms", found.max_ms);
            measured.push(Measured { shape: name, nodes, found });
        }
    }
    let (text, misses) = (table(&measured), misses(&measured));
    println!("{text}");
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::Why, &super::e2e::with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

fn table(all: &[Measured]) -> String {
    let mut text = "The time that `kai why` takes for the hints of one pending group, after the cluster was read and planned. Most \
        plans of a search leave out groups that do not matter; those that prove what is printed do not. Written by `cargo \
        xtask bench why --write`.\n\n\
        | shape | nodes | pending groups | a whole plan, ms | hints ms, median | max | plans, max | whole ones | steps, max | groups asked | hints | without any | ended early |\n\
        |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Measured { shape, nodes, found } in all {
        let Found {
            pending,
            asked,
            plan_ms,
            median_ms,
            max_ms,
            plans,
            proofs,
            steps,
            hints,
            without,
            incomplete,
        } = found;
        writeln!(
            text,
            "| {shape} | {nodes} | {pending} | {plan_ms:.1} | {median_ms:.1} | {max_ms:.1} | {plans} | {proofs} | {steps} | {asked} \
             | {hints} | {without} | {incomplete} |"
        )
        .expect("writing to a string");
    }
    text
}

fn misses(all: &[Measured]) -> Vec<String> {
    let missed = |one: &Measured| {
        let target = one.target_ms().filter(|target| one.found.max_ms > *target)?;
        Some(format!(
            "the hints of a group of `{}` with {} nodes take {:.0} ms, {target:.0} are wanted",
            one.shape, one.nodes, one.found.max_ms
        ))
    };
    all.iter().filter_map(missed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_target_of_the_next_larger_one() {
        let one = |nodes, max_ms| {
            let text = format!(
                r#"{{"pending":1,"asked":1,"plan_ms":1,"median_ms":1,"max_ms":{max_ms},"plans":1,"proofs":1,"steps":1,
                "hints":1,"without":0,"incomplete":0}}"#
            );
            let found = serde_json::from_str(&text).expect("it is what the bench prints");
            Measured { shape: "mixed", nodes, found }
        };
        let all = [one(100, 199.0), one(500, 201.0), one(501, 1_999.0), one(5_000, 2_001.0), one(9_000, 1e6)];
        let missed = misses(&all);
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].contains("500 nodes") && missed[1].contains("5000 nodes"), "{missed:?}");
    }
}
