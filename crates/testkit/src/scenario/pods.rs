//! Parses pods of a scenario: `{gpu=0.5,cpu=4,tolerate=dedicated,near=app:web@zone}`.

use super::nodes::{GIBI, effect};
use super::syntax::{pair, scaled};
use anyhow::{Context, Result, bail};
use kai_engine::input::{
    AffinityTerm, CPU, ContainerRequest, GPU, GpuRequest, HostPort, LabelSelector, MEMORY, NodePreference,
    NodeTerm, PodClaim, PodInput, PodVolume, Requirement, RequirementOp, SelectorOp, SpecInput,
    SpreadConstraint, TaskPriority, Toleration, TolerationOp, WHOLE_GPU, WeightedTerm,
};

/// A pod of a block, and the name of its block in expectations.
pub(super) struct PodTemplate {
    /// Without name, group and node.
    pub(super) pod: PodInput,
    /// Printed before its state.
    pub(super) label: Option<String>,
}

/// Parses the words between the braces.
pub(super) fn pod_template(words: &[&str], namespace: &str) -> Result<PodTemplate> {
    let mut pod = PodInput { ours: true, ..PodInput::default() };
    let mut label = None;
    let mut requests = Requests { cpu: 1000, memory: GIBI, ..Requests::default() };
    for word in words {
        let (key, value) = pair(word);
        if requests.read(key, value)? || constrain(&mut pod.spec, key, value, namespace)? {
            continue;
        }
        match key {
            "sub" => {
                pod.sub_group = Some(value.to_owned());
                label = Some(value.to_owned());
            }
            "as" => label = Some(value.to_owned()),
            "first" => pod.task_priority = TaskPriority::Value(value.parse()?),
            "leader" => pod.kubeflow_leader = true,
            "head" => pod.ray_head = true,
            "nominated" => pod.nominated_node = Some(value.to_owned()),
            "claim" | "template" => pod.claims.push(PodClaim {
                name: value.to_owned(),
                claim: Some(value.to_owned()),
                from_template: key == "template",
                chosen: Vec::new(),
            }),
            "pvc" => pod.volumes.push(PodVolume { claim: value.to_owned() }),
            "configmap" => pod.config_maps.push(value.to_owned()),
            "foreign" => pod.ours = false,
            _ => match key.strip_prefix("label:") {
                Some(key) => pod.labels.push((key.to_owned(), value.to_owned())),
                None => bail!("a pod has no `{word}`"),
            },
        }
    }
    pod.labels.sort();
    requests.apply_to(&mut pod.spec);
    Ok(PodTemplate { pod, label })
}

#[derive(Default)]
struct Requests {
    cpu: i64,
    memory: i64,
    gpu: GpuRequest,
    more: Vec<(String, i64)>,
    guaranteed: bool,
}

impl Requests {
    fn read(&mut self, key: &str, value: &str) -> Result<bool> {
        match key {
            "cpu" => self.cpu = scaled(value, 1000)?,
            "mem" => self.memory = scaled(value, GIBI)?,
            "gpu" => self.gpu = gpu(value)?,
            "gpumem" => {
                let (mib, devices) = value.split_once('x').unwrap_or((value, "1"));
                self.gpu = GpuRequest::Memory { mib: mib.parse()?, devices: devices.parse()? };
            }
            "guaranteed" => self.guaranteed = true,
            _ => match key.strip_prefix("res:") {
                Some(name) => self.more.push((name.to_owned(), scaled(value, 1000)?)),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn apply_to(self, spec: &mut SpecInput) {
        let mut request = vec![(CPU.to_owned(), self.cpu), (MEMORY.to_owned(), self.memory)];
        if let GpuRequest::Whole(count) = self.gpu {
            request.push((GPU.to_owned(), i64::from(count) * WHOLE_GPU));
        }
        let mig = self.more.iter().any(|(name, _)| name.starts_with("nvidia.com/mig-"));
        spec.gpu = if mig { GpuRequest::Mig } else { self.gpu };
        request.extend(self.more);
        spec.guaranteed = self.guaranteed;
        spec.containers = vec![ContainerRequest {
            name: "main".to_owned(),
            request: request.clone(),
            init: false,
            sidecar: false,
        }];
        spec.request = request;
    }
}

/// `2`, `0.5` or `0.5x2`
fn gpu(text: &str) -> Result<GpuRequest> {
    let (part, devices) = text.split_once('x').unwrap_or((text, "1"));
    let hundredths = scaled(part, 100)?;
    if hundredths % 100 == 0 && devices == "1" && !part.contains('.') {
        return Ok(GpuRequest::Whole(part.parse()?));
    }
    Ok(GpuRequest::Fraction { hundredths: u32::try_from(hundredths)?, devices: devices.parse()? })
}

/// Parses constraints on nodes and other pods.
fn constrain(spec: &mut SpecInput, key: &str, value: &str, namespace: &str) -> Result<bool> {
    match key {
        "tolerate" => spec.tolerations.push(toleration(value)?),
        "port" => spec.ports.push(HostPort {
            ip: "0.0.0.0".to_owned(),
            protocol: "TCP".to_owned(),
            port: value.parse()?,
        }),
        "near" => spec.affinity.push(affinity(value, namespace)?),
        "apart" => spec.anti_affinity.push(affinity(value, namespace)?),
        "likes" | "dislikes" => {
            let weight = if key == "likes" { 10 } else { -10 };
            spec.preferred_affinity.push(WeightedTerm { weight, term: affinity(value, namespace)? });
        }
        "spread" => spec.spread.push(spread(value, namespace)?),
        "legacymig" => spec.legacy_mig = true,
        _ => {
            if let Some(label) = key.strip_prefix("select:") {
                spec.node_selector.push((label.to_owned(), value.to_owned()));
                spec.node_selector.sort();
            } else if let Some(label) = key.strip_prefix("in:") {
                spec.node_terms.push(node_term(label, value));
            } else if let Some(label) = key.strip_prefix("prefer:") {
                spec.node_preferences.push(NodePreference { weight: 50, term: node_term(label, value) });
            } else {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// `KEY[:VALUE][:EFFECT]`; without a value every value is tolerated.
fn toleration(text: &str) -> Result<Toleration> {
    let mut parts: Vec<&str> = text.split(':').collect();
    let effect = match parts.last().map(|last| effect(last)) {
        Some(Ok(effect)) => {
            parts.pop();
            Some(effect)
        }
        _ => None,
    };
    let value = parts.get(1).map(|v| TolerationOp::Equal((*v).to_owned()));
    Ok(Toleration {
        key: parts.first().context("a toleration needs a key")?.to_string(),
        op: value.unwrap_or(TolerationOp::Exists),
        effect,
    })
}

/// `LABEL:VALUE@TOPOLOGY_KEY`
fn affinity(text: &str, namespace: &str) -> Result<AffinityTerm> {
    let (selector, topology_key) =
        text.rsplit_once('@').with_context(|| format!("`{text}` names no node label"))?;
    Ok(AffinityTerm {
        selector: Some(self::selector(selector)?),
        namespaces: Some(vec![namespace.to_owned()]),
        topology_key: topology_key.to_owned(),
    })
}

fn selector(text: &str) -> Result<LabelSelector> {
    let (key, value) = text.split_once(':').with_context(|| format!("`{text}` is not `LABEL:VALUE`"))?;
    Ok(LabelSelector { requirements: vec![(key.to_owned(), SelectorOp::In(vec![value.to_owned()]))] })
}

/// `LABEL:VALUE@TOPOLOGY_KEY:SKEW`
fn spread(text: &str, namespace: &str) -> Result<SpreadConstraint> {
    let parts = text.rsplit_once('@').and_then(|(s, rest)| Some((s, rest.rsplit_once(':')?)));
    let (selector, (topology_key, skew)) = parts.with_context(|| format!("`{text}` is not a spread"))?;
    Ok(SpreadConstraint {
        max_skew: skew.parse()?,
        topology_key: topology_key.to_owned(),
        hard: true,
        selector: self::selector(selector)?,
        namespace: namespace.to_owned(),
        min_domains: None,
        honor_affinity: true,
        honor_taints: false,
    })
}

/// A term over a label with allowed values, written as `a+b`; the label `name` is the node's name.
fn node_term(label: &str, values: &str) -> NodeTerm {
    let values = values.split('+').map(str::to_owned).collect();
    if label == "name" {
        let key = "metadata.name".to_owned();
        return NodeTerm {
            labels: Vec::new(),
            names: vec![Requirement { key, op: RequirementOp::In(values) }],
        };
    }
    NodeTerm {
        labels: vec![Requirement { key: label.to_owned(), op: RequirementOp::In(values) }],
        names: Vec::new(),
    }
}
