//! Converts recorded pods, nodes and vectors to engine inputs.

use super::record::{list, map, number, text};
use kai_engine::input::{
    self, AmountList, ContainerRequest, NumaPolicy, NumaScope, NumaTopology, NumaZone, SpecInput, WHOLE_GPU,
};
use kai_engine::intern::Interner;
use kai_engine::resource::{Amounts, Dim, Dims, is_mig};
use kai_units::Quantity;
use serde_json::{Map, Value, json};

/// The names and dimensions that vectors are read with.
pub(super) struct Names {
    pub(super) names: Interner,
    pub(super) dims: Dims,
}

impl Names {
    pub(super) fn new() -> Self {
        let mut names = Interner::default();
        let dims = Dims::new(&mut names);
        Self { names, dims }
    }

    /// A recorded vector.
    pub(super) fn amounts(&mut self, vector: &Value, vector_map: &Value) -> Amounts {
        self.dims.request(&amount_list(vector, vector_map), &mut self.names)
    }

    /// A vector as recorded, without zero entries.
    pub(super) fn recorded(&self, amounts: &Amounts) -> Value {
        let entry = |(dim, amount): (Dim, i64)| {
            let name = self.names.text(self.dims.name(dim));
            (recorded_name(name).to_owned(), json!(amount as f64 / scale(name)))
        };
        Value::Object(amounts.iter().map(entry).collect::<Map<_, _>>())
    }
}

/// The engine's name of a recorded resource.
fn resource(recorded: &str) -> &str {
    match recorded {
        "cpu_milli" => input::CPU,
        "memory_bytes" => input::MEMORY,
        "nvidia.com/gpu" | "amd.com/gpu" => input::GPU,
        other => other,
    }
}

fn recorded_name(resource: &str) -> &str {
    match resource {
        input::CPU => "cpu_milli",
        input::MEMORY => "memory_bytes",
        other => other,
    }
}

/// How many base units one recorded unit of a resource has: MIG instances are recorded one by one.
fn scale(resource: &str) -> f64 {
    match resource {
        input::GPU => WHOLE_GPU as f64,
        other if is_mig(other) => 1000.0,
        _ => 1.0,
    }
}

/// A recorded vector as named amounts; entries `r4`, `r5` … are positions of `vector_map`.
pub(super) fn amount_list(vector: &Value, vector_map: &Value) -> AmountList {
    let named = |(key, value): (&String, &Value)| {
        let position = key.strip_prefix('r').and_then(|digits| digits.parse::<usize>().ok());
        let name = position.map_or(key.as_str(), |at| vector_map[at].as_str().unwrap_or(key));
        let name = resource(name);
        (name.to_owned(), (number(value) * scale(name)).round() as i64)
    };
    map(vector).map(named).collect()
}

/// A Kubernetes resource list: quantities by name.
pub(super) fn quantities(list: &Value) -> AmountList {
    let amount = |(name, quantity): (&String, &Value)| {
        let quantity: Quantity = text(quantity).parse().ok()?;
        let name = resource(name);
        let base = match name {
            input::CPU => quantity.milli(),
            input::MEMORY | input::PODS | "ephemeral-storage" | "storage" => quantity.units(),
            input::GPU => quantity.units().saturating_mul(WHOLE_GPU),
            _ => quantity.milli(),
        };
        Some((name.to_owned(), base))
    };
    map(list).filter_map(amount).collect()
}

/// The containers of a recorded pod, init containers first, as NUMA alignment reads them.
pub(super) fn containers(pod: &Value) -> SpecInput {
    let spec = &pod["spec"];
    let container = |c: &Value, init: bool| {
        let sidecar = init && text(&c["restartPolicy"]) == "Always";
        ContainerRequest {
            name: text(&c["name"]).to_owned(),
            request: quantities(&c["resources"]["requests"]),
            init: init && !sidecar,
            sidecar,
        }
    };
    let inits = list(&spec["initContainers"]).map(|c| container(c, true));
    let apps = list(&spec["containers"]).map(|c| container(c, false));
    SpecInput {
        guaranteed: text(&pod["status"]["qosClass"]) == "Guaranteed",
        containers: inits.chain(apps).collect(),
        ..SpecInput::default()
    }
}

/// A recorded NUMA topology.
pub(super) fn numa_topology(topology: &Value) -> Option<NumaTopology> {
    let zone = |zone: &Value| NumaZone {
        name: text(&zone["id"]).to_owned(),
        allocatable: amount_list(&zone["allocatable"], &Value::Null),
        available: amount_list(&zone["available"], &Value::Null),
    };
    (!topology.is_null()).then(|| NumaTopology {
        policy: match text(&topology["policy"]) {
            "best-effort" => NumaPolicy::BestEffort,
            "restricted" => NumaPolicy::Restricted,
            "single-numa-node" => NumaPolicy::SingleNumaNode,
            _ => NumaPolicy::None,
        },
        scope: if text(&topology["scope"]) == "pod" { NumaScope::Pod } else { NumaScope::Container },
        zones: list(&topology["zones"]).map(zone).collect(),
    })
}
