//! Input of KAI's time-based fair share simulator: nodes, queues, jobs that do not end, and usage parameters.

use super::Setup;
use super::fields::Fields;
use super::request::Request;
use anyhow::{Result, bail};
use kai_engine::input::{
    GPU, GpuRequest, GroupInput, Key, NodeInput, PODS, PodInput, QueueInput, QueueShare, SpecInput, WHOLE_GPU,
};
use kai_engine::plugin::PluginSet;
use kai_engine::policy::{Config, Params};
use kai_engine::{Delta, Policy};
use kai_replay::{Options, Script, UsageOptions, Window};
use kai_units::{Span, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// Time between two cycles of KAI's simulator.
const PERIOD: Span = Span(10_000);
/// Pods per node: more than `OBJECTS_MAX`, so that only GPUs limit placement.
const PODS_PER_NODE: i64 = 1_000_000;
/// Maximum nodes and pods of a file.
const OBJECTS_MAX: u64 = 1_000_000;
/// Larger quotas are clamped.
const GPUS_MAX: f64 = 1e9;
const NAMESPACE: &str = "default";

#[derive(Debug)]
pub(super) struct Scenario {
    cycles: u32,
    /// In cycles: KAI's simulator records usage once a cycle, and counts these records as if one were a second.
    window: u32,
    half_life: Option<u32>,
    k_value: f64,
    /// GPUs and number of equal nodes.
    nodes: Vec<(u32, u32)>,
    queues: Vec<QueueInput>,
    jobs: BTreeMap<String, Jobs>,
}

#[derive(Clone, Copy, Debug)]
struct Jobs {
    gpus: u32,
    pods: u32,
    count: u32,
}

impl Scenario {
    /// `file` is used in errors.
    pub(super) fn read(file: &str, value: &Value) -> Result<Self> {
        let fields = Fields::of(value, format!("`{file}`"))?;
        let node = |fields: Fields<'_>| {
            Ok((fields.count("GPUs")?.unwrap_or(0), fields.count("Count")?.unwrap_or(1).max(1)))
        };
        let mut jobs = BTreeMap::new();
        if let Some(by_queue) = fields.object("Jobs")? {
            for entry in by_queue.each() {
                let (queue, fields) = entry?;
                let gpus = fields.count("GPUs")?.unwrap_or(0);
                let pods = fields.count("NumPods")?.unwrap_or(1);
                let count = fields.count("NumJobs")?.unwrap_or(1);
                jobs.insert(queue.to_owned(), Jobs { gpus, pods, count });
            }
        }
        let nodes: Vec<(u32, u32)> = fields.objects("Nodes")?.into_iter().map(node).collect::<Result<_>>()?;
        let pods = jobs.values().map(|jobs: &Jobs| u64::from(jobs.pods).saturating_mul(jobs.count.into()));
        let objects = pods.chain(nodes.iter().map(|node| node.1.into())).fold(0, u64::saturating_add);
        if objects > OBJECTS_MAX {
            bail!("`{file}` has {objects} nodes and pods; hint: the maximum is {OBJECTS_MAX}");
        }
        Ok(Self {
            cycles: fields.count("Cycles")?.filter(|cycles| *cycles > 0).unwrap_or(100),
            window: fields.count("WindowSize")?.filter(|window| *window > 0).unwrap_or(5),
            half_life: fields.count("HalfLifePeriod")?.filter(|half_life| *half_life > 0),
            k_value: fields.number("KValue")?.unwrap_or(1.0),
            nodes,
            queues: fields.objects("Queues")?.iter().map(queue).collect::<Result<_>>()?,
            jobs,
        })
    }

    pub(super) fn setup(&self, request: &Request, plugins: &PluginSet) -> Setup {
        let mut config = request.config.as_ref().map_or_else(Config::default, |config| config.engine.clone());
        if request.config.is_none() {
            for plugin in config.plugins.iter_mut().filter(|plugin| plugin.name == "proportion") {
                plugin.arguments.insert("kValue".to_owned(), self.k_value.to_string());
            }
        }
        let policy = Policy::resolve(&config, &Params::default(), plugins);
        let period = request.period.unwrap_or(PERIOD);
        let cycles = |count: u32| Span(period.0.saturating_mul(i64::from(count)));
        let usage = UsageOptions {
            window: Window::Sliding(cycles(self.window)),
            half_life: self.half_life.map(cycles),
            fetch_every: period,
        };
        let options = request.options(Options {
            start: request.now.unwrap_or(Timestamp(0)),
            period,
            start_delay: Span(0),
            grace: Span(0),
            usage: Some(usage),
            ..Options::default()
        });
        Setup {
            end: request.end(&options, Some(self.cycles)),
            deltas: self.deltas(),
            script: Script::default(),
            warnings: policy.warnings.clone(),
            policy,
            options,
            source: if request.now.is_some() { "from --now" } else { "the file has no time" },
        }
    }

    fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let mut made: BTreeMap<u32, u32> = BTreeMap::new();
        for &(gpus, count) in &self.nodes {
            for _ in 0..count {
                let number = made.entry(gpus).or_default();
                *number += 1;
                deltas.push(Delta::Node(Box::new(node(gpus, *number))));
            }
        }
        deltas.extend(self.queues.iter().map(|queue| Delta::Queue(Box::new(queue.clone()))));
        for (queue, jobs) in &self.jobs {
            for job in 0..jobs.count {
                let name = format!("{queue}-job-{job}");
                deltas
                    .extend((0..jobs.pods).map(|number| Delta::Pod(Box::new(pod(&name, number, jobs.gpus)))));
                deltas.push(Delta::Group(Box::new(GroupInput {
                    key: Key::new(NAMESPACE, name.as_str()),
                    uid: name,
                    queue: queue.clone(),
                    priority: kai_api::well_known::priority_class::FALLBACK_VALUE,
                    preemptible: true,
                    min_member: Some(1),
                    ..GroupInput::default()
                })));
            }
        }
        deltas
    }
}

fn queue(fields: &Fields<'_>) -> Result<QueueInput> {
    let gpus = fields.number("DeservedGPUs")?.unwrap_or(0.0);
    let quota = (gpus >= 0.0).then(|| (gpus.min(GPUS_MAX) * WHOLE_GPU as f64).round() as i64);
    let nothing = QueueShare { quota: Some(0), limit: Some(0), weight: 0.0 };
    let default_priority = kai_api::well_known::name::DEFAULT_QUEUE_PRIORITY as f64;
    Ok(QueueInput {
        name: fields.text("Name")?.to_owned(),
        parent: Some(fields.text("Parent")?.to_owned()).filter(|parent| !parent.is_empty()),
        priority: fields.number("Priority")?.unwrap_or(default_priority) as i32,
        cpu: nothing,
        memory: nothing,
        gpu: QueueShare { quota, limit: None, weight: fields.number("Weight")?.unwrap_or(1.0) },
        ..QueueInput::default()
    })
}

fn node(gpus: u32, number: u32) -> NodeInput {
    let name = if number == 1 { format!("test-node-{gpus}") } else { format!("test-node-{gpus}-{number}") };
    NodeInput {
        name,
        allocatable: vec![(GPU.to_owned(), i64::from(gpus) * WHOLE_GPU), (PODS.to_owned(), PODS_PER_NODE)],
        gpu_count: Some(gpus),
        ..NodeInput::default()
    }
}

fn pod(group: &str, number: u32, gpus: u32) -> PodInput {
    let name = format!("{group}-{number}");
    PodInput {
        key: Key::new(NAMESPACE, name.as_str()),
        uid: name,
        group: Some(group.to_owned()),
        ours: true,
        spec: SpecInput {
            request: vec![(GPU.to_owned(), i64::from(gpus) * WHOLE_GPU)],
            gpu: GpuRequest::Whole(gpus),
            ..SpecInput::default()
        }
        .into(),
        ..PodInput::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_match_in_any_case_and_defaults_fill_in() {
        let scenario = Scenario::read(
            "f",
            &json!({"nodes": [{"gpus": 8, "count": 2}, {"GPUs": 8}], "Queues": [{"name": "a", "parent": "p",
                "DeservedGPUs": 2}], "jobs": {"a": {"GPUs": 1, "NumPods": 2, "NumJobs": 3}}, "Else": 1}),
        )
        .expect("it is valid");
        assert_eq!((scenario.cycles, scenario.window, scenario.half_life), (100, 5, None));
        assert_eq!(scenario.queues[0].priority, 100);
        assert_eq!(scenario.queues[0].gpu, QueueShare { quota: Some(2_000_000), limit: None, weight: 1.0 });
        let deltas = scenario.deltas();
        let nodes: Vec<&str> = deltas
            .iter()
            .filter_map(|delta| if let Delta::Node(node) = delta { Some(node.name.as_str()) } else { None })
            .collect();
        assert_eq!(nodes, ["test-node-8", "test-node-8-2", "test-node-8-3"]);
        assert_eq!(deltas.len(), 3 + 1 + 3 * 3);
    }

    #[test]
    fn invalid_value_is_reported_with_its_position() {
        let error = Scenario::read("f.yaml", &json!({"Queues": [], "Jobs": {"a": {"NumPods": -1}}}));
        let error = error.expect_err("no count").to_string();
        assert!(error.contains("`f.yaml`, Jobs, a: `NumPods` is not a non-negative integer"), "{error}");
    }
}
