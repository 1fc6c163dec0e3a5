//! Formats amounts of queue resources: GPUs in devices, CPU in cores, memory in binary multiples of a byte.

use kai_engine::resource::WHOLE_GPU;
use kai_engine::verdict::QueueResource;
use kai_view::amounts::Amount;

const MULTIPLES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// An amount, with its unit where the resource does not imply one.
pub(crate) fn of(amount: Amount) -> String {
    text(amount.resource, amount.value)
}

pub(crate) fn text(resource: QueueResource, amount: i64) -> String {
    match resource {
        QueueResource::Cpu => decimal(amount, 1_000),
        QueueResource::Gpu => decimal(amount, WHOLE_GPU),
        QueueResource::Memory => bytes(amount),
    }
}

/// A quota or limit; `None` is unlimited.
pub(crate) fn bound(resource: QueueResource, amount: Option<i64>) -> String {
    amount.map_or_else(|| "∞".to_owned(), |amount| text(resource, amount))
}

pub(crate) fn name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "CPU",
        QueueResource::Memory => "memory",
        QueueResource::Gpu => "GPU",
    }
}

/// `amount / one` with as many decimals as it needs, at most three.
fn decimal(amount: i64, one: i64) -> String {
    let number = format!("{:.3}", amount as f64 / one as f64);
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes in the largest multiple that gives at least 1.
fn bytes(amount: i64) -> String {
    let mut scaled = amount as f64;
    let mut multiple = 0;
    while scaled.abs() >= 1_024.0 && multiple + 1 < MULTIPLES.len() {
        scaled /= 1_024.0;
        multiple += 1;
    }
    let number = format!("{scaled:.1}");
    format!("{} {}", number.trim_end_matches(".0"), MULTIPLES[multiple])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_largest_fitting_unit() {
        for (resource, amount, expected) in [
            (QueueResource::Gpu, 1_500_000, "1.5"),
            (QueueResource::Gpu, 333_333, "0.333"),
            (QueueResource::Gpu, 0, "0"),
            (QueueResource::Cpu, 64_000, "64"),
            (QueueResource::Cpu, 100, "0.1"),
            (QueueResource::Memory, 0, "0 B"),
            (QueueResource::Memory, 4 << 30, "4 GiB"),
            (QueueResource::Memory, 1_610_612_736, "1.5 GiB"),
            (QueueResource::Memory, i64::MAX, "8192 PiB"),
        ] {
            assert_eq!(text(resource, amount), expected);
        }
        assert_eq!(bound(QueueResource::Gpu, None), "∞");
    }
}
