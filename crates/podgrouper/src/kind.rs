//! One module for every rule by which a group follows from a workload.

pub(crate) mod aml_job;
pub(crate) mod cron_job;
pub(crate) mod deployment;
pub(crate) mod generic;
pub(crate) mod grove;
pub(crate) mod job;
pub(crate) mod job_set;
pub(crate) mod karta;
pub(crate) mod knative;
pub(crate) mod kubeflow;
pub(crate) mod leader_worker_set;
pub(crate) mod pod;
pub(crate) mod pytorch_job;
pub(crate) mod ray;
pub(crate) mod runai_job;
pub(crate) mod segments;
pub(crate) mod skip_top;
pub(crate) mod upstream_pod_group;
