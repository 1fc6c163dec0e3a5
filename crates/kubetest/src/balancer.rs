//! A TCP load balancer on the loopback address, as a Service is in front of the replicas of a webhook.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Dropping it closes all connections.
pub struct Balancer {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    _accepting: JoinSet<()>,
}

impl Balancer {
    /// Listens on a free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let replicas = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&replicas)));
        Ok(Self { address, replicas, _accepting: accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a replica on the loopback address. One that refuses connections is skipped, as one that is not ready.
    pub fn add(&self, port: u16) {
        let replica = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).push(replica);
    }
}

async fn accept(listener: TcpListener, replicas: Arc<Mutex<Vec<SocketAddr>>>) {
    let turns = AtomicUsize::new(0);
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut order = replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !order.is_empty() {
            let first = turns.fetch_add(1, Ordering::Relaxed) % order.len();
            order.rotate_left(first);
        }
        connections.spawn(async move {
            for replica in order {
                if let Ok(mut server) = TcpStream::connect(replica).await {
                    // An error means that one side has closed the connection.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
