//! Replays what helm rendered from KAI's chart for sets of values.
//!
//! Rights are not compared: ours are minimal, and tests on a real control plane prove them. Nor are the commands of
//! hooks: ours are subcommands of our own program. Intended differences are rules over the values ([`difference`]). What no
//! recording shows is checked besides (`own`).

pub mod difference;
mod normalise;
mod own;
mod values;

pub use values::values_of_kai;

use crate::recorded;
use crate::session::{CaseOutcome, CaseResult};
use anyhow::{Context, Result, bail};
use difference::{Mismatch, RENDERS};
use normalise::{REGISTRY, by_key, normalise};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const AREA: &str = "chart";
const DEFAULT: &str = "default";

/// What renders the chart.
#[derive(Clone, Debug)]
pub struct Renderer {
    /// The program `helm`.
    pub helm: PathBuf,
    /// The folder of the chart.
    pub chart: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    input: Input,
    expect: Expected,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    release: String,
    namespace: String,
    #[serde(default)]
    helm_args: Vec<String>,
    #[serde(default)]
    values: Value,
    /// State of a real cluster that templates look objects up in.
    cluster: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Expected {
    #[serde(default)]
    objects: BTreeMap<String, Value>,
    /// Why rendering fails.
    error: Option<Value>,
}

/// Makes a cluster in the state that a text describes, with the objects of its second argument; returns its kubeconfig file.
pub type Serve<'a> = &'a dyn Fn(&[Value]) -> Result<PathBuf>;

/// Renders every case of a folder, in order of id, and runs the checks that need no recording. `serve` makes the clusters in
/// which templates look objects up.
pub fn run(folder: &Path, renderer: &Renderer, serve: Serve<'_>) -> Result<Vec<CaseResult>> {
    let cases: Vec<Case> = recorded::load(&folder.join("cases"))?;
    let default = cases.iter().find(|case| case.id == DEFAULT);
    let default = default.map(|case| case.expect.objects.clone()).unwrap_or_default();
    let results = cases.iter().map(|case| {
        let outcome = run_case(case, &default, renderer, serve)
            .unwrap_or_else(|error| CaseOutcome::Failed(format!("    {error:#}\n")));
        CaseResult { area: AREA.to_owned(), id: format!("chart/{}", case.id), outcome }
    });
    let mut results: Vec<CaseResult> = results.collect();
    let values = folder.join("../../spec/helm-values.yaml");
    results.extend(own::run(renderer, values.is_file().then_some(values)));
    Ok(results)
}

/// The objects of a cluster in the state that a case names.
fn state(cluster: &Value) -> Result<Vec<Value>> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let text = cluster.as_str().unwrap_or_default();
    let reservation = "kai-resource-reservation";
    if text.contains("clusterversions") {
        let (group, plural) = ("config.openshift.io", "clusterversions");
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        return Ok(vec![json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Cluster",
                "names": {"plural": plural, "singular": "clusterversion", "kind": "ClusterVersion", "listKind": "ClusterVersionList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })]);
    }
    if text.contains(reservation) {
        return Ok(vec![
            namespace(reservation),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": reservation, "namespace": reservation},
            }),
        ]);
    }
    if text.contains("kai-scale-adjust") {
        return Ok(vec![namespace("kai-scale-adjust")]);
    }
    bail!("the state `{text}` is unknown")
}

fn run_case(
    case: &Case,
    default: &BTreeMap<String, Value>,
    renderer: &Renderer,
    serve: Serve<'_>,
) -> Result<CaseOutcome> {
    let kubeconfig = match &case.input.cluster {
        Some(cluster) => Some(serve(&state(cluster)?)?),
        None => None,
    };
    // What a template finds in the cluster is as if the values said so.
    let mut values = case.input.values.clone();
    if case
        .input
        .cluster
        .as_ref()
        .and_then(Value::as_str)
        .is_some_and(|text| text.contains("clusterversions"))
    {
        kai_object::set(&mut values, &["openshift"], Value::from(true));
    }
    let mismatches = match (render(&case.input, renderer, kubeconfig.as_deref())?, &case.expect.error) {
        (Err(_), Some(_)) => Vec::new(),
        (Ok(_), Some(error)) => vec![Mismatch::new("rendering", error, &Value::from(RENDERS))],
        (Err(error), None) => vec![Mismatch::new("rendering", &Value::from(RENDERS), &Value::from(error))],
        (Ok(ours), None) => compare(case, default, &ours)?,
    };
    if mismatches.is_empty() {
        return Ok(CaseOutcome::Passed);
    }
    Ok(match difference::explain(&values, &mismatches) {
        Ok(id) => CaseOutcome::ByDesign(id),
        Err(unexplained) => {
            let lines: Vec<String> = unexplained.iter().map(|mismatch| format!("    {mismatch}")).collect();
            CaseOutcome::Failed(lines.join("\n") + "\n")
        }
    })
}

/// The objects of a chart with values of our own, by key, or what helm says is wrong.
fn render_values(
    renderer: &Renderer,
    chart: &Path,
    values: &Value,
) -> Result<Result<BTreeMap<String, Value>, String>> {
    let input = Input {
        release: "kai-scheduler".to_owned(),
        namespace: "kai-scheduler".to_owned(),
        helm_args: Vec::new(),
        values: values.clone(),
        cluster: None,
    };
    render(&input, &Renderer { chart: chart.to_owned(), ..renderer.clone() }, None)
}

/// The rendered objects by key, or what helm says is wrong.
fn render(
    input: &Input,
    renderer: &Renderer,
    kubeconfig: Option<&Path>,
) -> Result<Result<BTreeMap<String, Value>, String>> {
    let values = input.values.to_string().replace("<registry>", REGISTRY);
    let mut helm = Command::new(&renderer.helm);
    helm.args(["template", &input.release])
        .arg(&renderer.chart)
        .args(["--namespace", &input.namespace, "--values", "-"])
        .args(&input.helm_args);
    if let Some(file) = kubeconfig {
        helm.arg("--dry-run=server").arg("--kubeconfig").arg(file);
    }
    let mut helm = helm
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{}`", renderer.helm.display()))?;
    if let Some(mut stdin) = helm.stdin.take() {
        stdin.write_all(values.as_bytes()).context("cannot pass the values to helm")?;
    }
    let output = helm.wait_with_output().context("helm does not end")?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout).replace(REGISTRY, "<registry>");
    // The chart's version is the default tag of images; that of the recorded one was not set.
    let text = text.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    let mut objects = BTreeMap::new();
    for document in text.split("\n---\n") {
        // A definition is named only, and larger than the parser's limits.
        if document.contains("\nkind: CustomResourceDefinition") {
            let name = document.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap_or_default();
            objects.insert(format!("CustomResourceDefinition/{name}"), Value::Null);
            continue;
        }
        let object: Value = serde_saphyr::from_str(document).context("helm rendered invalid YAML")?;
        if object.is_object() {
            let key = by_key(&object);
            if objects.insert(key.clone(), object).is_some() {
                bail!("`{key}` is rendered twice, so that helm cannot install the chart");
            }
        }
    }
    Ok(Ok(objects))
}

fn compare(
    case: &Case,
    default: &BTreeMap<String, Value>,
    ours: &BTreeMap<String, Value>,
) -> Result<Vec<Mismatch>> {
    let mut found = Vec::new();
    let keys: BTreeSet<&String> = case.expect.objects.keys().chain(ours.keys()).collect();
    for key in keys {
        let recorded = match case.expect.objects.get(key) {
            Some(value) if value.get("$same").is_some() => {
                Some(default.get(key).with_context(|| format!("the default has no `{key}`"))?)
            }
            recorded => recorded,
        };
        if key.starts_with("CustomResourceDefinition/") && recorded.is_some() && ours.contains_key(key) {
            continue;
        }
        let (kai, here) = (recorded.and_then(normalise), ours.get(key).and_then(normalise));
        // Each of our components has a role of its own in some namespaces.
        if kai.is_none() && key.starts_with("RoleBinding/") {
            continue;
        }
        let mut add = |place: &str, kai: &Value, ours: &Value| {
            found.push(Mismatch::new(place, kai, ours));
        };
        recorded::differences(key, &kai.unwrap_or_default(), &here.unwrap_or_default(), &mut add);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(file: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/kai-scheduler");
        std::fs::read_to_string(Path::new(folder).join(file)).unwrap()
    }

    /// Keys of maps that the schema describes, with their paths.
    fn missing(path: &str, values: &Value, schema: &Value, found: &mut Vec<String>) {
        let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
        for (key, value) in values.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            match known.get(key) {
                Some(schema) => missing(&path, value, schema, found),
                None => found.push(path),
            }
        }
    }

    #[test]
    fn schema_lists_every_key_of_the_values() {
        let values: Value = serde_saphyr::from_str(&chart("values.yaml")).unwrap();
        let schema: Value = serde_json::from_str(&chart("values.schema.json")).unwrap();
        let mut found = Vec::new();
        missing("", &values, &schema, &mut found);
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(schema["additionalProperties"], false, "unknown keys are refused");
    }
}
