//! Asks the server for one object, where the watch cannot tell.

use kai_engine::input::Key;
use kai_runtime::api::Api;
use kai_runtime::kind::ResourceKind;
use kai_runtime::url::query_value;
use serde_json::Value;
use std::time::Duration;

/// Delay between attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The object that the server has under a name. Retries until the server answers.
pub(crate) async fn look_up(api: &Api, kind: &ResourceKind, key: &Key) -> Option<Value> {
    // A list with a field selector: the scheduler's role grants `list` but not `get`.
    let path =
        format!("{}?fieldSelector=metadata.name%3D{}", kind.path(&key.namespace), query_value(&key.name));
    loop {
        match api.send("GET", &path, None).await {
            Ok(mut list) => return list.get_mut("items")?.get_mut(0).map(Value::take),
            Err(error) if error.is_transient() => tokio::time::sleep(RETRY_DELAY).await,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(kind = %kind.kind, object = %key, error, "cannot look up an object");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use kai_runtime::kind::POD;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn response_that_is_no_list_contains_no_object() {
        for body in ["[]", r#""text""#, "7", "{}", r#"{"items": {}}"#, r#"{"items": []}"#] {
            let server = Router::new().fallback(async move || body);
            let api = Api::new(kube::Client::new(server, "default"), "test");
            assert_eq!(look_up(&api, &POD, &Key::new("a", "p")).await, None, "{body}");
        }
    }
}
