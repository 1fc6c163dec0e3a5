//! The combined process: the objects of an installation whose components run in one Deployment, `kai all`.
//!
//! They follow from those of the separate topology: the arguments of each process become a section of one command line, its
//! certificate another volume, and Services lead to the pods of the one Deployment. Settings of the pods are those of
//! `spec.scheduler`.

use crate::operand::webhook_port_of;
use crate::settings::{Settings, enabled};
use crate::shard;
use crate::topology::{Combined, Current, Separate, Stage, Topology};
use crate::workload::{Port, VPA_MISSING, Workload, service, service_account};
use crate::{Desired, Facts, Object, ObjectKey, Operand, resources};
use kai_api::SchedulingShard;
use kai_api::config::service::{Image, Service};
use kai_api::well_known::{env, label};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name of the Deployment, its account, its image and its Service.
pub(crate) const NAME: &str = "kai-all";
pub(crate) const BINDER: &str = "binder";
const OPERAND: &str = "Combined";
const SCHEDULER: &str = "scheduler";
const SCHEDULER_OPERAND: &str = "Scheduler";
/// Directory with a directory for the certificate of each webhook.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server";
/// The scheduler's default; those of further shards follow.
const PLUGIN_SERVER_PORT: usize = 8081;

/// A component that the combined process runs, besides the schedulers.
struct Member {
    /// Name of its Deployment, its account and its Service, and of its section.
    name: &'static str,
    operand: &'static str,
    /// The flag of the port of its webhooks, and the port where the `Config` has none.
    webhook: Option<(&'static str, i64)>,
}

const MEMBERS: [Member; 5] = [
    Member { name: BINDER, operand: "Binder", webhook: None },
    Member { name: "pod-grouper", operand: "PodGrouper", webhook: None },
    Member {
        name: "podgroup-controller",
        operand: "PodGroupController",
        webhook: Some(("--webhook-bind-address", 9445)),
    },
    Member {
        name: "queue-controller",
        operand: "QueueController",
        webhook: Some(("--webhook-bind-address", 9444)),
    },
    Member { name: "admission", operand: "KAIAdmission", webhook: Some(("--webhook-addr", 9443)) },
];

/// Flags of the process, each with whether its value is an argument of its own; in a section they have no effect.
const OF_THE_PROCESS: [(&str, bool); 9] = [
    ("--health-probe-bind-address", true),
    ("--metrics-bind-address", true),
    ("--metrics-listen-address", true),
    ("--listen-address", true),
    ("--leader-elect", false),
    ("--log-json", false),
    ("--zap-devel", false),
    ("--version", false),
    ("--v", false),
];

/// The objects of the topology that the `Config` asks for, or of the step on the way to it.
pub(crate) fn divided(
    separate: Desired,
    settings: &Settings,
    shards: &[SchedulingShard],
    facts: &Facts,
) -> Desired {
    let current = Current { settings, facts };
    let topology = match &settings.topology {
        Ok(topology) => *topology,
        // What is deployed stays.
        Err(_) if current.deployment(NAME).is_some() => Topology::Combined,
        Err(_) => Topology::Separate,
    };
    let stage = Stage::of(topology, &separate, settings, shards, facts);
    let mut desired = if stage == (Stage { separate: Separate::All, combined: Combined::Nothing }) {
        separate
    } else {
        Division { current, stage, shards }.apply(separate)
    };
    if let Err(error) = &settings.topology {
        let error = Some(error.clone());
        desired.config.push(Operand { name: "Topology", error, ..Operand::default() });
    }
    desired
}

/// Whether the combined process runs the component of an operand.
pub(crate) fn is_part(operand: &Operand) -> bool {
    MEMBERS.iter().any(|member| member.operand == operand.name)
}

/// Which two parts of the process would listen on one port.
pub(crate) fn port_conflict(settings: &Settings) -> Option<String> {
    Ports::new(settings).check().err()
}

/// Leaves what is deployed of the combined process as it is: the settings of a shard, hence its section, cannot be read.
pub(crate) fn withhold(desired: &mut Desired, why: &str) {
    if let Some(operand) = desired.config.iter_mut().find(|operand| operand.name == OPERAND) {
        operand.objects.clear();
        operand.error = Some(why.to_owned());
    }
}

struct Division<'a> {
    current: Current<'a>,
    stage: Stage,
    shards: &'a [SchedulingShard],
}

/// Ports on which the combined process listens.
struct Ports {
    metrics: i64,
    /// Of the webhooks, by component.
    webhooks: BTreeMap<&'static str, i64>,
}

impl Division<'_> {
    fn apply(&self, mut desired: Desired) -> Desired {
        let settings = self.current.settings;
        let ports = Ports::new(settings);
        let process = self.process(&desired, &ports);
        for operand in &mut desired.config {
            if let Some(member) = MEMBERS.iter().find(|member| member.operand == operand.name) {
                self.member(operand, member, &ports);
            } else if operand.name == SCHEDULER_OPERAND {
                operand.objects.retain(|_| self.scheduler_account_is_used());
            }
        }
        for (shard, (_, operand)) in self.shards.iter().zip(&mut desired.shards) {
            self.shard(operand, shard, &ports);
        }
        desired.config.push(process);
        desired
    }

    /// The operand of the combined process.
    fn process(&self, separate: &Desired, ports: &Ports) -> Operand {
        let operand = Operand { name: OPERAND, ..Operand::default() };
        let account =
            || service_account(NAME, &self.current.settings.namespace, &self.current.settings.owner());
        match &self.stage.combined {
            Combined::Deployed => self
                .deployed(separate, ports)
                .unwrap_or_else(|error| Operand { error: Some(error), ..operand }),
            Combined::Withheld(why) => Operand { waiting: Some(why.clone()), ..operand },
            Combined::Kept => {
                let kinds = [
                    "Deployment",
                    "ServiceAccount",
                    "Service",
                    "PodDisruptionBudget",
                    "VerticalPodAutoscaler",
                ];
                let objects = kinds.iter().filter_map(|kind| self.current.object(kind, NAME).cloned());
                Operand { objects: objects.collect(), ..operand }
            }
            // Its pods use the account until they have ended, to give their leases back.
            Combined::Nothing if self.current.has_pods(NAME) => {
                Operand { objects: vec![account()], ..operand }
            }
            Combined::Nothing => operand,
        }
    }

    fn deployed(&self, separate: &Desired, ports: &Ports) -> Result<Operand, String> {
        let (settings, facts) = (self.current.settings, self.current.facts);
        let mut operand = Operand { name: OPERAND, ..Operand::default() };
        let sections = self.sections(separate, ports, &mut operand)?;
        if sections.is_empty() {
            return Ok(operand);
        }
        ports.check()?;
        let CommandLine { args, volumes, container } = self.command_line(sections, ports);
        let own = settings.scheduler.service.clone().unwrap_or_default();
        let image = own.image.clone().unwrap_or_default();
        let own = Service { image: Some(Image { name: Some(NAME.to_owned()), ..image }), ..own };
        let workload = Workload {
            name: NAME,
            owner: settings.owner(),
            account: NAME,
            service: Some(&own),
            image: NAME,
            defaults: resources::COMBINED,
            args,
            replicas: settings.replicas(settings.scheduler.replicas),
            // The old pod works until it gives its lease to the new one.
            strategy: Some(
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}),
            ),
            container,
            volumes,
            template: json!({}),
        };
        let metrics = Port { name: "http-metrics", number: ports.metrics, target: ports.metrics };
        operand.objects.push(workload.deployment(settings, facts));
        operand.objects.extend(workload.disruption_budget(settings));
        operand.objects.extend([
            service_account(NAME, &settings.namespace, &settings.owner()),
            service(NAME, &settings.namespace, &settings.owner(), &[metrics]),
        ]);
        workload.scale(settings, settings.scheduler.vpa.as_ref(), facts, &mut operand);
        Ok(operand)
    }

    /// The arguments of the process, with what its container needs for them.
    fn command_line(&self, sections: Vec<Section>, ports: &Ports) -> CommandLine {
        let mut names: Vec<&str> = sections.iter().map(|section| section.name).collect();
        names.dedup();
        let mut args = vec![
            "--leader-elect".to_owned(),
            format!("--metrics-bind-address=:{}", ports.metrics),
            format!("--components={}", names.join(",")),
        ];
        if self.current.settings.json_log {
            args.push("--zap-devel=false".to_owned());
        }
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        let metrics = json!({"name": "http-metrics", "containerPort": ports.metrics, "protocol": "TCP"});
        let mut listens = vec![metrics];
        for section in sections {
            args.push(section.name.to_owned());
            args.extend(section.args);
            let (Some(secret), Some(port)) = (section.secret, ports.webhooks.get(section.name)) else {
                continue;
            };
            let directory = format!("{CERTIFICATES}/{}", section.name);
            let volume = format!("cert-{}", section.name);
            args.extend(["--webhook-cert-dir".to_owned(), directory.clone()]);
            mounts.push(json!({"name": volume, "mountPath": directory, "readOnly": true}));
            volumes.push(json!({"name": volume, "secret": {"secretName": secret}}));
            listens.push(json!({"containerPort": port, "protocol": "TCP"}));
        }
        let namespace = json!({"fieldRef": {"fieldPath": "metadata.namespace"}});
        let mut container = json!({
            "ports": listens,
            "env": [{"name": env::POD_NAMESPACE, "valueFrom": namespace}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": ports.metrics}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": ports.metrics}},
        });
        if !mounts.is_empty() {
            kai_object::set(&mut container, &["volumeMounts"], Value::from(mounts));
        }
        CommandLine { args, volumes, container }
    }

    /// The sections of the command line: schedulers first.
    fn sections(
        &self,
        separate: &Desired,
        ports: &Ports,
        operand: &mut Operand,
    ) -> Result<Vec<Section>, String> {
        let mut sections = Vec::new();
        if enabled(self.current.settings.scheduler.service.as_ref()) {
            for (shard, (_, own)) in self.shards.iter().zip(&separate.shards) {
                let port = PLUGIN_SERVER_PORT + sections.len();
                let args = match own.error {
                    None => {
                        let mut args = vec![format!("--plugin-server-port={port}")];
                        args.extend(shard::arguments_of(self.current.settings, shard));
                        Some(own_flags(&args))
                    }
                    Some(_) => self.deployed_section(shard),
                };
                sections.extend(args.map(|args| Section { name: SCHEDULER, args, secret: None }));
            }
        }
        for member in &MEMBERS {
            let Some(own) = separate.config.iter().find(|own| own.name == member.operand) else { continue };
            if let Some(error) = &own.error {
                return Err(format!("{}: {error}", member.operand));
            }
            let Some(pod) = deployment_of(own, member.name).and_then(|of| of.pointer("/spec/template/spec"))
            else {
                continue;
            };
            let args = deployment_of(own, member.name).map(arguments).unwrap_or_default();
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let mut args = own_flags(&args);
            if let (Some((flag, _)), Some(port)) = (member.webhook, ports.webhooks.get(member.name)) {
                remove(&mut args, flag, true);
                // Admission takes a number, the others an address.
                let address = if flag == "--webhook-addr" { port.to_string() } else { format!(":{port}") };
                args.extend([flag.to_owned(), address]);
            }
            let secret = kai_object::str_at(pod, "/volumes/0/secret/secretName").to_owned();
            let secret = Some(secret).filter(|name| !name.is_empty());
            sections.push(Section { name: member.name, args, secret });
            operand.notices.extend(self.unused_settings(member));
        }
        Ok(sections)
    }

    /// The arguments of a shard's scheduler in the process as it is deployed. Each is one argument.
    fn deployed_section(&self, shard: &SchedulingShard) -> Option<Vec<String>> {
        let wanted = configuration_of(&shard::workload_name(self.current.settings, shard));
        let args = arguments(self.current.deployment(NAME)?);
        let sections = args.split(|arg| *arg == SCHEDULER).skip(1);
        let own = sections.map(|section| section.iter().take_while(|arg| arg.starts_with("--")));
        let mut own = own.map(|section| section.map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        own.find(|section| section.contains(&wanted))
    }

    /// Settings of a component's pods, which the combined process does not read.
    fn unused_settings(&self, member: &Member) -> Option<String> {
        let settings = self.current.settings;
        let (place, service, replicas, vpa, image) = match member.name {
            BINDER => {
                let own = &settings.binder;
                ("binder", &own.service, own.replicas, own.vpa.is_some(), "binder")
            }
            "pod-grouper" => {
                let own = &settings.pod_grouper;
                ("podGrouper", &own.service, own.replicas, own.vpa.is_some(), "podgrouper")
            }
            "podgroup-controller" => {
                let own = &settings.pod_group_controller;
                ("podGroupController", &own.service, own.replicas, own.vpa.is_some(), "podgroupcontroller")
            }
            "queue-controller" => {
                let own = &settings.queue_controller;
                ("queueController", &own.service, own.replicas, own.vpa.is_some(), "queuecontroller")
            }
            _ => {
                let own = &settings.admission;
                ("admission", &own.service, own.replicas, own.vpa.is_some(), "admission")
            }
        };
        let service = service.clone().unwrap_or_default();
        let name = service.image.and_then(|image| image.name);
        let unused = [
            ("replicas", replicas.is_some()),
            ("service.affinity", service.affinity.is_some()),
            ("service.image.name", name.is_some_and(|name| name != image)),
            ("service.resources", service.resources.is_some()),
            ("vpa", vpa),
        ];
        let unused: Vec<String> =
            unused.iter().filter(|(_, is)| *is).map(|(field, _)| format!("spec.{place}.{field}")).collect();
        (!unused.is_empty()).then(|| {
            format!(
                "{} has no effect: the component runs in the process `{NAME}`; hint: set it in spec.scheduler, or choose \
                 topology `separate`",
                unused.join(", ")
            )
        })
    }

    /// Changes the operand of a component to what is left of it.
    fn member(&self, operand: &mut Operand, member: &Member, ports: &Ports) {
        let namespace = &self.current.settings.namespace;
        let exists = self.current.deployment(member.name).is_some();
        let is_existing = matches!(self.stage.separate, Separate::Existing { .. });
        let runs_alone = match &self.stage.separate {
            Separate::All | Separate::WithoutBinder(_) => true,
            Separate::Existing { with_binder } => exists && (*with_binder || member.name != BINDER),
            Separate::Nothing => false,
        };
        if let Separate::WithoutBinder(why) = &self.stage.separate
            && member.name == BINDER
            && !operand.objects.is_empty()
        {
            operand.waiting = Some(why.clone());
            operand.objects.retain(|object| !is_workload(object, BINDER));
        } else if is_existing && runs_alone {
            self.keep(operand, member.name);
        } else if !runs_alone {
            operand.missing.retain(|what| what != VPA_MISSING);
            let keeps_account = self.current.has_pods(member.name);
            operand.objects.retain(|object| {
                let is_account = kai_object::kind(object) == "ServiceAccount"
                    && kai_object::name(object) == member.name
                    && kai_object::namespace(object) == *namespace;
                !is_workload(object, member.name) && (!is_account || keeps_account)
            });
        }
        if !runs_alone || self.stage.combined == Combined::Kept {
            // Its metrics are those of the process.
            operand
                .objects
                .retain(|object| !(kai_object::kind(object) == "Service" && member.name == BINDER));
            for object in operand.objects.iter_mut().filter(|object| kai_object::kind(object) == "Service") {
                redirect(object, ports, ports.webhooks.get(member.name).copied());
            }
        }
    }

    /// Replaces the objects of a process by what exists of them.
    fn keep(&self, operand: &mut Operand, name: &str) {
        operand.objects.retain(|object| {
            !is_workload(object, name) || self.current.facts.objects.contains_key(&ObjectKey::of(object))
        });
        for object in operand.objects.iter_mut().filter(|object| is_workload(object, name)) {
            if let Some(current) = self.current.facts.objects.get(&ObjectKey::of(object)) {
                object.clone_from(current);
            }
        }
    }

    fn shard(&self, operand: &mut Operand, shard: &SchedulingShard, ports: &Ports) {
        let name = shard::workload_name(self.current.settings, shard);
        let deployment = self.current.deployment(&name);
        let takes_no_lease = || shard::takes_no_lease(&name, self.current.settings, self.current.facts);
        let runs_alone = match &self.stage.separate {
            Separate::All | Separate::WithoutBinder(_) => true,
            // One that takes no lease would schedule beside the combined process.
            Separate::Existing { with_binder } => deployment.is_some() && (*with_binder || !takes_no_lease()),
            Separate::Nothing => false,
        };
        if matches!(self.stage.separate, Separate::Existing { .. }) && runs_alone {
            self.keep(operand, &name);
        } else if !runs_alone {
            operand.missing.retain(|what| what != VPA_MISSING);
            operand.objects.retain(|object| !is_workload(object, &name));
            operand.notices.extend(unused_arguments(shard));
            if operand.error.is_none() && !operand.objects.is_empty() {
                operand.runs_in = Some(self.current.key("Deployment", NAME));
                operand.waiting = self.without_section(&name);
            }
        }
        if !runs_alone || self.stage.combined == Combined::Kept {
            for object in &mut operand.objects {
                match kai_object::kind(object) {
                    "Service" => redirect(object, ports, None),
                    "EndpointSlice" => {
                        if let Some(port) = object.pointer_mut("/ports/0/port") {
                            *port = Value::from(ports.metrics);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Why the deployed process does not run the scheduler of a shard; a process that is not deployed is no matter of the shard.
    fn without_section(&self, name: &str) -> Option<String> {
        let has = arguments(self.current.deployment(NAME)?).contains(&configuration_of(name).as_str());
        (!has).then(|| format!("process `{NAME}` does not run this scheduler yet"))
    }

    fn scheduler_account_is_used(&self) -> bool {
        let names = self.shards.iter().map(|shard| shard::workload_name(self.current.settings, shard));
        match &self.stage.separate {
            Separate::All | Separate::WithoutBinder(_) => true,
            Separate::Existing { .. } | Separate::Nothing => names
                .into_iter()
                .any(|name| self.current.deployment(&name).is_some() || self.current.has_pods(&name)),
        }
    }
}

/// The arguments of the process, its volumes, and further fields of its container.
struct CommandLine {
    args: Vec<String>,
    volumes: Vec<Value>,
    container: Value,
}

/// A component in the command line.
struct Section {
    name: &'static str,
    args: Vec<String>,
    /// The Secret with the certificate of its webhooks.
    secret: Option<String>,
}

impl Ports {
    fn new(settings: &Settings) -> Self {
        let of = |member: &Member| {
            let (_, default) = member.webhook?;
            Some((member.name, webhook_port_of(settings, member.name).unwrap_or(default)))
        };
        Self { metrics: shard::metrics_target(settings), webhooks: MEMBERS.iter().filter_map(of).collect() }
    }

    /// One process cannot listen twice on a port.
    fn check(&self) -> Result<(), String> {
        let mut used = BTreeMap::from([(self.metrics, "the metrics")]);
        for (name, port) in &self.webhooks {
            if let Some(other) = used.insert(*port, name) {
                return Err(format!(
                    "{name} and {other} would both listen on port {port} of one process; hint: change one of the target \
                     ports in the Config"
                ));
            }
        }
        Ok(())
    }
}

/// Arguments of a shard that concern the whole process.
fn unused_arguments(shard: &SchedulingShard) -> Option<String> {
    let args = shard.spec.args.iter().flatten().map(|(name, _)| format!("--{name}"));
    let unused: Vec<String> = args.filter(|arg| OF_THE_PROCESS.iter().any(|(flag, _)| flag == arg)).collect();
    (!unused.is_empty()).then(|| {
        format!(
            "spec.args: {} has no effect: the scheduler runs in the process `{NAME}`; hint: choose topology `separate`",
            unused.join(", ")
        )
    })
}

fn deployment_of<'a>(operand: &'a Operand, name: &str) -> Option<&'a Object> {
    let mut objects = operand.objects.iter();
    objects.find(|object| kai_object::kind(object) == "Deployment" && kai_object::name(object) == name)
}

fn arguments(deployment: &Object) -> Vec<&str> {
    let args = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The argument that names the ConfigMap of a shard.
fn configuration_of(name: &str) -> String {
    format!("--scheduler-conf-map={name}")
}

/// Whether an object exists for the pods of a Deployment.
fn is_workload(object: &Object, name: &str) -> bool {
    ["Deployment", "PodDisruptionBudget", "VerticalPodAutoscaler"].contains(&kai_object::kind(object))
        && kai_object::name(object) == name
}

/// Leads a Service to the pods of the combined process. Metrics of the process have a Service of their own, and so have those
/// that are read as usage of queues, and those of shards.
fn redirect(service: &mut Object, ports: &Ports, webhook: Option<i64>) {
    if service.pointer("/spec/selector").is_some() {
        kai_object::set(service, &["spec", "selector"], json!({label::APP: NAME}));
    }
    let has_webhook = webhook.is_some();
    let is_queue_controller = kai_object::name(service) == "queue-controller";
    let Some(list) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else { return };
    if has_webhook && !is_queue_controller {
        list.truncate(1);
    }
    for (number, port) in list.iter_mut().enumerate() {
        let target = webhook.filter(|_| number == 0).unwrap_or(ports.metrics);
        kai_object::set(port, &["targetPort"], Value::from(target));
    }
}

/// Arguments without the flags of the process.
fn own_flags(args: &[String]) -> Vec<String> {
    let mut own = args.to_vec();
    for (flag, takes_next) in OF_THE_PROCESS {
        remove(&mut own, flag, takes_next);
    }
    own
}

/// Removes a flag: as one argument with `=`, or with its value in the next one.
fn remove(args: &mut Vec<String>, flag: &str, takes_next: bool) {
    let prefix = format!("{flag}=");
    let mut rest = std::mem::take(args).into_iter();
    while let Some(arg) = rest.next() {
        if arg == flag {
            if takes_next {
                rest.next();
            }
        } else if !arg.starts_with(&prefix) {
            args.push(arg);
        }
    }
}
