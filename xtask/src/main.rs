//! Repository tasks: `cargo xtask ci`, `tidy`, `deny`, `conformance`, `bench`, `budget`, `fuzz`, `seeds`, `soak`,
//! `image`, `kubernetes`, `api-suite`.
//!
//! CI runs the same commands.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

mod api_suite;
mod bench;
mod ci;
mod conformance;
mod deny;
mod fuzz;
mod helm;
mod ignored_tests;
mod image;
mod kubernetes;
mod repository;
mod seeds;
mod soak;
mod tidy;

use clap::{Parser, Subcommand};
use repository::Repository;

// The allocator of the shipped binary: `bench apiserver` measures memory in this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Repository tasks")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check, in order, up to the first failure.
    Ci(ci::Args),
    /// Check repository rules: crate edges, file sizes, module docs, links, generated files, banned words.
    Tidy,
    /// Check licences, duplicate versions and sources of dependencies with cargo-deny.
    Deny,
    /// Replay KAI's recorded sessions, clusters and calls, and compare.
    Conformance(conformance::Args),
    /// Measure `kai plan` on generated clusters, beside KAI's recorded times where the reference folder is there;
    /// `bench e2e` fills a whole cluster.
    Bench(bench::Args),
    /// Compare the instructions of planning with `tests/budget.json`; `UPDATE=1` writes them. Needs valgrind.
    Budget,
    /// Fuzz everything that reads foreign input, for a short while.
    Fuzz(fuzz::Args),
    /// Run many seeds of the simulated faults, in parallel, and print those that fail.
    Seeds(seeds::Args),
    /// Run random workloads on the real control plane, while its programs and the components are killed.
    Soak(soak::Args),
    /// Build the images of an installation, without a container daemon.
    Image(image::Args),
    /// Build the real control plane that tests compare with, and real nodes.
    Kubernetes(kubernetes::Args),
    /// Compare an API server with a real one, request by request.
    ApiSuite(api_suite::Args),
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let repository = Repository::find()?;
    match args.task {
        Task::Ci(args) => ci::run(&repository, &args),
        Task::Tidy => tidy::run(&repository),
        Task::Deny => deny::run(&repository),
        Task::Conformance(args) => conformance::run(&repository, &args),
        Task::Bench(args) => bench::run(&repository, &args),
        Task::Budget => bench::budget::run(&repository),
        Task::Fuzz(args) => fuzz::run(&repository, &args),
        Task::Seeds(args) => seeds::run(&repository, &args),
        Task::Soak(args) => soak::run(&repository, &args),
        Task::Image(args) => image::run(&repository, &args),
        Task::Kubernetes(args) => kubernetes::run(&repository, &args),
        Task::ApiSuite(args) => api_suite::run(&repository, &args),
    }
}
