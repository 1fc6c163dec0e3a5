//! `runtimeenforcement`: pods that request a part of a GPU run with the runtime class that makes GPUs visible.

use super::Options;
use super::fields::shares_gpu;
use serde_json::Value;

pub(super) fn mutate(pod: &mut Value, options: &Options) {
    if options.runtime_class.is_empty() || !shares_gpu(pod) {
        return;
    }
    if kai_object::str_at(pod, "/spec/runtimeClassName").is_empty()
        && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("runtimeClassName".to_owned(), Value::from(options.runtime_class.as_str()));
    }
}
