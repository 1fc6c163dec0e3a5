//! Jobs of Azure Machine Learning: the gang is the number of nodes that the job names.

use crate::error::Invalid;
use crate::workload::{Desired, Sources, TRAIN, Workload};

const NODE_COUNT: &str = "spec.job.options.envs.AZUREML_NODE_COUNT";

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let mut desired = workload.metadata(Sources::TopOwner, TRAIN);
    let job = workload.top_object()?;
    desired.min_member = job
        .int(NODE_COUNT)?
        .ok_or_else(|| job.invalid(format!("`{NODE_COUNT}` is missing; it must be the number of pods")))?;
    Ok(desired)
}
