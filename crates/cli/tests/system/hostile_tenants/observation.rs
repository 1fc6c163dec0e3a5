//! What a test observes of components in its own thread: whether one ended, whether one panicked, and the CPU time.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Names of the components that ended, for whatever reason.
#[derive(Clone, Default)]
pub(super) struct Ends(Arc<Mutex<Vec<&'static str>>>);

/// Records a name when it is dropped: at the end of a component, or when a panic drops its future.
struct End {
    name: &'static str,
    ends: Ends,
}

impl Drop for End {
    fn drop(&mut self) {
        self.ends.0.lock().push(self.name);
    }
}

impl Ends {
    pub(super) fn record<F: Future<Output = ()>>(
        &self,
        name: &'static str,
        running: F,
    ) -> impl Future<Output = ()> + use<F> {
        let end = End { name, ends: self.clone() };
        async move {
            let _end = end;
            running.await;
        }
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics in this repository's code on one thread, including those that are caught. A dependency may panic where its
/// caller expects that, as the CEL parser does.
pub(crate) fn panics_of_this_thread() -> Vec<String> {
    PANICS.with_borrow(Clone::clone)
}

/// Starts to collect panics of this thread, without any.
pub(crate) fn watch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|location| location.file().starts_with("crates/")) {
                PANICS.with_borrow_mut(|seen| seen.push(info.to_string()));
            }
            previous(info);
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// CPU time of this thread, which does not depend on what else the machine does; zero where the system does not say.
pub(super) fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
