//! Every component with exactly KAI's roles: it is ready, works, and reports what it does without the missing rights.

use super::autoscaling::{ADJUSTER, ADJUSTER_FLAGS};
use super::control_plane::{NAMESPACE, Plane, SCHEDULER, wait_until};
use super::missing_permissions::{Endpoints, free_port};
use super::rbac;
use super::{SCENARIOS, run_scenario};
use crate::kai_roles::NOT_GRANTED;
use kai_components::{COMPONENTS, ComponentSpec, name};
use kai_kubetest::certificates::Certificates;
use kai_kubetest::control_plane::{Killed, Programs};
use kai_object as object;
use kai_runtime::kind::{CLUSTER_ROLE, EVENT, POD_DISRUPTION_BUDGET};
use kai_sim::{Right, Rights};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const ADMISSION: &str = "admission";
/// Scenarios that need no right which KAI's roles lack.
const WORKING: [&str; 8] =
    ["one-pod", "one-job", "gang", "preemption", "reclaim", "half-gpus", "claims", "config-maps"];

type Rules = BTreeSet<(String, String, String)>;

/// The rules of KAI's cluster roles by service account, from the recorded objects of its chart.
fn kai_roles() -> BTreeMap<String, Rules> {
    let folder = std::env::var_os("KAI_REFERENCE").expect("KAI_REFERENCE names the reference folder");
    let file = Path::new(&folder).join("conformance/chart/cases/default.json");
    let case: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let objects = case["expect"]["objects"].as_object().unwrap();
    let bindings = objects.iter().filter(|(id, _)| id.starts_with("ClusterRoleBinding/"));
    let rules = |binding: &Value| {
        let role = &objects[&format!("ClusterRole/{}", object::str_at(binding, "/roleRef/name"))];
        let permissions = role["$permissions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        permissions.map(rule).collect()
    };
    bindings
        .map(|(_, binding)| (object::str_at(binding, "/subjects/0/name").to_owned(), rules(binding)))
        .collect()
}

/// `core/pods/status:get` as group, resource and verb.
fn rule(permission: &str) -> (String, String, String) {
    let (group, rest) = permission.split_once('/').expect("a group");
    let (resource, verb) = rest.rsplit_once(':').expect("a verb");
    let group = if group == "core" { "" } else { group };
    // The operator's role names some objects, as ours does.
    let resource = resource.split_once('[').map_or(resource, |(resource, _)| resource);
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

/// Reservation pods have an account without a cluster role, and KAI has no process with all components.
fn has_role(spec: &ComponentSpec) -> bool {
    ![name::RESOURCE_RESERVATION, name::COMBINED].contains(&spec.name)
}

/// The operator does not run on this control plane, and the exporter needs a kubelet.
fn is_started(account: &str) -> bool {
    account == ADJUSTER || !rbac::NOT_STARTED.contains(&account)
}

/// The rights in `deploy/rbac` that KAI's roles lack, in the form of [`NOT_GRANTED`].
fn lacking(kai: &BTreeMap<String, Rules>) -> BTreeSet<(String, String, String, String)> {
    let mut lacking = BTreeSet::new();
    for spec in COMPONENTS.iter().filter(|spec| has_role(spec)) {
        let granted = &kai[spec.service_account.name];
        for (_, Right { verb, resource, api_group }) in
            Rights::of_roles(&kai_components::rbac::objects(spec)).iter()
        {
            if !granted.contains(&(api_group.clone(), resource.clone(), verb.clone())) {
                lacking.insert((spec.name.to_owned(), verb.clone(), resource.clone(), api_group.clone()));
            }
        }
    }
    lacking
}

/// Replaces the roles of all components; their roles in single namespaces grant nothing.
async fn set_roles(plane: &Plane, kai: &BTreeMap<String, Rules>) {
    for role in rbac::all_roles().into_iter().filter(|role| is_started(&role.account)) {
        let Some(rules) = kai.get(&role.account) else { continue };
        let none = Rules::new();
        role.set(plane.api(), if role.kind == CLUSTER_ROLE { rules } else { &none }).await;
    }
}

#[test]
#[ignore = "needs a real control plane and KAI_REFERENCE: cargo xtask ci runs it"]
fn components_work_with_exactly_the_roles_of_the_reference() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    let kai = kai_roles();
    let owned = |(component, verb, resource, group): &(&str, &str, &str, &str)| {
        ((*component).to_owned(), (*verb).to_owned(), (*resource).to_owned(), (*group).to_owned())
    };
    assert_eq!(
        lacking(&kai),
        NOT_GRANTED.iter().map(owned).collect(),
        "the list of missing rights is complete"
    );
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "kai-roles").await);
        set_roles(&plane, &kai).await;
        let scheduler = plane.api_of(SCHEDULER).await;
        wait_until("KAI's roles count", || async {
            scheduler.list_dynamic(&POD_DISRUPTION_BUDGET, "").await.is_err_and(|error| error.code() == 403)
        })
        .await;
        let ports = start_components(&plane).await;
        run_scenarios(&plane).await;
        check_adjuster(&plane, ports[ADJUSTER]).await;
        check_denied(&plane).await;
        check_reports(&plane, &kai, ports[SCHEDULER]).await;
    });
}

/// Restarts all components with KAI's roles, and waits until they are ready; returns the ports of their metrics.
async fn start_components(plane: &Plane) -> BTreeMap<&'static str, u16> {
    let accounts = COMPONENTS.iter().filter(|spec| has_role(spec)).map(|spec| spec.service_account.name);
    let started = accounts.filter(|account| is_started(account));
    let ports: BTreeMap<&'static str, u16> = started.map(|account| (account, free_port())).collect();
    let address = |account: &str| format!("--metrics-bind-address=127.0.0.1:{}", ports[account]);
    // The registered webhooks keep the certificate that they have read; a further replica starts with KAI's role.
    for account in ports.keys().filter(|account| ![ADMISSION, SCHEDULER, ADJUSTER].contains(account)) {
        let mut flags = vec![address(account)];
        if *account == name::QUEUE_CONTROLLER {
            // Implicit groups need rights that KAI's role lacks.
            flags.push("--implicit-groups=".to_owned());
        }
        plane.restart_with(account, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    }
    plane.start_component(SCHEDULER, SCHEDULER, &["--plugin-server-port=0", &address(SCHEDULER)]);
    plane.kubeconfig_of(NAMESPACE, ADJUSTER).await;
    plane.start_component(ADJUSTER, ADJUSTER, &[ADJUSTER_FLAGS[0], &address(ADJUSTER)]);
    // KAI's operator mounts the certificate of the webhooks.
    let folder = plane.kubeconfig_of(NAMESPACE, ADMISSION).await.with_extension("certificates");
    std::fs::create_dir_all(&folder).unwrap();
    let certificates = Certificates::for_loopback().unwrap();
    std::fs::write(folder.join("tls.crt"), &certificates.leaf).unwrap();
    std::fs::write(folder.join("tls.key"), &certificates.key).unwrap();
    let (certificates, port) =
        (format!("--webhook-cert-dir={}", folder.display()), format!("--webhook-addr={}", free_port()));
    plane.start_component("admission-kai", ADMISSION, &[&address(ADMISSION), &certificates, &port]);
    for (account, port) in &ports {
        let endpoints = Endpoints::of(*port);
        let what = format!("{account} is ready with KAI's role");
        wait_until(&what, || async { endpoints.read("/readyz").await.is_ok() }).await;
    }
    ports
}

async fn run_scenarios(plane: &Arc<Plane>) {
    let slots = Semaphore::new(WORKING.len());
    let working = SCENARIOS.iter().filter(|scenario| WORKING.contains(&scenario.name));
    let results =
        futures::future::join_all(working.map(|scenario| run_scenario(plane, &slots, scenario))).await;
    assert_eq!(results.len(), WORKING.len(), "every scenario exists");
    for result in results {
        assert!(result.ran_ms.is_some(), "{} failed with KAI's roles", result.name);
    }
}

/// No request lacked a right that is not optional.
async fn check_denied(plane: &Plane) {
    let account =
        |component: &str| if component == name::SCHEDULER { SCHEDULER } else { component }.to_owned();
    let optional: BTreeSet<rbac::Permission> = NOT_GRANTED
        .iter()
        .map(|(component, verb, resource, group)| {
            (account(component), rbac::named(resource, group), (*verb).to_owned())
        })
        .collect();
    let requests = plane.requests().await;
    let forbidden: BTreeSet<rbac::Permission> = requests
        .iter()
        .filter(|request| request["annotations"]["authorization.k8s.io/decision"] == "forbid")
        .filter_map(rbac::needed)
        .collect();
    let missing: Vec<_> = forbidden.difference(&optional).collect();
    assert!(missing.is_empty(), "these rights are needed, and KAI's roles lack them: {missing:?}");
    assert!(forbidden.contains(&(SCHEDULER.to_owned(), "pods/eviction".to_owned(), "create".to_owned())));
}

/// The adjuster reports that it works without pod groups and claims.
async fn check_adjuster(plane: &Plane, port: u16) {
    let endpoints = Endpoints::of(port);
    let claims = plane.serves_resource_claims().await.then_some("list resourceclaims.resource.k8s.io");
    for right in ["list podgroups.scheduling.run.ai"].into_iter().chain(claims) {
        let line = format!("kai_component_degraded{{missing=\"{right}\"}} 1");
        wait_until(&format!("the metric says that it may not {right}"), || async {
            endpoints.read("/metrics").await.is_ok_and(|metrics| metrics.contains(&line))
        })
        .await;
    }
    assert!(plane.log_of(ADJUSTER).contains("working without an optional right"));
}

/// The scheduler reports that it works without disruption budgets, and picks up the right when it is granted and taken away.
async fn check_reports(plane: &Plane, kai: &BTreeMap<String, Rules>, port: u16) {
    let endpoints = Endpoints::of(port);
    let degraded = async |value: u8| {
        let line = format!("kai_component_degraded{{missing=\"list poddisruptionbudgets.policy\"}} {value}");
        endpoints.read("/metrics").await.is_ok_and(|metrics| metrics.contains(&line))
    };
    let reported = async |reason: &str| {
        let events = plane.api().list_dynamic(&EVENT, NAMESPACE).await.unwrap().items;
        events.iter().any(|event| event["reason"] == reason && event["involvedObject"]["kind"] == "Lease")
    };
    wait_until("the metric says that budgets are not known", || degraded(1)).await;
    wait_until("an event says so", || reported("MissingPermission")).await;
    assert!(plane.log_of(SCHEDULER).contains("working without an optional right"));

    let mut more = kai.clone();
    let rules = more.get_mut(SCHEDULER).expect("the scheduler has a role");
    for verb in ["list", "watch"] {
        rules.insert(("policy".to_owned(), "poddisruptionbudgets".to_owned(), verb.to_owned()));
    }
    set_roles(plane, &more).await;
    wait_until("the granted right is used", || degraded(0)).await;
    wait_until("an event says so", || reported("PermissionGranted")).await;

    set_roles(plane, kai).await;
    // Watches that are open stay open without their right.
    plane.control().restart(Killed::ApiServer, Duration::from_millis(100)).await.unwrap();
    // On a busy machine the server may be away for longer than a lease lasts.
    wait_until("the missing right is noticed", || {
        plane.start_ended_again();
        degraded(1)
    })
    .await;
    wait_until("the scheduler is ready", || async { endpoints.read("/readyz").await.is_ok() }).await;
}
