//! A child process that is killed on drop, with its output in a log file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of the log in error messages.
const TAIL_LINES: usize = 30;

pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: Environment,
}

/// Variables that a program gets besides those of the test.
type Environment = Vec<(&'static str, PathBuf)>;

impl Process {
    /// Starts a program; its output goes to `NAME.log` in `folder`.
    pub(crate) fn start(program: &Path, arguments: &[String], folder: &Path) -> io::Result<Self> {
        Self::start_in(&[], program, arguments, folder)
    }

    /// [`start`](Self::start) with environment variables.
    pub(crate) fn start_in(
        environment: &[(&'static str, PathBuf)],
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> io::Result<Self> {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        Self::launch(&name, environment.to_vec(), program, arguments, folder)
    }

    /// [`start`](Self::start) with another name of the log.
    pub(crate) fn start_named(
        name: &str,
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> io::Result<Self> {
        Self::launch(name, Environment::new(), program, arguments, folder)
    }

    fn launch(
        name: &str,
        environment: Environment,
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> io::Result<Self> {
        let log = folder.join(name).with_extension("log");
        let child = spawn(&environment, program, arguments, folder, File::create(&log)?)?;
        let (program, arguments, folder) = (program.to_owned(), arguments.to_vec(), folder.to_owned());
        Ok(Self { child, log, program, arguments, folder, environment })
    }

    /// Kills the program, without giving it time to end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Starts the killed program with the same arguments; its output is appended to its log.
    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        let output = File::options().append(true).open(&self.log)?;
        self.child = spawn(&self.environment, &self.program, &self.arguments, &self.folder, output)?;
        Ok(())
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of the log.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

fn spawn(
    environment: &Environment,
    program: &Path,
    arguments: &[String],
    folder: &Path,
    output: File,
) -> io::Result<Child> {
    Command::new(program)
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
