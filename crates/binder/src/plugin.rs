//! The steps of binding that can be configured: which there are, which are taken, and in which order.
//!
//! Names, defaults and rules are KAI's. A step comes with its own module; what they do is called from `bind`.

pub(crate) mod dynamic_resources;
pub(crate) mod gpu_sharing;
pub(crate) mod hami_core;
pub(crate) mod volume_binding;

use kai_api::config::component::BinderPlugin;
use std::collections::BTreeMap;
use std::time::Duration;

/// A step that is taken before a pod is bound, and undone when it cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// `volumebinding`: claims on storage that wait for their first user.
    VolumeBinding {
        /// How long it may take.
        timeout: Duration,
    },
    /// `dynamicresources`: claims on devices.
    DynamicResources {
        /// How long it may take.
        timeout: Duration,
    },
    /// `gpusharing`: tells the containers of a pod which part of which GPUs they have.
    GpuSharing {
        /// How GPUs are named.
        devices: DeviceNames,
    },
    /// `hamicore`: tells HAMi-core how much GPU memory a container may use.
    HamiCore,
}

/// How containers are told their GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNames {
    /// By uuid.
    Uuid,
    /// By their names in the container device interface.
    Cdi,
}

/// Why the steps cannot be taken as configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The setting cannot be read.
    #[error(
        "cannot read the binder plugins: {0}\nhint: give JSON such as `{{\"hamicore\": {{\"enabled\": true}}}}`"
    )]
    Malformed(String),
    /// There is no such step.
    #[error(
        "there is no binder plugin `{name}`\nhint: known are volumebinding, dynamicresources, gpusharing and hamicore"
    )]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A step lacks a setting.
    #[error(
        "binder plugin `{name}` has no valid argument `{argument}`: `{value}`\nhint: it must be {wanted}"
    )]
    Argument {
        /// The step.
        name: String,
        /// The setting.
        argument: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A step comes before one that it builds upon, or that one is missing.
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

/// The steps to take, in order, when the defaults are changed by what this JSON says; an empty text says nothing.
pub fn parse(text: &str) -> Result<Vec<Plugin>, Error> {
    if text.is_empty() {
        return resolve(&BTreeMap::new());
    }
    let overrides = serde_json::from_str(text).map_err(|error| Error::Malformed(error.to_string()))?;
    resolve(&overrides)
}

/// The steps to take, in order, when the defaults are changed by these.
pub fn resolve(overrides: &BTreeMap<String, BinderPlugin>) -> Result<Vec<Plugin>, Error> {
    let mut settings = defaults();
    for (name, wanted) in overrides {
        let setting = settings.entry(name.clone()).or_insert_with(|| Setting::new(true, 0, &[]));
        setting.enabled = wanted.enabled.unwrap_or(setting.enabled);
        setting.priority = wanted.priority.unwrap_or(setting.priority);
        if let Some(arguments) = &wanted.arguments {
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
    // By name within a priority: the map has them so, and the sort keeps it.
    ordered.sort_by_key(|(_, setting)| std::cmp::Reverse(setting.priority));
    ordered.into_iter().map(|(name, setting)| build(&name, &setting)).collect()
}

fn build(name: &str, setting: &Setting) -> Result<Plugin, Error> {
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
        _ => Err(Error::Unknown { name: name.to_owned() }),
    }
}

fn timeout(name: &str, setting: &Setting) -> Result<Duration, Error> {
    let value = setting.arguments.get(TIMEOUT).map_or("", String::as_str);
    let seconds = value.parse::<i64>().map_err(|_| invalid(name, TIMEOUT, value, "a number of seconds"))?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn invalid(name: &str, argument: &'static str, value: &str, wanted: &'static str) -> Error {
    Error::Argument { name: name.to_owned(), argument, value: value.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(json: &str) -> Result<Vec<&'static str>, Error> {
        let overrides = serde_json::from_str(json).unwrap();
        let name = |plugin: Plugin| match plugin {
            Plugin::VolumeBinding { .. } => VOLUME_BINDING,
            Plugin::DynamicResources { .. } => DYNAMIC_RESOURCES,
            Plugin::GpuSharing { .. } => GPU_SHARING,
            Plugin::HamiCore => HAMI_CORE,
        };
        resolve(&overrides).map(|plugins| plugins.into_iter().map(name).collect())
    }

    #[test]
    fn steps_come_by_priority_and_then_by_name() {
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
        for (json, wanted) in table {
            assert_eq!(steps(json).as_deref(), Ok(wanted), "{json}");
        }
    }

    #[test]
    fn given_arguments_replace_all_of_a_step() {
        let seconds = |json: &str| {
            let plugins = resolve(&serde_json::from_str(json).unwrap()).unwrap();
            plugins.into_iter().find_map(|plugin| match plugin {
                Plugin::VolumeBinding { timeout } => Some(timeout.as_secs()),
                Plugin::DynamicResources { .. } | Plugin::GpuSharing { .. } | Plugin::HamiCore => None,
            })
        };
        assert_eq!(seconds("{}"), Some(120));
        assert_eq!(seconds(r#"{"volumebinding": {"arguments": {"bindTimeoutSeconds": "7"}}}"#), Some(7));
        let emptied = steps(r#"{"volumebinding": {"arguments": {}}}"#).unwrap_err();
        assert!(matches!(emptied, Error::Argument { argument: TIMEOUT, .. }), "{emptied}");
    }

    #[test]
    fn what_cannot_work_is_refused_at_the_start() {
        let table = [
            r#"{"hamicore": {"enabled": true}, "gpusharing": {"enabled": false}}"#,
            r#"{"hamicore": {"enabled": true, "priority": 100}}"#,
            r#"{"mine": {}}"#,
            r#"{"gpusharing": {"arguments": {"cdiEnabled": "maybe"}}}"#,
            r#"{"dynamicresources": {"arguments": {"bindTimeoutSeconds": "1.5"}}}"#,
        ];
        for json in table {
            let error = steps(json).unwrap_err().to_string();
            assert!(error.contains("hint:"), "{error}");
        }
        assert_eq!(steps(table[0]), Err(Error::HamiCoreAlone));
        assert!(parse("{").unwrap_err().to_string().contains("hint:"));
        assert_eq!(parse(""), resolve(&BTreeMap::new()));
        assert!(steps(r#"{"mine": {"enabled": false}}"#).is_ok(), "what is off need not be known");
    }
}
