//! Determines the GPU of a pod.

use k8s_openapi::api::core::v1::Pod;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// Where the GPU of a pod is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSource {
    /// The NVIDIA driver (NVML), from inside the container.
    #[default]
    Nvml,
    /// `allocatedResourcesStatus` in the status of the pod (KEP-4680), as simulated kubelets write it.
    Status,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot query the NVIDIA driver\nhint: the pod needs a GPU and a runtime that mounts the driver's libraries"
    )]
    Driver(#[source] NvmlError),
    #[error("the pod sees {0} GPUs and must see exactly one\nhint: it must request one `nvidia.com/gpu`")]
    Count(usize),
}

/// The UUIDs of the GPUs that are visible to the driver.
pub fn from_nvml() -> Result<Vec<String>, Error> {
    let nvml = Nvml::init().map_err(Error::Driver)?;
    let count = nvml.device_count().map_err(Error::Driver)?;
    // With another number the devices are not queried: an error of one of them would hide the reason.
    if count != 1 {
        return Err(Error::Count(usize::try_from(count).unwrap_or(usize::MAX)));
    }
    let uuid = nvml.device_by_index(0).and_then(|device| device.uuid()).map_err(Error::Driver)?;
    if let Err(error) = nvml.shutdown() {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot shut down NVML");
    }
    Ok(vec![uuid])
}

/// The UUIDs of the GPUs that the kubelet reports as allocated to a pod.
pub fn from_status(pod: &Pod) -> Vec<String> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let allocated = containers.flat_map(|container| container.allocated_resources_status.iter().flatten());
    let gpus = allocated.filter(|allocated| allocated.name.ends_with("/gpu"));
    let devices = gpus.flat_map(|gpus| gpus.resources.iter().flatten());
    devices.map(|device| device.resource_id.clone()).collect()
}

/// The only GPU of a list.
pub fn single(devices: &[String]) -> Result<String, Error> {
    match devices {
        [one] => Ok(one.clone()),
        _ => Err(Error::Count(devices.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn allocated_gpus_are_read_from_the_status() {
        let pod = |devices: Value| -> Pod {
            let status = json!({"containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResourcesStatus": [
                    {"name": "example.com/nic", "resources": [{"resourceID": "nic-1"}]},
                    {"name": "nvidia.com/gpu", "resources": devices},
                ],
            }]});
            serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
        };
        assert_eq!(from_status(&pod(json!([{"resourceID": "GPU-1", "health": "Healthy"}]))), ["GPU-1"]);
        assert_eq!(from_status(&pod(json!([{"resourceID": "GPU-1"}, {"resourceID": "GPU-2"}]))).len(), 2);
        assert!(from_status(&Pod::default()).is_empty());
    }

    #[test]
    fn exactly_one_gpu_is_required() {
        let devices = ["GPU-1".to_owned(), "GPU-2".to_owned()];
        assert_eq!(single(&devices[..1]).unwrap(), "GPU-1");
        for wrong in [&devices[..0], &devices[..]] {
            let error = single(wrong).unwrap_err().to_string();
            assert!(error.contains("exactly one") && error.contains("hint:"), "{error}");
        }
    }
}
