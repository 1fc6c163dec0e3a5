//! Discovery: which version of an API group the server serves.

use crate::api::{Api, Error, Result};
use crate::kind::{RESOURCE_CLAIM, ResourceKind};
use crate::url;
use serde::Deserialize;

/// Versions of `resource.k8s.io` in order of preference; each has claims, slices and device classes.
const RESOURCE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// The preferred version of `resource.k8s.io` (dynamic resource allocation); none where it is not served.
pub async fn resource_version(api: &Api) -> Result<Option<&'static str>> {
    served_version(api, &RESOURCE_CLAIM.group, &RESOURCE_VERSIONS).await
}

/// Resource claims in the preferred version; none where they are not served.
pub async fn resource_claims(api: &Api) -> Result<Option<ResourceKind>> {
    let version = resource_version(api).await?;
    Ok(version.map(|version| ResourceKind { version: version.into(), ..RESOURCE_CLAIM }))
}

/// The first of these versions of a group that the server serves.
async fn served_version(api: &Api, group: &str, versions: &[&'static str]) -> Result<Option<&'static str>> {
    #[derive(Deserialize)]
    struct ApiGroup {
        versions: Vec<GroupVersion>,
    }
    #[derive(Deserialize)]
    struct GroupVersion {
        version: String,
    }
    let path = format!("/apis/{}", url::segment(group));
    let answer = match api.send("GET", &path, None).await {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer?,
    };
    let group = ApiGroup::deserialize(answer).map_err(|_| Error::Malformed { path, field: "versions" })?;
    let is_served = |version: &&&str| group.versions.iter().any(|served| served.version == ***version);
    Ok(versions.iter().find(is_served).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::json;

    async fn version(served: &[&str]) -> Option<&'static str> {
        let versions: Vec<_> = served.iter().map(|version| json!({"version": version})).collect();
        let (code, answer) = if served.is_empty() {
            (StatusCode::NOT_FOUND, json!({"kind": "Status", "status": "Failure", "code": 404}).to_string())
        } else {
            (StatusCode::OK, json!({"kind": "APIGroup", "versions": versions}).to_string())
        };
        let router = Router::new().fallback(move || std::future::ready((code, answer.clone())));
        resource_version(&Api::new(kube::Client::new(router, "default"), "test")).await.unwrap()
    }

    #[tokio::test]
    async fn newest_known_version_that_is_served_is_used() {
        assert_eq!(version(&["v1alpha3", "v1beta1", "v1"]).await, Some("v1"));
        assert_eq!(version(&["v1beta1", "v1beta2"]).await, Some("v1beta2"));
        assert_eq!(version(&["v1beta1"]).await, Some("v1beta1"));
        assert_eq!(version(&["v1alpha3"]).await, None);
        assert_eq!(version(&[]).await, None);
    }
}
