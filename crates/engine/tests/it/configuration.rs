//! Configuration keys: they have an effect, or a warning.

use kai_engine::plugin::PluginSet;
use kai_engine::policy::PluginConfig;
use kai_engine::{Config, Params, Policy};

fn resolve(config: &Config) -> Policy {
    Policy::resolve(config, &Params::default(), &PluginSet::builtin())
}

fn with_argument(plugin: &str, key: &str, value: &str) -> Policy {
    let arguments = [(key.to_owned(), value.to_owned())].into();
    let plugin = PluginConfig { name: plugin.to_owned(), arguments, disabled: Vec::new() };
    resolve(&Config { plugins: vec![plugin], ..Config::default() })
}

#[test]
fn argument_that_a_plugin_does_not_know_has_a_warning() {
    assert_eq!(
        with_argument("nodeplacement", "disk", "spread").warnings,
        [
            "plugin `nodeplacement`: argument `disk` is not known and has no effect; hint: its arguments are cpu, gpu"
        ]
    );
    assert_eq!(
        with_argument("elastic", "gpu", "spread").warnings,
        [
            "plugin `elastic`: argument `gpu` is not known and has no effect; hint: the plugin has no arguments"
        ]
    );
    assert_eq!(with_argument("nodeplacement", "gpu", "spread").warnings, Vec::<String>::new());
    assert_eq!(resolve(&Config::default()).warnings, Vec::<String>::new());
}

#[test]
fn documented_name_of_the_reclaim_multiplier_has_an_effect() {
    for key in ["reclaimerUtilizationMultiplier", "relcaimerSaturationMultiplier"] {
        let policy = with_argument("proportion", key, "1.2");
        let proportion = policy.registry.builtin.proportion.expect("the plugin is configured");
        assert_eq!((proportion.saturation_multiplier, policy.warnings.len()), (1.2, 0), "{key}");
    }
}

#[test]
fn budgets_and_depths_of_unknown_names_have_a_warning() {
    let mut config = Config::default();
    config.queue_depth.insert("recalim".to_owned(), 3);
    let minute = kai_units::Span::from_secs(60);
    config.budgets.action.insert("backfill".to_owned(), minute);
    config.budgets.generator.insert("Greedy".to_owned(), minute);
    assert_eq!(
        resolve(&config).warnings,
        [
            "`queueDepthPerAction.recalim` has no effect: there is no action of that name",
            "`maxActionSearchDuration.backfill` has no effect: there is no action of that name",
            "`maxGeneratorSearchDuration.Greedy` has no effect: there is no generator of that name",
        ]
    );
}
