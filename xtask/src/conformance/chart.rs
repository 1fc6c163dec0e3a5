//! Renders the chart with the values of recorded cases.

use super::server::Server;
use crate::helm;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use axum::http::Method;
use kai_testkit::chart::{self, Renderer};
use kai_testkit::session::CaseResult;
use serde_json::Value;
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Renders all cases; none where helm cannot be built.
pub(super) fn run(folder: &Path) -> Result<Vec<CaseResult>> {
    let repository = Repository::find()?;
    let helm = match helm::program(&repository) {
        Ok(helm) => helm,
        Err(error) => {
            println!("the chart is not rendered: {error:#}");
            return Ok(Vec::new());
        }
    };
    let renderer = Renderer { helm, chart: repository.root.join("charts/kai-scheduler") };
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let scratch = repository.metadata()?.target_directory.join("chart-clusters");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make `{}`", scratch.display()))?;
    // They answer for as long as cases are rendered.
    let clusters = RefCell::new(Vec::new());
    chart::run(folder, &renderer, &|objects| {
        let file = scratch.join(format!("{}.kubeconfig", clusters.borrow().len()));
        let cluster = runtime.block_on(serve(objects, &file))?;
        clusters.borrow_mut().push(cluster);
        Ok(file)
    })
}

/// A cluster with the given objects, whose kubeconfig goes to a file.
async fn serve(objects: &[Value], file: &Path) -> Result<(Server, kai_apiserver::Listening)> {
    let server = Server::start(&[]).await?;
    for object in objects {
        let namespace = kai_object::namespace(object);
        let path = match kai_object::kind(object) {
            "Namespace" => "/api/v1/namespaces".to_owned(),
            "ServiceAccount" => format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            "CustomResourceDefinition" => {
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned()
            }
            kind => bail!("a cluster with a {kind} is not known"),
        };
        let answer = server.send(Method::POST, &path, "application/json", object).await?;
        if !answer.is_success() {
            bail!("cannot create an object of the case at `{path}`: {}", answer.body);
        }
    }
    let listening = server.api_server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listening.write_kubeconfig(file)?;
    Ok((server, listening))
}
