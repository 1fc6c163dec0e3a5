//! The configuration file of a scheduler.

use super::{budgets, plugins, usage};
use crate::settings::Settings;
use kai_api::SchedulingShard;
use serde_json::{Map, Value, json};

/// The file as text.
pub(super) fn yaml(settings: &Settings, shard: &SchedulingShard) -> Result<String, String> {
    let configuration = Value::Object(configuration(settings, shard)?);
    serde_saphyr::to_string(&configuration)
        .map_err(|error| format!("the configuration cannot be written: {error}"))
}

fn configuration(settings: &Settings, shard: &SchedulingShard) -> Result<Map<String, Value>, String> {
    let actions = plugins::actions(shard);
    let mut file = Map::new();
    file.insert("actions".to_owned(), Value::from(actions.join(", ")));
    file.insert("tiers".to_owned(), json!([{"plugins": plugins::plugins(shard)}]));
    if let Some(depths) = shard.spec.queue_depth_per_action.as_ref().filter(|depths| !depths.is_empty()) {
        if let Some(unknown) = depths.keys().find(|action| !actions.contains(action)) {
            return Err(format!(
                "spec.queueDepthPerAction: the shard has no action `{unknown}`; hint: its actions are {}",
                actions.join(", ")
            ));
        }
        file.insert("queueDepthPerAction".to_owned(), json!(depths));
    }
    if let Some(database) = usage::configuration(settings, shard)? {
        file.insert("usageDBConfig".to_owned(), database);
    }
    file.insert("scenarioSearchBudgets".to_owned(), budgets::configuration(shard)?);
    Ok(file)
}
