//! The configurable plugins of the binder: which exist, which are enabled, and their order.
//!
//! Names, defaults and rules are KAI's. Each plugin has a module with its PreBind and Rollback steps, which `bind` calls.
//! A user's binary adds plugins of its own with [`BinderPlugins`].

pub(crate) mod custom;
pub(crate) mod dynamic_resources;
pub(crate) mod gpu_sharing;
pub(crate) mod hami_core;
pub(crate) mod volume_binding;

pub use custom::{Arguments, BindContext, BinderPlugin, BinderPlugins, CustomPlugin};
pub use futures::future::BoxFuture;

use kai_api::config::component::BinderPlugin as Override;
use std::collections::BTreeMap;
use std::time::Duration;

/// An enabled plugin with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// `volumebinding`: persistent volume claims with `WaitForFirstConsumer`.
    VolumeBinding { timeout: Duration },
    /// `dynamicresources`: resource claims.
    DynamicResources { timeout: Duration },
    /// `gpusharing`: config maps with portion and devices of shared GPUs.
    GpuSharing { devices: DeviceNames },
    /// `hamicore`: GPU memory limit of a container.
    HamiCore,
    /// One that is not built in.
    Custom(CustomPlugin),
}

/// The form of device names in `NVIDIA_VISIBLE_DEVICES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNames {
    Uuid,
    /// Container Device Interface.
    Cdi,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot read the binder plugins: {0}\nhint: give JSON such as `{{\"hamicore\": {{\"enabled\": true}}}}`"
    )]
    Malformed(String),
    #[error(
        "there is no binder plugin `{name}`\nhint: known plugins are volumebinding, dynamicresources, gpusharing and hamicore{own}"
    )]
    Unknown { name: String, own: String },
    #[error("binder plugin `{name}` cannot be built: {reason}\nhint: correct its arguments in `--plugins`")]
    Build { name: String, reason: String },
    #[error(
        "binder plugin `{name}` has no valid argument `{argument}`: `{value}`\nhint: it must be {expected}"
    )]
    Argument { name: String, argument: &'static str, value: String, expected: &'static str },
    #[error(
        "binder plugin `hamicore` needs `gpusharing` before it\nhint: enable both, gpusharing with the higher priority"
    )]
    HamiCoreAlone,
}

const VOLUME_BINDING: &str = "volumebinding";
const DYNAMIC_RESOURCES: &str = "dynamicresources";
const GPU_SHARING: &str = "gpusharing";
const HAMI_CORE: &str = "hamicore";
const TIMEOUT: &str = "bindTimeoutSeconds";
const CDI: &str = "cdiEnabled";
/// Time limit of each call of a plugin that is not built in and has no such argument; the built-in ones have the same.
const CUSTOM_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
struct Setting {
    enabled: bool,
    priority: i64,
    arguments: BTreeMap<String, String>,
}

impl Setting {
    fn new(enabled: bool, priority: i64, arguments: &[(&str, &str)]) -> Self {
        let arguments =
            arguments.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { enabled, priority, arguments }
    }
}

fn defaults() -> BTreeMap<String, Setting> {
    let settings = [
        (VOLUME_BINDING, Setting::new(true, 300, &[(TIMEOUT, "120")])),
        (DYNAMIC_RESOURCES, Setting::new(true, 200, &[(TIMEOUT, "120")])),
        (GPU_SHARING, Setting::new(true, 100, &[(CDI, "false")])),
        (HAMI_CORE, Setting::new(false, 50, &[])),
    ];
    settings.into_iter().map(|(name, setting)| (name.to_owned(), setting)).collect()
}

/// The enabled plugins in order, with overrides of the defaults as JSON; an empty text has no overrides.
pub fn parse(text: &str) -> Result<Vec<Plugin>, Error> {
    if text.is_empty() {
        return resolve(&BTreeMap::new());
    }
    let overrides = serde_json::from_str(text).map_err(|error| Error::Malformed(error.to_string()))?;
    resolve(&overrides)
}

/// The enabled plugins in order, with overrides of the defaults.
pub fn resolve(overrides: &BTreeMap<String, Override>) -> Result<Vec<Plugin>, Error> {
    resolve_with(overrides, &BinderPlugins::default())
}

/// As [`resolve`], with plugins that are not built in. As in KAI, one of them runs if an override names it.
pub fn resolve_with(
    overrides: &BTreeMap<String, Override>,
    own: &BinderPlugins,
) -> Result<Vec<Plugin>, Error> {
    let mut settings = defaults();
    for (name, changes) in overrides {
        let setting = settings.entry(name.clone()).or_insert_with(|| Setting::new(true, 0, &[]));
        setting.enabled = changes.enabled.unwrap_or(setting.enabled);
        setting.priority = changes.priority.unwrap_or(setting.priority);
        if let Some(arguments) = &changes.arguments {
            setting.arguments.clone_from(arguments);
        }
    }
    settings.retain(|_, setting| setting.enabled);
    if let Some(hami) = settings.get(HAMI_CORE)
        && settings.get(GPU_SHARING).is_none_or(|sharing| sharing.priority <= hami.priority)
    {
        return Err(Error::HamiCoreAlone);
    }
    let mut ordered: Vec<(String, Setting)> = settings.into_iter().collect();
    // By name within a priority: the map is sorted by name, and the sort is stable.
    ordered.sort_by_key(|(_, setting)| std::cmp::Reverse(setting.priority));
    ordered.into_iter().map(|(name, setting)| build(&name, &setting, own)).collect()
}

fn build(name: &str, setting: &Setting, own: &BinderPlugins) -> Result<Plugin, Error> {
    match name {
        VOLUME_BINDING => Ok(Plugin::VolumeBinding { timeout: timeout(name, setting)? }),
        DYNAMIC_RESOURCES => Ok(Plugin::DynamicResources { timeout: timeout(name, setting)? }),
        GPU_SHARING => {
            let value = setting.arguments.get(CDI).map_or("", String::as_str);
            let devices = match value {
                "true" | "True" | "TRUE" | "t" | "T" | "1" => DeviceNames::Cdi,
                "false" | "False" | "FALSE" | "f" | "F" | "0" => DeviceNames::Uuid,
                _ => return Err(invalid(name, CDI, value, "true or false")),
            };
            Ok(Plugin::GpuSharing { devices })
        }
        HAMI_CORE => Ok(Plugin::HamiCore),
        _ => match own.build(name, &setting.arguments) {
            Some(Ok(plugin)) => {
                let is_given = setting.arguments.contains_key(TIMEOUT);
                let timeout = if is_given { timeout(name, setting)? } else { CUSTOM_TIMEOUT };
                Ok(Plugin::Custom(CustomPlugin::new(name, timeout, plugin)))
            }
            Some(Err(reason)) => Err(Error::Build { name: name.to_owned(), reason }),
            None => {
                let own = own.names().fold(String::new(), |text, name| text + ", " + name);
                Err(Error::Unknown { name: name.to_owned(), own })
            }
        },
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason given".to_owned())
}

fn timeout(name: &str, setting: &Setting) -> Result<Duration, Error> {
    let value = setting.arguments.get(TIMEOUT).map_or("", String::as_str);
    let seconds = value.parse::<i64>().map_err(|_| invalid(name, TIMEOUT, value, "a number of seconds"))?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn invalid(name: &str, argument: &'static str, value: &str, expected: &'static str) -> Error {
    Error::Argument { name: name.to_owned(), argument, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(json: &str) -> Result<Vec<&'static str>, Error> {
        let overrides = serde_json::from_str(json).unwrap();
        let name = |plugin: Plugin| match plugin {
            Plugin::VolumeBinding { .. } => VOLUME_BINDING,
            Plugin::DynamicResources { .. } => DYNAMIC_RESOURCES,
            Plugin::GpuSharing { .. } => GPU_SHARING,
            Plugin::HamiCore => HAMI_CORE,
            Plugin::Custom(_) => "custom",
        };
        resolve(&overrides).map(|plugins| plugins.into_iter().map(name).collect())
    }

    #[test]
    fn plugins_are_ordered_by_priority_and_name() {
        let table: [(&str, &[&str]); 5] = [
            ("{}", &[VOLUME_BINDING, DYNAMIC_RESOURCES, GPU_SHARING]),
            (
                r#"{"hamicore": {"enabled": true}}"#,
                &[VOLUME_BINDING, DYNAMIC_RESOURCES, GPU_SHARING, HAMI_CORE],
            ),
            (r#"{"volumebinding": {"enabled": false}}"#, &[DYNAMIC_RESOURCES, GPU_SHARING]),
            (
                r#"{"gpusharing": {"priority": 300}, "dynamicresources": {"priority": 300}}"#,
                &[DYNAMIC_RESOURCES, GPU_SHARING, VOLUME_BINDING],
            ),
            (r#"{"volumebinding": {"priority": -1}}"#, &[DYNAMIC_RESOURCES, GPU_SHARING, VOLUME_BINDING]),
        ];
        for (json, expected) in table {
            assert_eq!(names(json).as_deref(), Ok(expected), "{json}");
        }
    }

    #[test]
    fn given_arguments_replace_all_arguments_of_a_plugin() {
        let seconds = |json: &str| {
            let plugins = resolve(&serde_json::from_str(json).unwrap()).unwrap();
            plugins.into_iter().find_map(|plugin| match plugin {
                Plugin::VolumeBinding { timeout } => Some(timeout.as_secs()),
                Plugin::DynamicResources { .. }
                | Plugin::GpuSharing { .. }
                | Plugin::HamiCore
                | Plugin::Custom(_) => None,
            })
        };
        assert_eq!(seconds("{}"), Some(120));
        assert_eq!(seconds(r#"{"volumebinding": {"arguments": {"bindTimeoutSeconds": "7"}}}"#), Some(7));
        let emptied = names(r#"{"volumebinding": {"arguments": {}}}"#).unwrap_err();
        assert!(matches!(emptied, Error::Argument { argument: TIMEOUT, .. }), "{emptied}");
    }

    #[test]
    fn invalid_configuration_is_rejected() {
        let table = [
            r#"{"hamicore": {"enabled": true}, "gpusharing": {"enabled": false}}"#,
            r#"{"hamicore": {"enabled": true, "priority": 100}}"#,
            r#"{"mine": {}}"#,
            r#"{"gpusharing": {"arguments": {"cdiEnabled": "maybe"}}}"#,
            r#"{"dynamicresources": {"arguments": {"bindTimeoutSeconds": "1.5"}}}"#,
        ];
        for json in table {
            let error = names(json).unwrap_err().to_string();
            assert!(error.contains("hint:"), "{error}");
        }
        assert_eq!(names(table[0]), Err(Error::HamiCoreAlone));
        assert!(parse("{").unwrap_err().to_string().contains("hint:"));
        assert_eq!(parse(""), resolve(&BTreeMap::new()));
        assert!(names(r#"{"mine": {"enabled": false}}"#).is_ok(), "a disabled plugin need not exist");
    }
}
