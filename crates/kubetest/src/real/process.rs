//! A child process that ends with its owner, and whose output is kept in a file for whoever asks what went wrong.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that are worth showing.
const TAIL_LINES: usize = 30;

/// A running program; dropping it kills it.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with its output going to `NAME.log` in a folder.
    pub(super) fn start(program: &Path, arguments: &[String], folder: &Path) -> io::Result<Self> {
        let name = program.file_name().unwrap_or(program.as_os_str());
        let log = folder.join(name).with_extension("log");
        let output = File::create(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self { child, log })
    }

    /// Whether it has ended by itself.
    pub(super) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Its id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines that it wrote.
    pub(super) fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what both calls want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
