//! The custom resource definitions, ready to be applied to a cluster.
//!
//! The files under `charts/kai-scheduler/crds` are generated from here; a test compares them.

#![expect(
    clippy::expect_used,
    reason = "definitions come from the types of this crate, and a test writes all of them"
)]

use crate::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::CustomResourceExt;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// All definitions, ordered by group and plural name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        definition::<Config>(),
        definition::<SchedulingShard>(),
        definition::<Topology>(),
        definition::<BindRequest>(),
        definition::<PodGroup>(),
        definition::<Queue>(),
    ]
}

/// All definitions as one stream of YAML documents.
pub fn crds_yaml() -> String {
    crds().iter().flat_map(|crd| ["---\n".to_owned(), crd_yaml(crd)]).collect()
}

/// One definition as a YAML document.
pub fn crd_yaml(crd: &CustomResourceDefinition) -> String {
    let mut document = serde_json::to_value(crd).expect("a definition has only text keys");
    write_whole_numbers(&mut document);
    serde_saphyr::to_string(&document).expect("a JSON value can be written as YAML")
}

/// The file a definition is kept in, such as `scheduling.run.ai_queues.yaml`.
pub fn crd_file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// The definition of `K`: names from the derived one, schema from our own.
///
/// The schema that `kube` derives is switched off, because its rewriting loses the forms of a quantity.
fn definition<K: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let schema = K::json_schema(&mut SchemaGenerator::default()).to_value();
    let schema = serde_json::from_value(schema).expect("normalised schemas use Kubernetes' keywords only");
    let version = crd.spec.versions.first_mut().expect("every kind has one version");
    version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(schema) });
    crd
}

/// Bounds are kept as floating point numbers; written as such, `minimum: 0` would read `0.0`.
fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Object(entries) => entries.values_mut().for_each(write_whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && number.is_f64()) {
                *number = (float as i64).into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
