//! The table of built-in resources, in the order in which discovery lists their groups.
//!
//! Only kinds that the scheduler, its components, workloads and installers use are served.

use super::{Subresource, Verbs};
use crate::schema::{self, Schema};
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, batch::v1 as batch, coordination::v1 as coordination,
    core::v1 as core, discovery::v1 as discovery, events::v1 as events, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, resource::v1 as dra, scheduling::v1 as scheduling,
    storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use std::sync::{LazyLock, OnceLock};

#[derive(Clone, Debug)]
pub struct Builtin {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: Verbs,
    /// Sorted by name.
    pub subresources: &'static [Subresource],
    /// The table and API version of another resource that stores the objects.
    pub stored_as: Option<(&'static str, &'static str)>,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// Whether an update without `resourceVersion` is allowed (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Whether an update may create the object (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether a delete returns the object (`ReturnDeletedObject`).
    pub returns_deleted: bool,
    /// Parsed on first use.
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
        stored_as: None,
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        schema: OnceLock::new(),
    }
}

impl Builtin {
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

    fn stored_as(mut self, table: &'static str, api_version: &'static str) -> Self {
        self.stored_as = Some((table, api_version));
        self
    }
}

/// All built-in resources; within a group sorted by plural name.
pub fn all() -> &'static [Builtin] {
    static TABLE: LazyLock<Vec<Builtin>> = LazyLock::new(|| {
        [core_group(), apps_and_reviews(), workloads(), configuration(), devices()].concat()
    });
    &TABLE
}

fn core_group() -> Vec<Builtin> {
    use Subresource::{Binding, EphemeralContainers, Eviction, Finalize, Log, Resize, Status, Token};
    vec![
        of::<core::Binding>().verbs(Verbs::CreateOnly),
        of::<core::ConfigMap>().short(&["cm"]),
        of::<core::Event>().short(&["ev"]).create_on_update(),
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
        of::<core::Secret>(),
        of::<core::ServiceAccount>().short(&["sa"]).with(&[Token]).returns_deleted(),
        of::<core::Service>().short(&["svc"]).within(ALL).with(STATUS).create_on_update().returns_deleted(),
    ]
}

/// The groups `apps`, `events.k8s.io`, `authentication.k8s.io` and `authorization.k8s.io`.
fn apps_and_reviews() -> Vec<Builtin> {
    vec![
        of::<apps::ControllerRevision>(),
        of::<apps::DaemonSet>().short(&["ds"]).within(ALL).with(STATUS).generation(),
        of::<apps::Deployment>().short(&["deploy"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<apps::ReplicaSet>().short(&["rs"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<apps::StatefulSet>().short(&["sts"]).within(ALL).with(SCALE_STATUS).generation(),
        of::<events::Event>().short(&["ev"]).create_on_update().stored_as("events", "v1"),
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
        of::<batch::CronJob>().short(&["cj"]).within(ALL).with(STATUS).generation(),
        of::<batch::Job>().within(ALL).with(STATUS).generation(),
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
        admission_kind::<admission::MutatingWebhookConfiguration>(),
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
