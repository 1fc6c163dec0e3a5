//! Builds reservation pods: they request one GPU, so that the kubelet allocates it to no other pod.

use crate::options::Options;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::{annotation, env, label, label_value, resource};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const CONTAINER: &str = "resource-reservation";

/// The name of the reservation pod of a group on a node. It is derived from both, so that a second one cannot be
/// created. The form is KAI's.
#[expect(clippy::expect_used, reason = "writing to a string does not fail")]
pub(crate) fn name(node: &str, group: &str) -> String {
    let hash = digest(&SHA256, format!("{node}/{group}").as_bytes());
    let mut name = "gpu-reservation-".to_owned();
    for byte in hash.as_ref().iter().take(8) {
        write!(name, "{byte:02x}").expect("writing to a string does not fail");
    }
    name
}

/// The reservation pod of a group on a node, with the tolerations of the pod that it is created for.
pub(crate) fn build(options: &Options, node: &str, group: &str, tolerations: Option<Vec<Toleration>>) -> Pod {
    let text = |text: &str| Some(text.to_owned());
    let pairs = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(name(node, group)),
            namespace: text(&options.reservation_namespace),
            labels: pairs(&[(label::APP, &options.reservation_app_label), (label::GPU_GROUP, group)]),
            annotations: pairs(&[(annotation::KARPENTER_DO_NOT_DISRUPT, label_value::TRUE)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: text(node),
            service_account_name: text(&options.reservation_service_account),
            containers: vec![container(options)],
            tolerations,
            security_context: options.reservation_pod_security_context.clone(),
            runtime_class_name: text(&options.runtime_class_name).filter(|name| !name.is_empty()),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn container(options: &Options) -> Container {
    let (image, args) = if options.fake_gpu_nodes {
        ("ubuntu", Some(vec!["sleep".to_owned(), "infinity".to_owned()]))
    } else {
        (options.reservation_image.as_str(), None)
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(options.reservation_image_pull_policy.clone()),
        args,
        env: Some(vec![
            field_variable(env::POD_NAME, "metadata.name"),
            field_variable(env::POD_NAMESPACE, "metadata.namespace"),
        ]),
        resources: Some(resources(options.reservation_resources.as_ref())),
        security_context: options.reservation_container_security_context.clone(),
        ..Container::default()
    }
}

fn field_variable(name: &str, path: &str) -> EnvVar {
    let field_ref = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    let value_from = Some(EnvVarSource { field_ref: Some(field_ref), ..EnvVarSource::default() });
    EnvVar { name: name.to_owned(), value: None, value_from }
}

/// Exactly one GPU, and the configured requests and limits of other resources.
fn resources(configured: Option<&ResourceRequirements>) -> ResourceRequirements {
    let with_gpu = |configured: Option<&BTreeMap<String, Quantity>>| {
        let mut amounts = configured.cloned().unwrap_or_default();
        amounts.insert(resource::NVIDIA_GPU.to_owned(), Quantity("1".to_owned()));
        Some(amounts)
    };
    ResourceRequirements {
        requests: with_gpu(configured.and_then(|configured| configured.requests.as_ref())),
        limits: with_gpu(configured.and_then(|configured| configured.limits.as_ref())),
        claims: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn built(options: &Options, tolerations: &Value) -> Value {
        let tolerations = serde_json::from_value(tolerations.clone()).unwrap();
        serde_json::to_value(build(options, "n", "g", tolerations)).unwrap()
    }

    #[test]
    fn name_is_derived_as_in_kai() {
        // First eight bytes of the SHA-256 of `node-1/group-1`, by sha256sum.
        assert_eq!(name("node-1", "group-1"), "gpu-reservation-ca239632e9e20d1c");
        assert_ne!(name("node-1", "a"), name("node-2", "a"));
    }

    #[test]
    fn reservation_pod_requests_exactly_one_gpu() {
        let resources = json!({
            "requests": {"cpu": "50m", "nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"},
        });
        let options = Options {
            reservation_resources: Some(serde_json::from_value(resources).unwrap()),
            reservation_image_pull_policy: "Always".to_owned(),
            ..Options::default()
        };
        let pod = built(&options, &json!([{"operator": "Exists"}]));
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "50m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
        );
        assert_eq!(pod["spec"]["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "kai-resource-reservation", "runai-gpu-group": "g"})
        );
        assert_eq!(pod["metadata"]["annotations"], json!({"karpenter.sh/do-not-disrupt": "true"}));
        assert!(pod["spec"].get("runtimeClassName").is_none());
        assert!(pod["spec"].get("restartPolicy").is_none(), "kubelets restart it, as any other pod");
    }

    #[test]
    fn reservation_pod_of_a_fake_gpu_sleeps() {
        let options =
            Options { fake_gpu_nodes: true, runtime_class_name: "nvidia".to_owned(), ..Options::default() };
        let pod = built(&options, &Value::Null);
        assert_eq!(pod["spec"]["containers"][0]["image"], "ubuntu");
        assert_eq!(pod["spec"]["containers"][0]["args"], json!(["sleep", "infinity"]));
        assert_eq!(pod["spec"]["runtimeClassName"], "nvidia");
    }
}
