//! Arguments of `kai group`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kai group train.yaml
  kubectl get pytorchjob train -o yaml | kai group -

The pods are those that the controller of the workload would create. To group pods as they are, add them and their
owners to the files:
  kubectl get pods,jobs,jobsets -o yaml | kai group -

Exit codes: 0 all pods are grouped, 1 a workload cannot be grouped, 2 error: a file cannot be read.")]
pub(crate) struct Group {
    /// Manifests (YAML or JSON) of workloads, and of what they refer to, such as Kartas and training runtimes; `-` is
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print pod groups, pods, problems and notes as JSON.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
    /// How to print the pod groups.
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Group pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub(crate) scheduler_name: String,
    /// Label that names the queue.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub(crate) queue_label_key: String,
    /// Label that names the node pool.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub(crate) nodepool_label_key: String,
    /// Make a gang of the pods of a Knative Revision.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) knative_gang_schedule: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    /// The PodGroups, with `<uid>` where the API server will put one.
    Yaml,
    Json,
}
