//! Sums of resource amounts, and the merge patch that brings a status to such a sum.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kai_api::ResourceAmounts;
use kai_api::pod_group::PodGroupResources;
use kai_units::Quantity;
use serde_json::{Map, Value};

/// Amounts by resource; equal when the quantities are, regardless of their notation.
///
/// Sorted by name; a list, since there are many sums and each has few resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(Vec<(Box<str>, Quantity)>);

impl Sum {
    /// Values that are no quantities are ignored.
    pub(crate) fn read(amounts: &ResourceAmounts) -> Self {
        let read = |(name, amount): (&String, &Written)| Some((name.as_str().into(), amount.0.parse().ok()?));
        Self(amounts.iter().filter_map(read).collect())
    }

    /// Adds an amount; a negative one counts as 0, and the sum is at most the largest quantity. The result is therefore
    /// independent of the order, and no object lowers what others use.
    pub(crate) fn add(&mut self, name: &str, amount: Quantity) {
        let amount = amount.max(Quantity::default());
        match self.position(name) {
            Ok(at) => {
                if let Some((_, sum)) = self.0.get_mut(at) {
                    *sum = sum.plus(amount);
                }
            }
            Err(at) => self.0.insert(at, (name.into(), amount)),
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.add(name, *amount);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(self.position(name).ok()?).map(|(_, amount)| *amount)
    }

    /// By name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The merge patch that turns `stored` into this; nothing where they are equal.
    pub(crate) fn patch_from(&self, stored: &Self) -> Option<Value> {
        if self == stored {
            return None;
        }
        if self.is_empty() {
            return Some(Value::Null);
        }
        let mut patch = Map::new();
        for (name, _) in stored.iter().filter(|(name, _)| self.get(name).is_none()) {
            patch.insert(name.to_owned(), Value::Null);
        }
        for (name, amount) in self.iter().filter(|(name, amount)| stored.get(name) != Some(*amount)) {
            patch.insert(name.to_owned(), Value::from(amount.to_string()));
        }
        Some(Value::Object(patch))
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

/// The sums in the status of pod groups and queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Of running and pending pods.
    pub(crate) requested: Sum,
    pub(crate) allocated: Sum,
    /// The part of `allocated` that cannot be preempted.
    pub(crate) allocated_non_preemptible: Sum,
}

impl Totals {
    pub(crate) fn read(status: &PodGroupResources) -> Self {
        Self {
            requested: Sum::read(&status.requested),
            allocated: Sum::read(&status.allocated),
            allocated_non_preemptible: Sum::read(&status.allocated_non_preemptible),
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.requested.add_all(&other.requested);
        self.allocated.add_all(&other.allocated);
        self.allocated_non_preemptible.add_all(&other.allocated_non_preemptible);
    }

    /// The merge patch that turns `stored` into this, field by field; empty where they are equal.
    pub(crate) fn patch_from(&self, stored: &Self) -> Map<String, Value> {
        let fields = [
            ("requested", self.requested.patch_from(&stored.requested)),
            ("allocated", self.allocated.patch_from(&stored.allocated)),
            (
                "allocatedNonPreemptible",
                self.allocated_non_preemptible.patch_from(&stored.allocated_non_preemptible),
            ),
        ];
        fields.into_iter().filter_map(|(name, patch)| Some((name.to_owned(), patch?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sum(pairs: &[(&str, &str)]) -> Sum {
        let amounts = pairs.iter().map(|(name, amount)| ((*name).to_owned(), Written((*amount).to_owned())));
        Sum::read(&amounts.collect())
    }

    #[test]
    fn equal_quantities_in_other_notation_are_no_difference() {
        assert_eq!(sum(&[("cpu", "1000m")]).patch_from(&sum(&[("cpu", "1")])), None);
    }

    #[test]
    fn patch_has_changed_amounts_and_removes_missing_ones() {
        let stored = sum(&[("cpu", "1"), ("memory", "1Gi"), ("nvidia.com/gpu", "2")]);
        let desired = sum(&[("cpu", "1500m"), ("memory", "1Gi")]);
        assert_eq!(desired.patch_from(&stored), Some(json!({"cpu": "1500m", "nvidia.com/gpu": null})));
        assert_eq!(Sum::default().patch_from(&stored), Some(Value::Null));
    }

    #[test]
    fn negative_and_excessive_amounts_affect_no_other_amount() {
        let most = i64::MAX.to_string();
        let sums = [
            sum(&[("cpu", "2")]),
            sum(&[("cpu", "-5")]),
            sum(&[("memory", &most)]),
            sum(&[("memory", &most)]),
        ];
        for order in [[0, 1, 2, 3], [3, 1, 2, 0]] {
            let mut total = Sum::default();
            for index in order {
                total.add_all(&sums[index]);
            }
            assert_eq!(total, sum(&[("cpu", "2"), ("memory", &most)]));
        }
        let stored = sum(&[("cpu", "-5")]);
        assert_eq!(sum(&[("cpu", "0")]).patch_from(&stored), Some(json!({"cpu": "0"})), "it is corrected");
    }

    #[test]
    fn values_that_are_no_quantities_are_ignored() {
        assert!(sum(&[("cpu", "lots")]).is_empty());
    }
}
