//! Replays KAI's operator. An embedded API server with our definitions says what it stores of the settings of a case.

use super::server::Server;
use anyhow::Result;
use axum::http::Method;
use kai_testkit::operator;
use kai_testkit::session::CaseResult;
use serde_json::Value;
use std::path::Path;

pub(super) fn run(folder: &Path) -> Result<Vec<CaseResult>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(Server::start(&["Config", "SchedulingShard"]))?;
    operator::run(folder, &|object| runtime.block_on(admit(&server, object)))
}

async fn admit(server: &Server, object: &Value) -> Result<Result<Value, String>> {
    let plural = if kai_object::kind(object) == "Config" { "configs" } else { "schedulingshards" };
    let path = format!("/apis/kai.scheduler/v1/{plural}?dryRun=All");
    let mut object = object.clone();
    // What the replay gave an object that exists already.
    for field in ["uid", "generation", "resourceVersion"] {
        kai_object::meta_mut(&mut object).remove(field);
    }
    let answer = server.send(Method::POST, &path, "application/json", &object).await?;
    let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
    Ok(if answer.is_success() { Ok(answer.body) } else { Err(message) })
}
