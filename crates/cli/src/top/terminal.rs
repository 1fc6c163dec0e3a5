//! The terminal while it shows a screen: raw, on its alternate screen, and afterwards as it was, also after a panic.

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{Stdout, Write as _, stdout};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long a wait for keys lasts before it is checked whether the screen has been closed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

/// What the user did.
pub(super) enum Input {
    Key(KeyEvent),
    Resized,
}

/// The screen, until it is dropped.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    pub(super) input: UnboundedReceiver<Input>,
    /// Messages of panics, which would destroy the screen while it is shown.
    panics: Arc<Mutex<Vec<String>>>,
    hook: Arc<Hook>,
}

impl Screen {
    pub(super) fn open() -> Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).context("cannot use the terminal")?;
        enable_raw_mode().context("cannot use the terminal")?;
        let panics: Arc<Mutex<Vec<String>>> = Arc::default();
        let hook = Arc::new(take_hook());
        let collected = Arc::clone(&panics);
        set_hook(Box::new(move |panic| {
            collected.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
        }));
        let (sender, input) = unbounded_channel();
        // From here on dropping it restores the terminal.
        let mut screen = Self { terminal, input, panics, hook };
        execute!(stdout(), EnterAlternateScreen).context("cannot use the terminal")?;
        screen.terminal.hide_cursor().context("cannot use the terminal")?;
        std::thread::spawn(move || read(&sender));
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen);
        let _ = self.terminal.show_cursor();
        let _ = disable_raw_mode();
        let panics = std::mem::take(&mut *self.panics.lock().unwrap_or_else(PoisonError::into_inner));
        for panic in panics {
            let _ = writeln!(anstream::stderr(), "{panic}");
        }
        // The hook of a panicking thread cannot be replaced; the process is about to end.
        if !std::thread::panicking() {
            let hook = Arc::clone(&self.hook);
            set_hook(Box::new(move |panic| hook(panic)));
        }
    }
}

/// Passes input on until the screen is closed or the terminal is gone.
fn read(sender: &UnboundedSender<Input>) {
    while !sender.is_closed() {
        let event = match event::poll(POLL_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let sent = match event {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => sender.send(Input::Key(key)),
            Ok(Event::Resize(..)) => sender.send(Input::Resized),
            Ok(_) => Ok(()),
            Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}
