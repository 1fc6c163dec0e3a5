//! A component without rights says which ones it lacks: by its metrics and its log, and by not being ready.
//!
//! Every component is started with roles that allow nothing, and is given exactly what it complains about, until it
//! complains no more.

use super::plane::{NAMESPACE, Plane, RESERVATION, patiently};
use super::rights::{self, Right, Role};
use axum::http::Request;
use kai_runtime::api::Deletion;
use kai_runtime::connect;
use kai_runtime::kind::LEASE;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

/// Starves all components, and feeds them; says how many rights they said they lacked.
pub(super) async fn what_is_denied_is_said(plane: &Plane) -> usize {
    let roles = rights::roles();
    let ours = |role: &&Role| role.account != RESERVATION;
    let mut of: BTreeMap<&str, Vec<&Role>> = BTreeMap::new();
    for role in roles.iter().filter(ours) {
        role.set(plane.api(), &BTreeSet::new()).await;
        of.entry(&role.account).or_default().push(role);
    }
    let ports: BTreeMap<&str, u16> = of.keys().map(|account| (*account, free_port())).collect();
    plane.restart_all(|component| vec![format!("--metrics-bind-address=127.0.0.1:{}", ports[component])]);
    for lease in plane.api().list(&LEASE, NAMESPACE).await.unwrap().items {
        let gone = plane.api().delete(&LEASE, &kai_runtime::Key::of(&lease), &Deletion::default()).await;
        gone.unwrap();
    }
    let each = of.iter().map(|(account, roles)| fed(plane, account, roles, ports[account]));
    futures::future::join_all(each).await.into_iter().sum()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Gives a component what it asks for, until it has everything that it needs to be idle; says how much that is.
async fn fed(plane: &Plane, account: &str, roles: &[&Role], port: u16) -> usize {
    let client = connect::plain(&format!("http://127.0.0.1:{port}")).unwrap();
    let read = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await
    };
    patiently("the component answers", || async { read("/healthz").await.is_ok() }).await;
    // To be idle it must lead, and see everything that it watches.
    let is_idle_need = |(_, resource, verb): &(String, String, String)| {
        verb == "watch" || resource == "leases" || (verb == "list" && watched(roles).contains(resource))
    };
    let needs: BTreeSet<Right> = roles
        .iter()
        .flat_map(|role| role.rules.iter().filter(|rule| is_idle_need(rule)))
        .map(|(group, resource, verb)| (account.to_owned(), rights::named(resource, group), verb.clone()))
        .collect();
    let granted: BTreeSet<Right> = roles.iter().flat_map(|role| role.rights()).collect();
    let mut said: BTreeSet<Right> = BTreeSet::new();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    while !needs.is_subset(&said) {
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{account} never misses {:?}", needs.difference(&said).collect::<Vec<_>>());
        let denied = denied(account, &read("/metrics").await.unwrap());
        let news: BTreeSet<&Right> = denied.difference(&said).collect();
        if news.is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        let unknown = denied.difference(&granted).collect::<Vec<_>>();
        assert!(unknown.is_empty(), "{account} wants what nobody grants: {unknown:?}");
        if news.iter().any(|(_, _, verb)| verb == "list") {
            // The client asks again and again while the answer is that nothing is ready.
            let ready = tokio::time::timeout(Duration::from_secs(1), read("/readyz")).await;
            assert!(!matches!(ready, Ok(Ok(_))), "{account} is ready and sees nothing: {news:?}");
        }
        said = denied;
        for role in roles {
            let given = role.rules.iter().filter(|(group, resource, verb)| {
                said.contains(&(account.to_owned(), rights::named(resource, group), verb.clone()))
            });
            role.set(plane.api(), &given.cloned().collect()).await;
        }
    }
    patiently("a component that has what it needs is ready", || async { read("/readyz").await.is_ok() })
        .await;
    let log = plane.log_of(account);
    for (_, resource, verb) in &needs {
        let line = format!("lacks it verb=\"{verb}\" resource=\"{resource}\"");
        assert!(log.contains(&line), "{account} does not say that it may not {verb} {resource}");
    }
    needs.len()
}

/// Resources that are watched.
fn watched(roles: &[&Role]) -> BTreeSet<String> {
    let rules = roles.iter().flat_map(|role| &role.rules);
    rules.filter(|(_, _, verb)| verb == "watch").map(|(_, resource, _)| resource.clone()).collect()
}

/// What a component says was denied.
fn denied(account: &str, metrics: &str) -> BTreeSet<Right> {
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let lines = metrics.lines().filter(|line| line.starts_with("kai_api_requests_denied_total{"));
    lines
        .filter_map(|line| Some((account.to_owned(), label(line, "resource")?, label(line, "verb")?)))
        .collect()
}
