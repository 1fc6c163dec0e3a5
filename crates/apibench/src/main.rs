//! Measures the embedded API server beside a real kube-apiserver: the same requests, one after the other.
//!
//! `cargo xtask bench apiserver` builds this in the release profile and prints what it measured. Servers run in
//! processes of their own, so that their memory is theirs alone.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

mod compare;
mod in_process;
mod load;
mod memory;
mod pod;
mod serve;
mod watchers;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

// What the shipped binary allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "kai-apibench", about = "Measures the embedded API server")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Put the same load on a real server and on the embedded one; prints JSON.
    Compare {
        /// The folder with the real programs; without it, only the embedded server is measured.
        #[arg(long, value_name = "FOLDER")]
        programs: Option<PathBuf>,
        #[command(flatten)]
        load: load::Size,
        /// Rounds; the best of each operation counts, and the largest memory.
        #[arg(long, default_value_t = 2)]
        rounds: usize,
    },
    /// Create pods without HTTP, then list them; prints JSON.
    InProcess {
        /// How many pods.
        #[arg(long, default_value_t = 100_000)]
        pods: usize,
    },
    /// Serve an empty cluster until the input ends; prints where, as JSON.
    Serve,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    match args.task {
        Task::Compare { programs, load, rounds } => {
            let measured = runtime.block_on(compare::run(programs.as_deref(), &load, rounds))?;
            println!("{}", serde_json::to_string(&measured)?);
        }
        Task::InProcess { pods } => {
            println!("{}", serde_json::to_string(&runtime.block_on(in_process::run(pods))?)?);
        }
        Task::Serve => runtime.block_on(serve::run())?,
    }
    Ok(())
}
