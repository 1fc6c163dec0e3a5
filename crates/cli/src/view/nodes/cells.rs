//! Draws the GPUs of a node as cells: one character each, by what it is allocated to.

use clap::builder::styling::{AnsiColor, Style};
use kai_engine::resource::WHOLE_GPU;
use kai_view::nodes::gpus::{Gpu, MigInstances, NodeGpus};
use std::fmt::Write as _;

/// The fraction of a shared GPU that is in use, by eighths; a full one has the highest, which is not that of a whole GPU.
const SHARED: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];
const WHOLE: char = '█';
const FREE: char = '·';
const RELEASING: char = '▒';
const DRAINED: char = '×';
pub(crate) const LEGEND: &str = "one cell per GPU: · free  █ allocated as a whole  ▁▂▃▄▅▆▇ shared, by fraction in use  \
                                 ▒ releasing  × drained";

/// One character per GPU, and a line for each MIG profile.
pub(super) fn text(gpus: &NodeGpus) -> String {
    let mut text: String = gpus.cells.iter().map(cell).collect();
    for MigInstances { resource, used, all } in &gpus.mig {
        let gap = if text.is_empty() { "" } else { "\n" };
        let profile = resource.rsplit('/').next().unwrap_or(resource);
        write!(text, "{gap}{profile}: {used} of {all}").expect("writing to a string");
    }
    if text.is_empty() { "–".to_owned() } else { text }
}

pub(crate) fn cell(gpu: &Gpu) -> char {
    match gpu {
        Gpu::Whole => WHOLE,
        Gpu::Releasing | Gpu::Shared { releasing: true, .. } => RELEASING,
        Gpu::Shared { drained: true, .. } => DRAINED,
        Gpu::Shared { part, .. } => {
            let eighths = (part * 8).div_euclid(WHOLE_GPU).clamp(1, SHARED.len() as i64);
            SHARED[eighths as usize - 1]
        }
        Gpu::Free => FREE,
    }
}

/// Colours the cells of a text; colours are removed where the output is not a terminal.
pub(super) fn coloured(text: &str) -> String {
    let mut coloured = String::with_capacity(text.len());
    for cell in text.chars() {
        match colour(cell) {
            Some(colour) => {
                let style = Style::new().fg_color(Some(colour.into()));
                write!(coloured, "{style}{cell}{style:#}").expect("writing to a string");
            }
            None => coloured.push(cell),
        }
    }
    coloured
}

pub(crate) fn colour(cell: char) -> Option<AnsiColor> {
    match cell {
        WHOLE => Some(AnsiColor::Blue),
        FREE => Some(AnsiColor::Green),
        RELEASING => Some(AnsiColor::Magenta),
        DRAINED => Some(AnsiColor::Red),
        _ if SHARED.contains(&cell) => Some(AnsiColor::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(part: i64) -> Gpu {
        Gpu::Shared { group: "g".to_owned(), part, releasing: false, drained: false, pods: Vec::new() }
    }

    #[test]
    fn cells_show_the_allocation_of_each_gpu() {
        let mut all = vec![Gpu::Whole, Gpu::Releasing];
        all.extend([1_000_000, 999_999, 500_000, 125_000, 1].map(shared));
        all.push(Gpu::Free);
        let gpus = NodeGpus::new(all, Vec::new());
        assert_eq!(text(&gpus), "█▒▇▇▄▁▁·");
        assert_eq!((gpus.total, gpus.used.value), (8, 4_625_000));
        let mut drained = shared(500_000);
        if let Gpu::Shared { drained, .. } = &mut drained {
            *drained = true;
        }
        assert_eq!(cell(&drained), '×', "no other pod can share it");
    }

    #[test]
    fn mig_instances_are_counted_by_profile() {
        assert_eq!(text(&NodeGpus::new(Vec::new(), Vec::new())), "–");
        let mig = MigInstances { resource: "nvidia.com/mig-1g.5gb".to_owned(), used: 3, all: 14 };
        assert_eq!(text(&NodeGpus::new(Vec::new(), vec![mig])), "mig-1g.5gb: 3 of 14");
    }

    #[test]
    fn only_cells_are_coloured() {
        assert_eq!(coloured("node-1 4 of 8"), "node-1 4 of 8");
        assert!(coloured("█").starts_with("\x1b["));
    }
}
