//! Keeps idle connections to one webhook for the next call.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming as ResponseBody;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Maximum number of idle connections to one webhook.
const IDLE_MAX: usize = 8;

pub(super) type Connection = SendRequest<Full<Bytes>>;

/// Idle connections, the most recently used at the end.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Connection>>);

impl Pool {
    /// Sends a request on an idle connection, or on one that `connect` opens. The caller releases the connection
    /// after it has read the complete response.
    pub(super) async fn send<F>(
        &self,
        mut request: Request<Full<Bytes>>,
        connect: impl Fn() -> F,
    ) -> Result<(Connection, Response<ResponseBody>), String>
    where
        F: Future<Output = Result<TlsStream<TcpStream>, String>>,
    {
        while let Some(mut kept) = self.take() {
            match kept.try_send_request(request).await {
                Ok(response) => return Ok((kept, response)),
                // The webhook closed the connection before the request was sent, so it is safe to send it again.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().to_string()),
                },
            }
        }
        let stream = TokioIo::new(connect().await?);
        let (mut made, driver) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
        // The task ends when the connection is dropped or closed; the sender receives the error.
        tokio::spawn(driver);
        let response = made.send_request(request).await.map_err(|error| error.to_string())?;
        Ok((made, response))
    }

    pub(super) fn release(&self, connection: Connection) {
        let mut idle = self.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.0.lock();
        idle.retain(|connection| !connection.is_closed());
        idle.pop()
    }
}
