//! Parses the scheduler's configuration, from its YAML file and from a snapshot.
//!
//! As in KAI, the file is parsed leniently: keys match in any case, and unknown keys have no effect, but a warning each. The configuration in a
//! snapshot is used as it is, since it records the configuration in effect.

use kai_engine::plugin::PluginSet;
use kai_engine::policy::{
    Config, DEFAULT_ACTIONS, DisruptionBudgets, PluginConfig, PluginPart, SearchBudgets, SearchDepth,
};
use kai_units::{Span, duration};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A configuration: the engine's part, and the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerConfig {
    pub engine: Config,
    /// `usageDBConfig`, not parsed.
    pub usage_db: Option<Value>,
    /// Invalid parts that were ignored.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("the scheduler configuration is not YAML: {problem}")]
    Yaml { problem: String },
    #[error("the scheduler configuration has an invalid value in `{field}`: {problem}; hint: {hint}")]
    Value { field: String, problem: String, hint: &'static str },
    #[error("{what}, not a scheduler configuration; hint: a configuration has one or more of the keys {}", KEYS.join(", "))]
    OtherFile { what: String },
    #[error("the scheduler configuration names the unknown action `{name}`; hint: the actions are {}", known.join(", "))]
    UnknownAction { name: String, known: Vec<&'static str> },
}

/// The keys of a configuration.
const KEYS: [&str; 7] = [
    "actions",
    "tiers",
    "queueDepthPerAction",
    "scenarioSearchBudgets",
    "usageDBConfig",
    "search",
    "disruptionBudgets",
];

/// As [`read`], but a file that has keys, and none of a configuration, is an error: KAI's scheduler would run with the
/// defaults, but a user has named the wrong file.
pub fn read_named(text: &str, plugins: &PluginSet) -> Result<SchedulerConfig, ConfigError> {
    let config = read(text, plugins)?;
    let value: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let Value::Object(fields) = value else { return Ok(config) };
    let is_key = |field: &String| KEYS.iter().any(|key| key.eq_ignore_ascii_case(field));
    if fields.is_empty() || fields.keys().any(is_key) {
        return Ok(config);
    }
    let what = match fields.get("kind").and_then(Value::as_str) {
        Some(kind) => format!("it is a `{kind}`"),
        None => format!("it has the keys {}", fields.keys().cloned().collect::<Vec<_>>().join(", ")),
    };
    Err(ConfigError::OtherFile { what })
}

/// Parses a configuration file. Empty text is the default configuration; empty parts are replaced by the defaults. The
/// plugins may add actions.
pub fn read(text: &str, plugins: &PluginSet) -> Result<SchedulerConfig, ConfigError> {
    if text.trim().is_empty() {
        return Ok(SchedulerConfig::default());
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml { problem: yaml_problem(&error) })?;
    let mut config = from_value(&value)?;
    let mut known = DEFAULT_ACTIONS.to_vec();
    known.extend(plugins.custom_actions(&config.engine.plugins));
    if let Some(name) = config.engine.actions.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(ConfigError::UnknownAction { name: name.clone(), known });
    }
    let built_in = Config::default();
    if config.engine.actions.is_empty() {
        config.warnings.push("no actions are configured, so the default list is used".to_owned());
        config.engine.actions = built_in.actions;
    }
    if config.engine.plugins.is_empty() {
        config.engine.plugins = built_in.plugins;
    }
    Ok(config)
}

/// Renders a YAML error with its position and the surrounding lines.
pub(crate) fn yaml_problem(error: &serde_saphyr::Error) -> String {
    // The library names functions of its own.
    const ADVICE: &str = "; use from_str_multiple or from_str_multiple_with_options";
    let text = error.to_string().replace(ADVICE, "");
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}

/// Parses the configuration of a snapshot: an empty action list runs no action. Unknown actions are found when the
/// configuration is resolved with its plugins.
pub fn from_snapshot(value: &Value) -> Result<SchedulerConfig, ConfigError> {
    let mut config = from_value(value)?;
    if config.engine.actions.is_empty() {
        config.warnings.push("no actions are configured, so no action runs".to_owned());
    }
    Ok(config)
}

/// Serialises a configuration for a snapshot; [`from_snapshot`] parses it.
#[expect(clippy::indexing_slicing, reason = "fields of an object that is made here")]
pub fn to_value(config: &SchedulerConfig) -> Value {
    let engine = &config.engine;
    let spans = |spans: &BTreeMap<String, Span>| -> Map<String, Value> {
        spans.iter().map(|(name, span)| (name.clone(), duration::format_go(*span).into())).collect()
    };
    let plugins: Vec<Value> = engine.plugins.iter().map(plugin_value).collect();
    let mut value = json!({
        "actions": engine.actions.join(", "),
        "tiers": [{ "plugins": plugins }],
        "scenarioSearchBudgets": {
            "maxActionSearchDuration": spans(&engine.budgets.action),
            "maxJobSearchDuration": duration::format_go(engine.budgets.group_max),
            "minJobSearchDuration": duration::format_go(engine.budgets.group_min),
            "maxGeneratorSearchDuration": spans(&engine.budgets.generator),
        },
    });
    if !engine.queue_depth.is_empty() {
        value["queueDepthPerAction"] = json!(engine.queue_depth);
    }
    if engine.disruption_budgets == DisruptionBudgets::Ignore {
        value["disruptionBudgets"] = "ignore".into();
    }
    if engine.search == SearchDepth::Kai {
        value["search"] = "kai".into();
    }
    if let Some(usage_db) = &config.usage_db {
        value["usageDBConfig"] = usage_db.clone();
    }
    value
}

const SWITCHES: [(&str, PluginPart); 7] = [
    ("disableJobOrder", PluginPart::GroupOrder),
    ("disableTaskOrder", PluginPart::PodOrder),
    ("disablePreemptable", PluginPart::Preempt),
    ("disableReclaimable", PluginPart::Reclaim),
    ("disableQueueOrder", PluginPart::QueueOrder),
    ("disablePredicate", PluginPart::Filter),
    ("disableNodeOrder", PluginPart::NodeOrder),
];

#[expect(clippy::indexing_slicing, reason = "fields of an object that is made here")]
fn plugin_value(plugin: &PluginConfig) -> Value {
    let mut value = json!({ "name": plugin.name });
    if !plugin.arguments.is_empty() {
        value["arguments"] = json!(plugin.arguments);
    }
    for (name, part) in SWITCHES {
        if plugin.disabled.contains(&part) {
            value[name] = Value::Bool(true);
        }
    }
    value
}

fn from_value(value: &Value) -> Result<SchedulerConfig, ConfigError> {
    let fields = Fields::of(value, "config")?;
    let mut warnings = fields.unknown(&KEYS);
    let actions = fields.text("actions")?.unwrap_or_default();
    let actions = actions.split(',').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect();
    let mut plugins = Vec::new();
    for tier in fields.list("tiers")? {
        let tier = Fields::of(tier, "config.tiers")?;
        warnings.extend(tier.unknown(&["plugins"]));
        for plugin in tier.list("plugins")? {
            plugins.push(read_plugin(plugin, &mut warnings)?);
        }
    }
    let mut queue_depth = BTreeMap::new();
    for (action, depth) in fields.map("queueDepthPerAction")? {
        let depth = depth
            .as_i64()
            .ok_or_else(|| bad(&format!("queueDepthPerAction.{action}"), depth, "write a whole number"))?;
        match usize::try_from(depth).ok().filter(|d| *d > 0) {
            Some(depth) => {
                queue_depth.insert(action.clone(), depth);
            }
            None => warnings.push(format!(
                "`queueDepthPerAction.{action}` is {depth}, so the depth is unlimited; hint: write a positive number"
            )),
        }
    }
    let budgets = match fields.get("scenarioSearchBudgets") {
        Some(budgets) => read_budgets(budgets, &mut warnings)?,
        None => SearchBudgets::default(),
    };
    let usage_db = fields.get("usageDBConfig").cloned();
    let search = match fields.text("search")? {
        None | Some("" | "full") => SearchDepth::Full,
        Some("kai") => SearchDepth::Kai,
        Some(other) => return Err(bad("search", &other.into(), "write `full` or `kai`")),
    };
    let disruption_budgets = match fields.text("disruptionBudgets")? {
        None | Some("" | "honour") => DisruptionBudgets::Honour,
        Some("ignore") => DisruptionBudgets::Ignore,
        Some(other) => return Err(bad("disruptionBudgets", &other.into(), "write `honour` or `ignore`")),
    };
    let engine = Config { actions, plugins, queue_depth, budgets, search, disruption_budgets };
    Ok(SchedulerConfig { engine, usage_db, warnings })
}

fn read_plugin(value: &Value, warnings: &mut Vec<String>) -> Result<PluginConfig, ConfigError> {
    let fields = Fields::of(value, "config.tiers.plugins")?;
    let name = fields.text("name")?.unwrap_or_default().to_owned();
    let known: Vec<&str> = SWITCHES.iter().map(|(name, _)| *name).chain(["name", "arguments"]).collect();
    warnings.extend(fields.unknown(&known));
    let mut arguments = BTreeMap::new();
    for (key, value) in fields.map("arguments")? {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Null => String::new(),
            Value::Array(_) | Value::Object(_) => {
                return Err(bad(&format!("{name}.arguments.{key}"), value, "write one piece of text"));
            }
        };
        arguments.insert(key.clone(), text);
    }
    let mut disabled = Vec::new();
    for (switch, part) in SWITCHES {
        match fields.get(switch) {
            Some(Value::Bool(true)) => disabled.push(part),
            Some(Value::Bool(false)) | None => {}
            Some(other) => return Err(bad(&format!("{name}.{switch}"), other, "write true or false")),
        }
    }
    Ok(PluginConfig { name, arguments, disabled })
}

/// Missing budgets get the defaults.
fn read_budgets(value: &Value, warnings: &mut Vec<String>) -> Result<SearchBudgets, ConfigError> {
    let fields = Fields::of(value, "config.scenarioSearchBudgets")?;
    warnings.extend(fields.unknown(&[
        "maxActionSearchDuration",
        "maxJobSearchDuration",
        "minJobSearchDuration",
        "maxGeneratorSearchDuration",
    ]));
    let mut budgets = SearchBudgets::default();
    for (name, value) in fields.map("maxActionSearchDuration")? {
        budgets.action.insert(name.clone(), span(value, "maxActionSearchDuration")?);
    }
    for (name, value) in fields.map("maxGeneratorSearchDuration")? {
        budgets.generator.insert(name.clone(), span(value, "maxGeneratorSearchDuration")?);
    }
    if let Some(value) = fields.get("maxJobSearchDuration") {
        budgets.group_max = span(value, "maxJobSearchDuration")?;
    }
    if let Some(value) = fields.get("minJobSearchDuration") {
        budgets.group_min = span(value, "minJobSearchDuration")?;
    }
    Ok(budgets)
}

fn span(value: &Value, field: &str) -> Result<Span, ConfigError> {
    let text = value.as_str().ok_or_else(|| bad(field, value, "write a duration such as `5m`"))?;
    duration::parse_extended(text).map_err(|_| bad(field, value, "write a duration such as `5m`"))
}

fn bad(field: &str, value: &Value, hint: &'static str) -> ConfigError {
    let mut shown = value.to_string();
    if shown.len() > 60 {
        shown = format!("{}…", shown.chars().take(40).collect::<String>());
    }
    ConfigError::Value { field: field.to_owned(), problem: format!("`{shown}` is not allowed"), hint }
}

/// The members of an object, matched case-insensitively; `null` is absent.
pub(crate) struct Fields<'a>(BTreeMap<String, &'a Value>, String);

impl<'a> Fields<'a> {
    pub(crate) fn of(value: &'a Value, field: &str) -> Result<Self, ConfigError> {
        match value {
            Value::Object(map) => {
                let named = map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_lowercase(), v));
                Ok(Self(named.collect(), field.to_owned()))
            }
            Value::Null => Ok(Self(BTreeMap::new(), field.to_owned())),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(bad(field, value, "write a map"))
            }
        }
    }
    /// A warning for each member that is not known.
    fn unknown(&self, known: &[&str]) -> Vec<String> {
        let is_known = |name: &String| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        let warning = |name: &String| {
            format!(
                "`{}.{name}` is not known and has no effect; hint: the keys are {}",
                self.1,
                known.join(", ")
            )
        };
        self.0.keys().filter(|name| !is_known(name)).map(warning).collect()
    }
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(&name.to_lowercase()).copied()
    }
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        self.typed(name, Value::as_str, "write text")
    }
    pub(crate) fn truth(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(self.typed(name, Value::as_bool, "write true or false")?.unwrap_or(false))
    }
    pub(crate) fn integer(&self, name: &str, hint: &'static str) -> Result<i64, ConfigError> {
        Ok(self.typed(name, Value::as_i64, hint)?.unwrap_or(0))
    }
    fn list(&self, name: &str) -> Result<&'a [Value], ConfigError> {
        let list = self.typed(name, |v| v.as_array(), "write a list")?;
        Ok(list.map(Vec::as_slice).unwrap_or_default())
    }
    fn map(
        &self,
        name: &str,
    ) -> Result<impl Iterator<Item = (&'a String, &'a Value)> + use<'a>, ConfigError> {
        Ok(self.typed(name, |v| v.as_object(), "write a map")?.into_iter().flatten())
    }
    fn typed<T>(
        &self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<T>,
        hint: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| bad(&format!("{}.{name}", self.1), value, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::plugin::{Args, CustomAction, Plugin, Registry, Session};
    use kai_engine::{Params, Policy};
    use std::sync::Arc;

    fn read(text: &str) -> Result<SchedulerConfig, ConfigError> {
        super::read(text, &PluginSet::builtin())
    }

    #[test]
    fn file_that_a_user_names_must_be_a_configuration() {
        let read_named = |text: &str| read_named(text, &PluginSet::builtin());
        for text in ["", "# nothing yet\n", "Actions: allocate\n", "tiers: []\nnovelty: 1\n"] {
            assert!(read_named(text).is_ok(), "{text}");
        }
        let message = |text: &str| read_named(text).unwrap_err().to_string();
        assert!(message("kind: Job\nspec: {}\n").starts_with("it is a `Job`, not a scheduler configuration"));
        assert!(
            message("foo: 1\n").starts_with("it has the keys foo, not a scheduler configuration; hint: ")
        );
        assert!(read("foo: 1\n").is_ok(), "as in KAI");
    }

    #[test]
    fn empty_parts_get_the_defaults() {
        assert_eq!(read("").unwrap(), SchedulerConfig::default());
        let config = read("tiers: []\nnovelty: 1\n").unwrap();
        assert_eq!(config.engine, Config::default());
        assert_eq!(
            config.warnings.len(),
            2,
            "the unknown key and the default actions: {:?}",
            config.warnings
        );
    }

    #[test]
    fn keys_without_effect_have_a_warning() {
        let texts = [
            ("action: allocate", "`config.action` is not known"),
            ("tiers: [{plugin: []}]", "`config.tiers.plugin` is not known"),
            (
                "tiers: [{plugins: [{name: elastic, disableOrder: true}]}]",
                "`config.tiers.plugins.disableorder`",
            ),
            (
                "scenarioSearchBudgets: {maxSearch: 1m}",
                "`config.scenarioSearchBudgets.maxsearch` is not known",
            ),
            ("queueDepthPerAction: {reclaim: 0}", "the depth is unlimited"),
        ];
        for (text, warning) in texts {
            let warnings = read(text).unwrap().warnings;
            assert!(warnings.iter().any(|text| text.contains(warning)), "{text}: {warnings:?}");
        }
    }

    #[test]
    fn complete_file_is_parsed_in_order() {
        let config = read(
            "actions: \"allocate, reclaim\"\ntiers:\n- plugins:\n  - name: predicates\n    disablePredicate: true\n  \
             - name: nodeplacement\n    arguments: {gpu: spread, cpu: binpack}\n- plugins: [{name: proportion, \
             arguments: {kValue: 0.5}}]\nqueueDepthPerAction: {reclaim: 10}\nscenarioSearchBudgets:\n  \
             maxJobSearchDuration: 1m\n  maxActionSearchDuration: {reclaim: 2d}\nusageDBConfig: {clientType: prometheus}\n\
             search: kai\ndisruptionBudgets: ignore\n",
        )
        .unwrap();
        assert_eq!(config.engine.actions, ["allocate", "reclaim"]);
        let names: Vec<&str> = config.engine.plugins.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["predicates", "nodeplacement", "proportion"]);
        assert_eq!(config.engine.plugins[0].disabled, [PluginPart::Filter]);
        assert_eq!(config.engine.plugins[2].arguments["kValue"], "0.5");
        assert_eq!(config.engine.queue_depth["reclaim"], 10);
        assert_eq!(config.engine.budgets.group_max, Span::from_secs(60));
        assert_eq!(config.engine.budgets.action["reclaim"], Span::from_secs(172_800));
        assert_eq!(config.engine.budgets.action["default"], Span::from_secs(300));
        assert!(config.usage_db.is_some());
        assert_eq!(config.engine.search, SearchDepth::Kai);
        assert_eq!(config.engine.disruption_budgets, DisruptionBudgets::Ignore);
        assert_eq!(from_snapshot(&to_value(&config)).unwrap(), config);
    }

    #[test]
    fn unknown_action_is_an_error_in_a_file_and_runs_no_action_in_a_snapshot() {
        let error = read("actions: allocate, dance").unwrap_err();
        assert!(matches!(&error, ConfigError::UnknownAction { name, .. } if name == "dance"), "{error}");
        assert!(error.to_string().contains("hint: the actions are allocate"));
        let config = from_snapshot(&json!({"Actions": "allocate, dance"})).unwrap();
        let policy = Policy::resolve(&config.engine, &Params::default(), &PluginSet::builtin());
        assert_eq!((policy.actions.len(), config.engine.plugins.len()), (0, 0));
        assert_eq!(policy.warnings, ["the action `dance` is unknown, so no action runs"]);
    }

    #[test]
    fn action_of_a_configured_plugin_is_known() {
        struct Dance;
        impl Plugin for Dance {
            fn name(&self) -> &'static str {
                "dancing"
            }
            fn register(&self, _: &mut Args<'_>, to: &mut Registry) {
                to.actions.push(Arc::new(Self));
            }
        }
        impl CustomAction for Dance {
            fn name(&self) -> &'static str {
                "dance"
            }
            fn run(&self, _: &mut Session<'_>) {}
        }
        let plugins = PluginSet::builtin().with(Arc::new(Dance));
        let text = "actions: allocate, dance\ntiers: [{plugins: [{name: dancing}]}]\n";
        let config = super::read(text, &plugins).unwrap();
        let policy = Policy::resolve(&config.engine, &Params::default(), &plugins);
        let names: Vec<&str> = policy.actions.iter().map(|action| action.name()).collect();
        assert_eq!((names, policy.warnings.len()), (vec!["allocate", "dance"], 0));
        let error = super::read("actions: dance", &plugins).unwrap_err();
        assert!(matches!(error, ConfigError::UnknownAction { .. }), "its plugin is not configured");
    }

    #[test]
    fn errors_name_the_invalid_field() {
        for text in [
            "actions: 7",
            "search: far",
            "disruptionBudgets: some",
            "tiers: {a: 1}",
            "queueDepthPerAction: {reclaim: much}",
            "- 1",
            "a: [",
            "tiers: [[1]]",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
