//! The pod grouper alone on a real kube-apiserver: pods of Jobs wait when it starts, and it groups them.
//!
//! Requests are counted in the server's audit log. No other component writes, and no controller of Kubernetes runs.

use super::e2e::processes::Child;
use super::e2e::usage::Usage;
use super::page::{self, Part};
use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use futures::StreamExt as _;
use futures::TryStreamExt as _;
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::{Audit, ControlPlane, Controllers};
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, JOB, POD, ResourceKind, SERVICE_ACCOUNT};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one load may take.
const PATIENCE: Duration = Duration::from_mins(30);
/// Requests of the load that are under way at once.
const CREATORS: usize = 32;
/// How often the audit log is read.
const PAUSE: Duration = Duration::from_millis(200);
/// How often an object is created anew that the server has no time for.
const ATTEMPTS: usize = 100;

/// Smaller Jobs that have together as many pods as the large one.
const SMALLER: usize = 10;
/// Pods of each Job of the load whose memory is read.
const PODS_OF_MANY: usize = 10;

const GROUPS_PER_SECOND_MIN: f64 = 500.0;
const MEMORY_MB_MAX: f64 = 100.0;
const LARGE_TO_SMALLER_MAX: f64 = 1.2;

/// Options of `cargo xtask bench grouper`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Jobs of one pod, whose groups per second are measured.
    #[arg(long, default_value_t = 4_000)]
    jobs: usize,
    /// Pods of one Job, whose CPU time is compared with that of ten smaller Jobs.
    #[arg(long, default_value_t = 10_000)]
    large: usize,
    /// Pods at which memory is read; 0 leaves it out.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Take this binary, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Put the figures into `docs/performance.md`.
    #[arg(long)]
    write: bool,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// Jobs and the pods of each.
#[derive(Clone, Copy)]
struct Load {
    jobs: usize,
    pods_each: usize,
}

impl Load {
    fn pods(self) -> usize {
        self.jobs * self.pods_each
    }
}

/// What grouping a load took.
struct Grouped {
    load: Load,
    seconds: f64,
    usage: Usage,
    counts: Counts,
}

/// Requests of the grouper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    groups_written: usize,
    pods_patched: usize,
    owners_read: usize,
}

/// Measures, prints, and writes where that is wanted.
pub(super) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let target = repository.metadata()?.target_directory;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => super::measure::Kai::build(repository, &target)?.binary().to_owned(),
    };
    let scratch = target.join("bench/grouper");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make `{}`", scratch.display()))?;
    let mut loads = vec![
        Load { jobs: args.jobs, pods_each: 1 },
        Load { jobs: SMALLER, pods_each: args.large / SMALLER },
        Load { jobs: 1, pods_each: args.large },
    ];
    if args.pods > 0 {
        loads.push(Load { jobs: args.pods / PODS_OF_MANY, pods_each: PODS_OF_MANY });
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let mut all = Vec::new();
    for load in loads {
        eprintln!("{} Jobs of {} pods", load.jobs, load.pods_each);
        all.push(runtime.block_on(measure(repository, &binary, &scratch, load))?);
    }
    let (text, misses) = (text(&all), misses(&all));
    println!("{text}");
    for miss in &misses {
        println!("missed: {miss}");
    }
    if args.write {
        page::write(repository, Part::Grouper, &super::e2e::with_misses(&text, &misses))?;
    }
    if args.gate && !misses.is_empty() {
        bail!("{} targets are missed", misses.len());
    }
    Ok(())
}

async fn measure(repository: &Repository, binary: &Path, scratch: &Path, load: Load) -> Result<Grouped> {
    let programs = kubernetes::programs(repository)?;
    let plane = ControlPlane::start_with(&programs, Controllers::None, Audit::Requests).await?;
    let config = kai_runtime::connect::config(Some(plane.kubeconfig_file()), None).await?;
    let api = Api::new(kai_runtime::connect::client(config)?, "bench-load");
    create_load(&api, load).await?;
    let mut log = AuditLog::open(&plane.audit_file())?;
    let watch = Stopwatch::start();
    let (grouper, _) =
        Child::component(binary, &plane.kubeconfig_file(), scratch, "pod-grouper", &["--qps=-1"])?;
    while log.read()?.pods_patched < load.pods() {
        if watch.elapsed() > PATIENCE {
            bail!("{:?} after {PATIENCE:?}, of {} pods", log.counts, load.pods());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let seconds = watch.elapsed().as_secs_f64();
    Ok(Grouped { load, seconds, usage: Usage::of(grouper.id())?, counts: log.read()? })
}

/// Creates the definition of pod groups, and Jobs with their pods.
async fn create_load(api: &Api, load: Load) -> Result<()> {
    let definition = kai_api::crds().into_iter().find(|of| of.spec.names.kind == "PodGroup");
    let definition = serde_json::to_value(definition.context("there is no definition of pod groups")?)?;
    create(api, &CUSTOM_RESOURCE_DEFINITION, definition).await?;
    create(api, &SERVICE_ACCOUNT, json!({"metadata": {"name": "default"}})).await?;
    let jobs = futures::stream::iter(0..load.jobs).map(|number| async move {
        let spec = json!({"template": {"spec": pod_spec()}, "parallelism": load.pods_each});
        let name = format!("train-{number}");
        let job = create(api, &JOB, json!({"metadata": {"name": name}, "spec": spec})).await?;
        Ok::<_, anyhow::Error>(json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": object::uid(&job), "controller": true,
        }]))
    });
    let owners: Vec<Value> = jobs.buffer_unordered(CREATORS).try_collect().await?;
    let pods = owners.iter().flat_map(|owner| (0..load.pods_each).map(move |number| (owner, number)));
    let pods = futures::stream::iter(pods).map(|(owner, number)| async move {
        let name = format!("{}-{number}", object::str_at(owner, "/0/name"));
        let metadata = json!({"name": name, "ownerReferences": owner});
        create(api, &POD, json!({"metadata": metadata, "spec": pod_spec()})).await.map(|_| ())
    });
    pods.buffer_unordered(CREATORS).try_collect().await
}

fn pod_spec() -> Value {
    let limits = json!({"nvidia.com/gpu": 1});
    json!({
        "schedulerName": "kai-scheduler", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"limits": limits}}],
    })
}

/// Creates an object. A new server is not ready for everything at once, and a busy one asks to come again.
async fn create(api: &Api, kind: &ResourceKind, mut value: Value) -> Result<Value> {
    let namespace = if kind.namespaced { "default" } else { "" };
    value["apiVersion"] = Value::from(kind.api_version());
    value["kind"] = Value::from(&*kind.kind);
    let mut attempt = 0;
    loop {
        match api.create_dynamic(kind, namespace, &value).await {
            Ok(created) => return Ok(created),
            Err(error) if attempt == ATTEMPTS => {
                return Err(error).context("cannot create an object of the load");
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempt += 1;
    }
}

/// The audit log, read as it grows.
struct AuditLog {
    file: BufReader<std::fs::File>,
    /// A line that is not complete yet.
    rest: String,
    counts: Counts,
}

impl AuditLog {
    fn open(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(Self { file: BufReader::new(file), rest: String::new(), counts: Counts::default() })
    }

    /// The counts of all lines so far.
    fn read(&mut self) -> Result<Counts> {
        while self.file.read_line(&mut self.rest).context("cannot read the audit log")? > 0 {
            if self.rest.ends_with('\n') {
                self.counts.add(&self.rest);
                self.rest.clear();
            }
        }
        Ok(self.counts)
    }
}

impl Counts {
    fn add(&mut self, line: &str) {
        if !line.contains("\"userAgent\":\"pod-grouper") {
            return;
        }
        let has = |key: &str, value: &str| line.contains(&format!("\"{key}\":\"{value}\""));
        let of = |resource: &str, verbs: &[&str]| {
            usize::from(has("resource", resource) && verbs.iter().any(|verb| has("verb", verb)))
        };
        self.groups_written += of("podgroups", &["create", "patch", "update"]);
        self.pods_patched += of("pods", &["patch"]);
        self.owners_read += of("jobs", &["get"]);
    }
}

fn text(all: &[Grouped]) -> String {
    let mut text = "Pods of Jobs wait when `kai pod-grouper` starts on a real kube-apiserver, and it groups them; nothing else \
                    runs. Requests are counted by the server. Written by `cargo xtask bench grouper --write`.\n\n\
                    | Jobs | pods of each | seconds | groups/s | pods/s | writes of groups | writes of pods | reads of owners \
                    | CPU s | peak MB |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Grouped { load, seconds, usage, counts } in all {
        let per_second = |count: usize| count as f64 / seconds;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {seconds:.1} | {:.0} | {:.0} | {} | {} | {} | {:.1} | {:.0} |",
            load.jobs,
            load.pods_each,
            per_second(load.jobs),
            per_second(load.pods()),
            counts.groups_written,
            counts.pods_patched,
            counts.owners_read,
            usage.cpu_seconds,
            usage.peak_mb,
        );
    }
    text
}

fn misses(all: &[Grouped]) -> Vec<String> {
    let mut misses = Vec::new();
    for Grouped { load, seconds, usage, counts } in all {
        let shown = format!("{} Jobs of {} pods", load.jobs, load.pods_each);
        let speed = load.jobs as f64 / seconds;
        if load.pods_each == 1 && load.jobs > 1 && speed < GROUPS_PER_SECOND_MIN {
            misses.push(format!("{shown}: {speed:.0} groups/s, at least {GROUPS_PER_SECOND_MIN} are wanted"));
        }
        if counts.groups_written > load.jobs || counts.pods_patched > load.pods() {
            misses.push(format!("{shown}: {counts:?} are more than one write of each group and pod"));
        }
        if load.pods() <= 100_000 && usage.peak_mb > MEMORY_MB_MAX {
            misses.push(format!("{shown}: {:.0} MB, at most {MEMORY_MB_MAX} are wanted", usage.peak_mb));
        }
    }
    if let [_, smaller, large, ..] = all {
        let ratio = large.usage.cpu_seconds / smaller.usage.cpu_seconds.max(0.01);
        if ratio > LARGE_TO_SMALLER_MAX {
            misses.push(format!(
                "one Job costs {ratio:.2} times as much CPU time as {SMALLER} smaller ones, at most \
                 {LARGE_TO_SMALLER_MAX} are wanted"
            ));
        }
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_grouper_are_counted_by_the_audit_log() {
        let line = |agent: &str, verb: &str, resource: &str| {
            format!(
                r#"{{"verb":"{verb}","userAgent":"{agent}/1","objectRef":{{"resource":"{resource}","name":"a"}}}}"#
            )
        };
        let mut counts = Counts::default();
        for (agent, verb, resource) in [
            ("pod-grouper", "create", "podgroups"),
            ("pod-grouper", "patch", "pods"),
            ("pod-grouper", "get", "jobs"),
            ("pod-grouper", "watch", "pods"),
            ("bench-load", "patch", "pods"),
        ] {
            counts.add(&line(agent, verb, resource));
        }
        assert_eq!(counts, Counts { groups_written: 1, pods_patched: 1, owners_read: 1 });
    }
}
