//! Validates cron schedules, with the messages of the library that kube-apiserver uses (`robfig/cron`).

/// The fields of a schedule: minimum, maximum and names.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const PREDEFINED: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
/// The first components of time zone names.
const AREAS: [&str; 17] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Chile",
    "Etc",
    "Europe",
    "Indian",
    "Mexico",
    "Pacific",
    "US",
    "SystemV",
];
/// Time zone names without an area.
const ZONES: [&str; 42] = [
    "CET",
    "CST6CDT",
    "Cuba",
    "EET",
    "EST",
    "EST5EDT",
    "Egypt",
    "Eire",
    "Factory",
    "GB",
    "GB-Eire",
    "GMT",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "HST",
    "Hongkong",
    "Iceland",
    "Iran",
    "Israel",
    "Jamaica",
    "Japan",
    "Kwajalein",
    "Libya",
    "MET",
    "MST",
    "MST7MDT",
    "NZ",
    "NZ-CHAT",
    "Navajo",
    "PRC",
    "PST8PDT",
    "Poland",
    "Portugal",
    "ROC",
    "ROK",
    "Singapore",
    "Turkey",
    "UCT",
    "UTC",
    "Universal",
];

/// Whether a time zone name is plausible. Cities are not checked against the tz database.
pub(super) fn is_zone(name: &str) -> bool {
    match name.split_once('/') {
        Some((area, place)) => AREAS.contains(&area) && !place.is_empty(),
        None => ZONES.contains(&name) || matches!(name, "W-SU" | "WET" | "Zulu"),
    }
}

/// Validates a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.starts_with('@') {
        let every = schedule.strip_prefix("@every ");
        let known = PREDEFINED.contains(&schedule.to_lowercase().as_str())
            || every.is_some_and(|span| span.starts_with(|c: char| c.is_ascii_digit()));
        return if known { Ok(()) } else { Err(format!("unrecognized descriptor: {schedule}")) };
    }
    let fields: Vec<&str> = schedule.split_ascii_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        for range in field.split(',') {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn check_range(text: &str, (least, most, names): (u32, u32, &[&str])) -> Result<(), String> {
    let number = |part: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(part));
        if let Some(at) = named.and_then(|at| u32::try_from(at).ok()) {
            return Ok(at + least);
        }
        part.parse::<u32>().map_err(|_| {
            format!("failed to parse int from {part}: strconv.Atoi: parsing \"{part}\": invalid syntax")
        })
    };
    let (range, step) = text.split_once('/').map_or((text, None), |(range, step)| (range, Some(step)));
    let (start, end) = match range.split_once('-') {
        _ if matches!(range, "*" | "?") => (least, most),
        Some((start, end)) => (number(start)?, number(end)?),
        None => {
            let start = number(range)?;
            (start, if step.is_some() { most } else { start })
        }
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    match step.map(number).transpose()? {
        Some(0) => Err(format!("step of range should be a positive number: {text}")),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_validated_like_robfig_cron() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan MON-fri", "@hourly", "@every 5m", "0 12 ? * 0"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("sometimes", "expected exactly 5 fields, found 1: [sometimes]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(check(bad).unwrap_err(), why);
        }
    }

    #[test]
    fn time_zones_have_a_known_area_or_name() {
        assert!(is_zone("Europe/Berlin") && is_zone("UTC") && is_zone("Etc/GMT+1"));
        assert!(!is_zone("Nowhere/Else") && !is_zone("Local") && !is_zone(""));
    }
}
