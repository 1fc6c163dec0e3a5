//! `kai up --detach` and `kai down`: a cluster in a process of its own, and its end.
//!
//! The process holds a lock on a file beside its kubeconfig while it runs, and the file has its process ID: `kai down`
//! sends a signal only where the lock is held, so never to another process that has got the same ID.

use crate::args;
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a cluster may take to start, and to stop.
const STEPS_MAX: u32 = 1_200;
const STEP: Duration = Duration::from_millis(100);
/// Lines of the log that are shown when it does not start.
const LINES_MAX: usize = 20;

/// What the file of a detached cluster says.
#[derive(Debug, Deserialize, Serialize)]
struct Record {
    pid: i32,
    url: String,
}

/// The file of this process, locked until it ends.
pub(super) struct Registered {
    file: File,
    path: PathBuf,
}

impl Registered {
    /// Locks the file; fails where another cluster holds it.
    pub(super) fn lock(kubeconfig: &Path) -> Result<Self> {
        let path = record_path(kubeconfig);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create directory `{}`", folder.display()))?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(|| format!("cannot write `{}`", path.display()))?;
        if !try_lock(&file, &path)? {
            bail!(
                "a cluster with the kubeconfig `{0}` is already running; hint: `kai down` stops it, or select another \
                 file with --kubeconfig and another port with --port",
                kubeconfig.display()
            );
        }
        file.set_len(0).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Self { file, path })
    }

    /// Says that the cluster can be used.
    pub(super) fn ready(&mut self, url: &str) -> Result<()> {
        let pid = i32::try_from(std::process::id()).context("the process ID is out of range")?;
        let record = serde_json::to_string(&Record { pid, url: url.to_owned() })?;
        let cannot = || format!("cannot write `{}`", self.path.display());
        self.file.rewind().with_context(cannot)?;
        self.file.write_all(record.as_bytes()).with_context(cannot)
    }

    pub(super) fn remove(self) {
        // A file that is left behind is not locked.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// `false` where another process has locked it.
fn try_lock(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock `{}`", path.display()))
        }
    }
}

fn record_path(kubeconfig: &Path) -> PathBuf {
    beside(kubeconfig, ".process")
}

fn log_path(kubeconfig: &Path) -> PathBuf {
    beside(kubeconfig, ".log")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(ending);
    path.with_file_name(name)
}

/// Starts this program again in the background, and waits until its cluster can be used.
pub(super) fn start(kubeconfig: &Path) -> Result<()> {
    // Fails early where a cluster is running.
    drop(Registered::lock(kubeconfig)?);
    let log = log_path(kubeconfig);
    let output = File::create(&log).with_context(|| format!("cannot write `{}`", log.display()))?;
    let errors = output.try_clone().with_context(|| format!("cannot write `{}`", log.display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    // The same options; the last one takes effect instead of `--detach`.
    let options = std::env::args_os().skip(1).filter(|option| option != "--detach");
    let mut child = Command::new(program)
        .args(options)
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Ctrl-C in this terminal is not for it.
        .process_group(0)
        .spawn()
        .context("cannot start the cluster")?;
    let record = wait_until_ready(&mut child, kubeconfig, &log)?;
    let (path, log) = (kubeconfig.display(), log.display());
    let Record { pid, url } = record;
    let is_default = kubeconfig == super::kubeconfig::default_path(|name| std::env::var_os(name));
    let option = if is_default { String::new() } else { format!(" --kubeconfig {path}") };
    crate::print(&format!(
        "cluster is running in the background (process {pid})\nkubeconfig: {path}\nAPI: {url}\nlog: {log}\n\n\
         Use it after `export KUBECONFIG={path}`; `kai top` shows it, `kai down{option}` stops it.\n"
    ))
}

fn wait_until_ready(child: &mut Child, kubeconfig: &Path, log: &Path) -> Result<Record> {
    for _ in 0..STEPS_MAX {
        if child.try_wait().context("cannot wait for the cluster")?.is_some() {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
            bail!("the cluster did not start:\n{}", last.trim_start_matches("error: "));
        }
        if let Some(record) = read(&record_path(kubeconfig))? {
            return Ok(record);
        }
        std::thread::sleep(STEP);
    }
    let _ = child.kill();
    bail!("the cluster did not start in time; its log is `{}`", log.display());
}

/// What a file says; `None` where there is none, or it is not complete.
fn read(path: &Path) -> Result<Option<Record>> {
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => Ok(serde_json::from_str(&text).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// Stops a cluster that `kai up --detach` has started.
pub(crate) fn down(args: &args::Down) -> Result<()> {
    let kubeconfig = super::kubeconfig_path(args.kubeconfig.as_deref());
    let path = record_path(&kubeconfig);
    let nothing = || {
        crate::print(&format!(
            "nothing to stop: `kai up --detach` has no cluster with the kubeconfig `{}`\n",
            kubeconfig.display()
        ))
    };
    let Ok(file) = File::open(&path) else { return nothing() };
    if try_lock(&file, &path)? {
        // It is left from a process that was killed.
        let _ = std::fs::remove_file(&path);
        return nothing();
    }
    let record = read(&path)?.ok_or_else(|| {
        anyhow!("the cluster with the kubeconfig `{}` is starting; hint: try again", kubeconfig.display())
    })?;
    let pid = Pid::from_raw(record.pid).ok_or_else(|| anyhow!("`{}` is damaged", path.display()))?;
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop process {}", record.pid))?;
    for _ in 0..STEPS_MAX {
        if try_lock(&file, &path)? {
            return crate::print(&format!("cluster stopped (process {})\n", record.pid));
        }
        std::thread::sleep(STEP);
    }
    bail!("process {} has not ended; hint: its log is `{}`", record.pid, log_path(&kubeconfig).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_beside_the_kubeconfig() {
        assert_eq!(record_path(Path::new("/s/kai/kubeconfig")), Path::new("/s/kai/kubeconfig.process"));
        assert_eq!(log_path(Path::new("/s/kai/kubeconfig")), Path::new("/s/kai/kubeconfig.log"));
    }

    #[test]
    fn second_cluster_with_the_same_kubeconfig_is_refused() {
        let folder = std::env::temp_dir().join(format!("kai-detached-{}", std::process::id()));
        let kubeconfig = folder.join("kubeconfig");
        let mut first = Registered::lock(&kubeconfig).expect("there is no other");
        assert!(read(&record_path(&kubeconfig)).expect("it can be read").is_none(), "it is starting");
        first.ready("https://127.0.0.1:1").expect("it can be written");
        let error = Registered::lock(&kubeconfig).map(|_| ()).expect_err("it is locked").to_string();
        assert!(error.contains("already running") && error.contains("hint: `kai down`"), "{error}");
        let record = read(&record_path(&kubeconfig)).expect("it can be read").expect("it is complete");
        assert_eq!(record.url, "https://127.0.0.1:1");
        drop(first);
        Registered::lock(&kubeconfig).expect("the first has ended").remove();
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
