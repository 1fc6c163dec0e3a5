//! Many clients, clients that do not read and incomplete requests over HTTPS: memory and connections stay limited,
//! and other clients are served.

mod remote;

use crate::{config_map, server};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use remote::{Remote, line};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=";
/// Upper limit for a request that is served immediately, on a machine that runs tests concurrently.
const TIMEOUT: Duration = Duration::from_mins(3);

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    let outcome = tokio::time::timeout(TIMEOUT, future).await;
    outcome.unwrap_or_else(|_| panic!("{what} takes more than {TIMEOUT:?}"))
}

/// The body of a response. One that is dropped unread resets its stream, and h2 closes a connection with many of those.
async fn whole(response: Response<Incoming>) -> Bytes {
    in_time("the rest of a response", response.into_body().collect()).await.unwrap().to_bytes()
}

async fn version(remote: &Remote) -> String {
    let (status, list) = remote.send("GET", &format!("{MAPS}?limit=1"), "").await;
    assert_eq!(status, 200);
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Reads events and sends the name of each object, until the tasks are aborted.
fn listen(tasks: &mut JoinSet<()>, mut body: Incoming, seen: mpsc::UnboundedSender<String>) {
    tasks.spawn(async move {
        let mut rest = Vec::new();
        while let Some(event) = line(&mut body, &mut rest).await {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if seen.send(name).is_err() {
                return;
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watches_use_bounded_memory_and_receive_every_event() {
    const SHARED: usize = 9;
    const STREAMS: usize = 1_000;
    const ALONE: usize = 1_000;
    const ALL: usize = SHARED * STREAMS + ALONE;
    let remote = Arc::new(Remote::start("watches").await);
    let path = format!("{WATCH}{}", version(&remote).await);
    let before = (remote.resident_kib(), remote.open_files());
    let (send, mut seen) = mpsc::unbounded_channel();
    let (mut connections, mut watches) = (Vec::new(), JoinSet::new());
    for _ in 0..SHARED {
        let mut connection = remote.http2().await;
        for _ in 0..STREAMS {
            connection.ready().await.unwrap();
            let request = remote.request("GET", &path, "");
            let response = in_time("a watch", connection.send_request(request)).await.unwrap();
            listen(&mut watches, response.into_body(), send.clone());
        }
        connections.push(connection);
    }
    let shared = remote.resident_kib() - before.0;
    let mut alone = Vec::new();
    for _ in 0..ALONE {
        let mut connection = remote.http1().await;
        let response = in_time("a watch", connection.send_request(remote.request("GET", &path, ""))).await;
        listen(&mut watches, response.unwrap().into_body(), send.clone());
        alone.push(connection);
    }
    let all = remote.resident_kib() - before.0;
    let (per_stream, per_connection) = (shared / (SHARED * STREAMS), (all - shared) / ALONE);
    eprintln!("a watch costs {per_stream} KiB as a stream and {per_connection} KiB as a connection");
    assert!(per_stream <= 24, "{per_stream} KiB for each stream");
    assert!(per_connection <= 128, "{per_connection} KiB for each connection");

    for name in ["one", "two"] {
        assert_eq!(remote.send("POST", MAPS, &config_map(name).to_string()).await.0, 201);
        let mut received = 0;
        while received < ALL {
            let about = in_time("an event", seen.recv()).await.unwrap();
            assert_eq!(about, name, "after {received} watches");
            received += 1;
        }
    }
    let after = remote.resident_kib() - before.0;
    assert!(after < all + 64 * 1_024, "{all} KiB before the events, {after} KiB after them");

    drop((connections, alone, watches));
    let mut open = remote.open_files();
    for _ in 0..1_200 {
        if open <= before.1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        open = remote.open_files();
    }
    panic!("{open} files stay open, {} before", before.1);
}

fn large(name: &str, text: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"text": text}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_do_not_hold_responses_in_memory() {
    const OBJECTS: usize = 150;
    const CLIENTS: usize = 40;
    let remote = Remote::start("slow").await;
    let text = "x".repeat(200 * 1_024);
    let mut writer = remote.http2().await;
    for number in 0..OBJECTS {
        let body = large(&format!("m{number}"), &text).to_string();
        let response = writer.send_request(remote.request("POST", MAPS, &body)).await.unwrap();
        assert_eq!(response.status(), 201);
        whole(response).await;
    }
    let path = format!("{WATCH}{}", version(&remote).await);
    let before = remote.resident_kib();

    // Each response is 30 MB: half of the clients list, half of them watch.
    let mut stopped = Vec::new();
    for number in 0..CLIENTS {
        let path = if number % 2 == 0 { MAPS } else { &path };
        let response = if number % 4 < 2 {
            remote.http1().await.send_request(remote.request("GET", path, "")).await
        } else {
            remote.http2().await.send_request(remote.request("GET", path, "")).await
        };
        stopped.push(response.unwrap());
    }
    let (send, mut seen) = mpsc::unbounded_channel();
    let watch = remote.http1().await.send_request(remote.request("GET", &path, "")).await.unwrap();
    let mut watches = JoinSet::new();
    listen(&mut watches, watch.into_body(), send);
    for number in 0..OBJECTS {
        let body = json!({"data": {"text": text, "again": "yes"}}).to_string();
        let mut request = remote.request("PATCH", &format!("{MAPS}/m{number}"), &body);
        request.headers_mut().insert("content-type", "application/merge-patch+json".parse().unwrap());
        let response = in_time("a write", writer.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 200);
        whole(response).await;
        let about = in_time("an event for the reading client", seen.recv()).await.unwrap();
        assert_eq!(about, format!("m{number}"));
    }
    let (status, list) = in_time("a list", remote.send("GET", MAPS, "")).await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (200, OBJECTS));
    let grown = remote.resident_kib().saturating_sub(before);
    eprintln!("{CLIENTS} clients that read nothing cost {grown} KiB, the log of 30 MB of changes among them");
    // Old and new versions of 30 MB each, and about a megabyte for each client.
    assert!(grown < (2 * 30 + 2 * CLIENTS) * 1_024, "{grown} KiB");

    // A client that resumes reading gets the complete response.
    let first = stopped.swap_remove(0);
    let list: Value = serde_json::from_slice(&whole(first).await).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_request_heads_are_closed() {
    const EACH: usize = 50;
    let remote = Remote::start("half").await;
    version(&remote).await;
    let files = remote.open_files();
    let (mut silent, mut heads, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..EACH {
        let mut half = remote.tcp().await;
        half.write_all(b"\x16\x03\x01").await.unwrap();
        silent.push(half);
        let mut head = remote.tls(b"http/1.1").await;
        head.write_all(remote.head(&format!("GET {MAPS}")).as_bytes()).await.unwrap();
        heads.push(head);
        let mut body = remote.tls(b"http/1.1").await;
        let sent = remote.head(&format!("POST {MAPS}")) + "content-length: 100000\r\n\r\n{\"kind\": \"Config";
        body.write_all(sent.as_bytes()).await.unwrap();
        bodies.push(body);
    }
    let (status, _) =
        in_time("a whole request", remote.send("POST", MAPS, &config_map("a").to_string())).await;
    assert_eq!(status, 201);

    drop(bodies);
    let mut all = JoinSet::new();
    for mut half in silent {
        all.spawn(async move { half.read_to_end(&mut Vec::new()).await.is_ok() });
    }
    for mut half in heads {
        all.spawn(async move {
            let mut answer = Vec::new();
            // The server may close without a TLS close_notify.
            let _ = half.read_to_end(&mut answer).await;
            answer.is_empty()
        });
    }
    let closed =
        tokio::time::timeout(2 * TIMEOUT, all.join_all()).await.expect("the server closes all connections");
    assert!(closed.iter().all(|as_it_should| *as_it_should));
    assert!(remote.open_files() <= files + 1, "{} files are open, {files} before", remote.open_files());
    assert_eq!(remote.send("GET", &format!("{MAPS}/a"), "").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn incomplete_body_times_out_after_a_minute() {
    let begin = "{\"kind\": \"Config";
    let half = stream::iter([Ok::<_, std::io::Error>(begin)]).chain(stream::pending());
    let request = http::Request::post(MAPS).header("content-type", "application/json");
    let request = request.body(axum::body::Body::from_stream(half)).unwrap();
    let before = tokio::time::Instant::now();
    let response = server().service().oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), before.elapsed().as_secs()), (504, 60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_large_bodies_use_bounded_memory() {
    const CLIENTS: usize = 60;
    let remote = Arc::new(Remote::start("large").await);
    // ConfigMap data is limited to 1 MiB; the request body may be larger.
    let mut padded = config_map("padded").to_string();
    padded.insert_str(1, &" ".repeat(3_000_000));
    assert_eq!(remote.send("POST", MAPS, &padded).await.0, 201);
    let too_large = " ".repeat(3 * 1_024 * 1_024 + 1);
    for (method, path) in [("POST", MAPS.to_owned()), ("PUT", format!("{MAPS}/padded"))] {
        let (status, answer) = remote.send(method, &path, &too_large).await;
        assert_eq!((status, answer["reason"].as_str()), (413, Some("RequestEntityTooLarge")), "{method}");
    }
    let before = remote.resident_kib();
    let mut all = Vec::new();
    for number in 0..CLIENTS {
        let remote = Arc::clone(&remote);
        all.push(tokio::spawn(async move {
            let mut body = config_map(&format!("m{number}")).to_string();
            body.insert_str(1, &" ".repeat(3_000_000));
            let mut connection = remote.http1().await;
            let sent = connection.send_request(remote.request("POST", MAPS, &body)).await;
            sent.unwrap().status().as_u16()
        }));
    }
    for one in all {
        assert_eq!(in_time("a large request", one).await.unwrap(), 201);
    }
    let grown = remote.resident_kib().saturating_sub(before);
    eprintln!("{CLIENTS} bodies of 3 MB at once leave {grown} KiB behind");
    assert!(grown < 256 * 1_024, "{grown} KiB");
    let (status, list) = remote.send("GET", MAPS, "").await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (200, CLIENTS + 1));
}
