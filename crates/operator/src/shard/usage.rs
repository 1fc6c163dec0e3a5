//! Where a scheduler reads past usage from.

use super::own_prometheus;
use crate::operand::prometheus::external_url;
use crate::settings::Settings;
use kai_api::SchedulingShard;
use kai_units::duration::{format_go, parse_go};
use serde_json::Value;

const FIELD: &str = "spec.usageDBConfig";

/// The database with its address filled in; `None` when the shard uses none.
pub(super) fn configuration(settings: &Settings, shard: &SchedulingShard) -> Result<Option<Value>, String> {
    let Some(mut database) = shard.spec.usage_db_config.clone() else { return Ok(None) };
    let without_address =
        database.connection_string.is_empty() && database.connection_string_env_var.is_empty();
    if database.client_type == "prometheus" && without_address {
        database.connection_string = address(settings)?;
    }
    if let Some(params) = &mut database.usage_params {
        let fields = [
            ("halfLifePeriod", &mut params.half_life_period),
            ("fetchInterval", &mut params.fetch_interval),
            ("stalenessPeriod", &mut params.staleness_period),
            ("waitTimeout", &mut params.wait_timeout),
        ];
        for (field, text) in fields {
            if let Some(text) = text {
                let span = parse_go(text).map_err(|error| format!("{FIELD}.usageParams.{field}: {error}"))?;
                *text = format_go(span);
            }
        }
    }
    serde_json::to_value(database).map(Some).map_err(|error| format!("{FIELD}: {error}"))
}

/// An external Prometheus comes first: with one, the operator deploys none.
fn address(settings: &Settings) -> Result<String, String> {
    if let Some(url) = external_url(&settings.prometheus) {
        return Ok(url.to_owned());
    }
    if settings.prometheus.enabled.unwrap_or(false) {
        return Ok(own_prometheus(settings));
    }
    Err(format!(
        "{FIELD}: there is no address of a Prometheus; hint: set connectionString, or prometheus.enabled or \
         prometheus.externalPrometheusUrl of the Config, or clientType `ledger`, which needs none"
    ))
}
