//! Which GPUs a pod has.

use kai_object as object;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde_json::Value;

/// How a pod learns which GPU it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSource {
    /// It asks the driver of the machine.
    #[default]
    Nvml,
    /// It reads in its own status what its node says it was given, as simulated nodes do.
    Status,
}

/// Why a pod's GPU is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver does not answer.
    #[error(
        "cannot ask the NVIDIA driver\nhint: the pod needs a GPU and a runtime that gives it the driver's libraries"
    )]
    Driver(#[source] NvmlError),
    /// There is none, or more than one.
    #[error("the pod sees {0} GPUs and must see exactly one\nhint: it must ask for one `nvidia.com/gpu`")]
    Count(usize),
}

/// The uuids of the GPUs that the driver shows.
pub fn by_nvml() -> Result<Vec<String>, Error> {
    let nvml = Nvml::init().map_err(Error::Driver)?;
    let count = nvml.device_count().map_err(Error::Driver)?;
    // With another number nothing is asked of them: one that is broken would hide why.
    if count != 1 {
        return Err(Error::Count(usize::try_from(count).unwrap_or(usize::MAX)));
    }
    let uuid = nvml.device_by_index(0).and_then(|device| device.uuid()).map_err(Error::Driver)?;
    if let Err(error) = nvml.shutdown() {
        tracing::warn!(error = &error as &dyn std::error::Error, "the NVIDIA driver was not left properly");
    }
    Ok(vec![uuid])
}

/// The uuids of the GPUs that a pod's node says it gave it.
pub fn by_status(pod: &Value) -> Vec<String> {
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let containers = pod.get("status").map(|status| list(status, "containerStatuses")).unwrap_or_default();
    let given = containers.iter().flat_map(|container| list(container, "allocatedResourcesStatus"));
    let gpus = given.filter(|given| object::str_at(given, "/name").ends_with("/gpu"));
    let devices = gpus.flat_map(|gpus| list(&gpus, "resources"));
    devices.map(|device| object::str_at(&device, "/resourceID").to_owned()).collect()
}

/// The one GPU there must be.
pub fn only(devices: &[String]) -> Result<String, Error> {
    match devices {
        [one] => Ok(one.clone()),
        _ => Err(Error::Count(devices.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_node_gave_is_read_from_the_status() {
        let pod = |devices: Value| {
            json!({"status": {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [
                {"name": "example.com/nic", "resources": [{"resourceID": "nic-1"}]},
                {"name": "nvidia.com/gpu", "resources": devices},
            ]}]}})
        };
        assert_eq!(by_status(&pod(json!([{"resourceID": "GPU-1", "health": "Healthy"}]))), ["GPU-1"]);
        assert_eq!(by_status(&pod(json!([{"resourceID": "GPU-1"}, {"resourceID": "GPU-2"}]))).len(), 2);
        assert!(by_status(&json!({})).is_empty());
    }

    #[test]
    fn there_must_be_exactly_one() {
        let devices = ["GPU-1".to_owned(), "GPU-2".to_owned()];
        assert_eq!(only(&devices[..1]).unwrap(), "GPU-1");
        for wrong in [&devices[..0], &devices[..]] {
            let error = only(wrong).unwrap_err().to_string();
            assert!(error.contains("exactly one") && error.contains("hint:"), "{error}");
        }
    }
}
