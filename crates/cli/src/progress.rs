//! Says on standard error what is being waited for, from two seconds on.

use kai_clock::Stopwatch;
use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// When progress is reported first, and how often on a terminal.
const FIRST: Duration = Duration::from_secs(2);
const REDRAW: Duration = Duration::from_secs(1);

/// Reports until it is dropped. It has a thread, so that work which does not yield is reported, too.
pub(crate) struct Progress {
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(what: impl Into<String>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let what = what.into();
        let is_terminal = crate::is_terminal(&std::io::stderr());
        let thread = std::thread::spawn(move || {
            let watch = Stopwatch::start();
            let (mut wait, mut is_shown) = (FIRST, false);
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let seconds = (watch.elapsed_ms() / 1_000.0).round();
                let mut out = anstream::stderr();
                // A closed output is not an error.
                let _ = if is_terminal {
                    write!(out, "\r{what}: {seconds} s\x1b[K")
                } else {
                    writeln!(out, "{what}: {seconds} s")
                };
                let _ = out.flush();
                // A log gets a line at 2, 4, 8, 16 … seconds.
                wait = if is_terminal {
                    REDRAW
                } else if is_shown {
                    wait * 2
                } else {
                    wait
                };
                is_shown = true;
            }
            if is_terminal && is_shown {
                let _ = write!(anstream::stderr(), "\r\x1b[K");
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, there would only be no progress.
            let _ = thread.join();
        }
    }
}
