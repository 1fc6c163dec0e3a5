//! What the comparison found, for people: differences step by step, then a line a feature.

use kai_kubetest::suite::compare::{Compared, Difference};
use serde_json::Value;

/// Longest value that is printed whole.
const VALUE_CHARS: usize = 160;

/// Where answers with different codes say what they are.
const TELLING: [&str; 4] = ["/code", "/end", "/body/message", "/body/kind"];

/// Features with their compared steps.
pub(super) type Features<'a> = [(&'a str, Vec<Compared>)];

/// Prints every difference that is not listed, at most so many of one step.
pub(super) fn differences(all: &Features<'_>, most: usize) {
    for (feature, steps) in all {
        for step in steps {
            let mut unlisted: Vec<&Difference> =
                step.differences.iter().filter(|difference| difference.listed.is_none()).collect();
            if unlisted.is_empty() {
                continue;
            }
            if unlisted.iter().any(|difference| difference.path == "/code") {
                // One answered and the other refused: the bodies have nothing in common.
                unlisted.retain(|difference| TELLING.contains(&difference.path.as_str()));
            }
            println!("{feature}: {}", step.step);
            for difference in unlisted.iter().take(most) {
                println!(
                    "    {}\n        real  {}\n        found {}",
                    difference.path,
                    shown(difference.expected.as_ref()),
                    shown(difference.found.as_ref())
                );
            }
            if unlisted.len() > most {
                println!("    … and {} more", unlisted.len() - most);
            }
        }
    }
}

/// Prints a line a feature; the result is how many steps differ without being listed.
pub(super) fn table(all: &Features<'_>) -> usize {
    println!("\n{:<28} {:>7} {:>7} {:>10} {:>7}", "feature", "steps", "equal", "different", "listed");
    let mut total = [0; 4];
    for (feature, steps) in all {
        let equal = steps.iter().filter(|step| step.is_equal()).count();
        let listed = steps.iter().filter(|step| step.is_listed()).count();
        let row = [steps.len(), equal, steps.len() - equal - listed, listed];
        line(feature, row);
        for (sum, count) in total.iter_mut().zip(row) {
            *sum += count;
        }
    }
    line("total", total);
    total[2]
}

fn line(name: &str, [steps, equal, different, listed]: [usize; 4]) {
    println!("{name:<28} {steps:>7} {equal:>7} {different:>10} {listed:>7}");
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= VALUE_CHARS {
        return text;
    }
    let start: String = text.chars().take(VALUE_CHARS).collect();
    format!("{start}…")
}
