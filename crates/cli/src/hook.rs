//! `kai hook`: what the hooks of the chart do around an installation.
//!
//! Every command may be repeated: a hook that failed half-way is run again by its Job.

use crate::args::{Hook, HookCommand};
use anyhow::{Context, Result, bail};
use kai_api::crds;
use kai_api::well_known::{annotation, label, label_value};
use kai_components::COMPONENTS;
use kai_runtime::api::Api;
use kai_runtime::connect;
use kai_runtime::url::query_value;
use serde_json::{Map, Value, json};
use std::path::Path;

const USER_AGENT: &str = "kai-hook";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIGS: &str = "/apis/kai.scheduler/v1/configs";
const TOPOLOGIES: &str = "/apis/kai.scheduler/v1alpha1/topologies";
const KUEUE: &str = "kueue.x-k8s.io";
/// Kinds that the operator creates for shards besides Deployments.
const OF_SHARDS: [(&str, &str); 5] = [
    ("api/v1", "configmaps"),
    ("api/v1", "services"),
    ("apis/discovery.k8s.io/v1", "endpointslices"),
    ("apis/policy/v1", "poddisruptionbudgets"),
    ("apis/autoscaling.k8s.io/v1", "verticalpodautoscalers"),
];
/// Start of the annotations that made the `Config` a hook in old versions: helm would delete it with the hook.
const HOOK_ANNOTATION: &str = "helm.sh/hook";

/// Does what a hook is for, and says what was done.
pub(crate) fn run(args: &Hook) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(async {
        let config = connect::config(args.kubeconfig.clone(), None).await?;
        let api = Api::new(connect::client(config)?, USER_AGENT);
        perform(&api, &args.command).await
    })
}

async fn perform(api: &Api, command: &HookCommand) -> Result<String> {
    match command {
        HookCommand::Crds => apply_crds(api).await,
        HookCommand::Config { file } => apply_config(api, file).await,
        HookCommand::Topologies => copy_topologies(api).await,
        HookCommand::Cleanup { namespace, config } => clean_up(api, namespace, config.as_deref()).await,
    }
}

fn lines(done: &[String]) -> String {
    done.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// Applies the custom resource definitions; helm itself only creates them.
async fn apply_crds(api: &Api) -> Result<String> {
    let mut done = Vec::new();
    for definition in crds::crds() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let object = serde_json::to_value(&definition).context("a definition serialises")?;
        apply(api, &format!("{CRDS}/{name}"), "kai-crd-manager", &object)
            .await
            .with_context(|| format!("cannot apply custom resource definition `{name}`"))?;
        done.push(format!("applied custom resource definition {name}"));
    }
    Ok(lines(&done))
}

/// Applies the `Config` in a file; it keeps its identity, and with it everything that it owns.
async fn apply_config(api: &Api, file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let object: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("`{}` is not YAML", file.display()))?;
    let name = kai_object::name(&object).to_owned();
    if kai_object::kind(&object) != "Config" || name.is_empty() {
        bail!("`{}` does not contain a Config with a name", file.display());
    }
    let path = format!("{CONFIGS}/{name}");
    match api.send("GET", &path, None).await {
        Ok(existing) => drop_hook_annotations(api, &path, &existing).await?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read Config `{name}`")),
    }
    apply(api, &path, "kai-config-deployer", &object)
        .await
        .with_context(|| format!("cannot apply Config `{name}`"))?;
    Ok(format!("applied Config {name}\n"))
}

async fn drop_hook_annotations(api: &Api, path: &str, existing: &Value) -> Result<()> {
    let annotations = kai_object::meta(existing, "annotations").and_then(Value::as_object);
    let names = annotations.into_iter().flat_map(|annotations| annotations.keys());
    let gone: Map<String, Value> = names
        .filter(|name| name.starts_with(HOOK_ANNOTATION))
        .map(|name| (name.clone(), Value::Null))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": gone}});
    api.send("PATCH", path, Some((MERGE_PATCH, &patch)))
        .await
        .context("cannot remove the annotations that made the Config a hook")?;
    Ok(())
}

/// Creates a Topology for each of Kueue's that has none of its name.
async fn copy_topologies(api: &Api) -> Result<String> {
    let group = match api.send("GET", &format!("/apis/{KUEUE}"), None).await {
        Ok(group) => group,
        Err(error) if error.is_not_found() => return Ok("the cluster has no Kueue\n".to_owned()),
        Err(error) => return Err(error).context("cannot ask for the versions of Kueue"),
    };
    let version = kai_object::str_at(&group, "/preferredVersion/groupVersion");
    let list = match api.send("GET", &format!("/apis/{version}/topologies"), None).await {
        Ok(list) => list,
        Err(error) if error.is_not_found() => return Ok("Kueue has no topologies\n".to_owned()),
        Err(error) => return Err(error).context("cannot list the topologies of Kueue"),
    };
    let mut done = Vec::new();
    for theirs in list.get("items").and_then(Value::as_array).into_iter().flatten() {
        let name = kai_object::name(theirs);
        match api.send("POST", TOPOLOGIES, Some(("application/json", &topology(theirs)))).await {
            Ok(_) => done.push(format!("created Topology {name}")),
            Err(error) if error.is_conflict() => done.push(format!("Topology {name} exists")),
            // One that cannot be copied must not keep the others, and the installation, from being made.
            Err(error) => done.push(format!("Topology {name} cannot be created: {error}")),
        }
    }
    Ok(lines(&done))
}

/// Our Topology with the levels of one of Kueue's.
fn topology(theirs: &Value) -> Value {
    let levels = theirs.pointer("/spec/levels").and_then(Value::as_array).into_iter().flatten();
    let levels: Vec<Value> = levels.map(|level| json!({"nodeLabel": level.get("nodeLabel")})).collect();
    let mut metadata = json!({
        "name": kai_object::name(theirs),
        "annotations": {annotation::MIGRATED_FROM: format!("{KUEUE}/Topology")},
    });
    if let Some(labels) = kai_object::meta(theirs, "labels") {
        metadata["labels"] = labels.clone();
    }
    json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology",
        "metadata": metadata, "spec": {"levels": levels},
    })
}

/// Deletes the Deployments that the operator made, what else it made for shards, which stay, and the `Config` if the chart
/// made it; the garbage collector follows.
async fn clean_up(api: &Api, namespace: &str, config: Option<&str>) -> Result<String> {
    let mut done = Vec::new();
    let managed = format!("{}={}", label::MANAGED_BY, label_value::KAI_OPERATOR);
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let query = format!("?labelSelector={}", query_value(&managed));
    let deployed = api.send("GET", &format!("{deployments}{query}"), None).await;
    let deployed = deployed.with_context(|| format!("cannot list `{deployments}`"))?;
    delete_listed(api, &deployments, &query, |_| true, &mut done).await?;
    for lease in leases(&deployed) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        delete(api, &path).await.with_context(|| format!("cannot delete `{path}`"))?;
    }
    for (group, plural) in OF_SHARDS {
        let path = format!("/{group}/namespaces/{namespace}/{plural}");
        delete_listed(api, &path, "", belongs_to_shard, &mut done).await?;
    }
    if let Some(name) = config {
        delete(api, &format!("{CONFIGS}/{name}"))
            .await
            .with_context(|| format!("cannot delete Config `{name}`"))?;
        done.push(format!("deleted Config {name}"));
    }
    Ok(lines(&done))
}

/// Names of the leases of all components, and of the schedulers in a list of Deployments: each shard has one of its own.
fn leases(deployments: &Value) -> Vec<String> {
    let mut names: Vec<String> =
        COMPONENTS.iter().filter_map(|spec| spec.lease.as_ref()).map(|lease| lease.name.to_owned()).collect();
    for deployment in deployments.get("items").and_then(Value::as_array).into_iter().flatten() {
        let args = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
        // One process may have schedulers of several shards; each has both flags, in this order.
        let mut scheduler = "";
        for arg in args.into_iter().flatten().filter_map(Value::as_str) {
            match arg.split_once('=') {
                Some(("--scheduler-name", name)) => scheduler = name,
                Some(("--partition-label-value", "")) => names.push(scheduler.to_owned()),
                Some(("--partition-label-value", pool)) => names.push(format!("{scheduler}-{pool}")),
                _ => {}
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Deletes those objects of a list that `is_ours` picks.
async fn delete_listed(
    api: &Api,
    path: &str,
    query: &str,
    is_ours: fn(&Value) -> bool,
    done: &mut Vec<String>,
) -> Result<()> {
    let list = match api.send("GET", &format!("{path}{query}"), None).await {
        Ok(list) => list,
        // An optional API.
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list `{path}`")),
    };
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    for object in items.filter(|object| is_ours(object)) {
        let path = format!("{path}/{}", kai_object::name(object));
        delete(api, &path).await.with_context(|| format!("cannot delete `{path}`"))?;
        done.push(format!("deleted {path}"));
    }
    Ok(())
}

fn belongs_to_shard(object: &Value) -> bool {
    let owners = kai_object::meta(object, "ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        kai_object::str_at(owner, "/kind") == "SchedulingShard"
            && kai_object::str_at(owner, "/apiVersion").starts_with("kai.scheduler/")
    })
}

async fn delete(api: &Api, path: &str) -> Result<()> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    match api.send("DELETE", path, Some(("application/json", &options))).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

async fn apply(api: &Api, path: &str, manager: &str, object: &Value) -> Result<()> {
    api.send("PATCH", &format!("{path}?fieldManager={manager}&force=true"), Some((APPLY, object))).await?;
    Ok(())
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use kai_sim::Cluster;

    async fn get(api: &Api, path: &str) -> Value {
        api.send("GET", path, None).await.expect("the object exists")
    }

    #[test]
    fn leases_of_all_components_and_shards_are_known() {
        let scheduler = |partition: &str| {
            let args = ["--scheduler-name=ours".to_owned(), format!("--partition-label-value={partition}")];
            json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}})
        };
        let names = leases(&json!({"items": [scheduler(""), scheduler("fast")]}));
        for lease in ["ours", "ours-fast", "kai-scheduler"] {
            assert!(names.iter().any(|name| name == lease), "{lease} is not in {names:?}");
        }
        let args = [
            "--partition-label-value=",
            "scheduler",
            "--scheduler-name=ours",
            "--partition-label-value=slow",
        ];
        let args: Vec<&str> = ["scheduler", "--scheduler-name=ours"].into_iter().chain(args).collect();
        let one_process = json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}});
        let names = leases(&json!({"items": [one_process]}));
        for lease in ["ours", "ours-slow"] {
            assert!(names.iter().any(|name| name == lease), "{lease} is not in {names:?}");
        }
    }

    #[tokio::test]
    async fn hooks_of_an_installation_can_be_repeated() {
        let cluster = Cluster::builder().without_controllers().start().await.expect("the cluster starts");
        let api = cluster.api();
        for _ in 0..2 {
            let done = perform(api, &HookCommand::Crds).await.expect("definitions are applied");
            assert_eq!(done.lines().count(), 6, "{done}");
        }
        let file = std::env::temp_dir().join(format!("kai-hook-{}.yaml", std::process::id()));
        let config = "apiVersion: kai.scheduler/v1\nkind: Config\nmetadata:\n  name: kai-config\nspec:\n  namespace: kai\n";
        std::fs::write(&file, config).expect("the file can be written");
        let command = HookCommand::Config { file: file.clone() };
        perform(api, &command).await.expect("the Config is applied");
        let path = format!("{CONFIGS}/kai-config");
        let uid = kai_object::uid(&get(api, &path).await).to_owned();
        let as_hook = json!({"metadata": {"annotations": {"helm.sh/hook": "post-install", "mine": "1"}}});
        api.send("PATCH", &path, Some((MERGE_PATCH, &as_hook))).await.expect("it can be patched");
        perform(api, &command).await.expect("the Config is applied again");
        std::fs::remove_file(&file).expect("the file was there");
        let config = get(api, &path).await;
        assert_eq!(kai_object::uid(&config), uid, "it keeps its identity");
        assert_eq!(config["metadata"]["annotations"], json!({"mine": "1"}));
        let maps = "/api/v1/namespaces/kai/configmaps";
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai"}});
        let create = async |path: &str, object: &Value| {
            api.send("POST", path, Some(("application/json", object))).await.expect("it can be created")
        };
        create("/api/v1/namespaces", &namespace).await;
        let map = |name: &str, kind: &str| {
            let owner =
                json!({"apiVersion": "kai.scheduler/v1", "kind": kind, "name": "default", "uid": "1"});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}})
        };
        create(maps, &map("of-the-shard", "SchedulingShard")).await;
        create(maps, &map("of-another", "Other")).await;
        let slices = "/apis/discovery.k8s.io/v1/namespaces/kai/endpointslices";
        let mut leader = map("kai-scheduler-default-leader", "SchedulingShard");
        for (field, value) in
            [("apiVersion", "discovery.k8s.io/v1"), ("kind", "EndpointSlice"), ("addressType", "IPv4")]
        {
            leader[field] = Value::from(value);
        }
        leader["endpoints"] = json!([]);
        create(slices, &leader).await;
        let command =
            HookCommand::Cleanup { namespace: "kai".to_owned(), config: Some("kai-config".to_owned()) };
        for _ in 0..2 {
            perform(api, &command).await.expect("everything is removed");
        }
        assert!(api.send("GET", &path, None).await.is_err());
        assert!(api.send("GET", &format!("{maps}/of-the-shard"), None).await.is_err());
        assert!(api.send("GET", &format!("{slices}/kai-scheduler-default-leader"), None).await.is_err());
        get(api, &format!("{maps}/of-another")).await;
    }

    #[tokio::test]
    async fn cluster_without_kueue_needs_no_migration() {
        let cluster = Cluster::builder().without_controllers().start().await.expect("the cluster starts");
        let done = perform(cluster.api(), &HookCommand::Topologies).await.expect("nothing to do");
        assert_eq!(done, "the cluster has no Kueue\n");
    }

    #[test]
    fn topology_of_kueue_keeps_labels_and_levels() {
        let theirs = json!({
            "metadata": {"name": "t", "labels": {"a": "b"}, "annotations": {"x": "y"}},
            "spec": {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]},
        });
        let ours = topology(&theirs);
        assert_eq!(ours["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(
            ours["metadata"]["annotations"],
            json!({"kai.scheduler/migrated-from": "kueue.x-k8s.io/Topology"})
        );
        assert_eq!(ours["spec"], theirs["spec"]);
    }
}
