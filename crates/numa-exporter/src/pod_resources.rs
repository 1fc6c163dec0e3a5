//! The kubelet's pod resources API, version 1: `List` over gRPC on a unix socket.
//!
//! gRPC is HTTP/2 with a length before each message, so a client of one method needs no framework.

use crate::protobuf::{Field, Malformed, fields};
use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::Request;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// How long the kubelet may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response, as in KAI.
const RESPONSE_MAX: usize = 16 << 20;
/// Flow control must not delay an ordinary response.
const WINDOW: u32 = 1 << 20;
/// A flag and the length come before each message.
const PREFIX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to the kubelet\nhint: --podresources-socket must name its socket")]
    Connect(#[source] std::io::Error),
    #[error("the connection to the kubelet failed")]
    Connection(#[from] h2::Error),
    #[error("the kubelet did not respond within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("the kubelet refused to list pod resources: status {status}, {message}")]
    Refused { status: String, message: String },
    #[error("the response of the kubelet is larger than {RESPONSE_MAX} bytes")]
    TooLarge,
    #[error("the response of the kubelet is not a gRPC message")]
    Malformed,
}

/// What a kubelet gave to a pod, of all its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodResources {
    pub namespace: String,
    pub name: String,
    pub devices: Vec<Devices>,
    /// Exclusive CPUs.
    pub cpus: Vec<u64>,
    pub memory: Vec<Memory>,
}

/// Devices of one resource with the same zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    pub resource: String,
    pub count: u64,
    pub zones: Vec<u64>,
}

/// Pinned memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `memory`, or the size of huge pages; empty for the former.
    pub kind: String,
    pub bytes: u64,
    pub zones: Vec<u64>,
}

/// A client that connects when it is needed, and again after a failure.
#[derive(Debug)]
pub struct Kubelet {
    socket: PathBuf,
    connected: Option<SendRequest<Bytes>>,
    /// Drives the connection; dropping it closes the connection.
    connection: JoinSet<()>,
}

impl Kubelet {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, connected: None, connection: JoinSet::new() }
    }

    /// The encoded `ListPodResourcesResponse`.
    pub async fn list(&mut self) -> Result<Bytes, Error> {
        let listed = tokio::time::timeout(TIMEOUT, self.call()).await.unwrap_or(Err(Error::Timeout));
        if listed.is_err() {
            self.connected = None;
            self.connection.abort_all();
        }
        listed
    }

    async fn call(&mut self) -> Result<Bytes, Error> {
        let sender = match self.connected.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut sender = sender.ready().await?;
        let request = Request::post("http://localhost/v1.PodResourcesLister/List")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(|_| Error::Malformed)?;
        let (response, mut body) = sender.send_request(request, false)?;
        self.connected = Some(sender);
        // The request has no fields.
        body.send_data(Bytes::from_static(&[0; PREFIX]), true)?;
        let response = response.await?;
        let mut refusal = refusal(response.headers());
        let mut body = response.into_body();
        let mut received = BytesMut::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            if received.len() + chunk.len() > RESPONSE_MAX {
                return Err(Error::TooLarge);
            }
            received.extend_from_slice(&chunk);
        }
        if let Some(trailers) = body.trailers().await? {
            refusal = refusal.or_else(|| self::refusal(&trailers));
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => message(received.freeze()),
        }
    }

    async fn connect(&mut self) -> Result<SendRequest<Bytes>, Error> {
        let stream = UnixStream::connect(&self.socket).await.map_err(Error::Connect)?;
        let mut builder = client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        let (sender, connection) = builder.handshake(stream).await?;
        self.connection.abort_all();
        self.connection = JoinSet::new();
        self.connection.spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the connection to the kubelet ended"
                );
            }
        });
        Ok(sender)
    }
}

/// The error in headers or trailers; none where the status is missing or 0.
fn refusal(headers: &http::HeaderMap) -> Option<Error> {
    let text =
        |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let status = text("grpc-status").filter(|status| status != "0")?;
    Some(Error::Refused { status, message: text("grpc-message").unwrap_or_default() })
}

/// The only message of a response.
fn message(mut body: Bytes) -> Result<Bytes, Error> {
    if body.len() < PREFIX || body.get_u8() != 0 {
        return Err(Error::Malformed);
    }
    let length = usize::try_from(body.get_u32()).map_err(|_| Error::Malformed)?;
    if body.len() == length { Ok(body) } else { Err(Error::Malformed) }
}

/// The pods of a `ListPodResourcesResponse`, and the number of those that are malformed, which affect no other.
pub fn decode(response: &[u8]) -> (Vec<PodResources>, usize) {
    let (mut pods, mut malformed) = (Vec::new(), 0);
    for field in fields(response) {
        let read = match field {
            Ok((1, field)) => field.bytes().and_then(pod),
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        match read {
            Ok(pod) => pods.push(pod),
            Err(Malformed) => malformed += 1,
        }
    }
    (pods, malformed)
}

fn pod(message: &[u8]) -> Result<PodResources, Malformed> {
    let mut pod = PodResources::default();
    for field in fields(message) {
        match field? {
            (1, field) => field.text()?.clone_into(&mut pod.name),
            (2, field) => field.text()?.clone_into(&mut pod.namespace),
            (3, field) => container(field.bytes()?, &mut pod)?,
            _ => {}
        }
    }
    Ok(pod)
}

fn container(message: &[u8], pod: &mut PodResources) -> Result<(), Malformed> {
    for field in fields(message) {
        match field? {
            (2, field) => pod.devices.push(devices(field.bytes()?)?),
            (3, field) => field.numbers(&mut pod.cpus)?,
            (4, field) => pod.memory.push(memory(field.bytes()?)?),
            _ => {}
        }
    }
    Ok(())
}

fn devices(message: &[u8]) -> Result<Devices, Malformed> {
    let mut devices = Devices::default();
    for field in fields(message) {
        match field? {
            (1, field) => field.text()?.clone_into(&mut devices.resource),
            (2, field) => {
                field.bytes()?;
                devices.count += 1;
            }
            (3, field) => zones(field, &mut devices.zones)?,
            _ => {}
        }
    }
    Ok(devices)
}

fn memory(message: &[u8]) -> Result<Memory, Malformed> {
    let mut memory = Memory::default();
    for field in fields(message) {
        match field? {
            (1, field) => field.text()?.clone_into(&mut memory.kind),
            (2, field) => memory.bytes = field.number()?,
            (3, field) => zones(field, &mut memory.zones)?,
            _ => {}
        }
    }
    Ok(memory)
}

/// The zones of a `TopologyInfo`; a zone with the number 0 is an empty message.
fn zones(field: Field<'_>, zones: &mut Vec<u64>) -> Result<(), Malformed> {
    for node in fields(field.bytes()?) {
        let (1, node) = node? else { continue };
        let mut zone = 0;
        for field in fields(node.bytes()?) {
            if let (1, field) = field? {
                zone = field.number()?;
            }
        }
        zones.push(zone);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_malformed_pod_affects_no_other() {
        // Two pods named `a` and `b`; between them, one whose name is cut off.
        let response = [0x0a, 3, 0x0a, 1, b'a', 0x0a, 2, 0x0a, 9, 0x0a, 3, 0x0a, 1, b'b'];
        let (pods, malformed) = decode(&response);
        assert_eq!(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(malformed, 1);
    }

    #[test]
    fn message_has_the_length_that_its_prefix_says() {
        let read = |bytes: &'static [u8]| message(Bytes::from_static(bytes)).ok();
        assert_eq!(read(&[0, 0, 0, 0, 2, 7, 8]), Some(Bytes::from_static(&[7, 8])));
        assert_eq!(read(&[0, 0, 0, 0, 0]), Some(Bytes::new()));
        for wrong in [&[1, 0, 0, 0, 1, 7][..], &[0, 0, 0, 0, 2, 7], &[0, 0, 0], &[0, 0, 0, 0, 1, 7, 8]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_response_is_decoded_without_panic(response in prop::collection::vec(any::<u8>(), 0..300)) {
            let (pods, malformed) = decode(&response);
            prop_assert!(pods.len() + malformed <= response.len());
        }
    }
}
