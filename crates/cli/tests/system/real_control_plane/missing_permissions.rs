//! A component reports the permissions that it lacks: by metrics, by log lines, and by not being ready.
//!
//! Every component starts with empty roles and is granted exactly the permissions that it reports, until it is ready.

use super::control_plane::{NAMESPACE, Plane, RESERVATION, wait_until};
use super::rbac::{self, Permission, Role};
use axum::http::Request;
use kai_components::name;
use kai_runtime::api::DeleteOptions;
use kai_runtime::connect;
use kai_runtime::kind::LEASE;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

/// A component is ready without the right to list this resource.
const OPTIONAL: &str = "poddisruptionbudgets.policy";

/// Returns how many missing permissions the components reported.
pub(super) async fn denied_requests_are_reported(plane: &Plane) -> usize {
    let roles = rbac::roles();
    let of_components = |role: &&Role| role.account != RESERVATION;
    let mut by_account: BTreeMap<&str, Vec<&Role>> = BTreeMap::new();
    for role in roles.iter().filter(of_components) {
        role.set(plane.api(), &BTreeSet::new()).await;
        by_account.entry(&role.account).or_default().push(role);
    }
    let ports: BTreeMap<&str, u16> = by_account.keys().map(|account| (*account, free_port())).collect();
    plane.restart_all(|component| vec![format!("--metrics-bind-address=127.0.0.1:{}", ports[component])]);
    for lease in plane.api().list_dynamic(&LEASE, NAMESPACE).await.unwrap().items {
        let deleted =
            plane.api().delete_dynamic(&LEASE, &kai_runtime::key_of(&lease), &DeleteOptions::default()).await;
        deleted.unwrap();
    }
    let each =
        by_account.iter().map(|(account, roles)| grant_reported(plane, account, roles, ports[account]));
    futures::future::join_all(each).await.into_iter().sum()
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The metrics and probes of a component.
pub(super) struct Endpoints(kube::Client);

impl Endpoints {
    pub(super) fn of(port: u16) -> Self {
        Self(connect::plain(&format!("http://127.0.0.1:{port}")).unwrap())
    }

    pub(super) async fn read(&self, path: &str) -> kube::Result<String> {
        self.0.request_text(Request::get(path).body(Vec::new()).unwrap()).await
    }
}

/// Grants the reported permissions until a component has all that an idle leader needs; returns their number.
async fn grant_reported(plane: &Plane, account: &str, roles: &[&Role], port: u16) -> usize {
    let endpoints = Endpoints::of(port);
    let read = async |path: &str| endpoints.read(path).await;
    wait_until("the component serves its endpoints", || async { read("/healthz").await.is_ok() }).await;
    // An idle leader needs its lease, lists and watches its resources, and reads the certificate of its webhooks.
    let is_needed_when_idle = |(group, resource, verb): &(String, String, String)| {
        if is_watched_on_demand(account, group) {
            return false;
        }
        verb == "watch"
            || resource == "leases"
            || (verb == "list" && watched(roles).contains(resource))
            || (resource == "secrets" && verb == "get")
    };
    let needs: BTreeSet<Permission> = roles
        .iter()
        .flat_map(|role| role.rules.iter().filter(|rule| is_needed_when_idle(rule)))
        .map(|(group, resource, verb)| (account.to_owned(), rbac::named(resource, group), verb.clone()))
        .collect();
    let granted: BTreeSet<Permission> = roles.iter().flat_map(|role| role.permissions()).collect();
    let mut reported: BTreeSet<Permission> = BTreeSet::new();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    while !needs.is_subset(&reported) {
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{account} does not report {:?}", needs.difference(&reported).collect::<Vec<_>>());
        let denied = denied(account, &read("/metrics").await.unwrap());
        let new: BTreeSet<&Permission> = denied.difference(&reported).collect();
        if new.is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        let unknown = denied.difference(&granted).collect::<Vec<_>>();
        assert!(unknown.is_empty(), "{account} lacks permissions that no role grants: {unknown:?}");
        let is_required = |(_, resource, verb): &&Permission| verb == "list" && resource != OPTIONAL;
        if new.iter().copied().any(|permission| is_required(&permission)) {
            // The client retries while the component is not ready.
            let ready = tokio::time::timeout(Duration::from_secs(1), read("/readyz")).await;
            assert!(!matches!(ready, Ok(Ok(_))), "{account} is ready without its informers: {new:?}");
        }
        reported = denied;
        for role in roles {
            let rules = role.rules.iter().filter(|(group, resource, verb)| {
                reported.contains(&(account.to_owned(), rbac::named(resource, group), verb.clone()))
            });
            role.set(plane.api(), &rules.cloned().collect()).await;
        }
    }
    wait_until("a component with its permissions is ready", || async { read("/readyz").await.is_ok() }).await;
    let log = plane.log_of(account);
    for (_, resource, verb) in &needs {
        let line = format!("lacks a rule verb=\"{verb}\" resource=\"{resource}\"");
        assert!(log.contains(&line), "{account} does not log that it cannot {verb} {resource}");
    }
    needs.len()
}

/// The pod grouper watches the owners of pods once there are pods with such owners.
fn is_watched_on_demand(account: &str, group: &str) -> bool {
    account == name::POD_GROUPER && matches!(group, "apps" | "batch")
}

fn watched(roles: &[&Role]) -> BTreeSet<String> {
    let rules = roles.iter().flat_map(|role| &role.rules);
    rules.filter(|(_, _, verb)| verb == "watch").map(|(_, resource, _)| resource.clone()).collect()
}

/// Denied requests in the metrics of a component.
fn denied(account: &str, metrics: &str) -> BTreeSet<Permission> {
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let lines = metrics.lines().filter(|line| line.starts_with("kai_api_requests_denied_total{"));
    lines
        .filter_map(|line| Some((account.to_owned(), label(line, "resource")?, label(line, "verb")?)))
        .collect()
}
