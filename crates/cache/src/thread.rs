//! Starts threads that work beside the one that waits for them.

use std::sync::mpsc::sync_channel;
use std::thread::{Builder, Scope};

/// Runs `work` with a state on a thread of its own; returns the state where no thread can be started.
pub(crate) fn start_with<'scope, S: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    state: S,
    work: impl FnOnce(S) + Send + 'scope,
) -> Result<(), S> {
    // What a closure has captured is lost with a thread that cannot be started.
    let (sender, receiver) = sync_channel(1);
    let receive_and_work = move || {
        if let Ok(state) = receiver.recv() {
            work(state);
        }
    };
    match Builder::new().name(name.to_owned()).spawn_scoped(scope, receive_and_work) {
        Ok(_) => sender.send(state).map_err(|unsent| unsent.0),
        Err(_) => Err(state),
    }
}
