//! `kai top` and `--watch` in a pseudo-terminal: what is shown, and that the terminal is left as it was.

use kai_cli::embedded;
use kai_components::{ComponentOptions, install};
use kai_engine::plugin::PluginSet;
use kai_sim::{Cluster, NodeGroup};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum steps of a wait, enough for a busy machine.
const STEPS_MAX: u32 = 1_200;
const STEP: Duration = Duration::from_millis(100);

/// A program in a terminal of 80 columns and 24 rows.
struct InTerminal {
    child: Child,
    keys: File,
    output: Arc<Mutex<Vec<u8>>>,
    /// The program's end, whose modes can be read.
    terminal: OwnedFd,
}

impl InTerminal {
    fn start(args: &[&str], kubeconfig: &Path) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are pseudo-terminals");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        let terminal = terminal.expect("it can be opened");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("it has a size");
        let end = || Stdio::from(terminal.try_clone().expect("there are descriptors"));
        let child = Command::new(env!("CARGO_BIN_EXE_kai"))
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("the binary runs");
        let keys = File::from(ours);
        let output: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut source, collected) = (keys.try_clone().expect("there are descriptors"), Arc::clone(&output));
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                collected.lock().expect("it does not panic").extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keys, output, terminal }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("it does not panic")).into_owned()
    }

    async fn wait_for(&self, text: &str) {
        for _ in 0..STEPS_MAX {
            if self.text().contains(text) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("`{text}` does not appear: {}", self.text());
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Waits for the end, and asserts that the terminal is as it was.
    async fn assert_restored(mut self) {
        for _ in 0..STEPS_MAX {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                assert!(status.success(), "{}", self.text());
                self.wait_for("\u{1b}[?1049l").await;
                self.wait_for("\u{1b}[?25h").await;
                let modes = tcgetattr(&self.terminal).expect("it is a terminal").local_modes;
                assert!(
                    modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG),
                    "{modes:?}"
                );
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("it does not end: {}", self.text());
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        // It has already ended where the test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn cluster(name: &str) -> (Cluster, PathBuf) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let builder = Cluster::builder().seed(1).nodes([NodeGroup::gpu_nodes(2, 4)]).listen(address);
    let mut cluster = builder.start().await.expect("the cluster starts");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("screen-{name}"));
    cluster.listening().expect("it listens").write_kubeconfig(&path).expect("the folder is there");
    install::install(cluster.api()).await.expect("it is installed");
    embedded::join(&mut cluster, &ComponentOptions::simulated(), &PluginSet::builtin());
    (cluster, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn screen_leaves_the_terminal_as_it_was() {
    let (_cluster, kubeconfig) = cluster("restored").await;
    let mut top = InTerminal::start(&["top"], &kubeconfig);
    top.wait_for("\u{1b}[?1049h").await;
    top.wait_for("Pending groups").await;
    top.wait_for("node-2").await;
    top.press("?");
    // Cells that are blank before and after are not written again, so that only words can be awaited.
    top.wait_for("Objects").await;
    top.press("q");
    top.press("q");
    top.assert_restored().await;

    let mut nodes = InTerminal::start(&["nodes", "--watch"], &kubeconfig);
    nodes.wait_for("kai nodes").await;
    nodes.press("\u{3}");
    nodes.assert_restored().await;

    // What panes have no filter for is a text.
    let mut why = InTerminal::start(&["why", "queue/default-queue", "--watch"], &kubeconfig);
    why.wait_for("kai why").await;
    why.wait_for("`default-queue`").await;
    why.press("q");
    why.assert_restored().await;

    let queues = InTerminal::start(&["queues", "-w"], &kubeconfig);
    queues.wait_for("default-queue").await;
    let pid = queues.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    queues.assert_restored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn screen_says_since_when_the_data_of_a_lost_server_are_stale() {
    let (cluster, kubeconfig) = cluster("stale").await;
    let top = InTerminal::start(&["top"], &kubeconfig);
    let text = InTerminal::start(&["queues", "default-queue", "--watch"], &kubeconfig);
    top.wait_for("Pending groups").await;
    text.wait_for("SHARE").await;
    cluster.stop().await;
    for mut screen in [top, text] {
        screen.wait_for("STALE since").await;
        screen.wait_for("have not been watched").await;
        screen.press("q");
        screen.assert_restored().await;
    }
}
