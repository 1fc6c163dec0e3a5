//! What a process has used, as the kernel counts it.

use anyhow::{Context, Result};

/// Ticks of the kernel's accounting in a second; Linux has never shown another number to programs.
const TICKS: f64 = 100.0;

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::bench) struct Usage {
    pub(in crate::bench) cpu_seconds: f64,
    /// The memory that it has.
    pub(in crate::bench) resident_mb: f64,
    /// The most memory it ever had at once, or since [`forget_peak`].
    pub(in crate::bench) peak_mb: f64,
}

impl Usage {
    /// What a running process has used.
    pub(in crate::bench) fn of(id: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{id}/{name}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))
        };
        parse(&read("stat")?, &read("status")?)
    }

    /// What was used since an earlier look; the peak is that of the whole life.
    pub(in crate::bench) fn since(self, before: &Self) -> Self {
        Self { cpu_seconds: self.cpu_seconds - before.cpu_seconds, ..self }
    }
}

/// Lets the peak of a process begin anew at what it has.
pub(in crate::bench) fn forget_peak(id: u32) -> Result<()> {
    let path = format!("/proc/{id}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write `{path}`"))
}

fn parse(stat: &str, status: &str) -> Result<Usage> {
    // The name of the program is in parentheses and may hold anything; user and system time are the 12th and 13th
    // field behind it.
    let (_, fields) = stat.rsplit_once(')').context("the kernel's account has no name")?;
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("the kernel's account is too short")?;
    let megabytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok::<_, anyhow::Error>(kibibytes.with_context(|| format!("the kernel tells no `{name}`"))? / 1024.0)
    };
    Ok(Usage {
        cpu_seconds: (user + system) / TICKS,
        resident_mb: megabytes("VmRSS:")?,
        peak_mb: megabytes("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_account_is_read() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1 1";
        let usage = parse(stat, "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n").unwrap();
        assert_eq!(usage, Usage { cpu_seconds: 3.0, resident_mb: 1.0, peak_mb: 2.0 });
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Usage::of(std::process::id()).unwrap().peak_mb > 0.0);
    }
}
