//! Puts the same load on kube-apiserver and on the embedded API server, in alternating rounds.

use super::load::{self, LoadArgs, Operation};
use super::memory;
use super::server_process::ServerProcess;
use anyhow::{Context, Result};
use kai_kubetest::control_plane::{ControlPlane, Controllers, Programs};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Serialize, Deserialize)]
pub(super) struct Comparison {
    pub(super) pods: usize,
    pub(super) clients: usize,
    pub(super) watchers: usize,
    pub(super) embedded: Measurements,
    pub(super) real: Option<Measurements>,
}

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Measurements {
    /// Operations per second, the best of all rounds.
    pub(super) rates: Vec<(Operation, f64)>,
    /// Peak resident memory of the server process.
    pub(super) peak_bytes: u64,
    /// Peak resident memory of etcd; zero for the embedded server.
    pub(super) etcd_peak_bytes: u64,
    /// Watches that the server closed because the watcher was too slow, in all rounds.
    pub(super) closed_watches: u64,
}

impl Measurements {
    fn add_round(&mut self, round: &load::Outcome, peak_bytes: u64, etcd_peak_bytes: u64) {
        let load::Outcome { rates, closed_watches } = round;
        if self.rates.is_empty() {
            self.rates = Operation::ALL.into_iter().zip(rates.iter().copied()).collect();
        }
        for ((_, best), rate) in self.rates.iter_mut().zip(rates.iter().copied()) {
            *best = best.max(rate);
        }
        self.peak_bytes = self.peak_bytes.max(peak_bytes);
        self.etcd_peak_bytes = self.etcd_peak_bytes.max(etcd_peak_bytes);
        self.closed_watches += closed_watches;
    }
}

pub(super) async fn run(programs: Option<&Path>, load: &LoadArgs, rounds: usize) -> Result<Comparison> {
    let programs = programs.map(Programs::in_folder).transpose()?;
    let mut embedded = Measurements::default();
    let mut real = programs.as_ref().map(|_| Measurements::default());
    for round in 1..=rounds {
        if let (Some(programs), Some(real)) = (&programs, &mut real) {
            eprintln!("round {round}: kube-apiserver");
            let plane = ControlPlane::start(programs, Controllers::None).await?;
            let outcome = load::run(plane.server(), load).await.context("kube-apiserver")?;
            let [apiserver, etcd] = plane.processes();
            real.add_round(&outcome, memory::peak(apiserver)?, memory::peak(etcd)?);
        }
        eprintln!("round {round}: embedded server");
        let process = ServerProcess::start()?;
        let outcome = load::run(&process.server, load).await.context("embedded server")?;
        embedded.add_round(&outcome, memory::peak(process.id())?, 0);
    }
    Ok(Comparison { pods: load.pods, clients: load.clients, watchers: load.watchers, embedded, real })
}
