//! Level and format of the log, from KAI's flags: `-v` and `--log-json` of the scheduler, zap's flags of the others.

use crate::flags::{ProcessFlags, ZapEncoder};
use kai_runtime::log::{self, Format};
use tracing::level_filters::LevelFilter;

pub(crate) fn level(flags: &ProcessFlags) -> LevelFilter {
    let preset = flags.zap_devel.map(|devel| if devel { LevelFilter::DEBUG } else { LevelFilter::INFO });
    flags.zap_log_level.or(preset).unwrap_or_else(|| log::level_of_verbosity(flags.verbosity))
}

pub(crate) fn format(flags: &ProcessFlags) -> Format {
    let is_json = match flags.zap_encoder {
        Some(ZapEncoder::Json) => true,
        Some(ZapEncoder::Console) => false,
        None => flags.log_json || flags.zap_devel == Some(false),
    };
    if is_json { Format::Json } else { Format::Text }
}

/// Reads `--zap-log-level` as controller-runtime does: a name, or a number whose size is the detail.
pub(crate) fn zap_level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "debug" | "1" => Ok(LevelFilter::DEBUG),
        "info" => Ok(LevelFilter::INFO),
        // There is no level above error.
        "error" | "panic" => Ok(LevelFilter::ERROR),
        number if number.parse::<u32>().is_ok_and(|number| number > 1) => Ok(LevelFilter::TRACE),
        _ => Err("expected `debug`, `info`, `error`, `panic` or a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        process: ProcessFlags,
    }

    fn logging(typed: &[&str]) -> (LevelFilter, Format) {
        let typed = ["kai"].iter().chain(typed);
        let flags = Flags::try_parse_from(typed).unwrap_or_else(|error| panic!("{error}")).process;
        (level(&flags), format(&flags))
    }

    #[test]
    fn zap_flags_choose_level_and_format() {
        assert_eq!(logging(&[]), (LevelFilter::INFO, Format::Text));
        assert_eq!(logging(&["--zap-devel=false"]), (LevelFilter::INFO, Format::Json));
        assert_eq!(logging(&["--zap-devel"]), (LevelFilter::DEBUG, Format::Text));
        assert_eq!(
            logging(&["--zap-devel=false", "--zap-encoder=console"]),
            (LevelFilter::INFO, Format::Text)
        );
        assert_eq!(logging(&["--zap-encoder=json"]), (LevelFilter::INFO, Format::Json));
        assert_eq!(logging(&["--zap-log-level=error", "--v=7"]), (LevelFilter::ERROR, Format::Text));
        assert_eq!(logging(&["--zap-log-level=5"]), (LevelFilter::TRACE, Format::Text));
        assert_eq!(logging(&["--v=4", "--log-json"]), (LevelFilter::DEBUG, Format::Json));
    }

    #[test]
    fn unknown_level_is_an_error() {
        for text in ["warn", "0", "-1", ""] {
            assert!(zap_level(text).is_err(), "{text}");
        }
    }
}
