//! Ages in one short unit, as kubectl prints them.

use kai_units::Timestamp;

/// `45s`, `12m`, `5h`, `3d`; a unit is used from two of it on.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.0.saturating_sub(since.0).max(0) / 1_000_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_the_largest_unit_of_which_there_are_two() {
        let of = |seconds: i64| age(Timestamp(0), Timestamp(seconds * 1_000_000));
        assert_eq!(of(0), "0s");
        assert_eq!(of(119), "119s");
        assert_eq!(of(120), "2m");
        assert_eq!(of(7_200), "2h");
        assert_eq!(of(172_799), "47h");
        assert_eq!(of(172_800), "2d");
        assert_eq!(of(-5), "0s", "clocks of two machines may differ");
    }
}
