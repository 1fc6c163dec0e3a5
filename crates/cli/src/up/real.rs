//! `kai up --for-real`: the same components in this process, against a cluster that is there already, for a trial.
//!
//! It makes what is missing after asking, runs every component that nobody else runs there, each by its lease, and says
//! at the end what it leaves behind.

mod consent;
mod survey;

use super::live::{self, Live};
use crate::args;
use anyhow::{Context, Result, anyhow, bail};
use consent::Consent;
use kai_api::well_known::name::NAMESPACE;
use kai_components::install::Manifest;
use kai_components::process::{self, ComponentProcess, LeadershipState};
use kai_components::signals::ShutdownSignals;
use kai_components::spec::Lease;
use kai_components::{COMPONENTS, ComponentOptions, ComponentSpec, SchedulerHandle, name};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::leader_election::Candidate;
use kai_runtime::{Key, connect, kind, log};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use survey::{MADE_BY, Survey};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What we call ourselves where no component does.
const AGENT: &str = "kai-up";
/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// What it means that no webhook is served.
const WITHOUT_WEBHOOKS: &str = "\
No webhook is served, since the cluster does not reach this process:
  - a pod is ours only where it says `schedulerName: kai-scheduler` itself
  - a pod that asks for a part of a GPU is bound only where something else has prepared it, such as KAI's admission
  - mistakes in queues and pod groups are not refused when they are written
";

/// Runs a trial until Ctrl-C or SIGTERM.
pub(super) fn run(args: &args::Up, kubeconfig: &Path, plugins: &PluginSet) -> Result<ExitCode> {
    log::start(tracing::level_filters::LevelFilter::WARN, log::Format::Text);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start threads")?.block_on(trial(args, kubeconfig, plugins))?;
    Ok(ExitCode::SUCCESS)
}

async fn trial(args: &args::Up, kubeconfig: &Path, plugins: &PluginSet) -> Result<()> {
    let config = connect::config(Some(kubeconfig.to_owned()), None).await?;
    let url = config.cluster_url.to_string();
    let client = connect::client(config)?;
    let api = Api::new(client.clone(), AGENT);
    let elsewhere = tokio::time::timeout(PATIENCE, running(&api)).await;
    let elsewhere = elsewhere.map_err(|_| {
        let seconds = PATIENCE.as_secs();
        anyhow!("the cluster at {url} did not answer within {seconds} s; hint: check the network and the kubeconfig")
    })??;
    if let Some((_, deployment)) = elsewhere.iter().find(|(part, _)| *part == name::SCHEDULER) {
        bail!(
            "another scheduler called `{}` runs there already, as deployment `{NAMESPACE}/{deployment}`, and two would \
             fight; hint: kubectl -n {NAMESPACE} scale deployment {deployment} --replicas=0, and its operator first if \
             there is one",
            name::SCHEDULER
        );
    }
    let survey = Survey::of(&api).await?;
    crate::print(&format!("cluster: {url}\n{}", listing(&survey)))?;
    let ours = prepare(args, &api, survey).await?;

    let mut options = ComponentOptions::default();
    if let Some(image) = &args.reservation_image {
        options.binder.reservation_image.clone_from(image);
    }
    let is_elsewhere = |spec: &ComponentSpec| elsewhere.iter().any(|(other, _)| *other == spec.name);
    let mut signals = ShutdownSignals::listen()?;
    let (end, ending) = watch::channel(false);
    let mut crew = Crew::default();
    for spec in COMPONENTS.iter().filter(|spec| !is_elsewhere(spec)) {
        crew.start(spec, Api::new(client.clone(), spec.name), &options, plugins, ending.clone())?;
    }
    crate::print(&welcome(kubeconfig, &elsewhere, args))?;
    let outcome = show(&api, &mut crew, &mut signals).await;
    end.send_replace(true);
    let ended = crew.end().await;
    crate::print(&farewell(&ours))?;
    outcome.and(ended)
}

/// Makes what is missing, and brings to what it should be what differs, as far as that is wanted; everything that a
/// trial has made there by then.
async fn prepare(args: &args::Up, api: &Api, survey: Survey) -> Result<Vec<Manifest>> {
    let Survey { missing, different, mut ours } = survey;
    if !missing.is_empty() {
        Consent::of(args.yes).required_to(&format!("Make these {}?", missing.len()))?;
    }
    for different in &different {
        let consent = if args.yes && !args.replace { Consent::Nobody } else { Consent::of(args.replace) };
        let name = survey::name(&different.wanted);
        let question = format!("Replace {name}?");
        if survey::is_replaceable(&different.wanted.kind) && consent.to(&question)? {
            survey::replace(api, different).await?;
            crate::print(&format!("replaced: {name}\n"))?;
        } else {
            crate::print(&format!("left as it is: {name}\n"))?;
        }
    }
    let mut waits = true;
    for manifest in missing {
        if waits && manifest.kind != kind::CUSTOM_RESOURCE_DEFINITION {
            survey::served(api).await?;
            waits = false;
        }
        survey::make(api, &manifest).await?;
        ours.push(manifest);
    }
    survey::served(api).await?;
    Ok(ours)
}

/// Which of our components KAI runs there, and as which deployment.
async fn running(api: &Api) -> Result<Vec<(&'static str, String)>> {
    let there = api.list_dynamic(&kind::DEPLOYMENT, NAMESPACE).await;
    let there = there.map_err(|error| {
        anyhow!("the cluster cannot be read: {}; hint: check the kubeconfig and its rights", error.message())
    })?;
    let mut running = Vec::new();
    for deployment in there.items.iter().filter(|deployment| deployment["spec"]["replicas"] != 0) {
        let called = object::name(deployment);
        // Each shard has a scheduler of its own; they share the name that pods say.
        let scheduler = called.strip_prefix(name::SCHEDULER).is_some_and(|rest| rest.starts_with('-'));
        let component = COMPONENTS.iter().map(|spec| spec.name).find(|name| *name == called);
        let component = component.or(scheduler.then_some(name::SCHEDULER));
        running.extend(component.map(|name| (name, called.to_owned())));
    }
    Ok(running)
}

/// The components of a trial.
#[derive(Default)]
struct Crew {
    tasks: JoinSet<Result<()>>,
    waiting: Vec<Waiting>,
}

/// A component that may wait for its lease.
struct Waiting {
    name: &'static str,
    candidate: Candidate,
    leadership: watch::Receiver<LeadershipState>,
    /// Whose lease it was said to wait for.
    told: BTreeSet<String>,
}

impl Crew {
    /// Starts a component, unless real nodes do for themselves what it would.
    fn start(
        &mut self,
        spec: &'static ComponentSpec,
        api: Api,
        options: &ComponentOptions,
        plugins: &PluginSet,
        mut ending: watch::Receiver<bool>,
    ) -> Result<()> {
        let Some(Lease { name: lease, timing }) = spec.lease else { return Ok(()) };
        let candidate =
            Candidate { lease: Key::new(NAMESPACE, lease), identity: process::identity()?, timing };
        let name = spec.name;
        let process = ComponentProcess::new(name, api, Some(candidate.clone()));
        let leadership = process.leadership();
        self.waiting.push(Waiting { name, candidate, leadership, told: BTreeSet::new() });
        let (options, plugins) = (options.clone(), plugins.clone());
        self.tasks.spawn(async move {
            let end = async {
                // The sender lives until everything has ended.
                let _ = ending.wait_for(|ending| *ending).await;
            };
            let start = |process| spec.component.run(process, options, plugins, SchedulerHandle::default());
            process.run(end, start).await.with_context(|| format!("{name} has ended"))
        });
        Ok(())
    }

    /// What there is to say about those that wait for their lease.
    async fn news(&mut self, api: &Api) -> Vec<String> {
        let mut news = Vec::new();
        for waiting in &mut self.waiting {
            let Waiting { name, candidate, leadership, told } = waiting;
            if *leadership.borrow() == LeadershipState::Leading {
                if !told.is_empty() {
                    news.push(format!("{name} has its lease and works"));
                    told.clear();
                }
                continue;
            }
            let Ok(Some(holder)) = candidate.holder(api).await else { continue };
            if holder.identity != candidate.identity && told.insert(holder.identity.clone()) {
                news.push(format!(
                    "{name} waits: another copy of it, `{}`, holds the lease `{}` and renewed it at {}; hint: end that \
                     one, and this one takes over",
                    holder.identity, candidate.lease, holder.renewed
                ));
            }
        }
        news
    }

    /// Waits until all have ended.
    async fn end(mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            outcome = outcome.and(ended.context("a component broke").and_then(|ended| ended));
        }
        outcome
    }
}

/// Shows what goes on until somebody ends it or a component cannot go on.
async fn show(api: &Api, crew: &mut Crew, signals: &mut ShutdownSignals) -> Result<()> {
    let mut live = tokio::select! {
        biased;
        () = signals.wait() => return Ok(()),
        live = Live::start(api) => live,
    };
    let mut ticks = tokio::time::interval(live::PAUSE);
    let outcome = loop {
        tokio::select! {
            biased;
            () = signals.wait() => break Ok(()),
            Some(ended) = crew.tasks.join_next() => break ended.context("a component broke").and_then(|ended| ended),
            _ = ticks.tick() => {
                for news in crew.news(api).await {
                    live.say(&news);
                }
                live.show();
            }
        }
    };
    live.end();
    outcome
}

/// What would be made, and what is there and differs.
fn listing(survey: &Survey) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("writing to a string");
    if survey.missing.is_empty() {
        line(format_args!("nothing is missing there"));
    } else {
        line(format_args!("to be made there:"));
    }
    for manifest in &survey.missing {
        line(format_args!("  {}", survey::name(manifest)));
    }
    if !survey.different.is_empty() {
        line(format_args!("there already, and not as this version would make it:"));
    }
    for different in &survey.different {
        line(format_args!("  {} in {}", survey::name(&different.wanted), different.field));
    }
    text
}

/// The first words once everything is in place.
fn welcome(kubeconfig: &Path, elsewhere: &[(&str, String)], args: &args::Up) -> String {
    let mut text = "\nthe scheduler and its companions run in this process, for a trial\n".to_owned();
    for (part, deployment) in elsewhere {
        writeln!(
            text,
            "{part} runs in the cluster already, as deployment `{NAMESPACE}/{deployment}`: ours is left out"
        )
        .expect("writing to a string");
    }
    text.push_str(WITHOUT_WEBHOOKS);
    if args.reservation_image.is_none() {
        text.push_str(
            "  - sharing GPUs also needs the image of the pods that hold them: --reservation-image\n",
        );
    }
    writeln!(
        text,
        "\nTry in another terminal, after `export KUBECONFIG={}`:\n  \
           kubectl run hello --image=busybox --overrides='{{\"spec\":{{\"schedulerName\":\"kai-scheduler\"}}}}'\n  \
           kubectl get podgroups,bindrequests\n\n\
         Ctrl-C ends it.\n",
        kubeconfig.display()
    )
    .expect("writing to a string");
    text
}

/// The last words: what stays, and how it goes away.
fn farewell(ours: &[Manifest]) -> String {
    let mut text = "the trial has ended; pods that run go on, pods that wait stay Pending\n".to_owned();
    if ours.is_empty() {
        text.push_str("it leaves nothing behind but the pod groups of pods, and its leases\n");
        return text;
    }
    text.push_str("it leaves behind:\n");
    for manifest in ours {
        writeln!(text, "  {}", survey::name(manifest)).expect("writing to a string");
    }
    let takes_all = ours.iter().any(|manifest| manifest.kind == kind::CUSTOM_RESOURCE_DEFINITION);
    let also = if takes_all { ", with every queue, pod group and bind request there is" } else { "" };
    writeln!(text, "to take that away{also}:").expect("writing to a string");
    // Namespaces take what is in them along.
    let gone: Vec<&str> = ours
        .iter()
        .filter(|manifest| manifest.kind == kind::NAMESPACE)
        .map(|manifest| object::name(&manifest.object))
        .collect();
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for manifest in ours.iter().rev() {
        let (namespace, plural) = (object::namespace(&manifest.object), &*manifest.kind.plural);
        if gone.contains(&namespace) {
            continue;
        }
        match commands.iter_mut().find(|(other, _)| *other == namespace) {
            Some((_, kinds)) if kinds.contains(&plural) => {}
            Some((_, kinds)) => kinds.push(plural),
            None => commands.push((namespace, vec![plural])),
        }
    }
    for (namespace, kinds) in commands {
        let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
        let kinds = kinds.join(",");
        writeln!(text, "  kubectl delete{place} {kinds} -l {}={}", MADE_BY.0, MADE_BY.1)
            .expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(kind: kai_runtime::ResourceKind, namespace: &str, name: &str) -> Manifest {
        Manifest::new(kind, json!({"metadata": {"name": name, "namespace": namespace}}))
    }

    #[test]
    fn what_is_in_a_namespace_of_somebody_else_is_taken_away_by_itself() {
        let account = manifest(kind::SERVICE_ACCOUNT, "a", "x");
        let classes = ["one", "two"].map(|name| manifest(kind::PRIORITY_CLASS, "", name));
        let mut ours = vec![account];
        ours.extend(classes);
        let told = farewell(&ours);
        assert!(
            told.ends_with(
                "to take that away:\n  kubectl delete priorityclasses -l kai.scheduler/made-by=kai-up\n  \
                 kubectl delete -n a serviceaccounts -l kai.scheduler/made-by=kai-up\n"
            ),
            "{told}"
        );
        ours.push(manifest(kind::NAMESPACE, "", "a"));
        let told = farewell(&ours);
        assert!(
            told.ends_with("  kubectl delete namespaces,priorityclasses -l kai.scheduler/made-by=kai-up\n"),
            "{told}"
        );
    }
}
