//! Names of the images of an installation, as KAI's chart and operator use them. All run the one program.

/// An image by the name that the chart and the operator give it.
#[derive(Clone, Copy, Debug)]
pub struct ImageSpec {
    pub name: &'static str,
    /// Arguments of the program before those of the container.
    pub arguments: &'static [&'static str],
    /// Whether the program loads the library of the NVIDIA driver, which a static program cannot do.
    pub loads_driver: bool,
}

pub const IMAGES: &[ImageSpec] = &[
    image("admission", &["admission"]),
    image("binder", &["binder"]),
    image("crd-upgrader", &[]),
    image("fairshare-simulator", &["simulate"]),
    image("kai", &[]),
    image("kai-all", &["all"]),
    image("nodescaleadjuster", &["node-scale-adjuster"]),
    image("numa-placement-exporter", &["numa-exporter"]),
    image("operator", &["operator"]),
    image("podgroupcontroller", &["podgroup-controller"]),
    image("podgrouper", &["pod-grouper"]),
    image("queuecontroller", &["queue-controller"]),
    // The operator's default name, and that of the chart.
    ImageSpec { loads_driver: true, ..image("resource-reservation", &["reservation"]) },
    ImageSpec { loads_driver: true, ..image("resourcereservation", &["reservation"]) },
    image("scalingpod", &["scaling-pod"]),
    image("scheduler", &["scheduler"]),
    image("snapshot-tool", &["plan"]),
    image("time-based-fairshare-simulator", &["simulate"]),
];

const fn image(name: &'static str, arguments: &'static [&'static str]) -> ImageSpec {
    ImageSpec { name, arguments, loads_driver: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COMPONENTS;

    #[test]
    fn every_component_has_an_image() {
        for component in COMPONENTS {
            let has = |image: &&ImageSpec| image.arguments == [component.command];
            assert!(IMAGES.iter().any(|image| has(&image)), "{}", component.command);
        }
    }
}
