//! The screen as text at several sizes, keys, and that stale data are shown as stale.

mod picture;

use super::*;
use kai_cache::object::{Node, Pod, PodGroup, Queue};
use kai_cache::{Settings, Store};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::Params;
use kai_engine::{ClusterState, Cycle, Policy};
use kai_units::Span;
use kai_view::ClusterView;
use kai_view::nodes::gpus::Gpu;
use kai_view::reader::Stale;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// 2026-03-01T09:30:00Z.
const NOW: Timestamp = Timestamp(1_772_357_400_000_000);

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("it is an object of this kind")
}

fn queue(name: &str, parent: &str, quota: i64, limit: i64) -> Queue {
    let gpu = json!({"quota": quota, "limit": limit, "overQuotaWeight": 1});
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let resources = json!({"gpu": gpu, "cpu": open, "memory": open});
    read(json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}}))
}

fn node(name: &str, ready: &str) -> Node {
    read(json!({
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": "8"}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }))
}

fn group(store: &mut Store, name: &str, queue: &str, min: u32, minutes: i64) {
    let created = (NOW + Span::from_secs(-60 * minutes)).to_string();
    let metadata = json!({"namespace": "team", "name": name, "creationTimestamp": created});
    store.apply(read::<PodGroup>(json!({"metadata": metadata, "spec": {"queue": queue, "minMember": min}})));
}

/// Pods of a group on nodes, or pending without one.
fn pods(store: &mut Store, group: &str, gpus: &str, places: &[&str]) {
    for (index, place) in places.iter().enumerate() {
        let (annotations, limits, labels) = if gpus.contains('.') {
            let on = format!("shared-{place}");
            let labels = json!({"runai-gpu-group": on});
            (json!({"pod-group-name": group, "gpu-fraction": gpus}), json!({}), labels)
        } else {
            (json!({"pod-group-name": group}), json!({"nvidia.com/gpu": gpus}), json!({}))
        };
        let phase = if place.is_empty() { "Pending" } else { "Running" };
        let mut requests = json!({"cpu": "1", "memory": "1Gi"});
        if let Some(gpus) = limits.get("nvidia.com/gpu") {
            // As the API server does.
            requests["nvidia.com/gpu"] = gpus.clone();
        }
        store.apply(read::<Pod>(json!({
            "metadata": {
                "namespace": "team", "name": format!("{group}-{index}"), "uid": format!("{group}-{index}"),
                "annotations": annotations, "labels": labels,
            },
            "spec": {
                "schedulerName": "kai-scheduler", "nodeName": place,
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": limits}}],
            },
            "status": {"phase": phase},
        })));
    }
}

/// Three nodes of eight GPUs, one of them not ready, with running and pending groups of two teams.
fn overview() -> Overview {
    let mut store = Store::new(Settings::default());
    for (name, parent, quota, limit) in [
        ("research", "", 16, -1),
        ("language-models", "research", 12, -1),
        ("vision", "research", 4, 8),
        ("production", "", 8, -1),
        ("inference", "production", 8, 8),
    ] {
        store.apply(queue(name, parent, quota, limit));
    }
    store.apply(node("gpu-a-1", "True"));
    store.apply(node("gpu-a-2", "True"));
    store.apply(node("gpu-a-10", "False"));
    group(&mut store, "pretrain", "language-models", 1, 300);
    pods(&mut store, "pretrain", "8", &["gpu-a-1"]);
    group(&mut store, "notebooks", "vision", 1, 45);
    pods(&mut store, "notebooks", "0.5", &["gpu-a-2", "gpu-a-2"]);
    group(&mut store, "serving", "inference", 1, 2_000);
    pods(&mut store, "serving", "2", &["gpu-a-2"]);
    group(&mut store, "finetune-with-a-long-name", "language-models", 2, 12);
    pods(&mut store, "finetune-with-a-long-name", "8", &["", ""]);
    group(&mut store, "segmentation", "vision", 1, 3);
    pods(&mut store, "segmentation", "16", &[""]);
    let policy = Policy::resolve(&kai_engine::Config::default(), &Params::default(), &PluginSet::builtin());
    let mut cluster = ClusterState::new();
    store.drain_into(&mut cluster);
    let outcome = kai_engine::plan(&mut cluster, &policy, Cycle { now: NOW, seed: 0 });
    Overview::of(&ClusterView { store, cluster, outcome, now: NOW, staleness_grace: Span(0) }, None)
}

fn state() -> State {
    let args = args::Top {
        cluster: args::Cluster {
            kubeconfig: args::Kubeconfig { kubeconfig: None, context: None },
            node_pool: None,
        },
        namespace: None,
        queue: None,
        config: None,
    };
    let mut state = State::top(&args);
    "https://10.0.0.1:6443 (lab)".clone_into(&mut state.cluster);
    state
}

fn screen(overview: &Overview, state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
    let now = NOW + Span::from_secs(45);
    let draw = |frame: &mut ratatui::Frame<'_>| {
        draw::screen(frame.area(), frame.buffer_mut(), overview, now, state);
    };
    terminal.draw(draw).expect("it is in memory");
    terminal.backend().to_string()
}

fn press(state: &mut State, overview: &Overview, code: KeyCode) -> Action {
    state.press(KeyEvent::new(code, KeyModifiers::NONE), overview)
}

fn type_text(state: &mut State, overview: &Overview, text: &str) {
    for letter in text.chars() {
        press(state, overview, KeyCode::Char(letter));
    }
}

#[test]
fn screen_fits_terminals_of_several_sizes() {
    let overview = overview();
    for (width, height) in [(80, 24), (120, 40), (60, 15)] {
        insta::assert_snapshot!(
            format!("top_{width}x{height}"),
            screen(&overview, &mut state(), width, height)
        );
    }
    insta::assert_snapshot!("jobs_80x24", screen(&overview, &mut jobs(), 80, 24));
    for (width, height) in [(1, 1), (20, 4), (30, 8), (500, 200)] {
        screen(&overview, &mut state(), width, height);
    }
}

fn jobs() -> State {
    State::jobs(None, None)
}

#[test]
fn stale_data_are_marked_with_their_time_and_cause() {
    let mut overview = overview();
    let why = "pods have not been watched for 45 s: connection refused".to_owned();
    overview.stale = Some(Stale { since: NOW.to_string(), why, since_at: NOW });
    let text = screen(&overview, &mut state(), 100, 24);
    assert!(text.contains("STALE since 09:30:00 UTC (45s): pods have not been watched"), "{text}");
    assert!(!text.contains("groups pending"), "the summary would look current: {text}");
}

#[test]
fn lost_gpu_is_shown_as_drained() {
    let mut overview = overview();
    for gpu in overview.nodes.nodes.iter_mut().flat_map(|node| &mut node.gpus.cells) {
        if let Gpu::Shared { drained, .. } = gpu {
            *drained = true;
        }
    }
    let text = screen(&overview, &mut state(), 120, 40);
    assert!(text.contains("██×"), "{text}");
}

#[test]
fn selection_follows_its_object_and_enter_explains_it() {
    let mut overview = overview();
    let mut state = state();
    screen(&overview, &mut state, 80, 24);
    press(&mut state, &overview, KeyCode::Down);
    screen(&overview, &mut state, 80, 24);
    let selected = Action::Explain("team/segmentation".to_owned());
    assert_eq!(press(&mut state, &overview, KeyCode::Enter), selected);
    overview.groups.groups.retain(|group| group.key.name != "finetune-with-a-long-name");
    screen(&overview, &mut state, 80, 24);
    assert_eq!(press(&mut state, &overview, KeyCode::Enter), selected, "it is the first row now");
    state.page = Some(Page::explanation(
        "team/segmentation",
        "kai why -n team PodGroup/segmentation",
        "\u{1b}[1mReason\u{1b}[0m\nthe text",
    ));
    let text = screen(&overview, &mut state, 80, 24);
    assert!(text.contains("kai why -n team PodGroup/segmentation") && text.contains("the text"), "{text}");
    press(&mut state, &overview, KeyCode::Esc);
    assert!(state.page.is_none());
    assert_eq!(press(&mut state, &overview, KeyCode::Char('q')), Action::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(interrupt, &overview), Action::Interrupt);
}

#[test]
fn filter_selects_a_queue_a_namespace_or_names() {
    let overview = overview();
    let mut state = state();
    state.pending_only = false;
    type_text(&mut state, &overview, "/queue:research");
    press(&mut state, &overview, KeyCode::Enter);
    let text = screen(&overview, &mut state, 100, 30);
    assert!(text.contains("vision") && text.contains("pretrain") && !text.contains("serving"), "{text}");
    assert!(text.contains("gpu-a-10"), "nodes have no queue: {text}");
    press(&mut state, &overview, KeyCode::Esc);
    type_text(&mut state, &overview, "/ns:other");
    press(&mut state, &overview, KeyCode::Enter);
    let text = screen(&overview, &mut state, 100, 30);
    assert!(text.contains("No groups") && !text.contains("pretrain"), "{text}");
    press(&mut state, &overview, KeyCode::Esc);
    type_text(&mut state, &overview, "/SEG");
    let text = screen(&overview, &mut state, 100, 30);
    assert!(text.contains("segmentation") && !text.contains("pretrain"), "{text}");
}

#[test]
fn keys_sort_and_switch_panes_and_resources() {
    let overview = overview();
    let mut state = state();
    press(&mut state, &overview, KeyCode::Tab);
    assert_eq!(state.focused(), state::PaneKind::Queues);
    type_text(&mut state, &overview, "s");
    let text = screen(&overview, &mut state, 100, 40);
    let (busy, idle) = (text.find("language-models"), text.find("vision"));
    assert!(text.contains("by used") && busy < idle, "{text}");
    type_text(&mut state, &overview, "S");
    let text = screen(&overview, &mut state, 100, 40);
    assert!(
        text.contains("by used reversed") && text.find("vision") < text.find("language-models"),
        "{text}"
    );
    type_text(&mut state, &overview, "r");
    assert!(screen(&overview, &mut state, 100, 40).contains("CPU cores"));
    press(&mut state, &overview, KeyCode::Char('2'));
    press(&mut state, &overview, KeyCode::Enter);
    let text = screen(&overview, &mut state, 100, 40);
    assert!(text.contains("node `gpu-a-1`: Ready"), "{text}");
    press(&mut state, &overview, KeyCode::Esc);
    press(&mut state, &overview, KeyCode::Char('?'));
    assert!(screen(&overview, &mut state, 100, 40).contains("close a page"));
}
