//! Peak resident memory of a process, from `/proc`.

use anyhow::{Context, Result};

/// The high-water mark of resident memory in bytes.
pub(super) fn peak(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
    parse(&text).with_context(|| format!("`{path}` has no `VmHWM`"))
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_water_mark_is_parsed_as_bytes() {
        assert_eq!(parse("VmPeak:\t 9 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(parse("VmPeak:\t 9 kB\n"), None);
    }
}
