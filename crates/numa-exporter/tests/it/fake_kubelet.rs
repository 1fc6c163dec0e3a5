//! A kubelet that serves the pod resources API on a unix socket, and the encoding of what it serves.

use bytes::Bytes;
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

pub(crate) struct FakeKubelet {
    socket: PathBuf,
    served: Arc<Mutex<Served>>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Served {
    response: Vec<u8>,
    refuses: bool,
}

impl FakeKubelet {
    pub(crate) fn start(socket: &Path) -> Self {
        let mut kubelet = Self { socket: socket.to_owned(), served: Arc::default(), tasks: JoinSet::new() };
        kubelet.listen();
        kubelet
    }

    fn listen(&mut self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let served = Arc::clone(&self.served);
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&served)));
            }
        });
    }

    /// Ends all connections, and listens on a new socket after a while.
    pub(crate) async fn restart(&mut self) {
        self.tasks.shutdown().await;
        std::fs::remove_file(&self.socket).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        self.listen();
    }

    pub(crate) fn set(&self, pods: &[Vec<u8>]) {
        self.set_raw(pods.iter().flat_map(|pod| bytes(1, pod)).collect());
    }

    pub(crate) fn set_raw(&self, response: Vec<u8>) {
        self.served.lock().response = response;
    }

    pub(crate) fn refuse(&self, refuses: bool) {
        self.served.lock().refuses = refuses;
    }
}

async fn serve(stream: UnixStream, served: Arc<Mutex<Served>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        let (message, refuses) = {
            let served = served.lock();
            (served.response.clone(), served.refuses)
        };
        let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let Ok(mut body) = respond.send_response(response, false) else { return };
        let mut trailers = HeaderMap::new();
        if refuses {
            trailers.insert("grpc-status", "14".parse().unwrap());
        } else {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            let framed: Vec<u8> = [0].into_iter().chain(length).chain(message).collect();
            let _ = body.send_data(Bytes::from(framed), false);
            trailers.insert("grpc-status", "0".parse().unwrap());
        }
        let _ = body.send_trailers(trailers);
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn topology(zones: &[u64]) -> Vec<u8> {
    let zone = |zone: u64| if zone == 0 { Vec::new() } else { [varint(1 << 3), varint(zone)].concat() };
    zones.iter().flat_map(|number| bytes(1, &zone(*number))).collect()
}

/// A field of a container: devices of a resource.
pub(crate) fn devices(resource: &str, count: usize, zones: &[u64]) -> Vec<u8> {
    let ids: Vec<u8> = (0..count).flat_map(|id| bytes(2, format!("dev-{id}").as_bytes())).collect();
    bytes(2, &[bytes(1, resource.as_bytes()), ids, bytes(3, &topology(zones))].concat())
}

/// A field of a container: exclusive CPUs, packed.
pub(crate) fn cpus(ids: &[u64]) -> Vec<u8> {
    bytes(3, &ids.iter().flat_map(|id| varint(*id)).collect::<Vec<u8>>())
}

/// A field of a container: pinned memory.
pub(crate) fn memory(kind: &str, size: u64, zones: &[u64]) -> Vec<u8> {
    let size = [varint(2 << 3), varint(size)].concat();
    bytes(4, &[bytes(1, kind.as_bytes()), size, bytes(3, &topology(zones))].concat())
}

pub(crate) fn container(parts: &[Vec<u8>]) -> Vec<u8> {
    [bytes(1, b"main"), parts.concat()].concat()
}

/// A `PodResources` message.
pub(crate) fn pod(namespace: &str, name: &str, containers: &[Vec<u8>]) -> Vec<u8> {
    let containers: Vec<u8> = containers.iter().flat_map(|container| bytes(3, container)).collect();
    [bytes(1, name.as_bytes()), bytes(2, namespace.as_bytes()), containers].concat()
}
