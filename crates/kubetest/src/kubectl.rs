//! Runs `kubectl` with its own home directory and kubeconfig: the installed one, or that of the real control plane.

use crate::control_plane::CACHE_VARIABLE;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    editor: Option<PathBuf>,
}

impl Kubectl {
    /// Every usable `kubectl`: the installed one, and that of the real control plane where [`CACHE_VARIABLE`] names its
    /// folder.
    pub fn available() -> Vec<PathBuf> {
        let built = std::env::var_os(CACHE_VARIABLE).map(|folder| Path::new(&folder).join("kubectl"));
        [Some(PathBuf::from("kubectl")), built]
            .into_iter()
            .flatten()
            .filter(|program| runs(program))
            .collect()
    }

    /// [`available`](Self::available) for a test that needs at least one.
    ///
    /// # Panics
    /// Panics where there is none.
    pub fn required() -> Vec<PathBuf> {
        let programs = Self::available();
        assert!(
            !programs.is_empty(),
            "kubectl is not installed, and {CACHE_VARIABLE} names no folder with one"
        );
        programs
    }

    /// Creates `home` where it is missing.
    pub fn new(home: &Path, kubeconfig: &Path) -> Self {
        std::fs::create_dir_all(home).expect("the home directory can be created");
        Self {
            program: PathBuf::from("kubectl"),
            home: home.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            editor: None,
        }
    }

    /// Uses this program instead of `kubectl` from the search path.
    #[must_use]
    pub fn with_program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    /// Uses a shell script as the editor of `kubectl edit`; its first argument is the file.
    #[must_use]
    pub fn with_editor(mut self, script: &str) -> Self {
        let path = self.home.join("editor");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the home directory exists");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("the file is writable");
        self.editor = Some(path);
        self
    }

    /// Runs a command with arguments separated by blanks, and `input` as standard input.
    pub fn output(&self, arguments: &str, input: &str) -> Output {
        let file = self.home.join("input");
        std::fs::write(&file, input).expect("the home directory exists");
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split(' '))
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(std::fs::File::open(file).expect("the file exists"));
        if let Some(editor) = &self.editor {
            command.env("KUBE_EDITOR", editor);
        }
        command.output().expect("kubectl can be run")
    }

    /// Returns the standard output.
    ///
    /// # Panics
    /// Panics with the error output where the command fails.
    #[track_caller]
    pub fn run(&self, arguments: &str, input: &str) -> String {
        let output = self.output(arguments, input);
        assert!(output.status.success(), "kubectl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("kubectl prints text")
    }

    /// [`run`](Self::run) on a blocking thread, so that a server in the same runtime can respond.
    pub async fn run_blocking(&self, arguments: &str, input: &str) -> String {
        let (kubectl, arguments, input) = (self.clone(), arguments.to_owned(), input.to_owned());
        let run = tokio::task::spawn_blocking(move || kubectl.run(&arguments, &input));
        run.await.expect("kubectl succeeds")
    }

    /// [`output`](Self::output) on a blocking thread.
    pub async fn output_blocking(&self, arguments: &str, input: &str) -> Output {
        let (kubectl, arguments, input) = (self.clone(), arguments.to_owned(), input.to_owned());
        let run = tokio::task::spawn_blocking(move || kubectl.output(&arguments, &input));
        run.await.expect("kubectl can be run")
    }
}

fn runs(program: &Path) -> bool {
    let mut version = Command::new(program);
    version.args(["version", "--client"]).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
