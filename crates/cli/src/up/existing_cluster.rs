//! `kai up --for-real`: runs the components in this process against an existing cluster, for a trial.
//!
//! Creates missing objects after confirmation, runs every component that the cluster does not run itself, each with
//! leader election, and lists at the end the objects that it leaves behind.

mod confirmation;
mod required_objects;
mod webhooks;

use super::status_line::{self, StatusLine};
use crate::args;
use anyhow::{Context, Result, anyhow, bail};
use confirmation::Confirmation;
use kai_api::well_known::name::NAMESPACE;
use kai_components::install::Manifest;
use kai_components::process::{self, ComponentProcess, LeadershipState};
use kai_components::signals::ShutdownSignals;
use kai_components::spec::Lease;
use kai_components::supervisor::Restarts;
use kai_components::{
    COMPONENTS, Component, ComponentOptions, ComponentSpec, Extensions, SchedulerHandle, name,
};
use kai_object as object;
use kai_runtime::api::Api;
use kai_runtime::leader_election::Candidate;
use kai_runtime::{Key, Process, connect, kind, log};
use parking_lot::Mutex;
use prometheus::Registry;
use required_objects::{MADE_BY, RequiredObjects};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use webhooks::{Notices, Webhooks};

/// User agent and field manager of requests outside of components.
const USER_AGENT: &str = "kai-up";
/// How long the first response may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long components may take to end: to write what is queued and to release their leases.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Runs until a signal.
pub(super) fn run(args: &args::Up, kubeconfig: &Path, extensions: &Extensions) -> Result<ExitCode> {
    log::start(tracing::level_filters::LevelFilter::WARN, log::Format::Text);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(trial(args, kubeconfig, extensions))?;
    Ok(ExitCode::SUCCESS)
}

async fn trial(args: &args::Up, kubeconfig: &Path, extensions: &Extensions) -> Result<()> {
    let config = connect::config(Some(kubeconfig.to_owned()), None).await?;
    let url = config.cluster_url.to_string();
    let api = Api::new(connect::client(config.clone())?, USER_AGENT);
    let deployed = tokio::time::timeout(CONNECT_TIMEOUT, deployed_components(&api)).await;
    let deployed = deployed.map_err(|_| {
        let seconds = CONNECT_TIMEOUT.as_secs();
        anyhow!("the cluster at {url} did not respond within {seconds} s; hint: check the network and the kubeconfig")
    })??;
    if let Some((_, deployment)) =
        deployed.iter().find(|(component, _)| [name::SCHEDULER, name::COMBINED].contains(component))
    {
        bail!(
            "the cluster already runs a scheduler named `{}`, deployment `{NAMESPACE}/{deployment}`; two would conflict; \
             hint: kubectl -n {NAMESPACE} scale deployment {deployment} --replicas=0, after its operator if there is one",
            name::SCHEDULER
        );
    }
    let required = RequiredObjects::read(&api).await?;
    crate::print(&format!("cluster: {url}\n{}", listing(&required)))?;
    let created = create(args, &api, required).await?;

    let mut options = ComponentOptions::default();
    if let Some(image) = &args.reservation_image {
        options.binder.reservation_image.clone_from(image);
    }
    super::configure(&mut options, args, extensions)?;
    let is_deployed = |spec: &ComponentSpec| deployed.iter().any(|(other, _)| *other == spec.name);
    let mut signals = ShutdownSignals::listen()?;
    let (shutdown, on_shutdown) = watch::channel(false);
    let mut components = Components::default();
    let webhooks = Webhooks::new(args.webhook_address.as_ref(), &config, &components.notices);
    // What runs here is not deployed by an operator.
    let wanted = |spec: &&ComponentSpec| {
        !matches!(spec.component, Component::Operator | Component::Combined) && !is_deployed(spec)
    };
    for spec in COMPONENTS.iter().filter(wanted) {
        let (options, plugins, webhooks) = (options.clone(), extensions.scheduler.clone(), webhooks.clone());
        let run = move |process: Process| -> Running {
            if spec.component == Component::Admission {
                return Box::pin(webhooks.clone().run(process));
            }
            spec.component.run(process, options.clone(), plugins.clone(), SchedulerHandle::default())
        };
        components.start(spec, &config, run, on_shutdown.clone())?;
    }
    crate::print(&welcome(kubeconfig, &deployed, args))?;
    show(&api, &mut components, &mut signals).await;
    shutdown.send_replace(true);
    components.join().await;
    webhooks.unregister(&api).await;
    crate::print(&summary(&created, kubeconfig))
}

/// Creates missing objects and replaces different ones, as far as confirmed; returns all objects created by trials.
async fn create(args: &args::Up, api: &Api, required: RequiredObjects) -> Result<Vec<Manifest>> {
    let RequiredObjects { missing, different, mut created } = required;
    if !missing.is_empty() {
        Confirmation::of(args.yes).require(&format!("Create these {} objects?", missing.len()))?;
    }
    for different in &different {
        let confirmation = if args.yes && !args.replace {
            Confirmation::Unavailable
        } else {
            Confirmation::of(args.replace)
        };
        let name = required_objects::name(&different.wanted);
        let question = format!("Replace {name}?");
        if required_objects::is_replaceable(&different.wanted.kind) && confirmation.get(&question)? {
            required_objects::replace(api, different).await?;
            crate::print(&format!("replaced: {name}\n"))?;
        } else {
            crate::print(&format!("unchanged: {name}\n"))?;
        }
    }
    let mut is_waiting = true;
    for manifest in missing {
        if is_waiting && manifest.kind != kind::CUSTOM_RESOURCE_DEFINITION {
            required_objects::wait_until_served(api).await?;
            is_waiting = false;
        }
        required_objects::create(api, &manifest).await?;
        created.push(manifest);
    }
    required_objects::wait_until_served(api).await?;
    Ok(created)
}

/// The components that the cluster runs itself, with their Deployments.
async fn deployed_components(api: &Api) -> Result<Vec<(&'static str, String)>> {
    let deployments = api.list_dynamic(&kind::DEPLOYMENT, NAMESPACE).await;
    let deployments = deployments.map_err(|error| {
        anyhow!(
            "the cluster cannot be read: {}; hint: check the kubeconfig and the permissions of its user",
            error.message()
        )
    })?;
    let mut running = Vec::new();
    for deployment in deployments.items.iter().filter(|deployment| deployment["spec"]["replicas"] != 0) {
        let deployment_name = object::name(deployment);
        // Each SchedulingShard has a scheduler; all have the same schedulerName.
        let scheduler =
            deployment_name.strip_prefix(name::SCHEDULER).is_some_and(|rest| rest.starts_with('-'));
        let component = COMPONENTS.iter().map(|spec| spec.name).find(|name| *name == deployment_name);
        let component = component.or(scheduler.then_some(name::SCHEDULER));
        running.extend(component.map(|name| (name, deployment_name.to_owned())));
    }
    Ok(running)
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Components {
    tasks: JoinSet<()>,
    elections: Vec<Election>,
    restarts: Restarts,
    notices: Notices,
}

/// The leader election of a component.
struct Election {
    name: &'static str,
    candidate: Candidate,
    /// Of the latest start.
    leadership: Arc<Mutex<watch::Receiver<LeadershipState>>>,
    /// Lease holders that were reported.
    reported: BTreeSet<String>,
}

impl Components {
    /// Starts a component; those without a lease stand in for simulated nodes and are not needed.
    fn start(
        &mut self,
        spec: &'static ComponentSpec,
        config: &kube::Config,
        start: impl Fn(Process) -> Running + Clone + Send + Sync + 'static,
        on_shutdown: watch::Receiver<bool>,
    ) -> Result<()> {
        let Some(Lease { name: lease, timing }) = spec.lease else { return Ok(()) };
        let candidate =
            Candidate { lease: Key::new(NAMESPACE, lease), identity: process::identity()?, timing };
        let name = spec.name;
        let (config, elected) = (config.clone(), candidate.clone());
        let leadership = Arc::new(Mutex::new(watch::channel(LeadershipState::Standby).1));
        self.elections.push(Election {
            name,
            candidate,
            leadership: Arc::clone(&leadership),
            reported: BTreeSet::new(),
        });
        let run = move || {
            let (start, mut on_shutdown) = (start.clone(), on_shutdown.clone());
            let (config, elected, leadership) = (config.clone(), elected.clone(), Arc::clone(&leadership));
            async move {
                // Each start has a connection of its own, as a process would have.
                let lease_client = connect::lease_client(config.clone())?;
                let api = Api::new(connect::client(config)?, name);
                let mut process = ComponentProcess::new(name, api, Some(elected), Registry::new());
                process.lease_api = Some(process.api.isolated_on(lease_client));
                *leadership.lock() = process.leadership();
                let shutdown = async {
                    // Cannot fail: the sender is dropped after all components have ended.
                    let _ = on_shutdown.wait_for(|is_set| *is_set).await;
                };
                process.run(shutdown, start).await
            }
        };
        let restarts = self.restarts.clone();
        self.tasks.spawn(async move { Box::pin(restarts.supervise(name, run)).await });
        Ok(())
    }

    /// Changes of leader election since the last call, as text.
    async fn election_changes(&mut self, api: &Api) -> Vec<String> {
        let mut changes = Vec::new();
        for election in &mut self.elections {
            let Election { name, candidate, leadership, reported } = election;
            if *leadership.lock().borrow() == LeadershipState::Leading {
                if !reported.is_empty() {
                    changes.push(format!("{name} has acquired its lease"));
                    reported.clear();
                }
                continue;
            }
            let Ok(Some(holder)) = candidate.holder(api).await else { continue };
            if holder.identity != candidate.identity && reported.insert(holder.identity.clone()) {
                changes.push(format!(
                    "{name} is on standby: `{}` holds the lease `{}` and renewed it at {}; hint: stop that replica, and \
                     this one takes over",
                    holder.identity, candidate.lease, holder.renewed
                ));
            }
        }
        changes
    }

    /// Waits until all have ended; one that waits for its restart is not waited for.
    async fn join(mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(JOIN_TIMEOUT, ended).await;
    }
}

/// Shows the status line until a signal.
async fn show(api: &Api, components: &mut Components, signals: &mut ShutdownSignals) {
    let mut status = tokio::select! {
        biased;
        () = signals.wait() => return,
        status = StatusLine::start(api) => status,
    };
    let mut ticks = tokio::time::interval(status_line::REFRESH_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => break,
            _ = ticks.tick() => {
                for notice in components.restarts.take().into_iter().chain(components.notices.take()) {
                    status.print(&notice);
                }
                for change in components.election_changes(api).await {
                    status.print(&change);
                }
                status.show();
            }
        }
    }
    status.finish();
}

/// Objects that are missing, and objects that differ.
fn listing(required: &RequiredObjects) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("writing to a string");
    if required.missing.is_empty() {
        line(format_args!("all required objects exist"));
    } else {
        line(format_args!("objects to create:"));
    }
    for manifest in &required.missing {
        line(format_args!("  {}", required_objects::name(manifest)));
    }
    if !required.different.is_empty() {
        line(format_args!("existing objects that differ from this version:"));
    }
    for different in &required.different {
        line(format_args!("  {} in {}", required_objects::name(&different.wanted), different.field));
    }
    text
}

fn welcome(kubeconfig: &Path, deployed: &[(&str, String)], args: &args::Up) -> String {
    let mut text = "\ncomponents are running in this process, for a trial\n".to_owned();
    for (component, deployment) in deployed {
        writeln!(
            text,
            "{component} is left out: the cluster runs it as deployment `{NAMESPACE}/{deployment}`"
        )
        .expect("writing to a string");
    }
    text.push_str("pods have to set `schedulerName: kai-scheduler` themselves\n");
    if args.reservation_image.is_none() {
        text.push_str("GPU sharing needs the image of reservation pods: --reservation-image\n");
    }
    writeln!(
        text,
        "\nUse it from another terminal, after `export KUBECONFIG={}`:\n  \
           kubectl run hello --image=busybox --overrides='{{\"spec\":{{\"schedulerName\":\"kai-scheduler\"}}}}'\n  \
           kubectl get podgroups,bindrequests\n  \
           kai jobs -A\n  \
           kai why hello\n\n\
         Press Ctrl-C to stop.\n",
        kubeconfig.display()
    )
    .expect("writing to a string");
    text
}

/// The objects that stay in the cluster, and the commands that delete them.
fn summary(created: &[Manifest], kubeconfig: &Path) -> String {
    let mut text = "trial stopped; running pods keep running, pending pods stay Pending\n".to_owned();
    if created.is_empty() {
        text.push_str("it leaves behind only pod groups and leases\n");
        return text;
    }
    text.push_str("it leaves behind:\n");
    for manifest in created {
        writeln!(text, "  {}", required_objects::name(manifest)).expect("writing to a string");
    }
    let has_crds = created.iter().any(|manifest| manifest.kind == kind::CUSTOM_RESOURCE_DEFINITION);
    let also = if has_crds { ", including all queues, pod groups and bind requests" } else { "" };
    writeln!(text, "to delete it{also}:").expect("writing to a string");
    // Deleting a namespace deletes the objects in it.
    let deleted: Vec<&str> = created
        .iter()
        .filter(|manifest| manifest.kind == kind::NAMESPACE)
        .map(|manifest| object::name(&manifest.object))
        .collect();
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for manifest in created.iter().rev() {
        let (namespace, plural) = (object::namespace(&manifest.object), &*manifest.kind.plural);
        if deleted.contains(&namespace) {
            continue;
        }
        match commands.iter_mut().find(|(other, _)| *other == namespace) {
            Some((_, kinds)) if kinds.contains(&plural) => {}
            Some((_, kinds)) => kinds.push(plural),
            None => commands.push((namespace, vec![plural])),
        }
    }
    for (namespace, kinds) in commands {
        let namespace = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
        let kinds = kinds.join(",");
        writeln!(
            text,
            "  kubectl --kubeconfig {} delete{namespace} {kinds} -l {}={}",
            kubeconfig.display(),
            MADE_BY.0,
            MADE_BY.1
        )
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
    fn welcome_names_our_own_commands() {
        let typed = ["kai", "up", "--for-real", "c"].map(std::ffi::OsString::from);
        let parsed = args::Args::read(typed).expect("it is valid");
        let args::Command::Up(up) = parsed.command else { panic!("it is another command") };
        let text = welcome(Path::new("c"), &[], &up);
        for command in ["export KUBECONFIG=c", "\n  kai jobs -A\n", "\n  kai why hello\n"] {
            assert!(text.contains(command), "{text}");
        }
    }

    #[test]
    fn object_in_an_existing_namespace_is_deleted_separately() {
        let account = manifest(kind::SERVICE_ACCOUNT, "a", "x");
        let classes = ["one", "two"].map(|name| manifest(kind::PRIORITY_CLASS, "", name));
        let mut created = vec![account];
        created.extend(classes);
        let text = summary(&created, Path::new("c"));
        assert!(
            text.ends_with(
                "to delete it:\n  kubectl --kubeconfig c delete priorityclasses -l kai.scheduler/made-by=kai-up\n  \
                 kubectl --kubeconfig c delete -n a serviceaccounts -l kai.scheduler/made-by=kai-up\n"
            ),
            "{text}"
        );
        created.push(manifest(kind::NAMESPACE, "", "a"));
        let text = summary(&created, Path::new("c"));
        assert!(
            text.ends_with(
                "  kubectl --kubeconfig c delete namespaces,priorityclasses -l kai.scheduler/made-by=kai-up\n"
            ),
            "{text}"
        );
    }
}
