//! Puts the same load on the real server and on the embedded one, in turns.

use crate::load::{self, Operation, Size};
use crate::memory;
use crate::serve::Serving;
use anyhow::{Context, Result};
use kai_kubetest::real::{ControlPlane, Controllers, Programs};
use serde::Serialize;
use std::path::Path;

/// What both servers did.
#[derive(Serialize)]
pub(crate) struct Compared {
    pods: usize,
    clients: usize,
    watchers: usize,
    embedded: Figures,
    real: Option<Figures>,
}

/// What one server did.
#[derive(Default, Serialize)]
struct Figures {
    /// Operations per second, the best of all rounds.
    rates: Vec<(Operation, f64)>,
    /// The most resident memory of the server.
    peak_bytes: u64,
    /// The same of the process that stores for it, where there is one.
    store_peak_bytes: u64,
    /// How often a watcher was too slow for the server, in all rounds.
    cuts: u64,
}

impl Figures {
    fn add(&mut self, load::Outcome { rates, cuts }: load::Outcome, peak_bytes: u64, store_peak_bytes: u64) {
        if self.rates.is_empty() {
            self.rates = Operation::ALL.into_iter().zip(rates).collect();
        }
        for ((_, best), rate) in self.rates.iter_mut().zip(rates) {
            *best = best.max(rate);
        }
        self.peak_bytes = self.peak_bytes.max(peak_bytes);
        self.store_peak_bytes = self.store_peak_bytes.max(store_peak_bytes);
        self.cuts += cuts;
    }
}

/// Runs all rounds.
pub(crate) async fn run(programs: Option<&Path>, size: &Size, rounds: usize) -> Result<Compared> {
    let programs = programs.map(Programs::in_folder).transpose()?;
    let mut embedded = Figures::default();
    let mut real = programs.as_ref().map(|_| Figures::default());
    for round in 1..=rounds {
        if let (Some(programs), Some(real)) = (&programs, &mut real) {
            eprintln!("round {round}: kube-apiserver");
            let plane = ControlPlane::start(programs, Controllers::None).await?;
            let outcome = load::run(plane.server(), size).await.context("the real server")?;
            let [api, store] = plane.processes();
            real.add(outcome, memory::peak(api)?, memory::peak(store)?);
        }
        eprintln!("round {round}: the embedded server");
        let serving = Serving::start()?;
        let outcome = load::run(&serving.server, size).await.context("the embedded server")?;
        embedded.add(outcome, memory::peak(serving.process())?, 0);
    }
    Ok(Compared { pods: size.pods, clients: size.clients, watchers: size.watchers, embedded, real })
}
