//! Parts of GPUs that a pod asks for by annotation.
//!
//! A fraction wins over an amount of memory. An annotation that says nothing sensible has no effect, and is named so
//! that somebody can tell its author.

use crate::pod::Pod;
use crate::well_known::annotation;

/// A part of one or more GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// How much of each.
    pub portion: Portion,
    /// Of how many.
    pub devices: u32,
}

/// How much of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Portion {
    /// This part of it, above 0 and up to 1.
    Fraction(f64),
    /// So many MiB of its memory.
    Memory(i64),
}

/// An annotation that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored<'a> {
    /// Which one.
    pub annotation: &'static str,
    /// What it says.
    pub text: &'a str,
    /// What it could say.
    pub wanted: &'static str,
}

/// The part of GPUs that a pod asks for, if it does; `ignored` is told of annotations without effect.
pub fn share<'a>(pod: &'a Pod, mut ignored: impl FnMut(Ignored<'a>)) -> Option<Share> {
    let fraction =
        read(pod, annotation::GPU_FRACTION, "a decimal above 0 and up to 1", &mut ignored, |text| {
            text.parse().ok().filter(|portion: &f64| *portion > 0.0 && *portion <= 1.0)
        });
    let memory = read(pod, annotation::GPU_MEMORY, "a positive number of MiB", &mut ignored, |text| {
        text.parse().ok().filter(|mib: &i64| *mib > 0)
    });
    let devices = read(
        pod,
        annotation::GPU_FRACTION_NUM_DEVICES,
        "a positive number of devices",
        &mut ignored,
        |text| text.parse().ok().filter(|devices: &u32| *devices > 0),
    );
    let portion = fraction.map(Portion::Fraction).or(memory.map(Portion::Memory))?;
    Some(Share { portion, devices: devices.unwrap_or(1) })
}

fn read<'a, T>(
    pod: &'a Pod,
    annotation: &'static str,
    wanted: &'static str,
    ignored: &mut impl FnMut(Ignored<'a>),
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = pod.metadata.annotation(annotation)?;
    let value = parse(text);
    if value.is_none() {
        ignored(Ignored { annotation, text, wanted });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(annotations: &str) -> (Option<Share>, usize) {
        let pod: Pod =
            serde_json::from_str(&format!(r#"{{"metadata":{{"annotations":{annotations}}}}}"#)).unwrap();
        let mut ignored = 0;
        let share = share(&pod, |_| ignored += 1);
        (share, ignored)
    }

    #[test]
    fn a_fraction_wins_and_nonsense_has_no_effect() {
        let fraction = |part, devices| Some(Share { portion: Portion::Fraction(part), devices });
        let cases = [
            (r#"{"gpu-fraction":"0.5"}"#, fraction(0.5, 1), 0),
            (r#"{"gpu-fraction":"2.5e-1","gpu-fraction-num-devices":"3"}"#, fraction(0.25, 3), 0),
            (r#"{"gpu-fraction":"0.5","gpu-memory":"100"}"#, fraction(0.5, 1), 0),
            (
                r#"{"gpu-fraction":"NaN","gpu-memory":"100"}"#,
                Some(Share { portion: Portion::Memory(100), devices: 1 }),
                1,
            ),
            (r#"{"gpu-fraction":"1.2"}"#, None, 1),
            (r#"{"gpu-memory":"-1","gpu-fraction-num-devices":"0"}"#, None, 2),
            ("{}", None, 0),
        ];
        for (annotations, expected, odd) in cases {
            assert_eq!(shared(annotations), (expected, odd), "{annotations}");
        }
    }
}
