//! A real node in namespaces of this machine: containerd, kubelet, kube-proxy and a device plugin with GPUs that do not exist.
//!
//! It needs root, cgroups of version 1, and the Debian packages of `MISSING_HINT`. Nothing of it is left when it is dropped.

mod files;

use crate::control_plane::process::Process;
use crate::control_plane::{ControlPlane, Error, Programs};
use crate::image::{Image, write_archive};
use crate::network::{Network, run};
use files::Place;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The programs that `cargo xtask kubernetes --node` builds besides those of the control plane.
pub const PROGRAMS: [&str; 4] = ["kubelet", "kube-proxy", "kube-scheduler", "nodetool"];
/// The stand-in for the library of the NVIDIA driver, which containers with GPUs get.
pub const DRIVER_LIBRARY: &str = "libnvidia-ml.so.1";
/// The image that workloads of tests run; its program takes `work GPUS SECONDS`.
pub const WORKLOAD_IMAGE: &str = "kubetest.local/workload:1";

const INSTALLED: [&str; 8] =
    ["/usr/lib/cni/bridge", "containerd", "ctr", "crun", "ip", "iptables", "nsenter", "unshare"];
const MISSING_HINT: &str =
    "hint: apt-get install containerd crun containernetworking-plugins iproute2 iptables util-linux";
/// Waiting for namespaces and sockets: attempts and the pause between them.
const ATTEMPTS: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// A running node.
pub struct Node {
    pub name: String,
    processes: Vec<Inside>,
    namespaces: Process,
    folder: PathBuf,
    /// Process 1 of the node, as this machine numbers it.
    init: u32,
}

/// A program inside of the namespaces.
struct Inside {
    program: &'static str,
    process: Process,
}

/// Why this machine cannot have a node, if so.
pub fn unsupported() -> Option<String> {
    let uid = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    if !matches!(uid, Ok(0)) {
        return Some("a node needs root".to_owned());
    }
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if !cgroups.lines().any(|line| line.contains(":memory:")) {
        return Some("a node needs cgroups of version 1, and this machine has version 2".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| {
        let mut folders = std::env::split_paths(&path);
        Path::new(program).is_file() || folders.any(|folder| folder.join(program).is_file())
    };
    let missing = INSTALLED.into_iter().find(|program| !found(program))?;
    Some(format!("{missing} is not installed; {MISSING_HINT}"))
}

/// Why there can be no node with these programs, if so.
pub fn missing(programs: &Programs) -> Option<String> {
    if let Some(why) = unsupported() {
        return Some(why);
    }
    let mut needed = PROGRAMS.into_iter().chain([DRIVER_LIBRARY]).map(|name| programs.path(name));
    let unbuilt = needed.find(|path| !path.is_file())?;
    Some(format!("`{}` does not exist; hint: `cargo xtask kubernetes --node` builds it", unbuilt.display()))
}

impl Node {
    /// Starts a node with this number of GPUs. It is ready when the API server says so.
    pub async fn start(
        programs: &Programs,
        plane: &ControlPlane,
        network: &Network,
        index: u8,
        gpus: u32,
    ) -> Result<Self, Error> {
        let name = format!("node-{index}");
        let folder = plane.folder().join(&name);
        files::write_all(&Place { name: &name, index, network, folder: &folder }, plane)?;
        let cgroups = cgroups(&folder);
        let script = folder.join("start.sh").display().to_string();
        let init = programs.path("nodetool").display().to_string();
        let arguments = [script, cgroups, folder.display().to_string(), init];
        let namespaces = Process::start(Path::new("/bin/sh"), &arguments, &folder)
            .map_err(|source| Error::System { what: format!("start the namespaces of {name}"), source })?;
        let mut node = Self { name, processes: Vec::new(), namespaces, folder, init: 0 };
        node.wait_for(|node| node.folder.join("ready").is_file()).await?;
        let children = children(node.namespaces.id());
        node.init = children.first().copied().ok_or_else(|| node.failed("find process 1"))?;
        network.connect(index, node.init).map_err(|source| node.error("connect", source))?;
        node.start_programs(programs, network.node(index).to_string(), gpus).await?;
        Ok(node)
    }

    async fn start_programs(&mut self, programs: &Programs, address: String, gpus: u32) -> Result<(), Error> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (containerd, kubelet, proxy) = (
            format!("--config={}", file("containerd.toml")),
            [
                format!("--config={}", file("kubelet.yaml")),
                format!("--kubeconfig={}", file("kubelet.kubeconfig")),
                format!("--hostname-override={}", self.name),
                format!("--node-ip={address}"),
            ],
            format!("--config={}", file("kube-proxy.yaml")),
        );
        self.run("containerd", Path::new("containerd"), &[containerd])?;
        let socket = self.folder.join("run/containerd/containerd.sock");
        self.wait_for(|_| socket.exists()).await?;
        let tool = programs.path("nodetool");
        let image = |name: &str, command: &[&str]| {
            Image::of_program(&tool, command).map(|image| (name.to_owned(), image))
        };
        let images = [image(files::PAUSE_IMAGE, &["pause"]), image(WORKLOAD_IMAGE, &[])];
        let images = images.into_iter().collect::<Result<Vec<_>, _>>();
        let images = images.map_err(|source| self.error("make the images", source))?;
        let archive = self.folder.join("images.tar");
        write_archive(&archive, &images).map_err(|source| self.error("write the images", source))?;
        self.import(&archive)?;
        self.run("kubelet", &programs.path("kubelet"), &kubelet)?;
        self.run("kube-proxy", &programs.path("kube-proxy"), &[proxy])?;
        let library = programs.path(DRIVER_LIBRARY).display().to_string();
        let plugin = ["device-plugin".to_owned(), self.name.clone(), gpus.to_string(), library];
        self.run("nodetool", &tool, &plugin)
    }

    /// Imports the images of an archive.
    pub fn import(&self, archive: &Path) -> Result<(), Error> {
        let mut command = Command::new("sh");
        command.arg(self.folder.join("enter.sh")).arg(cgroups(&self.folder)).arg(self.init.to_string());
        command.args(["ctr", "--address", files::CONTAINERD_SOCKET, "--namespace", "k8s.io"]);
        command.args(["images", "import", "--no-unpack"]).arg(archive);
        run(&mut command).map_err(|source| self.error("import images", source))
    }

    /// Kills a program as a crash would; containers keep running.
    pub fn kill(&mut self, program: &str) -> Result<(), Error> {
        let Some(inside) = self.processes.iter().find(|inside| inside.program == program) else {
            return Err(self.failed(&format!("find {program}")));
        };
        for child in children(inside.process.id()) {
            run(Command::new("kill").args(["-KILL", &child.to_string()]))
                .map_err(|source| self.error("kill a program", source))?;
        }
        Ok(())
    }

    /// Starts a killed program again.
    pub fn start_again(&mut self, program: &str) -> Result<(), Error> {
        let name = self.name.clone();
        let Some(inside) = self.processes.iter_mut().find(|inside| inside.program == program) else {
            return Err(self.failed(&format!("find {program}")));
        };
        inside
            .process
            .start_again()
            .map_err(|source| Error::System { what: format!("start {program} of {name} again"), source })
    }

    /// The end of the log of a program.
    pub fn log(&self, program: &str) -> String {
        let inside = self.processes.iter().find(|inside| inside.program == program);
        inside.map(|inside| inside.process.tail()).unwrap_or_default()
    }

    fn run(&mut self, program: &'static str, path: &Path, arguments: &[String]) -> Result<(), Error> {
        let mut all = vec![
            self.folder.join("enter.sh").display().to_string(),
            cgroups(&self.folder),
            self.init.to_string(),
            path.display().to_string(),
        ];
        all.extend_from_slice(arguments);
        let process = Process::start_named(program, Path::new("/bin/sh"), &all, &self.folder)
            .map_err(|source| self.error(program, source))?;
        self.processes.push(Inside { program, process });
        Ok(())
    }

    async fn wait_for(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            if done(self) {
                return Ok(());
            }
            if self.namespaces.has_exited() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let tail = match self.processes.last() {
            Some(inside) => inside.process.tail(),
            None => self.namespaces.tail(),
        };
        Err(Error::NotReady { name: "the node", tail })
    }

    fn error(&self, what: &str, source: std::io::Error) -> Error {
        Error::System { what: format!("{what} ({})", self.name), source }
    }

    fn failed(&self, what: &str) -> Error {
        self.error(what, std::io::Error::other("it has ended"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Process 1 takes every process of its namespaces with it.
        let _ = self.namespaces.kill();
        self.processes.clear();
        let mut remove = Command::new("sh");
        remove.arg(self.folder.join("remove.sh")).arg(cgroups(&self.folder));
        // Cgroups whose processes are still being removed are busy for a moment.
        for _ in 0..10 {
            if run(&mut remove).is_ok() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The name of the cgroups of a node: unique, as the folder of its control plane is.
fn cgroups(folder: &Path) -> String {
    let parts = folder.iter().rev().take(2).map(|part| part.to_string_lossy());
    parts.collect::<Vec<_>>().join("-")
}

fn children(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
