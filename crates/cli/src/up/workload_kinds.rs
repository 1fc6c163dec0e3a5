//! The custom resources of `kai up --with`: kinds of other projects, so that their manifests can be applied. The definitions
//! accept any field, and no controller creates the pods of these objects.

use anyhow::{Context, Result};
use clap::ValueEnum;
use kai_podgrouper::table::TABLE;
use kai_runtime::api::Api;
use kai_runtime::kind::CUSTOM_RESOURCE_DEFINITION;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A project whose kinds can be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Project {
    /// PyTorchJob, TFJob, MPIJob, JAXJob, XGBoostJob, TrainJob, Notebook and so on.
    Kubeflow,
    /// RayCluster, RayJob and RayService.
    Ray,
    /// JobSet.
    Jobset,
    /// LeaderWorkerSet.
    Lws,
    /// ServiceMonitor, PodMonitor and PrometheusRule.
    Prometheus,
}

/// Kinds of monitoring, which create no pods: plural and kind.
const MONITORS: [(&str, &str); 3] = [
    ("servicemonitors", "ServiceMonitor"),
    ("podmonitors", "PodMonitor"),
    ("prometheusrules", "PrometheusRule"),
];

impl Project {
    fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Kubeflow => &["kubeflow.org", "trainer.kubeflow.org"],
            Self::Ray => &["ray.io"],
            Self::Jobset => &["jobset.x-k8s.io"],
            Self::Lws => &["leaderworkerset.x-k8s.io"],
            Self::Prometheus => &["monitoring.coreos.com"],
        }
    }
}

pub(super) async fn install(api: &Api, projects: &[Project]) -> Result<()> {
    for definition in projects.iter().flat_map(|project| definitions(*project)) {
        api.ensure_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &definition)
            .await
            .with_context(|| format!("cannot create definition `{}`", kai_object::name(&definition)))?;
    }
    Ok(())
}

/// The kinds of the project that the pod grouper knows, in all of their versions, and those of monitoring.
fn definitions(project: Project) -> Vec<Value> {
    let mut all: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for group in project.groups() {
        for entry in TABLE.iter().filter(|entry| entry.group == *group) {
            all.entry((entry.group, entry.plural, entry.kind)).or_default().extend(entry.version);
        }
        if project == Project::Prometheus {
            all.extend(MONITORS.map(|(plural, kind)| ((*group, plural, kind), vec!["v1"])));
        }
    }
    all.into_iter()
        .map(|((group, plural, kind), versions)| definition(group, plural, kind, &versions))
        .collect()
}

fn definition(group: &str, plural: &str, kind: &str, versions: &[&str]) -> Value {
    // The newest comes last in the table, but for alpha and beta versions.
    let stored = versions.iter().find(|version| **version == "v1").or(versions.last());
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": any, "status": any},
        "x-kubernetes-preserve-unknown-fields": true});
    let version = |version: &&str| {
        json!({"name": version, "served": true, "storage": Some(version) == stored,
            "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}})
    };
    json!({
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version(), "kind": &*CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_sim::Cluster;

    #[tokio::test(start_paused = true)]
    async fn manifests_of_every_project_are_accepted_with_all_their_fields() {
        let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
        let cluster = Cluster::builder().starting_at(epoch).start().await.expect("it starts");
        install(cluster.api(), Project::value_variants()).await.expect("the definitions are valid");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for (group, version, kind, plural) in [
            ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
            ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
            ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
            ("ray.io", "v1", "RayJob", "rayjobs"),
            ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
            ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        ] {
            let kind = kai_runtime::kind::untyped(group, version, kind, plural, true);
            let object = json!({"apiVersion": kind.api_version(), "kind": &*kind.kind,
                "metadata": {"name": "a", "namespace": "default"}, "spec": {"deep": {"field": [1, {"a": "b"}]}}});
            cluster.api().ensure_dynamic(&kind, "default", &object).await.expect("it is created");
            let stored = cluster.api().list_dynamic(&kind, "default").await.expect("it is served");
            assert_eq!(stored.items[0]["spec"], object["spec"], "{plural}");
        }
    }
}
