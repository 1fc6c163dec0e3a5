//! The ways in which people and machines end a process.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for the end.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    /// Somebody closed the terminal.
    hangup: Signal,
}

impl Ends {
    /// Begins to listen.
    pub(crate) fn listen() -> Result<Self> {
        let on = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody ends the process.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
