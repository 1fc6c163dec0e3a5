//! Memory of the component processes: the peak during each fault against what they use when the cluster is quiet.

use super::super::control_plane::{Plane, memory_kib};
use std::collections::BTreeMap;

/// By how much a fault may raise the memory of a component: what is listed again is there twice for a moment.
const RATIO_MAX: u64 = 2;

/// In KiB, by component. Both replicas count as one: the standby uses less, until a fault makes it leader.
#[derive(Default)]
pub(super) struct Memory {
    steady: BTreeMap<String, u64>,
    /// With the fault that preceded it.
    peaks: BTreeMap<String, (u64, String)>,
    fault: String,
}

impl Memory {
    /// Ends the observation of the last fault and begins that of the next, which [`Memory::name`] names.
    pub(super) fn begin(&mut self, plane: &Plane) {
        self.read(plane);
        for (_, process) in plane.component_processes() {
            // Resets the peak (`man 5 proc`). Where that is not possible, it includes earlier faults.
            let _ = std::fs::write(format!("/proc/{process}/clear_refs"), "5");
        }
    }

    pub(super) fn name(&mut self, fault: &str) {
        fault.clone_into(&mut self.fault);
    }

    fn read(&mut self, plane: &Plane) {
        for (name, process) in plane.component_processes() {
            let peak = memory_kib(process, "VmHWM:");
            let known = self.peaks.entry(component(&name).to_owned()).or_default();
            if peak > known.0 {
                *known = (peak, self.fault.clone());
            }
        }
    }

    /// Reads what is used while the cluster is quiet.
    pub(super) fn quiet(&mut self, plane: &Plane) {
        self.read(plane);
        for (name, process) in plane.component_processes() {
            let now = memory_kib(process, "VmRSS:");
            let known = self.steady.entry(component(&name).to_owned()).or_default();
            *known = now.max(*known);
        }
    }

    pub(super) fn summary(&self) -> String {
        let of = |(name, (peak, fault)): (&String, &(u64, String))| {
            let steady = self.steady.get(name).copied().unwrap_or(0);
            format!("{name} {} MiB, at most {} MiB ({fault})", steady / 1024, peak / 1024)
        };
        let all: Vec<String> = self.peaks.iter().map(of).collect();
        all.join("; ")
    }

    pub(super) fn assert_bounded(&self) {
        for (name, (peak, fault)) in &self.peaks {
            let steady = self.steady.get(name).copied().unwrap_or(0);
            assert!(
                *peak <= RATIO_MAX * steady,
                "{name} used {peak} KiB after `{fault}`, and {steady} KiB when the cluster was quiet"
            );
        }
    }
}

/// The name without that of the replica.
fn component(name: &str) -> &str {
    name.strip_suffix("-2").unwrap_or(name)
}
