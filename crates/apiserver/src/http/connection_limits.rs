//! Limits the number of connections and closes connections that a client does not read from.
//!
//! A client that stops reading would keep its response, and the objects it refers to, in memory. A connection whose
//! writes make no progress for a while is closed.

use axum_server::accept::Accept;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Limit of concurrent connections.
const CONNECTIONS_MAX: usize = 16_384;
/// How long writes to a connection may make no progress.
const STALL_TIME_MAX: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub(super) struct LimitedAcceptor<A> {
    inner: A,
    permits: Arc<Semaphore>,
}

impl<A> LimitedAcceptor<A> {
    pub(super) fn new(inner: A) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl<A, I, S> Accept<I, S> for LimitedAcceptor<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
{
    type Stream = StallTimeout<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let permit =
                permit.map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "too many connections"))?;
            let (stream, service) = accepted.await?;
            Ok((StallTimeout { inner: stream, stalled: None, _permit: permit }, service))
        })
    }
}

/// A connection that fails when its writes stall.
#[derive(Debug)]
pub(super) struct StallTimeout<S> {
    inner: S,
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl<S> StallTimeout<S> {
    /// Returns the result of a write, and fails when writes have been pending for too long.
    fn watch<T>(&mut self, progress: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_TIME_MAX)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(progress, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(progress, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(progress, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.watch(progress, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test(start_paused = true)]
    async fn stalled_connection_is_closed() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut guarded = StallTimeout { inner: ours, stalled: None, _permit: permit };
        guarded.write_all(b"fits").await.unwrap();
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_is_not_closed() {
        use tokio::io::AsyncReadExt as _;
        let (ours, mut theirs) = tokio::io::duplex(16);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut guarded = StallTimeout { inner: ours, stalled: None, _permit: permit };
        let reader = tokio::spawn(async move {
            let mut byte = [0; 8];
            for _ in 0..32 {
                sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut byte).await.unwrap();
            }
        });
        guarded.write_all(&[0; 256]).await.unwrap();
        reader.await.unwrap();
    }
}
