//! All checks together.

use crate::finding::{Finding, Level, named};
use crate::installed;
use crate::objects;
use crate::rules::installation::{self, Installation};
use crate::rules::{chart, scheduling};
use kai_cache::config_file::{self, SchedulerConfig};
use kai_cache::snapshot::{self, Limits};
use kai_cache::{Kind, Objects, Settings, Store};
use kai_engine::Delta;
use kai_engine::plugin::PluginSet;
use kai_engine::policy::Params;
use kai_operator::{Apis, Facts, read};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Cursor;

/// The name of the `Config` that counts.
const CONFIG: &str = "kai-config";

/// What is known of an installation of KAI and of its cluster; everything may be missing.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Values of KAI's chart, in the order in which helm merges them.
    pub values: Vec<Value>,
    /// Objects of any kind.
    pub objects: Vec<Value>,
    /// Which optional APIs the cluster serves; `None` where only files are read.
    pub apis: Option<Apis>,
}

/// All findings, the most important first.
pub fn check(input: &Input, plugins: &PluginSet) -> Vec<Finding> {
    let mut findings = Vec::new();
    let values = input.values.iter().fold(Value::Null, |all, one| merged(all, one.clone()));
    if !values.is_null() {
        check_values(&values, &mut findings);
    }
    let installation = installation(input);
    let configs = check_installation(input, &installation, plugins, &mut findings);
    check_cycles(&input.objects, &configs, &mut findings);
    objects::check(&input.objects, &mut findings);
    installed::check(&input.objects, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

/// As helm merges values files: maps key by key, everything else is replaced.
fn merged(all: Value, one: Value) -> Value {
    match (all, one) {
        (Value::Object(mut all), Value::Object(one)) => {
            for (key, value) in one {
                let old = all.remove(&key).unwrap_or_default();
                all.insert(key, merged(old, value));
            }
            Value::Object(all)
        }
        (_, one) => one,
    }
}

fn check_values(values: &Value, findings: &mut Vec<Finding>) {
    for refusal in chart::refusals(values) {
        let subject = if refusal.key.is_empty() { "values".to_owned() } else { refusal.key };
        let finding = Finding::new(Level::Unsupported, "H01", format!("values: {subject}"));
        findings.push(finding.message(refusal.problem).action(refusal.hint));
    }
    let sources: Vec<String> =
        chart::image_sources(values).iter().map(|key| format!("values: {key}")).collect();
    if let Some(subjects) = named(&sources) {
        let finding = Finding::new(Level::Differs, "images", subjects).message(
            "images are pulled from where these keys say: there has to be an image of this scheduler, not one of KAI",
        );
        findings.push(finding.action(
            "set global.registry and global.tag to where `cargo xtask image` put the images, and remove those of single images",
        ));
    }
    for rule in chart::RULES.iter().filter(|rule| rule.id != "H01") {
        let keys: Vec<String> = (rule.keys)(values).iter().map(|key| format!("values: {key}")).collect();
        findings.extend(Finding::of_rule(rule.id, &keys));
    }
}

fn installation(input: &Input) -> Installation {
    let of_kind =
        |kind: &'static str| input.objects.iter().filter(move |object| kai_object::kind(object) == kind);
    Installation {
        config: of_kind("Config").find(|config| kai_object::name(config) == CONFIG).cloned(),
        shards: of_kind("SchedulingShard").cloned().collect(),
        serves_autoscalers: input.apis.map(|apis| apis.vertical_pod_autoscaler),
        cluster_policies: of_kind("ClusterPolicy").cloned().collect(),
    }
}

/// Reads the settings as the operator does; returns the configuration of each shard's scheduler.
fn check_installation(
    input: &Input,
    installation: &Installation,
    plugins: &PluginSet,
    findings: &mut Vec<Finding>,
) -> Vec<SchedulerConfig> {
    for rule in installation::RULES {
        findings.extend(Finding::of_rule(rule.id, &(rule.fields)(installation)));
    }
    let mut unsupported = |subject: String, message: String| {
        let finding = Finding::new(Level::Unsupported, "settings", subject).message(message);
        findings.push(finding.action("correct the field before moving; what is deployed stays until then"));
    };
    let config = installation.config.as_ref().and_then(|object| {
        read::config(object).map_err(|error| unsupported(format!("Config {CONFIG}"), error)).ok()
    });
    let mut shards = Vec::new();
    for object in &installation.shards {
        match read::shard(object) {
            Ok(shard) => shards.push(shard),
            Err(error) => unsupported(format!("SchedulingShard {}", kai_object::name(object)), error),
        }
    }
    // Without a Config its defaults are those of the chart.
    let config = config.unwrap_or_default();
    let apis =
        input.apis.unwrap_or(Apis { prometheus: true, service_monitor: true, vertical_pod_autoscaler: true });
    let desired = kai_operator::desired(Some(&config), &shards, &Facts { apis, ..Facts::default() });
    let of_config = desired.config.iter().map(|operand| (format!("Config {CONFIG}"), operand));
    let of_shards = desired.shards.iter().map(|(name, operand)| (format!("SchedulingShard {name}"), operand));
    let mut configs = Vec::new();
    for (subject, operand) in of_config.chain(of_shards) {
        if let Some(error) = operand.error.as_ref().filter(|_| !is_about_certificates(operand)) {
            let finding = Finding::new(Level::Unsupported, "O01", subject.clone()).message(error.clone());
            findings
                .push(finding.action("correct the field: the operator deploys nothing for it until then"));
        }
        for missing in &operand.missing {
            let finding = Finding::new(Level::Unsupported, "dependency", subject.clone());
            let message = format!("{} needs what the cluster does not serve: {missing}", operand.name);
            findings.push(finding.message(message).action("install it, or switch the setting off"));
        }
        for notice in &operand.notices {
            let finding = Finding::new(Level::Note, "no-effect", subject.clone()).message(notice.clone());
            findings.push(finding.action("remove it; KAI ignores it, too"));
        }
        for text in operand.objects.iter().filter_map(configuration) {
            check_configuration(&subject, text, plugins, &mut configs, findings);
        }
    }
    configs
}

/// The operator creates missing certificates; here there are none.
fn is_about_certificates(operand: &kai_operator::Operand) -> bool {
    operand.error.as_deref().is_some_and(|error| error.contains("certificate"))
}

/// The configuration file of a scheduler.
fn configuration(object: &Value) -> Option<&str> {
    let is_map = kai_object::kind(object) == "ConfigMap";
    object.pointer("/data/config.yaml").and_then(Value::as_str).filter(|_| is_map)
}

fn check_configuration(
    subject: &str,
    text: &str,
    plugins: &PluginSet,
    configs: &mut Vec<SchedulerConfig>,
    findings: &mut Vec<Finding>,
) {
    match config_file::read(text, plugins) {
        Ok(config) => {
            for warning in &config.warnings {
                let finding = Finding::new(Level::Note, "no-effect", subject).message(warning.clone());
                findings.push(finding.action("remove it, unless your own build has a plugin that reads it"));
            }
            configs.push(config);
        }
        Err(error) => {
            let finding = Finding::new(Level::Unsupported, "settings", subject).message(error.to_string());
            let action = "remove it, or build the plugin or action into your own scheduler (docs/plugins.md)";
            findings.push(finding.action(action));
        }
    }
}

/// The rules over the input of a cycle, for the configuration of every shard.
fn check_cycles(objects: &[Value], configs: &[SchedulerConfig], findings: &mut Vec<Finding>) {
    let decoded = decode(objects, findings);
    let settings = Settings {
        device_claims: decoded.count(Kind::DeviceClass) > 0,
        numa_zones: decoded.count(Kind::NodeResourceTopology) > 0,
        ..Settings::default()
    };
    let mut deltas: Vec<Delta> = Vec::new();
    Store::of(settings, decoded).drain(|delta| deltas.push(delta));
    if deltas.is_empty() {
        return;
    }
    let default = [SchedulerConfig::default()];
    for config in if configs.is_empty() { &default } else { configs } {
        let facts = scheduling::Facts {
            deltas: &deltas,
            config: &config.engine,
            max_consolidation_victims: Params::default().max_consolidation_victims,
        };
        for rule in scheduling::DIFFERENCES.iter().filter(|rule| (rule.holds)(&facts)) {
            findings.extend(Finding::of_rule(rule.id, &["pods, groups, queues and nodes".to_owned()]));
        }
    }
}

/// The objects that a scheduler reads.
fn decode(objects: &[Value], findings: &mut Vec<Finding>) -> Objects {
    let mut lists: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in objects {
        let kind = Kind::ALL.iter().find(|kind| kind.name() == kai_object::kind(object));
        let Some(kind) = kind else { continue };
        // One object that cannot be read would keep all of them from being read.
        match read_lists(&json!({kind.list_key(): [object]})) {
            Ok(_) => lists.entry(kind.list_key()).or_default().push(object),
            Err(error) => {
                let finding = Finding::new(Level::Unsupported, "unreadable", subject(object));
                findings.push(finding.message(error).action("correct it; it is ignored until then"));
            }
        }
    }
    read_lists(&json!(lists)).unwrap_or_default()
}

/// The objects in lists by kind, as a snapshot has them.
fn read_lists(lists: &Value) -> Result<Objects, String> {
    let text = json!({"rawObjects": lists}).to_string();
    let read = snapshot::read_objects("object", Cursor::new(text.as_bytes()), Limits::default());
    read.map_err(|error| error.to_string())
}

/// Such as `Pod team-a/train`.
pub(crate) fn subject(object: &Value) -> String {
    let (kind, name) = (kai_object::kind(object), kai_object::name(object));
    match kai_object::namespace(object) {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests;
