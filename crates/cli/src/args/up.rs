//! Options of `kai up`.

use std::path::PathBuf;

/// What `--help` says below the options.
const HELP: &str = "\
What it starts:
  A Kubernetes API server in memory, the controllers people expect (Job, Deployment, StatefulSet, garbage collection
  and so on) and simulated nodes, all in this process and on loopback only. Custom resource definitions, the queues
  default-parent-queue and default-queue, and the priority classes train, build-preemptible, build and inference
  are installed. It needs nothing but this binary, and it is no production store: production is Kubernetes.

  The scheduler, the binder, the pod grouper and the status controllers run in it too. A bound pod runs; what it
  does is up to its annotations:
    sim.kai.scheduler/run-for: 5m            how long its containers run; for ever when absent
    sim.kai.scheduler/exit-code: \"1\"         with what code they exit
    sim.kai.scheduler/start-delay: 10s       from being bound to running
  and on a node:
    sim.kai.scheduler/failure: down          it fails until this is taken away; also: unreachable, not-ready

Files:
  --nodes-file takes groups of nodes as YAML; every field but the name can be left out:
    nodes:
      - {name: train, count: 16, gpus: 8, racks: 4, zones: 2, numaZones: 2, cpu: \"128\", memory: 1Ti}
      - {name: web, count: 4, labels: {pool: web}, taints: [{key: web, effect: NoSchedule}]}
  --load takes what --save wrote, or a snapshot as `kai plan` reads it: its nodes, queues, pods and pod groups come
  to life, and what could not is told. Nodes of --nodes and --nodes-file are added to those of the file.

A real cluster:
  --for-real KUBECONFIG runs the scheduler, the binder, the pod grouper and the status controllers in this process
  against a cluster that is there already, for a trial. What it needs there (definitions, namespaces, priority
  classes, queues) is listed and made after asking; what is there already stays as it is, unless you say otherwise.
  Where KAI runs, its scheduler has to stop first; whatever else of it runs is left to do its work. No webhook is
  served: pods have to say `schedulerName: kai-scheduler` themselves.

Examples:
  kai up
  kai up --nodes 16x8,4x0 --racks 4
  kai up --save state.kai          then, later: kai up --load state.kai --save state.kai
  kai up --load cluster.zip --port 0 --kubeconfig ./kubeconfig
  kai up --for-real ~/.kube/config
";

/// Options of `kai up`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Up {
    /// How many nodes with how many GPUs each, such as 16x8; several kinds as in 16x8,4x0. Else 8x8, or none with
    /// --load.
    #[arg(long, value_name = "NODESxGPUS", conflicts_with = "nodes_file")]
    pub(crate) nodes: Option<String>,
    /// Over how many racks the nodes are spread; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "nodes_file")]
    pub(crate) racks: usize,
    /// A file of nodes.
    #[arg(long, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// The port on loopback where the API is served; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    pub(crate) port: u16,
    /// Where the administrator's access is written, for its owner alone; else `kai/kubeconfig` below
    /// `$XDG_STATE_HOME` or `~/.local/state`.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Leave the scheduler and its companions out, to run one's own against it.
    #[arg(long)]
    pub(crate) no_scheduler: bool,
    /// Write the whole state to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Begin with the state in this file: what --save wrote, or a snapshot.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    /// Run against the cluster of this kubeconfig instead of an embedded one, for a trial; asks before it makes
    /// anything there.
    #[arg(
        long,
        value_name = "KUBECONFIG",
        conflicts_with_all = ["nodes", "racks", "nodes_file", "port", "kubeconfig", "no_scheduler", "save", "load"]
    )]
    pub(crate) for_real: Option<PathBuf>,
    /// With --for-real: make what is missing without asking.
    #[arg(long, requires = "for_real")]
    pub(crate) yes: bool,
    /// With --for-real: also bring what is there and differs to what it should be, without asking.
    #[arg(long, requires = "for_real")]
    pub(crate) replace: bool,
    /// With --for-real: the image of the pods that hold a GPU for sharing.
    #[arg(long, value_name = "IMAGE", requires = "for_real")]
    pub(crate) reservation_image: Option<String>,
}
