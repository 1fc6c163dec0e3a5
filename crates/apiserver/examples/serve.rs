//! Serves an empty cluster and writes its kubeconfig: `cargo run -p kai-apiserver --example serve -- FILE`.

use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use std::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve KUBECONFIG")?;
    let server = ApiServer::new(&Options::new(1, Clock::system()));
    let listening = server.listen("127.0.0.1:0".parse()?)?;
    listening.write_kubeconfig(Path::new(&path))?;
    std::future::pending().await
}
