//! The installed `kubectl`, with a home and a kubeconfig of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `kubectl` as one test uses it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Whether `kubectl` can be run; where it cannot, this says that a test is skipped for it.
    pub fn is_installed() -> bool {
        let mut version = Command::new("kubectl");
        version.args(["version", "--client"]).stdout(Stdio::null()).stderr(Stdio::null());
        let installed = version.status().is_ok_and(|status| status.success());
        if !installed {
            eprintln!("skipped: kubectl is not installed");
        }
        installed
    }

    /// With this folder, made if need be, as its home; it reads the kubeconfig at a path.
    pub fn new(home: &Path, kubeconfig: &Path) -> Self {
        std::fs::create_dir_all(home).expect("the folder of a test can be made");
        Self { home: home.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs it with arguments separated by blanks, and with an input.
    pub fn output(&self, arguments: &str, input: &str) -> Output {
        let file = self.home.join("input");
        std::fs::write(&file, input).expect("the folder of a test is there");
        Command::new("kubectl")
            .args(arguments.split(' '))
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(std::fs::File::open(file).expect("it was just written"))
            .output()
            .expect("kubectl can be run")
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
