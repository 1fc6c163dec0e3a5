//! `hamicore`: HAMi-core limits the GPU memory of a container by a variable, whose value the binder writes.

use super::fields::{capabilities_map, fraction_container, from_config_map, set_variable};
use kai_api::well_known::env;
use serde_json::Value;

pub(super) fn mutate(pod: &mut Value) -> Result<(), String> {
    let Some(container) = fraction_container(pod)? else { return Ok(()) };
    let Some(map) = capabilities_map(pod, container) else { return Ok(()) };
    let mut source = from_config_map(&map, env::CUDA_DEVICE_MEMORY_LIMIT);
    // Optional: the binder writes it only where its plugin is enabled.
    kai_object::set(&mut source, &["configMapKeyRef", "optional"], Value::Bool(true));
    if let Some(container) = container.get_mut(pod) {
        set_variable(container, env::CUDA_DEVICE_MEMORY_LIMIT, &source);
    }
    Ok(())
}
