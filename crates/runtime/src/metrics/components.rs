//! The metrics of a process and of the components in it, each of which registers its own.

use parking_lot::Mutex;
use prometheus::Registry;
use prometheus::proto::{LabelPair, MetricFamily};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label that tells the metrics of two components apart.
const LABEL: &str = "component";

/// The registries of a process; clones share them.
#[derive(Clone, Debug)]
pub struct Registries {
    process: Registry,
    components: Arc<Mutex<BTreeMap<String, Registry>>>,
}

impl From<Registry> for Registries {
    fn from(process: Registry) -> Self {
        Self { process, components: Arc::default() }
    }
}

impl Registries {
    /// Adds the metrics of a component, or replaces those of its last run.
    pub fn set_component(&self, name: &str, metrics: Registry) {
        self.components.lock().insert(name.to_owned(), metrics);
    }

    /// All metrics. One that several components have gets a label with the component; one that only a single component has
    /// is the same as in a process of its own.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut families: BTreeMap<String, Vec<(String, MetricFamily)>> = BTreeMap::new();
        for family in self.process.gather() {
            families.entry(family.name().to_owned()).or_default().push((String::new(), family));
        }
        for (component, metrics) in &*self.components.lock() {
            for family in metrics.gather() {
                families.entry(family.name().to_owned()).or_default().push((component.clone(), family));
            }
        }
        families.into_values().filter_map(merged).collect()
    }
}

fn merged(families: Vec<(String, MetricFamily)>) -> Option<MetricFamily> {
    let is_shared = families.len() > 1;
    let mut families = families.into_iter();
    let (component, mut first) = families.next()?;
    if is_shared {
        label(&mut first, &component);
    }
    for (component, mut family) in families {
        label(&mut family, &component);
        let mut metrics = first.take_metric();
        metrics.extend(family.take_metric());
        first.set_metric(metrics);
    }
    Some(first)
}

fn label(family: &mut MetricFamily, component: &str) {
    if component.is_empty() {
        return;
    }
    let mut metrics = family.take_metric();
    for metric in &mut metrics {
        let mut pair = LabelPair::default();
        pair.set_name(LABEL.to_owned());
        pair.set_value(component.to_owned());
        let mut labels = metric.take_label();
        labels.push(pair);
        metric.set_label(labels);
    }
    family.set_metric(metrics);
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{IntCounter, TextEncoder};

    fn registry(names: &[&str]) -> Registry {
        let registry = Registry::new();
        for name in names {
            registry.register(Box::new(IntCounter::new(*name, "help").unwrap())).unwrap();
        }
        registry
    }

    #[test]
    fn only_what_several_components_have_is_labelled() {
        let registries = Registries::from(registry(&["process_max_fds"]));
        registries.set_component("binder", registry(&["old"]));
        registries.set_component("binder", registry(&["shared", "bound"]));
        registries.set_component("scheduler", registry(&["shared", "cycles"]));
        let text = TextEncoder::new().encode_to_string(&registries.gather()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "bound 0",
            "cycles 0",
            "process_max_fds 0",
            "shared{component=\"binder\"} 0",
            "shared{component=\"scheduler\"} 0",
        ];
        assert_eq!(lines, expected);
    }
}
