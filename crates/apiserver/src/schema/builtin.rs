//! The schemas of built-in kinds, taken from the types of `k8s-openapi`.
//!
//! All definitions are generated once and each is parsed on first use, so that startup does not parse hundreds of
//! types that are not requested.

use super::{Schema, parse};
use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, coordination, core,
    discovery, events, node, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

/// The name of the definition of `metadata`.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Where definitions stand in references to them.
pub const REFERENCE: &str = "#/components/schemas/";

/// A named type: its JSON schema as generated, and the parsed form.
#[derive(Debug)]
pub struct Definition {
    name: String,
    raw: Value,
    parsed: OnceLock<Schema>,
}

impl Definition {
    /// The name, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON schema with references to other definitions, as `OpenAPI` serves it.
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// The parsed schema.
    pub fn schema(&'static self) -> &'static Schema {
        self.parsed.get_or_init(|| parse::definition(&self.raw, &self.name))
    }
}

struct Types {
    definitions: BTreeMap<String, Definition>,
    kinds: Kinds,
}

/// Definition names by API version and kind.
type Kinds = BTreeMap<&'static str, BTreeMap<&'static str, String>>;

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let mut collector = Collector { generator: parse::settings().into_generator(), kinds: BTreeMap::new() };
    collector.add_core();
    collector.add_others();
    collector.generator.subschema_for::<meta::DeleteOptions>();
    collector.generator.subschema_for::<meta::Status>();
    let definitions = collector.generator.take_definitions(false).into_iter();
    let definitions =
        definitions.map(|(name, raw)| (name.clone(), Definition { name, raw, parsed: OnceLock::new() }));
    Types { definitions: definitions.collect(), kinds: collector.kinds }
});

/// The definition of a name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    TYPES.definitions.get(name)
}

/// All definitions, by name.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    TYPES.definitions.values()
}

/// The name of the definition of a kind.
pub fn definition_of_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    TYPES.kinds.get(api_version)?.get(kind).map(String::as_str)
}

/// The schema of a kind, such as `Deployment` of `apps/v1`.
pub fn schema(api_version: &str, kind: &str) -> Option<&'static Schema> {
    definition(definition_of_kind(api_version, kind)?).map(Definition::schema)
}

/// The schema of the metadata of all objects.
pub fn object_meta() -> &'static Schema {
    definition(OBJECT_META).expect("every kind has metadata").schema()
}

struct Collector {
    generator: SchemaGenerator,
    kinds: Kinds,
}

/// Adds kinds to a collector.
macro_rules! add {
    ($collector:ident: $($kind:ty),* $(,)?) => { $($collector.add::<$kind>();)* };
}

impl Collector {
    fn add<T: JsonSchema + k8s_openapi::Resource>(&mut self) {
        self.generator.subschema_for::<T>();
        self.kinds.entry(T::API_VERSION).or_default().insert(T::KIND, T::schema_name().into_owned());
    }

    fn add_core(&mut self) {
        add!(self:
            core::v1::Binding, core::v1::ConfigMap, core::v1::Event, core::v1::Namespace, core::v1::Node,
            core::v1::PersistentVolume, core::v1::PersistentVolumeClaim, core::v1::Pod, core::v1::Secret,
            core::v1::Service, core::v1::ServiceAccount, apps::v1::ControllerRevision, apps::v1::DaemonSet,
            apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet, batch::v1::CronJob, batch::v1::Job,
            policy::v1::Eviction, policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass,
            autoscaling::v1::Scale, events::v1::Event, coordination::v1::Lease,
            apiextensions::CustomResourceDefinition,
        );
    }

    fn add_others(&mut self) {
        add!(self:
            storage::v1::CSIDriver, storage::v1::CSINode, storage::v1::CSIStorageCapacity, storage::v1::StorageClass,
            storage::v1::VolumeAttachment, storage::v1::VolumeAttributesClass, rbac::v1::ClusterRole,
            rbac::v1::ClusterRoleBinding, rbac::v1::Role, rbac::v1::RoleBinding,
            admissionregistration::v1::MutatingWebhookConfiguration,
            admissionregistration::v1::ValidatingWebhookConfiguration,
            resource::v1::DeviceClass, resource::v1::ResourceClaim, resource::v1::ResourceClaimTemplate,
            resource::v1::ResourceSlice, authentication::v1::SelfSubjectReview, authentication::v1::TokenRequest,
            authentication::v1::TokenReview, authorization::v1::LocalSubjectAccessReview,
            authorization::v1::SelfSubjectAccessReview, authorization::v1::SelfSubjectRulesReview,
            authorization::v1::SubjectAccessReview, discovery::v1::EndpointSlice, node::v1::RuntimeClass,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ListType, Type};

    #[test]
    fn kinds_are_found_by_version_and_name() {
        let pod = schema("v1", "Pod").unwrap();
        let containers = pod.field("spec").unwrap().field("containers").unwrap();
        assert_eq!(containers.kind, Type::Array);
        assert_eq!(containers.merge.list, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.element().field("image").unwrap().kind, Type::String);
        assert!(containers.element().field("imagee").is_none());
        assert!(schema("v1", "Deployment").is_none());
        assert_eq!(definition_of_kind("apps/v1", "Deployment"), Some("io.k8s.api.apps.v1.Deployment"));
    }

    #[test]
    fn types_that_contain_themselves_can_be_walked() {
        let crd = schema("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
        let mut schema = crd;
        for field in ["spec", "versions"] {
            schema = schema.field(field).unwrap();
        }
        schema = schema.element().field("schema").unwrap().field("openAPIV3Schema").unwrap();
        for _ in 0..5 {
            schema = schema.field("properties").unwrap().field("anything").unwrap();
        }
        assert_eq!(schema.field("type").unwrap().kind, Type::String);
        let or_bool = schema.field("additionalProperties").unwrap();
        assert!(or_bool.field("type").is_some() && or_bool.field("typo").is_none());
    }

    #[test]
    fn every_definition_can_be_parsed() {
        assert!(definitions().count() > 300);
        for definition in definitions() {
            let _ = definition.schema();
        }
    }
}
