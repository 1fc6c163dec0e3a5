//! Converts resource names and quantities to the engine's dimensions and base units.

use crate::finding::{Report, quoted};
use crate::object::Kind;
use crate::object::value::{Amount, Resources};
use kai_api::request::Amounts;
use kai_api::well_known::resource;
use kai_engine::input::{self, AmountList};
use kai_engine::resource::AMOUNT_MAX;
use kai_units::Quantity;
use smallvec::SmallVec;

/// The unit a resource is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Whole,
    Milli,
    Gpu,
}

/// The engine's name of a resource; `None` for names that are no node resource.
///
/// Only `nvidia.com/gpu` and `amd.com/gpu` are GPUs: other names that end in `gpu` are plain extended resources.
pub fn dimension(name: &str) -> Option<&str> {
    unit(name).map(|unit| unit.dimension(name))
}

impl Unit {
    /// The engine's name of a resource that is counted in this unit.
    fn dimension(self, name: &str) -> &str {
        if self == Self::Gpu { input::GPU } else { name }
    }
}

fn unit(name: &str) -> Option<Unit> {
    match name {
        resource::CPU => Some(Unit::Milli),
        resource::MEMORY | resource::EPHEMERAL_STORAGE | "storage" | resource::PODS => Some(Unit::Whole),
        resource::NVIDIA_GPU | resource::AMD_GPU => Some(Unit::Gpu),
        _ if name.contains('/') => Some(Unit::Milli),
        _ if name.starts_with(resource::HUGE_PAGES_PREFIX) || name.starts_with("attachable-volumes-") => {
            Some(Unit::Milli)
        }
        _ => None,
    }
}

/// A quantity in the engine's base unit, clamped to the range in which sums stay exact.
pub fn in_base_units(name: &str, quantity: Quantity) -> i64 {
    counted_in(unit(name), quantity)
}

fn counted_in(unit: Option<Unit>, quantity: Quantity) -> i64 {
    let value = match unit {
        Some(Unit::Milli) => quantity.milli(),
        Some(Unit::Gpu) => quantity.units().saturating_mul(input::WHOLE_GPU),
        Some(Unit::Whole) | None => quantity.units(),
    };
    value.clamp(-AMOUNT_MAX, AMOUNT_MAX)
}

/// Amounts by dimension, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals<'a>(SmallVec<[(&'a str, i64); 6]>);

impl<'a> Totals<'a> {
    pub fn read(resources: &'a Resources, field: &str, report: &mut Report<'_>) -> Self {
        let mut totals = Self::default();
        for (name, amount) in resources.iter() {
            let Some(unit) = unit(name) else { continue };
            if let Some(amount) = read_in(Some(unit), name, amount, field, report) {
                totals.add(unit.dimension(name), amount);
            }
        }
        totals
    }
    /// Converts amounts to base units; those that are too large are reported and clamped.
    pub fn counted(amounts: &Amounts<'a>, field: &str, report: &mut Report<'_>) -> Self {
        for (name, quantity) in amounts.iter() {
            if let Some(unit) = unit(name) {
                report_if_clamped(counted_in(Some(unit), quantity), name, quantity, field, report);
            }
        }
        Self::sum(amounts)
    }
    pub fn sum(amounts: &Amounts<'a>) -> Self {
        let mut totals = Self::default();
        for (name, quantity) in amounts.iter() {
            let Some(unit) = unit(name) else { continue };
            totals.add(unit.dimension(name), counted_in(Some(unit), quantity));
        }
        totals
    }
    pub fn get(&self, dimension: &str) -> Option<i64> {
        self.0.get(self.position(dimension).ok()?).map(|(_, amount)| *amount)
    }
    pub fn add(&mut self, dimension: &'a str, amount: i64) {
        match self.position(dimension) {
            Ok(at) => {
                if let Some((_, total)) = self.0.get_mut(at) {
                    *total = total.saturating_add(amount).clamp(-AMOUNT_MAX, AMOUNT_MAX);
                }
            }
            Err(at) => self.0.insert(at, (dimension, amount)),
        }
    }
    pub fn remove(&mut self, dimension: &str) {
        self.0.retain(|(name, _)| *name != dimension);
    }
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, i64)> + '_ {
        self.0.iter().copied()
    }
    pub fn into_list(self) -> AmountList {
        self.0.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }

    fn position(&self, dimension: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (*name).cmp(dimension))
    }
}

/// One amount in base units; malformed and negative amounts are reported as errors and count as 0. A pod with such a
/// request must not be placed as if it requested nothing; the error in its report prevents that.
pub fn read_amount(name: &str, amount: &Amount, field: &str, report: &mut Report<'_>) -> Option<i64> {
    read_in(unit(name), name, amount, field, report)
}

fn read_in(
    unit: Option<Unit>,
    name: &str,
    amount: &Amount,
    field: &str,
    report: &mut Report<'_>,
) -> Option<i64> {
    let quantity = match amount {
        Amount::Exact(quantity) => *quantity,
        Amount::Bad(text) => {
            report.error(
                format!("{field}.{name}"),
                format!("{} is not a quantity, so it counts as 0{}", quoted(text), and_pod(field, report)),
                "write a number with an optional suffix, such as `500m`, `2` or `16Gi`",
            );
            return None;
        }
    };
    if quantity < Quantity::default() {
        report.error(
            format!("{field}.{name}"),
            format!("`{quantity}` is negative, so it counts as 0{}", and_pod(field, report)),
            "write an amount of at least 0",
        );
        return None;
    }
    let value = counted_in(unit, quantity);
    report_if_clamped(value, name, quantity, field, report);
    Some(value)
}

fn report_if_clamped(value: i64, name: &str, quantity: Quantity, field: &str, report: &mut Report<'_>) {
    if value == AMOUNT_MAX {
        report.warn(
            format!("{field}.{name}"),
            format!("`{quantity}` exceeds the largest amount, so it is clamped to 2^53 base units"),
            "write a smaller amount",
        );
    }
}

/// The consequence of an invalid amount in a pod's specification.
fn and_pod(field: &str, report: &Report<'_>) -> &'static str {
    let is_request = report.kind() == Kind::Pod && field.starts_with("spec.");
    if is_request { ", and the pod is not placed" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::input::Key;

    fn read(pairs: &[(&str, &str)]) -> (AmountList, usize) {
        let key = Key::new("", "n");
        let mut report = Report::on(Kind::Node, &key);
        let resources: Resources = pairs.iter().map(|(k, v)| (*k, Amount::from(*v))).collect();
        let list = Totals::read(&resources, "status.allocatable", &mut report).into_list();
        (list, report.into_findings().len())
    }

    #[test]
    fn each_resource_has_its_unit() {
        let (list, findings) = read(&[
            ("cpu", "1500m"),
            ("memory", "1Gi"),
            ("ephemeral-storage", "1k"),
            ("nvidia.com/gpu", "8"),
            ("nvidia.com/mig-1g.5gb", "2"),
            ("hugepages-2Mi", "4Mi"),
            ("example.com/gpu", "3"),
            ("pods", "110"),
            ("unheard-of", "7"),
        ]);
        let expected = [
            ("cpu", 1500),
            ("ephemeral-storage", 1000),
            ("example.com/gpu", 3000),
            ("gpu", 8_000_000),
            ("hugepages-2Mi", 4_194_304_000),
            ("memory", 1 << 30),
            ("nvidia.com/mig-1g.5gb", 2000),
            ("pods", 110),
        ];
        assert_eq!(list, expected.map(|(n, v)| (n.to_owned(), v)));
        assert_eq!(findings, 0);
    }

    #[test]
    fn both_vendors_share_the_gpu_dimension() {
        let (list, _) = read(&[("nvidia.com/gpu", "1"), ("amd.com/gpu", "2")]);
        assert_eq!(list, [("gpu".to_owned(), 3_000_000)]);
    }

    #[test]
    fn invalid_amounts_are_reported_and_count_as_zero() {
        let (list, findings) = read(&[("cpu", "lots"), ("memory", "-1"), ("nvidia.com/gpu", "1e400")]);
        assert_eq!((list, findings), (vec![], 3));
        let (list, findings) = read(&[("memory", "8Ei")]);
        assert_eq!((list, findings), (vec![], 1), "8Ei is 2^63, one more than a quantity can be");
        let (list, findings) = read(&[("memory", "1Ei")]);
        assert_eq!((list, findings), (vec![("memory".to_owned(), AMOUNT_MAX)], 1));
    }
}
