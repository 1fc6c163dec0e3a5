//! Parses fractional GPU requests from pod annotations.
//!
//! A fraction takes precedence over an amount of memory, as in KAI. The caller receives invalid annotations: what such a
//! pod requests is unknown.

use crate::pod::Pod;
use crate::well_known::annotation;

/// A fractional request for one or more GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Portion of each GPU.
    pub portion: Portion,
    /// Number of GPUs.
    pub devices: u32,
}

/// Portion of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Portion {
    /// A fraction, above 0 and up to 1.
    Fraction(f64),
    /// GPU memory in MiB.
    Memory(i64),
}

/// An annotation with an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid<'a> {
    /// Key of the annotation.
    pub annotation: &'static str,
    /// The invalid value.
    pub text: &'a str,
    /// Description of valid values.
    pub wanted: &'static str,
    /// A valid value.
    pub example: &'static str,
}

/// The valid values of an annotation: its key, their description, and one of them.
type Values = (&'static str, &'static str, &'static str);

const FRACTIONS: Values = (annotation::GPU_FRACTION, "a decimal above 0 and up to 1", "0.5");
const MEMORY: Values = (annotation::GPU_MEMORY, "a positive number of MiB", "2048");
const DEVICES: Values = (annotation::GPU_FRACTION_NUM_DEVICES, "a positive number of devices", "2");

/// The fractional request of a pod, if it has one; `invalid` is called for every annotation with an invalid value.
pub fn share<'a>(pod: &'a Pod, mut invalid: impl FnMut(Invalid<'a>)) -> Option<Share> {
    let fraction = read(pod, FRACTIONS, &mut invalid, |text| {
        text.parse().ok().filter(|portion: &f64| *portion > 0.0 && *portion <= 1.0)
    });
    let memory = read(pod, MEMORY, &mut invalid, |text| text.parse().ok().filter(|mib: &i64| *mib > 0));
    let devices =
        read(pod, DEVICES, &mut invalid, |text| text.parse().ok().filter(|devices: &u32| *devices > 0));
    let portion = fraction.map(Portion::Fraction).or(memory.map(Portion::Memory))?;
    Some(Share { portion, devices: devices.unwrap_or(1) })
}

fn read<'a, T>(
    pod: &'a Pod,
    (annotation, wanted, example): Values,
    invalid: &mut impl FnMut(Invalid<'a>),
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = pod.metadata.annotation(annotation)?;
    let value = parse(text);
    if value.is_none() {
        invalid(Invalid { annotation, text, wanted, example });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(annotations: &str) -> (Option<Share>, usize) {
        let pod: Pod =
            serde_json::from_str(&format!(r#"{{"metadata":{{"annotations":{annotations}}}}}"#)).unwrap();
        let mut invalid = 0;
        let share = share(&pod, |_| invalid += 1);
        (share, invalid)
    }

    #[test]
    fn fraction_takes_precedence_and_invalid_annotations_are_passed_on() {
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
            (r#"{"gpu-fraction":"half"}"#, None, 1),
            (r#"{"gpu-fraction":"0"}"#, None, 1),
            (r#"{"gpu-memory":"2Gi"}"#, None, 1),
            (r#"{"gpu-memory":"-1","gpu-fraction-num-devices":"0"}"#, None, 2),
            ("{}", None, 0),
        ];
        for (annotations, expected, invalid) in cases {
            assert_eq!(shared(annotations), (expected, invalid), "{annotations}");
        }
    }
}
