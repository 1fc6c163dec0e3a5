//! Computes the annotation of a pod from what the kubelet gave to it.
//!
//! Counted are devices and memory that belong to exactly one zone, and exclusive CPUs. What spans zones, or belongs to
//! none, is not attributable to a zone and left out.

use crate::pod_resources::PodResources;
use crate::topology::CpuZones;
use kai_api::well_known::resource;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The value of the annotation: amounts by zone, sorted by the name of the zone; none where nothing is attributable.
pub fn annotation(pod: &PodResources, cpus: &CpuZones) -> Option<String> {
    let mut zones: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut add = |zone: u64, resource, amount: u64| {
        if amount > 0 {
            let known = zones.entry(format!("node-{zone}")).or_default().entry(resource).or_default();
            *known = known.saturating_add(amount);
        }
    };
    for device in &pod.devices {
        if let [zone] = device.zones.as_slice() {
            add(*zone, &device.resource, device.count);
        }
    }
    for cpu in &pod.cpus {
        if let Some(zone) = cpus.zone(*cpu) {
            add(zone, resource::CPU, 1);
        }
    }
    for memory in &pod.memory {
        if let [zone] = memory.zones.as_slice() {
            let kind = if memory.kind.is_empty() { resource::MEMORY } else { &memory.kind };
            add(*zone, kind, memory.bytes);
        }
    }
    let entries = zones.into_iter().map(|(zone, amounts)| {
        let amounts: Map<String, Value> = amounts
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), Value::from(amount.to_string())))
            .collect();
        json!({"zone": zone, "amount": amounts})
    });
    let entries: Vec<Value> = entries.collect();
    (!entries.is_empty()).then(|| Value::from(entries).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_resources::{Devices, Memory};

    fn cpus() -> CpuZones {
        (0..8).map(|cpu| (cpu, cpu / 4)).collect()
    }

    fn devices(count: u64, zones: &[u64]) -> Devices {
        Devices { resource: "nvidia.com/gpu".to_owned(), count, zones: zones.to_vec() }
    }

    #[test]
    fn amounts_are_added_by_zone() {
        let pod = PodResources {
            devices: vec![devices(1, &[1]), devices(2, &[1]), devices(4, &[0])],
            cpus: vec![0, 1, 4, 99],
            memory: vec![
                Memory { kind: String::new(), bytes: 1 << 34, zones: vec![0] },
                Memory { kind: "hugepages-1Gi".to_owned(), bytes: 1 << 30, zones: vec![0] },
            ],
            ..PodResources::default()
        };
        let expected = json!([
            {"zone": "node-0", "amount": {
                "cpu": "2", "hugepages-1Gi": "1073741824", "memory": "17179869184", "nvidia.com/gpu": "4",
            }},
            {"zone": "node-1", "amount": {"cpu": "1", "nvidia.com/gpu": "3"}},
        ]);
        assert_eq!(annotation(&pod, &cpus()), Some(expected.to_string()));
    }

    #[test]
    fn what_belongs_to_no_single_zone_is_left_out() {
        let pod = PodResources {
            devices: vec![devices(1, &[]), devices(1, &[0, 1]), devices(0, &[0])],
            cpus: vec![99],
            memory: vec![
                Memory { kind: String::new(), bytes: 0, zones: vec![0] },
                Memory { kind: String::new(), bytes: 1, zones: vec![0, 1] },
            ],
            ..PodResources::default()
        };
        assert_eq!(annotation(&pod, &cpus()), None);
    }

    #[test]
    fn zones_are_sorted_as_text_and_amounts_do_not_overflow() {
        let pod = PodResources {
            devices: vec![devices(1, &[10]), devices(u64::MAX, &[2]), devices(5, &[2])],
            ..PodResources::default()
        };
        let value: Value = serde_json::from_str(&annotation(&pod, &cpus()).unwrap()).unwrap();
        assert_eq!((&value[0]["zone"], &value[1]["zone"]), (&json!("node-10"), &json!("node-2")));
        assert_eq!(value[1]["amount"]["nvidia.com/gpu"], u64::MAX.to_string());
    }
}
