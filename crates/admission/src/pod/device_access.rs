//! `deviceaccess`: a container without a GPU must not see GPUs through `NVIDIA_VISIBLE_DEVICES`.
//!
//! The container runtime gives a container every device that this variable names, without any request.

use super::fields::{
    ContainerRef, all_containers, display_name, fraction_container, list, requests_devices, variables,
};
use kai_api::well_known::env;
use serde_json::{Value, json};

/// Hides all devices from containers that request none.
pub(super) fn mutate(pod: &mut Value) -> Result<(), String> {
    let target = fraction_container(pod)?;
    let blocked: Vec<ContainerRef> = all_containers(pod)
        .filter(|(place, container)| Some(*place) != target && !requests_devices(container))
        .map(|(place, _)| place)
        .collect();
    for place in blocked {
        let Some(container) = place.get_mut(pod) else { continue };
        let variables = list(container, "env");
        let hidden = json!({"name": env::NVIDIA_VISIBLE_DEVICES, "value": env::NO_VISIBLE_DEVICES});
        let known = variables
            .iter_mut()
            .find(|variable| kai_object::str_at(variable, "/name") == env::NVIDIA_VISIBLE_DEVICES);
        match known {
            Some(variable) => *variable = hidden,
            None => variables.push(hidden),
        }
    }
    Ok(())
}

pub(super) fn validate(pod: &Value) -> Result<(), String> {
    let target = fraction_container(pod)?;
    for (place, container) in all_containers(pod) {
        if Some(place) == target {
            continue;
        }
        for variable in variables(container, env::NVIDIA_VISIBLE_DEVICES) {
            let value = kai_object::str_at(variable, "/value");
            let given = if variable.get("valueFrom").is_some_and(|source| !source.is_null()) {
                "`valueFrom`".to_owned()
            } else if ["", env::NO_VISIBLE_DEVICES, "none"].contains(&value) {
                continue;
            } else {
                format!("value `{value}`")
            };
            return Err(format!(
                "{}: container `{}` sets `{}` by {given}, which could expose GPUs that it does not request; \
                 hint: remove the variable, or set it to `void` or `none`",
                display_name(pod),
                kai_object::str_at(container, "/name"),
                env::NVIDIA_VISIBLE_DEVICES,
            ));
        }
    }
    Ok(())
}
