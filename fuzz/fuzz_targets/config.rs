//! Scheduler configuration: any text is parsed or refused, and a parsed one can be written and used.
#![no_main]

use kai_cache::config_file;
use kai_engine::plugin::PluginSet;
use kai_engine::{Params, Policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(config) = config_file::read(text, &PluginSet::builtin()) else { return };
    let again = config_file::from_snapshot(&config_file::to_value(&config));
    assert_eq!(again.map(|again| again.engine), Ok(config.engine.clone()), "a configuration reads back as written");
    let _ = Policy::resolve(&config.engine, &Params::default(), &PluginSet::builtin());
});
