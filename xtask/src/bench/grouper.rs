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
use kai_api::PodGroup;
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

/// Pod groups by which the server's bound is measured, and requests under way at once, as many as the grouper's.
const BOUND_GROUPS: usize = 2_000;
const BOUND_REQUESTS: usize = 10;

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
    /// Until all groups existed.
    groups_seconds: f64,
    /// Until all pods were assigned: that of a pod whose binding would carry it is delayed.
    seconds: f64,
    /// Pod groups a second that the server creates for a client that does nothing else.
    server_bound: f64,
    usage: Usage,
    counts: Counts,
}

/// Requests of the grouper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    groups_created: usize,
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
    create_definitions(&api).await?;
    let server_bound = server_bound(&api).await?;
    create_load(&api, load).await?;
    let mut log = AuditLog::open(&plane.audit_file())?;
    let watch = Stopwatch::start();
    let (grouper, _) =
        Child::component(binary, &plane.kubeconfig_file(), scratch, "pod-grouper", &["--qps=-1"])?;
    let mut groups_seconds = None;
    while log.read()?.pods_patched < load.pods() {
        if groups_seconds.is_none() && log.counts.groups_created >= load.jobs {
            groups_seconds = Some(watch.elapsed().as_secs_f64());
        }
        if watch.elapsed() > PATIENCE {
            bail!("{:?} after {PATIENCE:?}, of {} pods", log.counts, load.pods());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let seconds = watch.elapsed().as_secs_f64();
    let groups_seconds = groups_seconds.unwrap_or(seconds);
    let usage = Usage::of(grouper.id())?;
    Ok(Grouped { load, groups_seconds, seconds, server_bound, usage, counts: log.read()? })
}

/// How many pod groups the server creates in a second, at as many requests at once as the grouper sends.
async fn server_bound(api: &Api) -> Result<f64> {
    let groups = ResourceKind::of::<PodGroup>();
    let watch = Stopwatch::start();
    let created = futures::stream::iter(0..BOUND_GROUPS).map(|number| {
        let group = json!({
            "metadata": {"name": format!("bound-{number}")},
            "spec": {"minMember": 1, "queue": "default-queue", "priorityClassName": "train"},
        });
        create(api, &groups, group)
    });
    created.buffer_unordered(BOUND_REQUESTS).try_for_each(|_| std::future::ready(Ok(()))).await?;
    let bound = BOUND_GROUPS as f64 / watch.elapsed().as_secs_f64();
    api.delete_collection_dynamic(&groups, "default").await?;
    Ok(bound)
}

/// Creates the definition of pod groups, and the account of the pods.
async fn create_definitions(api: &Api) -> Result<()> {
    let definition = kai_api::crds().into_iter().find(|of| of.spec.names.kind == "PodGroup");
    let definition = serde_json::to_value(definition.context("there is no definition of pod groups")?)?;
    create(api, &CUSTOM_RESOURCE_DEFINITION, definition).await?;
    create(api, &SERVICE_ACCOUNT, json!({"metadata": {"name": "default"}})).await?;
    // The server answers for a new definition with a delay.
    let groups = ResourceKind::of::<PodGroup>();
    create(api, &groups, json!({"metadata": {"name": "first"}, "spec": {}})).await?;
    Ok(())
}

/// Creates Jobs with their pods.
async fn create_load(api: &Api, load: Load) -> Result<()> {
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
        self.groups_created += of("podgroups", &["create"]);
        self.groups_written += of("podgroups", &["create", "patch", "update"]);
        self.pods_patched += of("pods", &["patch"]);
        self.owners_read += of("jobs", &["get"]);
    }
}

fn text(all: &[Grouped]) -> String {
    let mut text = "Pods of Jobs wait when `kai pod-grouper` starts on a real kube-apiserver, and it groups them; nothing else \
                    runs. Requests are counted by the server. Written by `cargo xtask bench grouper --write`.\n\n\
                    The server's bound is how many pod groups a second it creates for a client that does nothing else, at 10 requests \
                    at once. The assignment of a pod waits 5 seconds for its binding, which would carry it.\n\n\
                    | Jobs | pods of each | seconds until all groups exist | groups/s | server's bound/s | seconds until all pods are \
                    assigned | writes of groups | writes of pods | reads of owners | CPU s | peak MB \
                    |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Grouped { load, groups_seconds, seconds, server_bound, usage, counts } in all {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {groups_seconds:.1} | {:.0} | {server_bound:.0} | {seconds:.1} | {} | {} | {} | {:.1} | {:.0} |",
            load.jobs,
            load.pods_each,
            load.jobs as f64 / groups_seconds,
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
    for Grouped { load, groups_seconds, server_bound, usage, counts, .. } in all {
        let shown = format!("{} Jobs of {} pods", load.jobs, load.pods_each);
        let speed = load.jobs as f64 / groups_seconds;
        let wanted = GROUPS_PER_SECOND_MIN.min(*server_bound);
        if load.pods_each == 1 && load.jobs > 1 && speed < wanted {
            misses.push(format!(
                "{shown}: {speed:.0} groups/s, at least {wanted:.0} are wanted where the server creates {server_bound:.0}"
            ));
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
        let expected = Counts { groups_created: 1, groups_written: 1, pods_patched: 1, owners_read: 1 };
        assert_eq!(counts, expected);
    }

    #[test]
    fn groups_are_timed_by_themselves_and_wanted_as_far_as_the_server_allows() {
        let of = |groups_seconds: f64, server_bound: f64| Grouped {
            load: Load { jobs: 1_000, pods_each: 1 },
            groups_seconds,
            seconds: groups_seconds + 5.0,
            server_bound,
            usage: Usage::default(),
            counts: Counts::default(),
        };
        assert_eq!(misses(&[of(2.0, 900.0)]), [""; 0]);
        assert_eq!(misses(&[of(4.0, 250.0)]), [""; 0], "no faster than the server");
        let missed = misses(&[of(4.0, 900.0)]);
        assert!(
            matches!(missed.as_slice(), [only] if only.contains("250 groups/s, at least 500")),
            "{missed:?}"
        );
        assert!(text(&[of(2.0, 900.0)]).contains("| 1000 | 1 | 2.0 | 500 | 900 | 7.0 |"));
    }
}
