//! A real control plane on the loopback address: etcd, kube-apiserver and optionally kube-controller-manager.
//!
//! Its files are in one temporary folder, and it stops when the [`ControlPlane`] is dropped. etcd does not sync to disk,
//! since the data is not needed after the test.

mod arguments;
pub(crate) mod process;

use crate::certificates::{Authority, SigningKey};
use crate::client::{Client, Lines, Response, Server};
use crate::network::Network;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use process::Process;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The programs that [`Programs::in_folder`] requires.
pub const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// Environment variable: a folder of built programs outside of `target`.
pub const CACHE_VARIABLE: &str = "KAI_KUBERNETES_CACHE";

/// The token of a member of `system:masters`.
pub const ADMIN_TOKEN: &str = "admin-token";

/// The token of a user without role bindings.
pub const ALICE_TOKEN: &str = "alice-token";

/// The static token file: token, name, id, groups.
const TOKENS: &str = "admin-token,kubernetes-admin,,\"system:masters\"\nalice-token,alice,,\"developers\"\n";

/// Logs the metadata of each request once.
const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// The address of the Service `kubernetes`: the first of the range in `arguments`.
const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Readiness is polled this often, every [`READINESS_PERIOD`].
const READINESS_ATTEMPTS: usize = 600;
const READINESS_PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` does not exist; hint: `cargo xtask kubernetes` builds it")]
    Missing(PathBuf),
    #[error("cannot {what}")]
    System {
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot generate certificates")]
    Certificates(#[from] rcgen::Error),
    #[error("cannot create a client of the API server")]
    Client(#[from] crate::client::Error),
    #[error("{name} did not become ready; the end of its log:\n{tail}")]
    NotReady { name: &'static str, tail: String },
}

/// A folder of built programs.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

/// Whether kube-controller-manager runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    Run,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audit {
    /// Requests are logged to [`ControlPlane::audit_file`], one JSON object per line.
    Requests,
    None,
}

/// A running control plane.
pub struct ControlPlane {
    // Fields are dropped in order: clients stop before their servers.
    controllers: Mutex<Option<Process>>,
    /// kube-scheduler, where there are nodes: it places the pods of an installation.
    scheduler: Option<Process>,
    api: Mutex<Process>,
    store: Mutex<Process>,
    server: Server,
    authority: Authority,
    folder: Folder,
}

/// A program that [`ControlPlane::restart`] kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    ApiServer,
    Store,
    Controllers,
}

/// A copy of etcd's data.
#[derive(Clone, Debug)]
pub struct Backup(PathBuf);

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure leaves files only in the temporary folder of the system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Programs {
    /// The programs of an integration test that needs them; `tmpdir` is its `CARGO_TARGET_TMPDIR`.
    ///
    /// # Panics
    /// Panics where a program is missing.
    pub fn required(tmpdir: &str) -> Self {
        // Cargo creates it in the target directory.
        let target = Path::new(tmpdir).parent().expect("the folder has a parent");
        Self::find(target).unwrap_or_else(|error| panic!("this test needs a real control plane: {error}"))
    }

    /// The programs in the folder of [`CACHE_VARIABLE`], or else in that of `cargo xtask kubernetes`.
    pub fn find(target: &Path) -> Result<Self, Error> {
        let named = std::env::var_os(CACHE_VARIABLE).map(PathBuf::from);
        Self::in_folder(&named.unwrap_or_else(|| target.join("kubernetes")))
    }

    /// The programs in a folder; an error names the first missing one.
    pub fn in_folder(folder: &Path) -> Result<Self, Error> {
        match PROGRAMS.iter().map(|name| folder.join(name)).find(|path| !path.is_file()) {
            Some(missing) => Err(Error::Missing(missing)),
            None => Ok(Self { folder: folder.to_owned() }),
        }
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl ControlPlane {
    /// Starts the programs, and waits until the API server is ready.
    pub async fn start(programs: &Programs, controllers: Controllers) -> Result<Self, Error> {
        Self::start_with(programs, controllers, Audit::None).await
    }

    /// [`start`](Self::start) with an audit log.
    pub async fn start_with(
        programs: &Programs,
        controllers: Controllers,
        audit: Audit,
    ) -> Result<Self, Error> {
        Self::start_with_arguments(programs, controllers, audit, &[]).await
    }

    /// [`start_with`](Self::start_with) with further arguments of kube-apiserver, such as feature gates.
    pub async fn start_with_arguments(
        programs: &Programs,
        controllers: Controllers,
        audit: Audit,
        further: &[&str],
    ) -> Result<Self, Error> {
        Self::start_in(programs, controllers, audit, None, further).await
    }

    /// Starts a control plane with controllers that nodes of this network can reach.
    pub async fn start_for_nodes(programs: &Programs, network: &Network) -> Result<Self, Error> {
        Self::start_in(programs, Controllers::Run, Audit::Requests, Some(network), &[]).await
    }

    async fn start_in(
        programs: &Programs,
        controllers: Controllers,
        audit: Audit,
        network: Option<&Network>,
        further: &[&str],
    ) -> Result<Self, Error> {
        let folder = temporary_folder()?;
        let authority = Authority::new()?;
        write_files(&folder.0, &authority, network)?;
        let [client, peer, secure] = [free_port()?, free_port()?, free_port()?];

        let store = start(programs, "etcd", &arguments::etcd(&folder.0, client, peer), &folder.0)?;
        let mut flags = arguments::api_server(&folder.0, client, secure, network);
        if audit == Audit::Requests {
            flags.extend(arguments::audit(&folder.0));
        }
        flags.extend(further.iter().map(|argument| (*argument).to_owned()));
        let api = start(programs, "kube-apiserver", &flags, &folder.0)?;
        let address = SocketAddr::from((network.map_or(Ipv4Addr::LOCALHOST, Network::host), secure));
        let server = Server::new(address, &authority.certificate)?;
        let (api, store) = (Mutex::new(api), Mutex::new(store));
        let mut plane =
            Self { controllers: Mutex::default(), scheduler: None, api, store, server, authority, folder };
        write(&plane.folder.0, "kubeconfig", &plane.kubeconfig())?;
        plane.wait_until_ready().await?;
        if controllers == Controllers::Run {
            let flags = arguments::controllers(&plane.folder.0, free_port()?);
            let process = start(programs, "kube-controller-manager", &flags, &plane.folder.0)?;
            *lock(&plane.controllers) = Some(process);
        }
        if network.is_some() {
            let flags = arguments::scheduler(&plane.folder.0, free_port()?);
            plane.scheduler = Some(start(programs, "kube-scheduler", &flags, &plane.folder.0)?);
        }
        Ok(plane)
    }

    /// The temporary folder of the control plane.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The server, for plain HTTP requests.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The CA certificate, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// Signs the certificates of nodes.
    pub(crate) fn signer(&self) -> &Authority {
        &self.authority
    }

    /// A kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> String {
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority.certificate);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: real\n\
             clusters:\n- name: real\n  cluster:\n    server: https://{}\n    certificate-authority-data: {authority}\n\
             users:\n- name: admin\n  user:\n    token: {ADMIN_TOKEN}\n\
             contexts:\n- name: real\n  context:\n    cluster: real\n    user: admin\n",
            self.server.address()
        )
    }

    /// A file with [`kubeconfig`](Self::kubeconfig), for programs.
    pub fn kubeconfig_file(&self) -> PathBuf {
        self.folder.0.join("kubeconfig")
    }

    /// A kubeconfig with this token.
    pub fn kubeconfig_of(&self, token: &str) -> String {
        self.kubeconfig().replace(ADMIN_TOKEN, token)
    }

    /// The audit log, with [`Audit::Requests`].
    pub fn audit_file(&self) -> PathBuf {
        self.folder.0.join("audit.log")
    }

    /// Process ids of kube-apiserver and etcd, for memory measurements.
    pub fn processes(&self) -> [u32; 2] {
        [lock(&self.api).id(), lock(&self.store).id()]
    }

    /// Kills a program, starts it again after `pause`, and waits until the API server is ready.
    pub async fn restart(&self, killed: Killed, pause: Duration) -> Result<(), Error> {
        let with = |act: fn(&mut Process) -> std::io::Result<()>| {
            let done = match killed {
                Killed::ApiServer => act(&mut lock(&self.api)),
                Killed::Store => act(&mut lock(&self.store)),
                Killed::Controllers => lock(&self.controllers).as_mut().map_or(Ok(()), act),
            };
            done.map_err(|source| Error::System { what: format!("restart {killed:?}"), source })
        };
        with(Process::kill)?;
        tokio::time::sleep(pause).await;
        with(Process::start_again)?;
        self.wait_until_ready().await
    }

    /// Copies the data of etcd, which is stopped meanwhile.
    pub async fn back_up(&self) -> Result<Backup, Error> {
        let copy = Backup(self.folder.0.join("etcd-backup"));
        let failed = |source| Error::System { what: "back up etcd".to_owned(), source };
        lock(&self.store).kill().map_err(failed)?;
        copy_folder(&self.folder.0.join("etcd"), &copy.0).map_err(failed)?;
        lock(&self.store).start_again().map_err(failed)?;
        self.wait_until_ready().await?;
        Ok(copy)
    }

    /// Puts back the data of etcd and restarts all programs, as after a disaster: resource versions go backwards.
    pub async fn restore(&self, backup: &Backup) -> Result<(), Error> {
        let failed = |source| Error::System { what: "restore etcd".to_owned(), source };
        let data = self.folder.0.join("etcd");
        if let Some(controllers) = lock(&self.controllers).as_mut() {
            controllers.kill().map_err(failed)?;
        }
        for program in [&self.api, &self.store] {
            lock(program).kill().map_err(failed)?;
        }
        std::fs::remove_dir_all(&data).map_err(failed)?;
        copy_folder(&backup.0, &data).map_err(failed)?;
        for program in [&self.store, &self.api] {
            lock(program).start_again().map_err(failed)?;
        }
        self.wait_until_ready().await?;
        if let Some(controllers) = lock(&self.controllers).as_mut() {
            controllers.start_again().map_err(failed)?;
        }
        Ok(())
    }

    /// Starts kube-controller-manager again where it has ended: it does when no API server answers at its start.
    pub fn start_controllers_again(&self) -> Result<(), Error> {
        let mut controllers = lock(&self.controllers);
        let Some(process) = controllers.as_mut() else { return Ok(()) };
        if !process.has_exited() {
            return Ok(());
        }
        let failed = |source| Error::System { what: "start kube-controller-manager".to_owned(), source };
        process.start_again().map_err(failed)
    }

    /// Reads a path as the administrator.
    pub async fn get(&self, path: &str) -> Result<Response, Error> {
        Ok(Client::new(self.server.clone()).send(admin_request(path)).await?)
    }

    /// Reads a path as the administrator, line by line: a watch.
    pub async fn lines(&self, path: &str) -> Result<Lines, Error> {
        Ok(self.server.stream(admin_request(path)).await?)
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let mut client = Client::new(self.server.clone());
        for _ in 0..READINESS_ATTEMPTS {
            if client.send(admin_request("/readyz")).await.is_ok_and(|response| response.status.is_success())
            {
                return Ok(());
            }
            if lock(&self.store).has_exited() {
                return Err(Error::NotReady { name: "etcd", tail: lock(&self.store).tail() });
            }
            if lock(&self.api).has_exited() {
                break;
            }
            tokio::time::sleep(READINESS_PERIOD).await;
        }
        Err(Error::NotReady { name: "kube-apiserver", tail: lock(&self.api).tail() })
    }
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn admin_request(path: &str) -> Request<Full<Bytes>> {
    Request::get(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .body(Full::default())
        .expect("callers pass valid paths")
}

/// A panic while a process was being started or killed does not matter to the next user.
fn lock<T>(process: &Mutex<T>) -> MutexGuard<'_, T> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(programs: &Programs, name: &str, arguments: &[String], folder: &Path) -> Result<Process, Error> {
    Process::start(&programs.path(name), arguments, folder)
        .map_err(|source| Error::System { what: format!("start {name}"), source })
}

fn write_files(folder: &Path, authority: &Authority, network: Option<&Network>) -> Result<(), Error> {
    let signing = SigningKey::generate()?;
    let addresses = network.map(|network| [network.host(), SERVICE_ADDRESS]);
    let server = authority.server(addresses.as_ref().map_or(&[], |addresses| addresses.as_slice()))?;
    write(folder, "ca.crt", &authority.certificate)?;
    write(folder, "server.crt", &server.certificate)?;
    write(folder, "server.key", &server.key)?;
    let client = authority.client("kube-apiserver", Some("system:masters"))?;
    write(folder, "kubelet-client.crt", &client.certificate)?;
    write(folder, "kubelet-client.key", &client.key)?;
    write(folder, "accounts.key", &signing.private)?;
    write(folder, "accounts.pub", &signing.public)?;
    write(folder, "audit.yaml", AUDIT_POLICY)?;
    write(folder, "tokens.csv", TOKENS)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(name);
    std::fs::write(&path, text)
        .map_err(|source| Error::System { what: format!("write `{}`", path.display()), source })
}

/// A free port; another process may take it before it is used.
pub(crate) fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|source| Error::System { what: "find a free port".to_owned(), source })
}

/// A temporary folder; a free port makes its name unique among running tests.
fn temporary_folder() -> Result<Folder, Error> {
    let name = format!("control-plane-{}-{}", std::process::id(), free_port()?);
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).map_err(|source| Error::System {
        what: format!("create the folder `{}`", path.display()),
        source,
    })?;
    Ok(Folder(path))
}
