//! A recorded case, with uids that a server could have given.

use anyhow::{Context, Result, bail};
use kai_podgrouper::{Options, parse_selector};
use kai_runtime::Key;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The namespace of every case.
pub(super) const NAMESPACE: &str = "case";

#[derive(Debug)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) options: Options,
    pub(super) environment: Environment,
    pub(super) steps: Vec<Step>,
    /// Labels and annotations that the server stored instead of those that were sent, by `Kind/name`.
    pub(super) stored: BTreeMap<String, Value>,
    pub(super) calls: Option<BTreeMap<String, usize>>,
    /// The uid of every `Kind/name` of the case.
    pub(super) uids: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Environment {
    pub(super) karta_definition: bool,
    pub(super) rights: Option<String>,
    pub(super) namespace_labels: BTreeMap<String, String>,
    pub(super) cluster_objects: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
    pub(super) expect: Expect,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Action {
    Create { create: Value },
    Patch { target: Target, patch: Value },
    Delete { delete: Target },
    Bind { bind: Bind },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Bind {
    pub(super) pod: String,
    pub(super) node: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Expect {
    pub(super) pod_groups: Vec<Value>,
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) errors: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct File {
    format: String,
    id: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    environment: Environment,
    objects: Option<Vec<Value>>,
    expect: Option<Expect>,
    steps: Option<Vec<Step>>,
    #[serde(default)]
    stored: BTreeMap<String, Value>,
    calls: Option<BTreeMap<String, usize>>,
}

impl Case {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (text, uids) = with_uids(&text.replace("$NS", NAMESPACE))?;
        let file: File = serde_json::from_str(&text)?;
        if file.format != "kai-grouper-case/v1" {
            bail!("unknown format `{}`", file.format);
        }
        let steps = match (file.steps, file.objects) {
            (Some(steps), _) => steps,
            (None, Some(objects)) => vec![Step {
                actions: objects.into_iter().map(|create| Action::Create { create }).collect(),
                expect: file.expect.context("`expect` is missing")?,
            }],
            (None, None) => bail!("neither `objects` nor `steps`"),
        };
        Ok(Self {
            id: file.id,
            options: options(&file.flags)?,
            environment: file.environment,
            steps,
            stored: file.stored,
            calls: file.calls,
            uids,
        })
    }

    /// All objects that the case creates.
    pub(super) fn created(&self) -> impl Iterator<Item = &Value> {
        let actions = self.steps.iter().flat_map(|step| &step.actions);
        actions.filter_map(|action| if let Action::Create { create } = action { Some(create) } else { None })
    }
}

/// Replaces every `<uid:Kind/name>` by a uid.
fn with_uids(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    let mut uids: BTreeMap<String, String> = BTreeMap::new();
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<uid:") {
        let (token, after) = after.split_once('>').context("a uid does not end")?;
        let next = uids.len();
        let uid = uids.entry(token.to_owned()).or_insert_with(|| uid(next));
        replaced.push_str(before);
        replaced.push_str(uid);
        rest = after;
    }
    replaced.push_str(rest);
    Ok((replaced, uids))
}

pub(super) fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn options(flags: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let (mut name, mut namespace) = (String::new(), String::new());
    for flag in flags {
        let (flag, value) = flag.split_once('=').with_context(|| format!("flag `{flag}` has no value"))?;
        let is_true = value == "true";
        match flag.trim_start_matches('-') {
            "scheduler-name" => value.clone_into(&mut options.scheduler_name),
            "queue-label-key" => value.clone_into(&mut options.queue_label_key),
            "nodepool-label-key" => value.clone_into(&mut options.node_pool_label_key),
            "pod-label-selector" => options.pod_label_selector = parse_selector(value),
            "namespace-label-selector" => options.namespace_label_selector = parse_selector(value),
            "search-legacy-pg" => options.search_legacy_groups = is_true,
            "knative-gang-schedule" => options.knative_gang_schedule = is_true,
            "generic-karta-fallback" => options.generic_karta_fallback = is_true,
            "default-priorities-configmap-name" => value.clone_into(&mut name),
            "default-priorities-configmap-namespace" => value.clone_into(&mut namespace),
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    if !name.is_empty() && !namespace.is_empty() {
        options.default_priorities = Some(Key::new(&namespace, &name));
    }
    Ok(options)
}
