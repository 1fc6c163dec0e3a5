//! A bind request as the binder reads it.

use crate::informers::selected_groups;
use kai_api::{BindRequestSpec, BindRequestStatus};
use kai_object as object;
use kai_runtime::Key;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// What is to be bound where.
#[derive(Clone, Debug)]
pub(crate) struct BindTarget {
    /// The request.
    pub(crate) key: Key,
    /// Its uid.
    pub(crate) uid: String,
    /// The pod.
    pub(crate) pod: Key,
    /// The uid of the pod that the request was made for, if it says.
    pub(crate) pod_uid: Option<String>,
    /// The node.
    pub(crate) node: String,
    /// How the pod gets its GPUs.
    pub(crate) resource_type: String,
    /// How many whole GPUs the pod gets, or parts of how many.
    pub(crate) gpu_count: i64,
    /// Which part of each GPU it gets, such as `0.50`.
    pub(crate) portion: String,
    /// The shared GPUs.
    pub(crate) groups: Vec<String>,
    /// How often it is tried.
    pub(crate) limit: Option<i32>,
    /// What became of it so far.
    pub(crate) status: BindRequestStatus,
    object: Arc<Value>,
}

impl BindTarget {
    /// Reads a request.
    pub(crate) fn of(request: &Arc<Value>) -> Self {
        let text = |pointer: &str| object::str_at(request, pointer).to_owned();
        let owners = object::meta(request, "ownerReferences").and_then(Value::as_array);
        let owner = owners.into_iter().flatten().find(|owner| owner["kind"] == "Pod");
        let status = request.get("status").map(BindRequestStatus::deserialize);
        let limit = request.pointer("/spec/backoffLimit").and_then(Value::as_i64);
        Self {
            key: Key::of(request),
            uid: object::uid(request).to_owned(),
            pod: Key::new(object::namespace(request), object::str_at(request, "/spec/podName")),
            pod_uid: owner.map(|owner| object::str_at(owner, "/uid").to_owned()),
            node: text("/spec/selectedNode"),
            resource_type: text("/spec/receivedResourceType"),
            gpu_count: request.pointer("/spec/receivedGPU/count").and_then(Value::as_i64).unwrap_or(0),
            portion: text("/spec/receivedGPU/portion"),
            groups: selected_groups(request).into_iter().map(str::to_owned).collect(),
            limit: limit.and_then(|limit| i32::try_from(limit).ok()),
            status: status.and_then(Result::ok).unwrap_or_default(),
            object: Arc::clone(request),
        }
    }

    /// Whether the pod shares its GPUs.
    pub(crate) fn is_fraction(&self) -> bool {
        self.resource_type == BindRequestSpec::FRACTION
    }

    /// The devices chosen for the pod's claims: the pod's name of each claim, and what it is given. They are passed on
    /// as they are, whatever fields they have.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&str, Option<&Value>)> {
        let claims = self.object.pointer("/spec/resourceClaimAllocations").and_then(Value::as_array);
        claims.into_iter().flatten().map(|claim| {
            (object::str_at(claim, "/name"), claim.get("allocation").filter(|value| !value.is_null()))
        })
    }

    /// The devices chosen for extended resources.
    pub(crate) fn extended_claim(&self) -> Option<&Value> {
        self.object.pointer("/spec/extendedResourceClaimAllocation").filter(|value| !value.is_null())
    }

    /// Where among its NUMA zones the node is expected to put the pod, as JSON.
    pub(crate) fn numa_zones(&self) -> Option<String> {
        let zones = self.object.pointer("/spec/predictedNUMAZones")?.as_array()?;
        (!zones.is_empty()).then(|| Value::from(zones.clone()).to_string())
    }
}
