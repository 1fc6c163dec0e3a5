//! The table of built-in resources, by group, in the order in which discovery lists the groups.

use super::{Subresource, Verbs};
use crate::schema::{self, Schema};
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v2 as autoscaling, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, resource::v1 as dra, scheduling::v1 as scheduling,
    storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use std::sync::{LazyLock, OnceLock};

/// A built-in resource.
#[derive(Clone, Debug)]
pub struct Builtin {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Shorter names.
    pub short_names: &'static [&'static str],
    /// Sets of resources it belongs to.
    pub categories: &'static [&'static str],
    /// What may be done with it.
    pub verbs: Verbs,
    /// Its sub-resources, sorted by name.
    pub subresources: &'static [Subresource],
    /// Another resource's table and version in which its objects are kept, if not its own.
    pub kept_as: Option<(&'static str, &'static str)>,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub generation: bool,
    /// Whether an update without `resourceVersion` is allowed.
    pub unconditional_update: bool,
    /// Whether an update may create the object.
    pub create_on_update: bool,
    /// Whether a delete answers with the object.
    pub returns_deleted: bool,
    /// The schema, once somebody needed it.
    schema: OnceLock<&'static Schema>,
}

trait Scoped {
    const NAMESPACED: bool;
}

impl Scoped for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scoped for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

const STATUS: &[Subresource] = &[Subresource::Status];
const SCALE_STATUS: &[Subresource] = &[Subresource::Scale, Subresource::Status];
const ALL: &[&str] = &["all"];
const API_EXTENSIONS: &[&str] = &["api-extensions"];

fn of<T: k8s_openapi::Resource>() -> Builtin
where
    T::Scope: Scoped,
{
    Builtin {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        plural: T::URL_PATH_SEGMENT,
        namespaced: T::Scope::NAMESPACED,
        short_names: &[],
        categories: &[],
        verbs: Verbs::All,
        subresources: &[],
        kept_as: None,
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        schema: OnceLock::new(),
    }
}

impl Builtin {
    /// What its objects look like.
    pub fn schema(&self) -> &'static Schema {
        self.schema.get_or_init(|| {
            let version = super::api_version(self.group, self.version);
            schema::builtin::schema(&version, self.kind).unwrap_or(Schema::untyped())
        })
    }

    fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    fn within(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    fn verbs(mut self, verbs: Verbs) -> Self {
        self.verbs = verbs;
        self
    }

    fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    fn conditional_update(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    fn kept_as(mut self, table: &'static str, api_version: &'static str) -> Self {
        self.kept_as = Some((table, api_version));
        self
    }
}

/// All built-in resources; within a group sorted by plural name.
pub fn all() -> &'static [Builtin] {
    static TABLE: LazyLock<Vec<Builtin>> =
        LazyLock::new(|| [core_group(), foundation(), workloads(), configuration(), devices()].concat());
    &TABLE
}

fn core_group() -> Vec<Builtin> {
    use Subresource::{Binding, EphemeralContainers, Eviction, Finalize, Log, Resize, Status, Token};
    vec![
        of::<core::Binding>().verbs(Verbs::CreateOnly),
        of::<core::ConfigMap>().short(&["cm"]),
        of::<core::Endpoints>().short(&["ep"]).create_on_update(),
        of::<core::Event>().short(&["ev"]).create_on_update(),
        of::<core::LimitRange>().short(&["limits"]).create_on_update(),
        of::<core::Namespace>()
            .short(&["ns"])
            .verbs(Verbs::NoDeleteCollection)
            .with(&[Finalize, Status])
            .returns_deleted(),
        of::<core::Node>().short(&["no"]).with(STATUS),
        of::<core::PersistentVolumeClaim>().short(&["pvc"]).with(STATUS).returns_deleted(),
        of::<core::PersistentVolume>().short(&["pv"]).with(STATUS).returns_deleted(),
        of::<core::Pod>()
            .short(&["po"])
            .within(ALL)
            .with(&[Binding, EphemeralContainers, Eviction, Log, Resize, Status])
            .generation()
            .returns_deleted(),
        of::<core::PodTemplate>().generation().returns_deleted(),
        of::<core::ReplicationController>().short(&["rc"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<core::ResourceQuota>().short(&["quota"]).with(STATUS).returns_deleted(),
        of::<core::Secret>(),
        of::<core::ServiceAccount>().short(&["sa"]).with(&[Token]).returns_deleted(),
        of::<core::Service>().short(&["svc"]).within(ALL).with(STATUS).create_on_update().returns_deleted(),
    ]
}

/// Groups that come first: registration of APIs, applications, events and questions about rights.
fn foundation() -> Vec<Builtin> {
    vec![
        of::<apiregistration::APIService>().within(API_EXTENSIONS).with(STATUS),
        of::<apps::ControllerRevision>(),
        of::<apps::DaemonSet>().short(&["ds"]).within(ALL).with(STATUS).generation(),
        of::<apps::Deployment>().short(&["deploy"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<apps::ReplicaSet>().short(&["rs"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<apps::StatefulSet>().short(&["sts"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<events::Event>().short(&["ev"]).create_on_update().kept_as("events", "v1"),
        of::<authentication::SelfSubjectReview>().verbs(Verbs::CreateOnly),
        of::<authentication::TokenReview>().verbs(Verbs::CreateOnly),
        of::<authorization::LocalSubjectAccessReview>().verbs(Verbs::CreateOnly),
        of::<authorization::SelfSubjectAccessReview>().verbs(Verbs::CreateOnly),
        of::<authorization::SelfSubjectRulesReview>().verbs(Verbs::CreateOnly),
        of::<authorization::SubjectAccessReview>().verbs(Verbs::CreateOnly),
    ]
}

fn workloads() -> Vec<Builtin> {
    vec![
        of::<autoscaling::HorizontalPodAutoscaler>().short(&["hpa"]).within(ALL).with(STATUS),
        of::<batch::CronJob>().short(&["cj"]).within(ALL).with(STATUS).generation(),
        of::<batch::Job>().within(ALL).with(STATUS).generation(),
        of::<certificates::CertificateSigningRequest>()
            .short(&["csr"])
            .with(&[Subresource::Approval, Subresource::Status]),
        of::<networking::IngressClass>().generation(),
        of::<networking::Ingress>().short(&["ing"]).with(STATUS).generation(),
        of::<networking::IPAddress>().short(&["ip"]),
        of::<networking::NetworkPolicy>().short(&["netpol"]).generation(),
        of::<networking::ServiceCIDR>().with(STATUS),
        of::<policy::PodDisruptionBudget>().short(&["pdb"]).with(STATUS).generation().conditional_update(),
    ]
}

fn configuration() -> Vec<Builtin> {
    vec![
        of::<rbac::ClusterRoleBinding>().create_on_update(),
        of::<rbac::ClusterRole>().create_on_update(),
        of::<rbac::RoleBinding>().create_on_update(),
        of::<rbac::Role>().create_on_update(),
        of::<storage::CSIDriver>().conditional_update().returns_deleted(),
        of::<storage::CSINode>().conditional_update().returns_deleted(),
        of::<storage::CSIStorageCapacity>().conditional_update(),
        of::<storage::StorageClass>().short(&["sc"]).returns_deleted(),
        of::<storage::VolumeAttachment>().with(STATUS).conditional_update().returns_deleted(),
        of::<storage::VolumeAttributesClass>().short(&["vac"]).returns_deleted(),
        admission_kind::<admission::MutatingAdmissionPolicy>(),
        admission_kind::<admission::MutatingAdmissionPolicyBinding>(),
        admission_kind::<admission::MutatingWebhookConfiguration>(),
        admission_kind::<admission::ValidatingAdmissionPolicy>().with(STATUS),
        admission_kind::<admission::ValidatingAdmissionPolicyBinding>(),
        admission_kind::<admission::ValidatingWebhookConfiguration>(),
        of::<apiextensions::CustomResourceDefinition>()
            .short(&["crd", "crds"])
            .within(API_EXTENSIONS)
            .with(STATUS)
            .generation()
            .conditional_update(),
    ]
}

fn admission_kind<T: k8s_openapi::Resource<Scope = ClusterResourceScope>>() -> Builtin {
    of::<T>().within(API_EXTENSIONS).generation().conditional_update()
}

fn devices() -> Vec<Builtin> {
    vec![
        of::<scheduling::PriorityClass>().short(&["pc"]).generation(),
        of::<coordination::Lease>().create_on_update().conditional_update(),
        of::<node::RuntimeClass>().create_on_update().conditional_update(),
        of::<discovery::EndpointSlice>().generation(),
        of::<dra::DeviceClass>().generation().returns_deleted(),
        of::<dra::ResourceClaim>().with(STATUS).returns_deleted(),
        of::<dra::ResourceClaimTemplate>().returns_deleted(),
        of::<dra::ResourceSlice>().generation().returns_deleted(),
    ]
}
