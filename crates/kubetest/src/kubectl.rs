//! `kubectl`, with a home and a kubeconfig of its own: the installed one, and the one of the real control plane.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder of the built programs of a real control plane, of which one is `kubectl`.
const CACHE_VARIABLE: &str = "KAI_KUBERNETES_CACHE";

/// `kubectl` as one test uses it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    editor: Option<PathBuf>,
}

impl Kubectl {
    /// Whether `kubectl` can be run; where it cannot, this says that a test is skipped for it.
    pub fn is_installed() -> bool {
        let installed = runs(Path::new("kubectl"));
        if !installed {
            eprintln!("skipped: kubectl is not installed");
        }
        installed
    }

    /// Every `kubectl` that can be run: the installed one, and the one of the real control plane where it was built.
    /// What is missing is said.
    pub fn programs() -> Vec<PathBuf> {
        let mut programs = Vec::new();
        if Self::is_installed() {
            programs.push(PathBuf::from("kubectl"));
        }
        let built = std::env::var_os(CACHE_VARIABLE).map(|folder| Path::new(&folder).join("kubectl"));
        match built.filter(|built| runs(built)) {
            Some(built) => programs.push(built),
            None => eprintln!("skipped: there is no kubectl in the folder that {CACHE_VARIABLE} names"),
        }
        programs
    }

    /// With this folder, made if need be, as its home; it reads the kubeconfig at a path.
    pub fn new(home: &Path, kubeconfig: &Path) -> Self {
        std::fs::create_dir_all(home).expect("the folder of a test can be made");
        Self {
            program: PathBuf::from("kubectl"),
            home: home.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            editor: None,
        }
    }

    /// This program instead of the installed one.
    #[must_use]
    pub fn of(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    /// With a shell script as the editor of `kubectl edit`; its first argument is the file.
    #[must_use]
    pub fn editing(mut self, script: &str) -> Self {
        let path = self.home.join("editor");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the folder of a test is there");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("the file is ours");
        self.editor = Some(path);
        self
    }

    /// Runs it with arguments separated by blanks, and with an input.
    pub fn output(&self, arguments: &str, input: &str) -> Output {
        let file = self.home.join("input");
        std::fs::write(&file, input).expect("the folder of a test is there");
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split(' '))
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(std::fs::File::open(file).expect("it was just written"));
        if let Some(editor) = &self.editor {
            command.env("KUBE_EDITOR", editor);
        }
        command.output().expect("kubectl can be run")
    }

    /// Runs it and gives back what it printed; panics with what it said when it fails.
    #[track_caller]
    pub fn run(&self, arguments: &str, input: &str) -> String {
        let output = self.output(arguments, input);
        assert!(output.status.success(), "kubectl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("kubectl prints text")
    }

    /// The same beside the tasks of a runtime, of which one may be the server.
    pub async fn run_beside(&self, arguments: &str, input: &str) -> String {
        let (kubectl, arguments, input) = (self.clone(), arguments.to_owned(), input.to_owned());
        let run = tokio::task::spawn_blocking(move || kubectl.run(&arguments, &input));
        run.await.expect("kubectl succeeds")
    }

    /// The same, whether it fails or not.
    pub async fn output_beside(&self, arguments: &str, input: &str) -> Output {
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
