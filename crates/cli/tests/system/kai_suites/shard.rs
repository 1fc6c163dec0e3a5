//! The `SchedulingShard` of a scenario: the operator turns it into the configuration and the flags of its scheduler.

use kai_api::{Config, SchedulingShard};
use kai_cache::config_file;
use kai_engine::plugin::PluginSet;
use kai_operator::{Facts, desired};
use serde_json::{Value, json};

/// The spec of the shard.
pub(crate) struct Shard(Value);

/// The shard of a scenario of a suite. The others run with the defaults of the program, which has fewer plugins than the
/// operator writes into its configuration.
pub(crate) fn of(scenario: &str) -> Option<Shard> {
    let spread = json!({"gpu": "spread", "cpu": "spread"});
    let spec = match scenario {
        "suite-order-spread" | "suite-topology" => json!({"placementStrategy": spread}),
        "suite-restricted-nodes" => json!({"args": {"restrict-node-scheduling": "true"}}),
        "suite-reclaim-flat" => json!({"args": {"full-hierarchy-fairness": "false"}}),
        name if name.starts_with("suite-numa") => json!({"plugins": {"numa": {"enabled": true}}}),
        name if name.starts_with("suite-") => json!({}),
        _ => return None,
    };
    Some(Shard(spec))
}

impl Shard {
    /// The configuration file of the scheduler, as the operator writes it.
    pub(crate) fn configuration(&self) -> String {
        let object = json!({"metadata": {"name": "default"}, "spec": self.0});
        let shard: SchedulingShard = serde_json::from_value(object).unwrap();
        let config: Config =
            serde_json::from_value(json!({"metadata": {"name": "kai-config"}, "spec": {}})).unwrap();
        let desired = desired(Some(&config), &[shard], &Facts::default());
        let (_, operand) = &desired.shards[0];
        assert_eq!(operand.error, None);
        let files = operand.objects.iter().filter_map(|object| object["data"]["config.yaml"].as_str());
        files.map(str::to_owned).next().expect("the operator writes a configuration")
    }

    /// Arguments of the shard as flags of the scheduler.
    pub(crate) fn flags(&self) -> Vec<String> {
        let arguments = self.0["args"].as_object().into_iter().flatten();
        arguments.map(|(name, value)| format!("--{name}={}", value.as_str().unwrap())).collect()
    }

    /// The same for a scheduler in this process.
    pub(crate) fn configure(&self, options: &mut kai_scheduler::Options) {
        options.config = config_file::read(&self.configuration(), &PluginSet::builtin()).unwrap();
        assert_eq!(options.config.warnings, Vec::<String>::new());
        for flag in self.flags() {
            match flag.as_str() {
                "--restrict-node-scheduling=true" => {
                    options.settings.restrict_nodes = true;
                    options.params.restrict_nodes = true;
                }
                "--full-hierarchy-fairness=false" => options.settings.full_hierarchy_fairness = false,
                flag => panic!("{flag} is not set here"),
            }
        }
    }
}
