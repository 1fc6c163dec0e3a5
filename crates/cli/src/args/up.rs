//! Options of `kai up`.

use crate::up::Project;
use std::path::PathBuf;

const HELP: &str = "\
What it starts:
  An in-memory Kubernetes API server, controllers (Job, Deployment, StatefulSet, garbage collection and so on) and
  simulated nodes, in this process and on loopback only. Custom resource definitions, the queues
  default-parent-queue and default-queue, and the priority classes train, build-preemptible, build and inference
  are installed. It is for trials and tests, not for production.

  The scheduler, the binder, the pod grouper and the status controllers run in the same process. Annotations define
  the behaviour of a bound pod:
    sim.kai.scheduler/run-for: 5m            how long its containers run; default: forever
    sim.kai.scheduler/exit-code: \"1\"         exit code of its containers
    sim.kai.scheduler/start-delay: 10s       time from bind to start
  and on a node:
    sim.kai.scheduler/failure: down          the node fails until this is removed; also: unreachable, not-ready

Files:
  --nodes-file has node groups as YAML; all fields except the name are optional:
    nodes:
      - {name: train, count: 16, gpus: 8, racks: 4, zones: 2, numaZones: 2, cpu: \"128\", memory: 1Ti}
      - {name: web, count: 4, labels: {pool: web}, taints: [{key: web, effect: NoSchedule}]}
  --load accepts a file of --save, or a snapshot as `kai plan` reads it, whose objects are imported as far as
  possible. Nodes of --nodes and --nodes-file are added to those of the file.

Existing clusters:
  --for-real KUBECONFIG runs the scheduler, the binder, the pod grouper and the status controllers in this process
  against an existing cluster, for a trial. Missing objects (definitions, namespaces, priority classes, queues) are
  listed and created after confirmation; existing ones stay unchanged without --replace. Where KAI is installed, its
  scheduler has to be scaled down first; its other components keep running and are not started here. Webhooks are
  served by this process where the API server can connect to it: at the address from which this machine reaches the
  API server, or at --webhook-address. Pods have to set `schedulerName: kai-scheduler` themselves.

Examples:
  kai up
  kai up --nodes 16x8,4x0 --racks 4
  kai up --with kubeflow,ray,jobset,lws,prometheus
  kai up --save state.kai          then, later: kai up --load state.kai --save state.kai
  kai up --detach                  then, later: kai down
  kai up --load cluster.zip --port 0 --kubeconfig ./kubeconfig
  kai up --for-real ~/.kube/config

Exit codes: 0 stopped by Ctrl-C or SIGTERM, 2 error: the port is in use, a file cannot be read, invalid options.
";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Up {
    /// Nodes and GPUs per node, such as 16x8 or 16x8,4x0; default: 8x8, or none with --load.
    #[arg(long, value_name = "NODESxGPUS", conflicts_with = "nodes_file")]
    pub(crate) nodes: Option<String>,
    /// Number of racks that the nodes are distributed over; 0 for no racks.
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "nodes_file")]
    pub(crate) racks: usize,
    /// File with node groups.
    #[arg(long, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// Loopback port of the API server; 0 for an ephemeral port.
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    pub(crate) port: u16,
    /// File that the administrator's kubeconfig is written to; default: `kai/kubeconfig` in `$XDG_STATE_HOME` or
    /// `~/.local/state`.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Start no KAI components, to run them or another scheduler separately.
    #[arg(long)]
    pub(crate) no_scheduler: bool,
    /// Install the kinds of these projects, so that their manifests can be applied; no controller creates their pods.
    #[arg(long, value_name = "PROJECTS", value_delimiter = ',')]
    pub(crate) with: Vec<Project>,
    /// Scheduler configuration: actions, plugins and their arguments; default: KAI's.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Place pods that are alone in their group without a PodGroup.
    #[arg(long, conflicts_with_all = ["for_real", "no_scheduler"])]
    pub(crate) implicit_groups: bool,
    /// Save the state of the cluster to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Load the state of the cluster from this file: a file of --save, or a snapshot.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    /// Run in the background: print the kubeconfig and return when the cluster can be used; `kai down` stops it.
    #[arg(long, conflicts_with = "for_real")]
    pub(crate) detach: bool,
    /// This is the process that --detach has started.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// Print the log of the components instead of the live screen; twice for decisions.
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print errors only, and show no live screen.
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Run against the cluster of this kubeconfig instead of an embedded one, for a trial; asks before it creates
    /// objects.
    #[arg(
        long,
        value_name = "KUBECONFIG",
        conflicts_with_all = ["nodes", "racks", "nodes_file", "port", "kubeconfig", "no_scheduler", "with", "save", "load"]
    )]
    pub(crate) for_real: Option<PathBuf>,
    /// With --for-real: create missing objects without confirmation.
    #[arg(long, requires = "for_real")]
    pub(crate) yes: bool,
    /// With --for-real: replace different objects without confirmation.
    #[arg(long, requires = "for_real")]
    pub(crate) replace: bool,
    /// With --for-real: host or address of this machine that the API server can connect to, with an optional port, for
    /// the webhooks; `none` serves none. Default: the address from which this machine reaches the API server.
    #[arg(long, value_name = "HOST[:PORT]", requires = "for_real")]
    pub(crate) webhook_address: Option<String>,
    /// With --for-real: image of GPU reservation pods.
    #[arg(long, value_name = "IMAGE", requires = "for_real")]
    pub(crate) reservation_image: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it has been stopped, or did not run; 2 error: it cannot be stopped.")]
pub(crate) struct Down {
    /// Kubeconfig of the cluster, as it was given to `kai up`; default: as for `kai up`.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}
