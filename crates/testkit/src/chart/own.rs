//! Checks of the chart that need no recording: values that KAI's installations have, and what only our chart has.

use super::values::values_of_kai;
use super::{Renderer, render_values};
use crate::session::{CaseOutcome, CaseResult};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

type Objects = BTreeMap<String, Value>;
type Check<'a> = fn(&Checks<'a>) -> Result<()>;

struct Checks<'a> {
    renderer: &'a Renderer,
    /// The values of KAI's chart, where there is a file with them.
    recorded_values: Option<PathBuf>,
}

/// Runs all checks. `recorded_values` is a file with the values of KAI's chart.
pub(super) fn run(renderer: &Renderer, recorded_values: Option<PathBuf>) -> Vec<CaseResult> {
    let checks = Checks { renderer, recorded_values };
    let all: [(&str, Check<'_>); 11] = [
        ("lint", Checks::lint),
        ("values-of-kai", Checks::values_of_kai_are_known),
        ("values-file-of-kai", Checks::values_file_of_kai),
        ("reused-values", Checks::reused_values),
        ("monitoring", Checks::monitoring),
        ("affinities", Checks::affinities),
        ("labels", Checks::labels),
        ("pull-policy", Checks::pull_policy),
        ("refused-keys", Checks::refused_keys),
        ("kept-namespaces", Checks::kept_namespaces),
        ("topology", Checks::topology),
    ];
    let results = all.into_iter().map(|(id, check)| {
        let outcome = match check(&checks) {
            Ok(()) => CaseOutcome::Passed,
            Err(error) => CaseOutcome::Failed(format!("    {error:#}\n")),
        };
        CaseResult { area: super::AREA.to_owned(), id: format!("chart/own/{id}"), outcome }
    });
    results.collect()
}

/// Keys of objects that are not the same in both.
fn differing(one: &Objects, other: &Objects) -> Vec<String> {
    let keys = one.keys().chain(other.keys());
    let mut differing: Vec<String> = keys.filter(|key| one.get(*key) != other.get(*key)).cloned().collect();
    differing.sort();
    differing.dedup();
    differing
}

fn containers(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/spec/template/spec/containers").and_then(Value::as_array).into_iter().flatten()
}

impl Checks<'_> {
    fn render(&self, values: &Value) -> Result<Objects> {
        match render_values(self.renderer, &self.renderer.chart, values)? {
            Ok(objects) => Ok(objects),
            Err(error) => bail!("{values}: {error}"),
        }
    }

    fn own_values(&self) -> Result<Value> {
        read_values(&self.renderer.chart.join("values.yaml"))
    }

    fn lint(&self) -> Result<()> {
        let output =
            Command::new(&self.renderer.helm).arg("lint").arg("--strict").arg(&self.renderer.chart).output();
        let output = output.context("cannot run helm")?;
        ensure!(output.status.success(), "helm lint: {}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    }

    /// KAI's chart leaves out what exists, so helm would delete it with all that is in it on the way back.
    fn kept_namespaces(&self) -> Result<()> {
        // With another annotation, the one that is looked for is not left out of what is compared with KAI.
        let annotations = json!({"contact": "us"});
        let objects = self
            .render(&json!({"global": {"clusterAutoscaling": true, "additionalAnnotations": annotations}}))?;
        let namespaces: Vec<&Value> =
            objects.values().filter(|object| kai_object::kind(object) == "Namespace").collect();
        ensure!(namespaces.len() == 2, "of reservation and of scaling pods: {namespaces:?}");
        for namespace in namespaces {
            let policy = kai_object::str_at(namespace, "/metadata/annotations/helm.sh~1resource-policy");
            ensure!(policy == "keep", "{}: resource policy `{policy}`", kai_object::name(namespace));
        }
        Ok(())
    }

    /// What we take for KAI's values are its values.
    fn values_of_kai_are_known(&self) -> Result<()> {
        let Some(file) = &self.recorded_values else { return Ok(()) };
        let (theirs, made) = (read_values(file)?, values_of_kai(&self.own_values()?));
        let mut found = Vec::new();
        crate::recorded::differences(
            "values",
            &theirs,
            &made,
            &mut |place: &str, kai: &Value, ours: &Value| {
                found.push(format!("{place}: KAI {kai}, here {ours}"));
            },
        );
        ensure!(found.is_empty(), "{}", found.join("\n    "));
        Ok(())
    }

    /// `helm upgrade -f VALUES` with all values of KAI changes nothing.
    fn values_file_of_kai(&self) -> Result<()> {
        let values = match &self.recorded_values {
            Some(file) => read_values(file)?,
            None => values_of_kai(&self.own_values()?),
        };
        let differing = differing(&self.render(&json!({}))?, &self.render(&values)?);
        ensure!(differing.is_empty(), "{differing:?} differ");
        Ok(())
    }

    /// `helm upgrade --reuse-values` from KAI: our chart without any of its own values.
    fn reused_values(&self) -> Result<()> {
        let chart = std::env::temp_dir().join(format!("kai-reused-values-{}", std::process::id()));
        copy(&self.renderer.chart, &chart)?;
        let checked = self.reused_values_in(&chart);
        std::fs::remove_dir_all(&chart).context("cannot remove the copy of the chart")?;
        checked
    }

    fn reused_values_in(&self, chart: &Path) -> Result<()> {
        let values = values_of_kai(&self.own_values()?);
        let file = chart.join("values.yaml");
        std::fs::write(&file, values.to_string()).context("cannot write values")?;
        let wanted = self.render(&json!({}))?;
        // What is only ours can be switched on beside them.
        let monitoring = json!({"monitoring": {
            "serviceMonitors": {"enabled": true}, "alerts": {"enabled": true}, "dashboards": {"enabled": true},
        }});
        for (values, own) in [(json!({}), wanted), (monitoring.clone(), self.render(&monitoring)?)] {
            match render_values(self.renderer, chart, &values)? {
                Ok(objects) => {
                    let differing = differing(&own, &objects);
                    ensure!(differing.is_empty(), "{values}: {differing:?} differ");
                }
                Err(error) => bail!("{values}: {error}"),
            }
        }
        Ok(())
    }

    /// Every part of monitoring alone and with the others.
    fn monitoring(&self) -> Result<()> {
        let plain = self.render(&json!({}))?.len();
        // How many objects each part has.
        let mut sizes = [0; 3];
        for chosen in 1..8_usize {
            let [monitors, alerts, dashboards] = [1, 2, 4].map(|part| chosen & part != 0);
            let objects = self.render(&json!({"monitoring": {
                "serviceMonitors": {"enabled": monitors, "labels": {"release": "stack"}},
                "alerts": {"enabled": alerts, "labels": {"release": "stack"}},
                "dashboards": {"enabled": dashboards, "namespace": "grafana"},
            }}))?;
            let added = objects.len() - plain;
            let parts: Vec<usize> = (0..3).filter(|part| chosen & (1 << part) != 0).collect();
            if let [part] = parts[..] {
                sizes[part] = added;
                ensure!(added > 0, "part {part} of monitoring has no object");
            }
            let wanted: usize = parts.iter().map(|part| sizes[*part]).sum();
            ensure!(added == wanted, "combination {chosen} of monitoring has {added} objects, not {wanted}");
            for (key, object) in objects.iter().filter(|(key, _)| key.contains("/grafana/")) {
                let files = object.get("data").and_then(Value::as_object).into_iter().flatten();
                for (name, text) in files {
                    let text = text.as_str().unwrap_or_default();
                    let _: Value =
                        serde_json::from_str(text).with_context(|| format!("{key}: `{name}` is not JSON"))?;
                }
            }
        }
        Ok(())
    }

    /// Affinities of operator and hooks take effect, in place of the global one.
    fn affinities(&self) -> Result<()> {
        let of = |zone: &str| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}],
            }}})
        };
        let own = [
            ("operator", "Deployment/kai-scheduler/kai-operator"),
            ("crdupgrader", "Job/kai-scheduler/crd-upgrader"),
            ("kaiConfigDeployer", "Job/kai-scheduler/kai-config-deployer"),
            ("topologyMigration", "Job/kai-scheduler/topology-migration"),
            ("postCleanup", "Job/kai-scheduler/post-delete-cleanup"),
        ];
        let mut values = json!({"global": {"affinity": of("all")}});
        let global = self.render(&values)?;
        for (section, _) in own {
            values[section] = json!({"affinity": of(section)});
        }
        let set = self.render(&values)?;
        for (section, key) in own {
            for (objects, zone) in [(&global, "all"), (&set, section)] {
                let found =
                    objects.get(key).and_then(|object| object.pointer("/spec/template/spec/affinity"));
                ensure!(found == Some(&of(zone)), "{key} with the affinity of {zone}: {found:?}");
            }
        }
        Ok(())
    }

    /// Additional labels and annotations are on every object and on every pod template.
    fn labels(&self) -> Result<()> {
        let objects = self.render(&json!({
            "global": {"additionalLabels": {"team": "ours"}, "additionalAnnotations": {"contact": "us"}, "clusterAutoscaling": true},
            "monitoring": {
                "serviceMonitors": {"enabled": true}, "alerts": {"enabled": true}, "dashboards": {"enabled": true},
            },
            "prometheus": {"enabled": true}, "openshift": true,
        }))?;
        for (key, object) in objects.iter().filter(|(_, object)| object.is_object()) {
            let template = object.pointer("/spec/template/metadata");
            for metadata in object.get("metadata").into_iter().chain(template) {
                ensure!(metadata.pointer("/labels/team") == Some(&json!("ours")), "{key}: {metadata}");
                ensure!(metadata.pointer("/annotations/contact") == Some(&json!("us")), "{key}: {metadata}");
            }
        }
        Ok(())
    }

    /// The global pull policy holds for every image; one of its own goes before it.
    fn pull_policy(&self) -> Result<()> {
        let values =
            json!({"global": {"imagePullPolicy": "Always"}, "binder": {"image": {"pullPolicy": "Never"}}});
        let objects = self.render(&values)?;
        for (key, object) in &objects {
            for container in containers(object) {
                ensure!(container["imagePullPolicy"] == "Always", "{key}: {container}");
            }
        }
        let manifest = objects.get("ConfigMap/kai-scheduler/kai-config-manifest").context("no Config")?;
        let config = manifest.pointer("/data/kai-config.yaml").and_then(Value::as_str).unwrap_or_default();
        let config: Value = serde_saphyr::from_str(config).context("the Config is not YAML")?;
        let policy =
            |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        ensure!(policy("/spec/binder/service/image/pullPolicy") == "Never", "{config}");
        for pointer in [
            "/spec/scheduler/service/image/pullPolicy",
            "/spec/binder/resourceReservation/image/pullPolicy",
            "/spec/nodeScaleAdjuster/args/scalingPodImage/pullPolicy",
        ] {
            ensure!(policy(pointer) == "Always", "{pointer}: {config}");
        }
        Ok(())
    }

    /// Each topology grants the rights of its own processes, and tells the operator.
    fn topology(&self) -> Result<()> {
        let monitors = json!({"serviceMonitors": {"enabled": true}});
        let members = [
            "kai-admission",
            "kai-binder",
            "kai-podgroup-controller",
            "kai-podgrouper",
            "kai-queuecontroller",
            "kai-scheduler",
        ];
        for (topology, is_combined) in [("separate", false), ("combined", true)] {
            let values = json!({"topology": topology, "openshift": true, "monitoring": monitors});
            let objects = self.render(&values)?;
            let has = |name: &str| objects.contains_key(&format!("ClusterRoleBinding/{name}"));
            ensure!(has("kai-all") == is_combined, "{topology}: kai-all");
            for name in members {
                ensure!(has(name) != is_combined, "{topology}: {name}");
            }
            ensure!(
                has("kai-operator") && has("kai-node-scale-adjuster"),
                "{topology}: processes of their own"
            );
            let constraints =
                objects.get("SecurityContextConstraints/kai-system").context("no constraints")?;
            let user = json!("system:serviceaccount:kai-scheduler:kai-all");
            let users = constraints.pointer("/users").and_then(Value::as_array);
            ensure!(users.is_some_and(|users| users.contains(&user) == is_combined), "{constraints}");
            let manifest = objects.get("ConfigMap/kai-scheduler/kai-config-manifest").context("no Config")?;
            let manifest =
                manifest.pointer("/data/kai-config.yaml").and_then(Value::as_str).unwrap_or_default();
            let rendered = self.render(&json!({
                "topology": topology, "kaiConfig": {"render": true}, "kaiConfigDeployer": {"enabled": false},
            }))?;
            let applied: Value = serde_saphyr::from_str(manifest).context("the Config is not YAML")?;
            let rendered = rendered.get("Config/kai-config").context("the Config is not rendered")?;
            for config in [&applied, rendered] {
                let found = config.pointer("/metadata/annotations/kai.scheduler~1process-topology");
                ensure!(found == is_combined.then(|| json!("combined")).as_ref(), "{topology}: {found:?}");
            }
            let has_service = objects.contains_key("Service/kai-scheduler/pod-grouper-metrics");
            ensure!(has_service != is_combined, "{topology}: the pods of the pod grouper");
        }
        match render_values(self.renderer, &self.renderer.chart, &json!({"topology": "both"}))? {
            Err(error) if error.contains("topology") => Ok(()),
            other => bail!("an unknown topology: {other:?}"),
        }
    }

    /// A key that guides name is refused with a sentence that names it and the right one.
    fn refused_keys(&self) -> Result<()> {
        let refused = [
            (
                json!({"binder": {"resourceReservation": {"runtimeClassName": "nvidia"}}}),
                "set binder.runtimeClassName",
            ),
            (json!({"binder": {"additionalArgs": ["--x"]}}), "binder.additionalArgs has no effect"),
            (json!({"scheduler": {"additionalArgs": ["--x"]}}), "scheduler.args"),
            (json!({"podgrouper": {"additionalArgs": ["--x"]}}), "podgrouper.additionalArgs has no effect"),
            (json!({"global": {"imagesPullSecret": "s"}}), "global.imagePullSecrets"),
        ];
        for (values, text) in refused {
            match render_values(self.renderer, &self.renderer.chart, &values)? {
                Err(error) if error.contains(text) => {}
                Err(error) => bail!("{values} is refused without `{text}`: {error}"),
                Ok(_) => bail!("{values} is not refused"),
            }
        }
        Ok(())
    }
}

fn read_values(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("`{}` is not YAML", file.display()))
}

/// Copies a folder; links are followed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make `{}`", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read `{}`", from.display()))? {
        let entry = entry.context("cannot read a folder")?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            std::fs::copy(&path, &to).with_context(|| format!("cannot copy `{}`", path.display()))?;
        }
    }
    Ok(())
}
