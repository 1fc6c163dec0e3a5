//! The table of components.
//!
//! Rights follow from what a component does; a test on a real control plane removes each one alone and expects a
//! refused request, and expects none while all are granted.

use crate::command::CommandLine;
use crate::flags;
use crate::in_process::StartContext;
use crate::spec::{
    Component, ComponentSpec, Health, Lease, NamespacedRules, Ports, Rule, ServiceAccount, Watch,
};
use kai_api::well_known::name::{NAMESPACE, RESOURCE_RESERVATION, SCALE_ADJUST};
use kai_runtime::leader_election::Timing;
use std::time::Duration;

/// Names of components as API clients; KAI's Deployments have the same.
pub mod name {
    pub const SCHEDULER: &str = "kai-scheduler";
    pub const BINDER: &str = "binder";
    pub const POD_GROUPER: &str = "pod-grouper";
    pub const POD_GROUP_CONTROLLER: &str = "podgroup-controller";
    pub const QUEUE_CONTROLLER: &str = "queue-controller";
    pub const ADMISSION: &str = "admission";
    pub const OPERATOR: &str = "kai-operator";
    pub const NODE_SCALE_ADJUSTER: &str = "node-scale-adjuster";
    pub const NUMA_EXPORTER: &str = "numa-placement-exporter";
    pub const RESOURCE_RESERVATION: &str = "resource-reservation";
    pub const COMBINED: &str = "kai-all";
}

/// Port of `/metrics`, as in KAI.
pub(crate) const METRICS_PORT: u16 = 8080;
/// Port of the scheduler's plugin server, as in KAI.
pub(crate) const PLUGIN_SERVER_PORT: u16 = 8081;
/// Port of the probes of KAI's controllers, a second one beside that of `/metrics`.
const PROBE_PORT: u16 = 8081;
/// Port of webhooks: the default of controller-runtime.
pub(crate) const WEBHOOK_PORT: u16 = 9443;

const PORTS: Ports = Ports { metrics: METRICS_PORT, health: None, webhook: None, plugin_server: None };
const PORTS_WITH_PROBES: Ports = Ports { health: Some(PROBE_PORT), ..PORTS };
const HEALTH: Health = Health { liveness: "/healthz", readiness: "/readyz" };
/// The defaults of controller-runtime, which KAI's controllers run with.
const CONTROLLER_LEASE_TIMING: Timing =
    Timing { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) };

const CORE: &str = "";
const SCHEDULING: &str = "scheduling.run.ai";

/// All components of an installation.
pub const COMPONENTS: &[ComponentSpec] = &[
    SCHEDULER,
    BINDER,
    POD_GROUPER,
    POD_GROUP_CONTROLLER,
    QUEUE_CONTROLLER,
    ADMISSION,
    OPERATOR,
    NODE_SCALE_ADJUSTER,
    NUMA_EXPORTER,
    RESERVATION,
    COMBINED,
];

const SCHEDULER: ComponentSpec = ComponentSpec {
    component: Component::Scheduler,
    name: name::SCHEDULER,
    command: "scheduler",
    aliases: &[],
    about: "Run the scheduler",
    command_line: CommandLine::of::<flags::SchedulerFlags>(),
    start: |StartContext { process, options, plugins, scheduler }| {
        let (client, queries) = kai_scheduler::serve::queries();
        scheduler.started(process.metrics.clone(), client);
        Box::pin(kai_scheduler::run(process, options.scheduler, plugins, queries))
    },
    service_account: ServiceAccount { name: "scheduler", namespace: NAMESPACE },
    role: "kai-scheduler",
    watches: &[
        watch(SCHEDULING, &["bindrequests", "podgroups", "queues"], "pod groups, and the binds in flight"),
        watch("kai.scheduler", &["topologies"], "topology constraints"),
        watch(CORE, &["nodes", "pods"], "capacity and requests"),
        watch(
            CORE,
            &["configmaps", "namespaces", "persistentvolumeclaims", "persistentvolumes"],
            "predicates of pods that refer to them",
        ),
        watch("policy", &["poddisruptionbudgets"], "limits of evictions"),
        watch(
            "resource.k8s.io",
            &["deviceclasses", "resourceclaims", "resourceslices"],
            "device claims (DRA)",
        ),
        watch("scheduling.k8s.io", &["priorityclasses"], "priority of pod groups"),
        watch(
            "storage.k8s.io",
            &["csidrivers", "csinodes", "csistoragecapacities", "storageclasses"],
            "storage predicates",
        ),
        watch("topology.node.k8s.io", &["noderesourcetopologies"], "NUMA zones"),
    ],
    rules: &[
        rule(SCHEDULING, &["bindrequests"], &["create", "delete"], "bind decisions"),
        rule(CORE, &["pods/binding"], &["create"], "pods that need nothing of the binder"),
        rule(CORE, &["pods/eviction"], &["create"], "evictions"),
        rule(CORE, &["pods"], &["patch", "delete"], "node pool labels of placed pods; evictions by deletion"),
        rule(SCHEDULING, &["podgroups"], &["patch"], "scheduling annotations of pod groups"),
        rule(SCHEDULING, &["podgroups/status"], &["patch"], "scheduling conditions of pod groups"),
        rule(CORE, &["pods/status"], &["patch"], "PodScheduled and DisruptionTarget conditions"),
        EVENTS,
    ],
    namespaced_rules: &[NamespacedRules {
        namespace: NAMESPACE,
        rules: &[rule(
            CORE,
            &["configmaps"],
            &["create", "patch"],
            "past usage of queues (the usage ledger)",
        )],
    }],
    ports: Ports { plugin_server: Some(PLUGIN_SERVER_PORT), ..PORTS },
    lease: Some(Lease { name: name::SCHEDULER, timing: kai_scheduler::LEASE_TIMING }),
    health: HEALTH,
};

const BINDER: ComponentSpec = ComponentSpec {
    component: Component::Binder,
    name: name::BINDER,
    command: "binder",
    aliases: &[],
    about: "Run the binder, which executes bind requests",
    command_line: CommandLine::of::<flags::BinderFlags>(),
    start: |StartContext { process, options, .. }| Box::pin(kai_binder::run(process, options.binder)),
    service_account: ServiceAccount { name: "binder", namespace: NAMESPACE },
    role: "kai-binder",
    watches: &[
        watch(SCHEDULING, &["bindrequests"], "bind requests"),
        watch(CORE, &["nodes", "pods"], "the pods to bind, their nodes, and GPU reservation pods"),
        watch(CORE, &["persistentvolumes"], "volumes for unbound claims"),
    ],
    rules: &[
        rule(SCHEDULING, &["bindrequests"], &["delete"], "completed bind requests"),
        rule(SCHEDULING, &["bindrequests/status"], &["patch"], "result of a bind request"),
        rule(CORE, &["pods"], &["get", "patch", "delete"], "GPU group labels; unused GPU reservation pods"),
        rule(CORE, &["pods/binding"], &["create"], "the bind itself"),
        rule(CORE, &["pods/status"], &["patch"], "PodBound condition"),
        rule(CORE, &["nodes"], &["get"], "GPU memory of the node"),
        EVENTS,
        rule(
            CORE,
            &["configmaps"],
            &["get", "create", "patch", "delete"],
            "environment of pods that share a GPU",
        ),
        rule(CORE, &["persistentvolumeclaims"], &["get", "patch"], "volume binding"),
        rule(CORE, &["persistentvolumes"], &["patch"], "volume binding"),
        rule("storage.k8s.io", &["storageclasses"], &["get"], "volume binding mode"),
        rule(
            "resource.k8s.io",
            &["resourceclaims"],
            &["get", "list", "create", "patch", "delete"],
            "device claims of the pod (DRA)",
        ),
        rule("resource.k8s.io", &["resourceclaims/status"], &["patch"], "allocation of device claims"),
        rule(
            "resource.k8s.io",
            &["resourceclaims/binding"],
            &["patch"],
            "checked by the API server in addition to resourceclaims/status when an allocation changes",
        ),
    ],
    namespaced_rules: &[NamespacedRules {
        namespace: RESOURCE_RESERVATION,
        rules: &[rule(CORE, &["pods"], &["create"], "GPU reservation pods")],
    }],
    ports: PORTS_WITH_PROBES,
    lease: Some(Lease { name: "2ad35f9c.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const POD_GROUPER: ComponentSpec = ComponentSpec {
    component: Component::PodGrouper,
    name: name::POD_GROUPER,
    command: "pod-grouper",
    aliases: &["podgrouper"],
    about: "Run the pod grouper, which creates pod groups for workloads",
    command_line: CommandLine::of::<flags::PodGrouperFlags>(),
    start: |StartContext { process, mut options, .. }| {
        let binds = options.scheduler.binding == kai_scheduler::Binding::Direct;
        options.pod_grouper.assign_at_binding &= binds;
        Box::pin(kai_podgrouper::run(process, options.pod_grouper))
    },
    service_account: ServiceAccount { name: "pod-grouper", namespace: NAMESPACE },
    role: "kai-podgrouper",
    watches: &[
        watch(CORE, &["pods"], "pods to group"),
        watch(SCHEDULING, &["podgroups"], "existing pod groups"),
        watch("scheduling.k8s.io", &["priorityclasses"], "priority class of a pod group"),
        watch(
            CORE,
            &["configmaps", "namespaces"],
            "default priorities and namespace selectors, where flags configure them",
        ),
    ],
    rules: &[
        rule(CORE, &["pods"], &["get", "patch"], "pod group annotation and subgroup label of pods"),
        EVENTS,
        rule(SCHEDULING, &["podgroups"], &["get", "create", "patch"], "pod groups of workloads"),
    ],
    namespaced_rules: &[],
    ports: PORTS_WITH_PROBES,
    lease: Some(Lease { name: "54dff599.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const POD_GROUP_CONTROLLER: ComponentSpec = ComponentSpec {
    component: Component::PodGroupController,
    name: name::POD_GROUP_CONTROLLER,
    command: "podgroup-controller",
    aliases: &[],
    about: "Run the controller that maintains the status of pod groups",
    command_line: CommandLine::of::<flags::PodGroupControllerFlags>(),
    start: |StartContext { process, options, .. }| {
        Box::pin(kai_controllers::podgroup::run(process, options.pod_group_controller))
    },
    service_account: ServiceAccount { name: "podgroup-controller", namespace: NAMESPACE },
    role: "kai-podgroup-controller",
    watches: &[
        watch(CORE, &["nodes", "pods"], "pods of groups, and the GPU memory of their nodes"),
        watch("scheduling.k8s.io", &["priorityclasses"], "preemptibility of pod groups"),
        watch("resource.k8s.io", &["resourceclaims"], "devices that pods claim (DRA)"),
        watch(SCHEDULING, &["podgroups"], "pod groups"),
    ],
    rules: &[rule(SCHEDULING, &["podgroups/status"], &["patch"], "resource status of pod groups")],
    namespaced_rules: &[],
    ports: Ports { webhook: Some(WEBHOOK_PORT), ..PORTS_WITH_PROBES },
    lease: Some(Lease { name: "o1x22tjj.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const QUEUE_CONTROLLER: ComponentSpec = ComponentSpec {
    component: Component::QueueController,
    name: name::QUEUE_CONTROLLER,
    command: "queue-controller",
    aliases: &[],
    about: "Run the controller that maintains the status and metrics of queues",
    command_line: CommandLine::of::<flags::QueueControllerFlags>(),
    start: |StartContext { process, options, .. }| {
        Box::pin(kai_controllers::queue::run(process, options.queue_controller))
    },
    service_account: ServiceAccount { name: "queue-controller", namespace: NAMESPACE },
    role: "kai-queuecontroller",
    watches: &[
        watch(SCHEDULING, &["podgroups", "queues"], "queues, and what their pod groups use"),
        watch(CORE, &["pods"], "pods without a pod group, where a flag enables implicit groups"),
        watch("scheduling.k8s.io", &["priorityclasses"], "preemptibility of pods without a pod group"),
    ],
    rules: &[rule(SCHEDULING, &["queues/status"], &["patch"], "status of queues")],
    namespaced_rules: &[],
    ports: Ports { webhook: Some(WEBHOOK_PORT), ..PORTS },
    lease: Some(Lease { name: "ov3xj497.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const ADMISSION: ComponentSpec = ComponentSpec {
    component: Component::Admission,
    name: name::ADMISSION,
    command: "admission",
    aliases: &[],
    about: "Serve the admission webhooks of pods and topologies",
    command_line: CommandLine::of::<flags::AdmissionFlags>(),
    // See `Component::works_in_process`.
    start: |StartContext { mut process, .. }| Box::pin(async move { process.failed().await }),
    service_account: ServiceAccount { name: "admission", namespace: NAMESPACE },
    role: "kai-admission",
    watches: &[],
    rules: &[rule(
        "admissionregistration.k8s.io",
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        &["get", "create", "patch"],
        "webhook configurations, and the certificate that they trust",
    )],
    namespaced_rules: &[NamespacedRules {
        namespace: NAMESPACE,
        rules: &[rule(CORE, &["secrets"], &["get", "create", "patch"], "certificate of the webhooks")],
    }],
    ports: Ports { webhook: Some(WEBHOOK_PORT), ..PORTS_WITH_PROBES },
    lease: Some(Lease { name: "ojptxr84.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const OPERATOR: ComponentSpec = ComponentSpec {
    component: Component::Operator,
    name: name::OPERATOR,
    command: "operator",
    aliases: &[],
    about: "Run the operator, which deploys the components that a Config and its SchedulingShards describe",
    command_line: CommandLine::of::<flags::OperatorFlags>(),
    // See `Component::works_in_process`.
    start: |StartContext { mut process, .. }| Box::pin(async move { process.failed().await }),
    service_account: ServiceAccount { name: name::OPERATOR, namespace: NAMESPACE },
    role: "kai-operator",
    watches: &[
        watch("kai.scheduler", &["configs", "schedulingshards"], "the settings of the installation"),
        watch(CORE, &["nodes"], "whether some have simulated GPUs"),
        watch(CORE, &["serviceaccounts"], "accounts of the components, of reservation and of scaling pods"),
        watch("nvidia.com", &["clusterpolicies"], "whether GPUs are injected by CDI"),
        watch(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "webhook configurations",
        ),
    ],
    rules: &[
        rule(
            "kai.scheduler",
            &["configs/status", "schedulingshards/status"],
            &["patch"],
            "conditions of the installation",
        ),
        rule(CORE, &["serviceaccounts"], &["create", "patch", "delete"], "accounts of the components"),
        rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["create", "patch", "delete"],
            "webhook configurations, whose names the Config may change",
        ),
        Rule {
            resource_names: &["queues.scheduling.run.ai"],
            ..rule(
                "apiextensions.k8s.io",
                &["customresourcedefinitions"],
                &["get", "patch"],
                "the conversion webhook that old versions of KAI left in the Queue CRD",
            )
        },
        EVENTS,
    ],
    namespaced_rules: &[NamespacedRules {
        namespace: NAMESPACE,
        rules: &[
            rule("apps", &["daemonsets", "deployments"], OWN, "the components"),
            rule(CORE, &["configmaps", "secrets", "services"], OWN, "configuration, certificates, services"),
            rule("policy", &["poddisruptionbudgets"], OWN, "budgets of components with several replicas"),
            rule("discovery.k8s.io", &["endpointslices"], OWN, "the leading scheduler"),
            rule("monitoring.coreos.com", &["prometheuses", "servicemonitors"], OWN, "usage of queues"),
            rule("autoscaling.k8s.io", &["verticalpodautoscalers"], OWN, "autoscaling of the components"),
            rule("coordination.k8s.io", &["leases"], &["list", "watch"], "the leading scheduler"),
            rule(CORE, &["pods"], &["list", "watch"], "address of the leading scheduler"),
        ],
    }],
    ports: PORTS_WITH_PROBES,
    lease: Some(Lease { name: "41fce092.run.ai", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

/// Verbs for objects that a component owns.
const OWN: &[&str] = &["list", "watch", "create", "patch", "delete"];

const NODE_SCALE_ADJUSTER: ComponentSpec = ComponentSpec {
    component: Component::NodeScaleAdjuster,
    name: name::NODE_SCALE_ADJUSTER,
    command: "node-scale-adjuster",
    aliases: &["nodescaleadjuster"],
    about: "Make requests for parts of GPUs and for claimed devices visible to cluster-autoscaler and Karpenter",
    command_line: CommandLine::of::<flags::NodeScaleAdjusterFlags>(),
    start: |StartContext { mut process, options, .. }| {
        Box::pin(async move {
            match options.node_scale_adjuster {
                Some(options) => kai_controllers::node_scale::run(process, options).await,
                // See `Component::works_in_process`.
                None => process.failed().await,
            }
        })
    },
    service_account: ServiceAccount { name: name::NODE_SCALE_ADJUSTER, namespace: NAMESPACE },
    role: "kai-node-scale-adjuster",
    watches: &[
        watch(CORE, &["pods"], "unschedulable pods, and scaling pods"),
        watch(SCHEDULING, &["podgroups"], "whether a new node would help the whole group"),
        watch(SCHEDULING, &["bindrequests"], "pods that are being bound need no node"),
        watch("resource.k8s.io", &["resourceclaims"], "devices that pods claim (DRA)"),
    ],
    rules: &[rule(CORE, &["pods"], &["get"], "placement constraints of an unschedulable pod"), EVENTS],
    namespaced_rules: &[NamespacedRules {
        namespace: SCALE_ADJUST,
        rules: &[
            rule(CORE, &["pods"], &["create", "delete"], "scaling pods"),
            rule(CORE, &["pods/status"], &["patch"], "PodScheduled condition of scaling pods"),
            rule(CORE, &["serviceaccounts"], &["get"], "owner of scaling pods"),
        ],
    }],
    ports: PORTS,
    lease: Some(Lease { name: "7n7h49uc.kai.scheduler", timing: CONTROLLER_LEASE_TIMING }),
    health: HEALTH,
};

const NUMA_EXPORTER: ComponentSpec = ComponentSpec {
    component: Component::NumaExporter,
    name: name::NUMA_EXPORTER,
    command: "numa-exporter",
    aliases: &["numa-placement-exporter"],
    about: "Report the NUMA zones that the kubelet of a node gave to its pods",
    command_line: CommandLine::of::<flags::NumaExporterFlags>(),
    // See `Component::works_in_process`.
    start: |StartContext { mut process, .. }| Box::pin(async move { process.failed().await }),
    service_account: ServiceAccount { name: name::NUMA_EXPORTER, namespace: NAMESPACE },
    role: "kai-numa-placement-exporter",
    watches: &[watch(CORE, &["pods"], "the pods of the node")],
    rules: &[rule(CORE, &["pods"], &["patch"], "NUMA zones of pods, as an annotation")],
    namespaced_rules: &[],
    ports: PORTS,
    lease: None,
    health: HEALTH,
};

const RESERVATION: ComponentSpec = ComponentSpec {
    component: Component::ResourceReservation,
    name: name::RESOURCE_RESERVATION,
    command: "reservation",
    aliases: &[],
    about: "Report which GPU a reservation pod holds; runs inside reservation pods",
    command_line: CommandLine::of::<flags::ReservationFlags>(),
    start: |StartContext { process, options, .. }| {
        Box::pin(kai_reservation::simulated::run(process, options.reservation))
    },
    service_account: ServiceAccount { name: RESOURCE_RESERVATION, namespace: RESOURCE_RESERVATION },
    role: "kai-resource-reservation",
    watches: &[],
    rules: &[],
    namespaced_rules: &[NamespacedRules {
        namespace: RESOURCE_RESERVATION,
        rules: &[rule(CORE, &["pods"], &["get", "patch"], "the pod itself, annotated with the GPU's UUID")],
    }],
    ports: PORTS,
    lease: None,
    health: HEALTH,
};

const COMBINED: ComponentSpec = ComponentSpec {
    component: Component::Combined,
    name: name::COMBINED,
    command: "all",
    aliases: &[],
    about: "Run scheduler, binder, pod grouper, controllers and admission in one process",
    command_line: CommandLine::of::<flags::CombinedFlags>(),
    // See `Component::works_in_process`.
    start: |StartContext { mut process, .. }| Box::pin(async move { process.failed().await }),
    service_account: ServiceAccount { name: name::COMBINED, namespace: NAMESPACE },
    role: name::COMBINED,
    // Those of its members: see `rbac`.
    watches: &[],
    rules: &[],
    namespaced_rules: &[],
    // Those of its members are flags of theirs.
    ports: PORTS,
    // That of the scheduler: it never runs beside a scheduler of its own process.
    lease: Some(Lease { name: name::SCHEDULER, timing: kai_scheduler::LEASE_TIMING }),
    health: HEALTH,
};

const EVENTS: Rule = rule(CORE, &["events"], &["create", "patch"], "events");

const fn watch(api_group: &'static str, resources: &'static [&'static str], reason: &'static str) -> Watch {
    Watch { api_group, resources, reason }
}

const fn rule(
    api_group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Rule {
    Rule { api_group, resources, verbs, resource_names: &[], reason }
}
