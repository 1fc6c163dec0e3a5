//! The binder plugin `licenses`: takes a seat before the Binding, and gives it back in a rollback.

use crate::ANNOTATION;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_binder::plugin::{Arguments, BindContext, BinderPlugin, BoxFuture};
use kai_runtime::Key;
use kai_runtime::api::DeleteOptions;
use std::sync::Arc;

/// The seats of every license.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    count: u32,
}

impl Seats {
    /// Reads the argument `seats`.
    pub fn from_arguments(arguments: &Arguments) -> Result<Arc<dyn BinderPlugin>, String> {
        let text = arguments.get("seats").map_or("1", String::as_str);
        let count = text.parse().map_err(|_| format!("`seats` is `{text}`, which is not a number"))?;
        Ok(Arc::new(Self { count }))
    }

    /// Takes the first free seat. A seat that the pod has from an earlier attempt is kept.
    async fn take(self, bind: &BindContext) -> Result<(), String> {
        let Some(license) = bind.annotations.get(ANNOTATION) else { return Ok(()) };
        for seat in 0..self.count {
            match bind.api.create(&seat_of(license, seat, bind)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    return Err(format!("cannot take a seat of license `{license}`: {}", error.message()));
                }
            }
            let key = key(license, seat, bind);
            let taken: Result<ConfigMap, _> = bind.api.get(&key).await;
            if taken.is_ok_and(|taken| belongs_to(&taken, &bind.pod)) {
                return Ok(());
            }
        }
        Err(format!("all {} seats of license `{license}` are taken", self.count))
    }

    /// Deletes the seats of the pod.
    async fn give_back(self, bind: &BindContext) -> Result<(), String> {
        let Some(license) = bind.annotations.get(ANNOTATION) else { return Ok(()) };
        for seat in 0..self.count {
            let key = key(license, seat, bind);
            let seat: Result<ConfigMap, _> = bind.api.get(&key).await;
            if let Ok(seat) = seat
                && belongs_to(&seat, &bind.pod)
            {
                let options = DeleteOptions { uid: seat.metadata.uid, ..DeleteOptions::default() };
                let deleted = bind.api.delete::<ConfigMap>(&key, &options).await;
                deleted.map_err(|error| format!("cannot give back `{key}`: {}", error.message()))?;
            }
        }
        Ok(())
    }
}

impl BinderPlugin for Seats {
    fn pre_bind(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { self.take(&bind).await })
    }

    fn rollback(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { self.give_back(&bind).await })
    }
}

fn key(license: &str, seat: u32, bind: &BindContext) -> Key {
    Key::new(&bind.request.namespace, format!("license-{license}-{seat}"))
}

/// The config map of a seat. It is deleted with the pod.
fn seat_of(license: &str, seat: u32, bind: &BindContext) -> ConfigMap {
    let key = key(license, seat, bind);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: bind.pod.metadata.name.clone().unwrap_or_default(),
        uid: bind.pod.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some(key.namespace),
            name: Some(key.name),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn belongs_to(seat: &ConfigMap, pod: &Pod) -> bool {
    let owners = seat.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}
