//! The API suite: `cargo xtask api-suite` compares a server's answers with those of a real one.
//!
//! Without options the embedded server is compared with the recordings in `tests/api-suite/recorded`. `--record`
//! makes them anew from a real kube-apiserver, `--live` compares with one that is started for the purpose.

mod merge_rules;
mod report;

use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kubetest::client::{Client, Server};
use kai_kubetest::control_plane::{ADMIN_TOKEN, ALICE_TOKEN, ControlPlane, Controllers};
use kai_kubetest::suite::compare::{Differences, compare};
use kai_kubetest::suite::openapi::{self, Facts};
use kai_kubetest::suite::{self, Entry, Feature, Target};
use kai_kubetest::webhook::Webhook;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// What the embedded server's uids are drawn from.
const SEED: u64 = 1;

/// Options of `cargo xtask api-suite`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only features whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Ask a real kube-apiserver and write down its answers.
    #[arg(long, conflicts_with = "live")]
    record: bool,
    /// Compare with a real kube-apiserver instead of the recordings.
    #[arg(long)]
    live: bool,
    /// Compare a real kube-apiserver with the recordings: whatever differs is not deterministic.
    #[arg(long, conflicts_with_all = ["live", "record"])]
    real: bool,
    /// Compare the server at this address.
    #[arg(long, value_name = "HOST:PORT", requires_all = ["authority", "token"])]
    server: Option<SocketAddr>,
    /// A file with the certificate to trust for `--server`.
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// The administrator's token for `--server`.
    #[arg(long)]
    token: Option<String>,
    /// Most differences printed of one step.
    #[arg(long, default_value_t = 12)]
    most: usize,
}

impl Args {
    /// The embedded server against the recordings, every feature.
    pub(crate) fn recorded() -> Self {
        Self {
            only: None,
            record: false,
            live: false,
            real: false,
            server: None,
            authority: None,
            token: None,
            most: 12,
        }
    }

    /// The embedded server against a real one, every feature.
    pub(crate) fn live() -> Self {
        Self { live: true, ..Self::recorded() }
    }
}

/// Transcripts by feature.
type Transcripts = BTreeMap<String, Vec<Entry>>;

/// Runs the suite.
pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let folder = repository.root.join("tests/api-suite");
    let mut features = suite::features(&folder)?;
    features.retain(|feature| args.only.as_ref().is_none_or(|text| feature.name.contains(text.as_str())));
    if features.is_empty() {
        bail!("no feature is called so; hint: a feature is a file of `{}`", folder.display());
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        if args.record {
            let (transcripts, facts) = ask_real(repository, &features).await?;
            return record(&folder, &features, &transcripts, args.only.is_none().then_some(&facts));
        }
        let (expected, facts) = if args.live {
            ask_real(repository, &features).await?
        } else {
            (read_recordings(&folder, &features)?, openapi::recorded(&folder)?)
        };
        let found = match (args.real, args.server) {
            (true, _) => ask_real(repository, &features).await?.0,
            (false, Some(address)) => ask_server(address, args, &features).await?,
            (false, None) => ask_embedded(&features).await?,
        };
        judge(&folder, &features, &expected, &found, &facts, args)
    })
}

fn record(
    folder: &Path,
    features: &[Feature],
    transcripts: &Transcripts,
    facts: Option<&Facts>,
) -> Result<()> {
    std::fs::create_dir_all(folder.join("recorded"))?;
    let mut requests = 0;
    for feature in features {
        suite::record(folder, &feature.name, &transcripts[&feature.name])?;
        requests += feature.requests();
    }
    if let Some(facts) = facts {
        openapi::record(folder, facts)?;
    }
    println!("recorded {requests} answers to {} features", features.len());
    Ok(())
}

fn read_recordings(folder: &Path, features: &[Feature]) -> Result<Transcripts> {
    let mut all = Transcripts::new();
    for feature in features {
        let recorded = suite::recorded(folder, &feature.name)
            .context("a recording is missing; hint: `cargo xtask api-suite --record` makes it")?;
        all.insert(feature.name.clone(), recorded);
    }
    Ok(all)
}

fn judge(
    folder: &Path,
    features: &[Feature],
    expected: &Transcripts,
    found: &Transcripts,
    facts: &Facts,
    args: &Args,
) -> Result<()> {
    let differences = if args.real { Differences::default() } else { Differences::read(folder)? };
    let mut all = Vec::new();
    for feature in features {
        let name = feature.name.as_str();
        all.push((name, compare(name, &expected[name], &found[name], &differences)));
    }
    report::differences(&all, args.most);
    let mut different = report::table(&all);
    if args.only.is_none() && !args.real {
        let complaints = whole_suite(facts, &differences, &all);
        for complaint in &complaints {
            println!("{complaint}");
        }
        different += complaints.len();
    }
    if different > 0 {
        bail!("answers differ where no difference is listed");
    }
    Ok(())
}

/// What only a run of all features can tell: listed differences that are none, and the table of merge rules, which
/// is the embedded server's own and so compared apart.
fn whole_suite(facts: &Facts, differences: &Differences, all: &report::Features<'_>) -> Vec<String> {
    let seen = |id: &str| {
        let mut found = all.iter().flat_map(|(_, steps)| steps).flat_map(|step| &step.differences);
        found.any(|difference| difference.listed.as_deref() == Some(id))
    };
    let mut complaints = merge_rules::complaints(facts);
    let unseen = differences.differences.iter().filter(|listed| !seen(&listed.id));
    complaints.extend(unseen.map(|listed| format!("the listed difference `{}` is none", listed.id)));
    complaints
}

/// Asks a server that was started for the purpose; its `OpenAPI` is read, too.
async fn ask_real(repository: &Repository, features: &[Feature]) -> Result<(Transcripts, Facts)> {
    let plane = ControlPlane::start(&kubernetes::programs(repository)?, Controllers::None).await?;
    let tokens = BTreeMap::from([
        ("admin".to_owned(), ADMIN_TOKEN.to_owned()),
        ("alice".to_owned(), ALICE_TOKEN.to_owned()),
    ]);
    let transcripts = ask(plane.server().clone(), tokens, features).await?;
    let facts = merge_facts(plane.server().clone()).await?;
    Ok((transcripts, facts))
}

/// Asks the embedded server, over HTTPS like any other.
async fn ask_embedded(features: &[Feature]) -> Result<Transcripts> {
    let options =
        Options { admin_token: Some(ADMIN_TOKEN.to_owned()), ..Options::new(SEED, Clock::system()) };
    let listening = ApiServer::new(&options).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let server = Server::new(listening.address(), listening.ca_pem())?;
    let tokens = BTreeMap::from([("admin".to_owned(), ADMIN_TOKEN.to_owned())]);
    ask(server, tokens, features).await
}

async fn ask_server(address: SocketAddr, args: &Args, features: &[Feature]) -> Result<Transcripts> {
    let (Some(authority), Some(token)) = (&args.authority, &args.token) else {
        bail!("`--server` needs to know whom to trust and who asks; hint: `--authority` and `--token`");
    };
    let authority = std::fs::read_to_string(authority)
        .with_context(|| format!("cannot read `{}`", authority.display()))?;
    let tokens = BTreeMap::from([("admin".to_owned(), token.clone())]);
    ask(Server::new(address, &authority)?, tokens, features).await
}

async fn ask(server: Server, tokens: BTreeMap<String, String>, features: &[Feature]) -> Result<Transcripts> {
    let webhook = Webhook::start().await?;
    let target = Target { server, tokens, webhook: &webhook };
    let mut transcripts = Transcripts::new();
    for feature in features {
        transcripts.insert(feature.name.clone(), suite::run(feature, &target).await?);
    }
    Ok(transcripts)
}

/// What the server's `OpenAPI` says about merging built-in kinds.
async fn merge_facts(server: Server) -> Result<Facts> {
    let mut client = Client::new(server);
    let mut facts = Facts::new();
    let index = get(&mut client, "/openapi/v3").await?;
    for (path, document) in index["paths"].as_object().into_iter().flatten() {
        // Groups of the suite's own custom resources have schemas of their own.
        if path.contains(".test/") {
            continue;
        }
        let url = document["serverRelativeURL"].as_str().context("the index of OpenAPI has no addresses")?;
        openapi::collect(&get(&mut client, url).await?, &mut facts);
    }
    Ok(facts)
}

async fn get(client: &mut Client, path: &str) -> Result<Value> {
    let request = Request::get(path)
        .header("host", "kubernetes.test")
        .header("accept", "application/json")
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .body(Full::<Bytes>::default())?;
    let answer = client.send(request).await?;
    serde_json::from_slice(&answer.body).with_context(|| format!("`{path}` is not JSON"))
}
