//! Tests of the command line of `kai all`, and of its components' isolation.

use super::*;
use crate::process::ComponentProcess;
use clap::{Command, FromArgMatches as _, Subcommand as _};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::Key;
use kai_runtime::event::Regarding;
use kai_runtime::kind::{EVENT, LEASE};
use kai_runtime::leader_election::{Candidate, Timing};
use kai_runtime::writer::{Retry, Write, WritePriority};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The components of a command line, as text.
fn parsed(typed: &[&str]) -> Result<Vec<String>> {
    let command = command::ComponentCommand::augment_subcommands(Command::new("kai"));
    let typed = ["kai", "all"].iter().chain(typed).map(OsString::from).collect();
    let (command, typed) = command::adapt(command, typed);
    let matches = command.try_get_matches_from(typed)?;
    command::ComponentCommand::from_arg_matches(&matches)?;
    let (_, matches) = matches.subcommand().expect("a component");
    let flags = CombinedFlags::from_arg_matches(matches)?;
    let describe = |member: Member| {
        let pool = member.part(&Extensions::default())?.pool;
        Ok(format!("{} {:?}", member.name(pool.as_deref()), member.program))
    };
    members(&flags)?.into_iter().map(describe).collect()
}

fn names(typed: &[&str]) -> Vec<String> {
    let members = parsed(typed).unwrap_or_else(|error| panic!("{error:#}"));
    members.iter().filter_map(|member| Some(member.split_once(' ')?.0.to_owned())).collect()
}

#[tokio::test]
async fn all_components_run_with_their_defaults() {
    let all = ["scheduler", "binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission"];
    assert_eq!(names(&[]), all);
    assert_eq!(names(&["--components=binder,pod-grouper", "--v=5"]), ["binder", "pod-grouper"]);
    let members = parsed(&[]).expect("it is valid");
    for (name, port) in [("queue-controller", ":9444"), ("podgroup-controller", ":9445")] {
        let member = members.iter().find(|member| member.starts_with(name)).expect("it runs");
        assert!(member.contains(port), "{member}");
    }
}

#[tokio::test]
async fn flags_follow_the_name_of_their_component() {
    let typed = [
        "--leader-elect",
        "scheduler",
        "--scheduler-name",
        "binder",
        "--partition-label-value=a",
        "binder",
        "-max-concurrent-reconciles",
        "7",
        "scheduler",
        "--partition-label-value=b",
        "queue-controller",
        "--webhook-bind-address=:7777",
    ];
    let members = parsed(&typed).unwrap_or_else(|error| panic!("{error:#}"));
    let member = |name: &str| members.iter().find(|member| member.starts_with(name)).expect("it runs");
    assert!(member("scheduler-a ").contains("scheduler_name: \"binder\""));
    assert!(member("scheduler-b ").contains("scheduler_name: \"kai-scheduler\""));
    assert!(member("binder ").contains("max_concurrent_reconciles: 7"));
    assert!(member("queue-controller ").contains(":7777"));
    assert_eq!(members.len(), 7);
}

#[tokio::test]
async fn error_names_the_component_and_what_is_allowed() {
    for (typed, expected) in [
        (
            &["operator"][..],
            "`operator` is no component that runs here; hint: the components are scheduler, binder",
        ),
        (&["--components=binder", "scheduler"], "`scheduler` is no component that runs here"),
        (&["--components=bind"], "`--components` has `bind`"),
        (&["binder", "--max=1"], "binder: unexpected argument '--max'"),
        (&["binder", "binder"], "`binder` is named 2 times"),
        (&["binder", "--plugins={"], "cannot run binder: `--plugins` is not a JSON map"),
    ] {
        let error = parsed(typed).expect_err("it is invalid");
        assert!(format!("{error:#}").contains(expected), "{typed:?}: {error:#}");
    }
}

fn started(name: &'static str, start: StartComponent) -> Started {
    Started { name: name.to_owned(), user_agent: name, limits: (-1.0, 0), lease: None, start }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn component_that_panics_is_restarted_alone_and_reported() {
    let server = ApiServer::new(&Options::new(1, Clock::system()));
    let api = Api::new(kube::Client::new(server.service(), "default"), "kai-all");
    let process = Process::start(api.clone(), Clock::system(), "kai-all");
    let lease = Key::new("default", "kai-scheduler");
    process.degradations.report_on(Regarding { kind: LEASE, key: lease, uid: String::new() });
    let runs: Arc<[AtomicU32; 2]> = Arc::default();
    let (panicking, other) = (Arc::clone(&runs), Arc::clone(&runs));
    let start_panicking: StartComponent = Arc::new(move |process: Process| {
        let run = panicking[0].fetch_add(1, Ordering::Relaxed);
        process.health.set_problem("start", (run == 0).then(|| "it starts".to_owned()));
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(run > 0, "a defect");
            std::future::pending::<()>().await;
        })
    });
    let start_other: StartComponent = Arc::new(move |mut process: Process| {
        other[1].fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { process.failed().await })
    });
    let (registries, health) = (Registries::from(process.metrics.clone()), process.health.clone());
    let started = vec![started("binder", start_panicking), started("scheduler", start_other)];
    let components = Components::new(started, registries.clone());
    let mut task = JoinSet::new();
    task.spawn(components.run(process));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(health.problems(), ["binder: it starts"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!([runs[0].load(Ordering::Relaxed), runs[1].load(Ordering::Relaxed)], [2, 1]);
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    let events = api.list_dynamic(&EVENT, "default").await.expect("events are served").items;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(object::str_at(event, "/message"), "binder panicked: a defect; it is restarted alone");
    assert_eq!(object::str_at(event, "/involvedObject/name"), "kai-scheduler");
    let text = prometheus::TextEncoder::new().encode_to_string(&registries.gather()).expect("they are valid");
    assert!(text.contains("kai_component_restarts_total{name=\"binder\"} 1"), "{text}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn writes_of_components_are_sent_before_the_process_ends() {
    let answered = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&answered);
    let server = axum::Router::new().fallback(async move || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        counted.fetch_add(1, Ordering::Relaxed);
        "{}"
    });
    let api = Api::new(kube::Client::new(server, "default"), "kai-all");
    let process = ComponentProcess::new("kai-all", api, None, Registry::new());
    let start: StartComponent = Arc::new(|mut process: Process| {
        let key = Key::new("x", "a");
        process.writer.submit(Write {
            priority: WritePriority::Status,
            object: (LEASE, key.clone()),
            slot: None,
            method: "PATCH",
            path: LEASE.path_of(&key),
            content_type: "application/merge-patch+json",
            body: serde_json::json!({}),
            retry: Retry::UntilAnswered,
            done: None,
        });
        Box::pin(async move { process.failed().await })
    });
    let started = vec![started("binder", start)];
    let components = Components::new(started, process.registries.clone());
    let shutdown = tokio::time::sleep(Duration::from_millis(100));
    process.run(shutdown, |process| components.run(process)).await.expect("it ends in order");
    assert_eq!(answered.load(Ordering::Relaxed), 1);
}

/// Beside a process of its own that still runs, as while an installation passes to `kai all`.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scheduler_of_another_lease_starts_when_it_has_acquired_it_and_gives_it_back() {
    let server = ApiServer::new(&Options::new(1, Clock::system()));
    let api = Api::new(kube::Client::new(server.service(), "default"), "kai-all");
    let candidate = |lease: &str, identity: &str| Candidate {
        lease: Key::new("default", lease),
        identity: identity.to_owned(),
        timing: Timing::default(),
    };
    let other = candidate("kai-scheduler-a", "other_1");
    let leadership = other.acquire(&api, Clock::system()).await;
    let mut renewal = leader_election::spawn_renewal(&other, &api, Clock::system(), &leadership);

    let own = candidate("kai-scheduler", "own_1");
    let mut process = ComponentProcess::new("kai-all", api.clone(), Some(own), Registry::new());
    assert!(process.further_lease("kai-scheduler").is_none(), "it is that of the process");
    let lease = process.further_lease("kai-scheduler-a");
    let runs: Arc<[AtomicU32; 2]> = Arc::default();
    let counting = |number: usize| -> StartComponent {
        let runs = Arc::clone(&runs);
        Arc::new(move |mut process: Process| {
            runs[number].fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { process.failed().await })
        })
    };
    let members =
        vec![Started { lease, ..started("scheduler-a", counting(0)) }, started("binder", counting(1))];
    let components = Components::new(members, process.registries.clone());
    let mut task = JoinSet::new();
    let shutdown = tokio::time::sleep(Duration::from_mins(2));
    task.spawn(async move { process.run(shutdown, |process| components.run(process)).await });
    let started = || [runs[0].load(Ordering::Relaxed), runs[1].load(Ordering::Relaxed)];
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(started(), [0, 1], "the other process schedules");
    renewal.shutdown().await;
    other.release(&api, Clock::system()).await.expect("it is released");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(started(), [1, 1]);
    let holder = candidate("kai-scheduler-a", "").holder(&api).await.expect("it can be read");
    assert_eq!(holder.map(|holder| holder.identity).as_deref(), Some("own_1"));
    task.join_next().await.expect("it runs").expect("no panic").expect("it ends in order");
    for lease in ["kai-scheduler", "kai-scheduler-a"] {
        let holder = candidate(lease, "").holder(&api).await.expect("it can be read");
        assert!(holder.is_none(), "{lease}: {holder:?}");
    }
}
