//! Connections that go silent without a reset, in real time with short limits.

use super::*;
use crate::api::Api;
use crate::health::Health;
use crate::kind::CONFIG_MAP;
use crate::watch::{Source, WatchEvent, list_and_watch};
use kai_apiserver::{ApiServer, Listening, Options};
use kai_clock::Clock;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Long enough that a healthy connection answers in time on a machine with many busy processes.
const SHORT: Keepalive = Keepalive { idle: Duration::from_secs(1), timeout: Duration::from_secs(2) };
/// Below the time limits of requests and watches, so that it is the silence that is noticed, and far above the limits of
/// [`SHORT`], for a machine with many busy processes.
const PATIENCE: Duration = Duration::from_secs(50);

/// What a proxy does with the bytes of its connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    /// Keeps the connections of before open, and passes nothing on.
    SilenceOld,
    /// Passes nothing on, also not for new connections.
    SilenceAll,
}

/// A TCP proxy in front of a server.
struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Forward);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut modes = modes.clone();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    modes.mark_unchanged();
                    if *modes.borrow() != Mode::SilenceAll {
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                            _ = modes.changed() => {}
                        }
                    }
                    // Both ends stay open.
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { address, mode, _tasks: tasks }
    }
}

fn server() -> Listening {
    let server = ApiServer::new(&Options::new(1, Clock::system()));
    server.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

async fn api(listening: &Listening, address: SocketAddr) -> Api {
    measured_api(listening, address, &Registry::new()).await
}

async fn measured_api(listening: &Listening, address: SocketAddr, metrics: &Registry) -> Api {
    let file = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    Api::new(
        transport::client(without_retries(config), SHORT, RequestMetrics::register(metrics)).unwrap(),
        "test",
    )
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// Watches config maps; the names of new ones arrive in the channel, that of the list as an empty string.
fn watch_config_maps(api: Api, health: &Health) -> (mpsc::UnboundedReceiver<String>, JoinSet<()>) {
    let (sender, names) = mpsc::unbounded_channel();
    let health = health.watch("configmaps");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let handle = |event: WatchEvent<Value>| {
            let name = match &event {
                WatchEvent::Applied(object) => kai_object::name(object).to_owned(),
                WatchEvent::Listed(..)
                | WatchEvent::Deleted(_)
                | WatchEvent::Invalid(_)
                | WatchEvent::Denied => String::new(),
            };
            let _ = sender.send(name);
        };
        list_and_watch(&api, &Source::all(CONFIG_MAP), &health, handle).await;
    });
    (names, tasks)
}

#[tokio::test]
async fn watch_on_a_silent_connection_is_resumed_on_a_new_one() {
    let listening = server();
    let proxy = Proxy::start(listening.address()).await;
    let direct = api(&listening, listening.address()).await;
    let (mut names, _watch) = watch_config_maps(api(&listening, proxy.address).await, &Health::default());
    assert_eq!(names.recv().await.as_deref(), Some(""));
    direct.create_dynamic(&CONFIG_MAP, "default", &config_map("a")).await.unwrap();
    assert_eq!(names.recv().await.as_deref(), Some("a"));
    proxy.mode.send_replace(Mode::SilenceOld);
    direct.create_dynamic(&CONFIG_MAP, "default", &config_map("b")).await.unwrap();
    let seen = timeout(PATIENCE, names.recv()).await.expect("the silence is noticed");
    assert_eq!(seen.as_deref(), Some("b"));
}

#[tokio::test]
async fn write_on_a_silent_connection_fails_and_the_next_one_succeeds() {
    let listening = server();
    let proxy = Proxy::start(listening.address()).await;
    let api = api(&listening, proxy.address).await;
    api.create_dynamic(&CONFIG_MAP, "default", &config_map("a")).await.unwrap();
    proxy.mode.send_replace(Mode::SilenceOld);
    let (kind, object) = (CONFIG_MAP, config_map("b"));
    let write = api.create_dynamic(&kind, "default", &object);
    match timeout(PATIENCE, write).await.expect("the silence is noticed") {
        // The idle connection was found broken before the write.
        Ok(_) => {}
        Err(error) => {
            assert!(error.is_transient(), "{error:?}");
            timeout(PATIENCE, api.create_dynamic(&kind, "default", &object)).await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn readiness_names_the_watch_that_is_blind() {
    let listening = server();
    let proxy = Proxy::start(listening.address()).await;
    let health = Health::tolerating(Duration::from_millis(500));
    let (mut names, _watch) = watch_config_maps(api(&listening, proxy.address).await, &health);
    assert_eq!(names.recv().await.as_deref(), Some(""));
    assert!(health.problems().is_empty());
    proxy.mode.send_replace(Mode::SilenceAll);
    let blind = async {
        while health.problems().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, blind).await.expect("readiness fails");
    let problems = health.problems();
    assert!(problems[0].starts_with("configmaps have not been watched for "), "{problems:?}");
}

#[test]
fn silence_is_noticed_and_readiness_fails_within_45_seconds() {
    let Keepalive { idle, timeout } = Keepalive::default();
    assert!(idle + timeout + crate::health::INTERRUPTED_MAX < Duration::from_secs(45));
}

#[tokio::test]
async fn requests_are_counted_by_code_method_and_host() {
    let (listening, metrics) = (server(), Registry::new());
    let address = listening.address();
    let api = measured_api(&listening, address, &metrics).await;
    api.create_dynamic(&CONFIG_MAP, "default", &config_map("a")).await.unwrap();
    api.get_dynamic(&CONFIG_MAP, &crate::Key::new("default", "b")).await.unwrap_err();
    drop(listening);
    while api.get_dynamic(&CONFIG_MAP, &crate::Key::new("default", "a")).await.is_ok() {}
    let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
    for (code, method) in [("201", "POST"), ("404", "GET"), ("<error>", "GET")] {
        let series = format!(
            "rest_client_requests_total{{code=\"{code}\",host=\"{address}\",method=\"{method}\"}} 1\n"
        );
        assert!(text.contains(&series), "{series}{text}");
    }
    let series =
        format!("rest_client_request_duration_seconds_count{{host=\"{address}\",verb=\"POST\"}} 1\n");
    assert!(text.contains(&series), "{series}{text}");
}

/// HTTP/1.1 has no pings: the kernel probes an idle connection, which `/proc/net/tcp` shows as timer 2.
#[tokio::test]
async fn idle_connection_without_tls_is_probed_by_the_kernel() {
    let router = axum::Router::new().fallback(|| std::future::ready("{}"));
    let (listener, address) = crate::http::listen("127.0.0.1:0").await.unwrap();
    let _server = tokio::spawn(crate::http::serve(listener, router));
    let api = Api::new(plain(&format!("http://{address}")).unwrap(), "test");
    api.send("GET", "/", None).await.unwrap();
    let port = format!(":{:04X}", address.port());
    let probed = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(&fields[..], [_, _, remote, _, _, timer, ..] if remote.ends_with(&port) && timer.starts_with("02:"))
        })
    };
    let found = async {
        while !probed() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("keepalive is on");
}

#[test]
fn silent_lease_connection_leaves_time_to_renew_on_another() {
    let timing = crate::leader_election::Timing::default();
    let noticed = LEASE_KEEPALIVE.idle + LEASE_KEEPALIVE.timeout;
    assert!(noticed + timing.retry * 2 < timing.renew);
}
