//! The data model of the component table: what is declared about a process of an installation.

use crate::command::CommandLine;
use crate::in_process::Start;
use kai_runtime::leader_election::Timing;

/// Names a row of [`COMPONENTS`](crate::COMPONENTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Scheduler,
    Binder,
    PodGrouper,
    PodGroupController,
    QueueController,
    /// Serves the webhooks of pods and topologies.
    Admission,
    /// Deploys the others.
    Operator,
    /// Makes requests visible to autoscalers that they do not see.
    NodeScaleAdjuster,
    /// On every node with several NUMA zones.
    NumaExporter,
    /// Inside a reservation pod; on simulated nodes, one process stands in for all reservation pods.
    ResourceReservation,
    /// Runs [`MEMBERS`] in one process.
    Combined,
}

/// The components that `kai all` runs in one process.
pub const MEMBERS: [Component; 6] = [
    Component::Scheduler,
    Component::Binder,
    Component::PodGrouper,
    Component::PodGroupController,
    Component::QueueController,
    Component::Admission,
];

impl Component {
    /// The row of this component.
    pub fn spec(self) -> &'static ComponentSpec {
        let row = crate::COMPONENTS.iter().find(|spec| spec.component == self);
        row.expect("the table has a row for every component")
    }

    /// Whether it has work inside another process, which runs the members of `kai all` one by one. The embedded API server calls webhooks without a network, so there is
    /// no certificate to maintain; what runs in one process is not deployed; simulated nodes have no kubelet with a socket;
    /// and the node scale adjuster works only where there is an autoscaler.
    pub fn works_in_process(self) -> bool {
        !matches!(
            self,
            Self::Admission | Self::Operator | Self::NodeScaleAdjuster | Self::NumaExporter | Self::Combined
        )
    }

    /// How many threads its process needs; as many as there are cores without a number. Each has memory of its own, and nodes
    /// with GPUs have many cores.
    pub fn threads(self) -> Option<usize> {
        let does_little =
            matches!(self, Self::NodeScaleAdjuster | Self::NumaExporter | Self::ResourceReservation);
        does_little.then_some(1)
    }

    /// See [`ComponentSpec::name`].
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

/// Everything that is declared about a component.
#[derive(Debug)]
pub struct ComponentSpec {
    pub component: Component,
    /// User agent and field manager of its requests, and the name of its Deployment in KAI's chart.
    pub name: &'static str,
    /// The subcommand: `kai COMMAND`.
    pub command: &'static str,
    pub aliases: &'static [&'static str],
    /// One line of `kai --help`.
    pub about: &'static str,
    /// The clap flags type and how a process is started from it.
    pub command_line: CommandLine,
    /// Runs it inside another process (`kai up`, whole-system tests).
    pub start: Start,
    pub service_account: ServiceAccount,
    /// Name of its roles and of all bindings, as in KAI's chart; [`crate::rbac`] knows the role that is called otherwise.
    pub role: &'static str,
    /// Resources that it lists and watches in all namespaces.
    pub watches: &'static [Watch],
    /// Further rights in all namespaces.
    pub rules: &'static [Rule],
    /// Further rights in one namespace each. The right to its lease is not listed: it follows from `lease`.
    pub namespaced_rules: &'static [NamespacedRules],
    pub ports: Ports,
    /// `None` where every replica works.
    pub lease: Option<Lease>,
    pub health: Health,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    pub name: &'static str,
    pub namespace: &'static str,
}

/// Resources of one API group that are listed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub api_group: &'static str,
    pub resources: &'static [&'static str],
    pub reason: &'static str,
}

/// A rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub api_group: &'static str,
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
    /// The only objects that the rule is about; all where there are none.
    pub resource_names: &'static [&'static str],
    pub reason: &'static str,
}

/// Rules that apply in one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacedRules {
    pub namespace: &'static str,
    pub rules: &'static [Rule],
}

/// Ports that a process listens on when its flags do not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// `/metrics`, `/healthz` and `/readyz`.
    pub metrics: u16,
    /// A second port for `/healthz` and `/readyz`; without one, it is off unless `--health-probe-bind-address` is given.
    pub health: Option<u16>,
    /// Admission webhooks over TLS.
    pub webhook: Option<u16>,
    /// The scheduler's `/get-snapshot`, `/get-job-order` and `/explain`, on loopback only.
    pub plugin_server: Option<u16>,
}

/// Leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The same as in KAI, so that a component and KAI's do not both lead.
    pub name: &'static str,
    pub timing: Timing,
}

/// Paths of the probes, on the metrics port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    pub liveness: &'static str,
    pub readiness: &'static str,
}
