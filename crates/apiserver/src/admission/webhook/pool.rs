//! Connections to one webhook that are kept for the next call.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// How many connections to one webhook are kept while nobody uses them.
const IDLE_MAX: usize = 8;

/// A connection that can be used by one call at a time.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// Idle connections, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Connection>>);

impl Pool {
    /// Sends a request by a kept connection, or by one that `connect` makes. The connection is for whoever has read
    /// the whole answer to give back.
    pub(super) async fn send<F>(
        &self,
        mut request: Request<Full<Bytes>>,
        connect: impl Fn() -> F,
    ) -> Result<(Connection, Response<Incoming>), String>
    where
        F: Future<Output = Result<TlsStream<TcpStream>, String>>,
    {
        while let Some(mut kept) = self.take() {
            match kept.try_send_request(request).await {
                Ok(response) => return Ok((kept, response)),
                // The other side closed it meanwhile: what was never sent may be sent again.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().to_string()),
                },
            }
        }
        let stream = TokioIo::new(connect().await?);
        let (mut made, driver) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
        // It ends when the connection is dropped or closed, and tells its user why.
        tokio::spawn(driver);
        let response = made.send_request(request).await.map_err(|error| error.to_string())?;
        Ok((made, response))
    }

    /// Keeps a connection for the next call.
    pub(super) fn give_back(&self, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.is_closed());
        idle.pop()
    }
}
