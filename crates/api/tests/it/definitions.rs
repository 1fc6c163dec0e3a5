//! Definitions generated from the types, and those of the reference folder.

use kai_api::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology, crd_file_name, crds};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::BTreeMap, env, fs, path::PathBuf};

/// Definitions by kind.
pub(crate) type Definitions = BTreeMap<String, Value>;

/// The definitions made from our types.
pub(crate) fn ours() -> Definitions {
    let value = |crd| serde_json::to_value(crd).expect("definitions can be written");
    crds().iter().map(|crd| (crd.spec.names.kind.clone(), value(crd))).collect()
}

/// KAI's definitions, in `spec/crds` of the reference folder.
pub(crate) fn reference() -> Definitions {
    let folder = env::var_os("KAI_REFERENCE").expect("KAI_REFERENCE names the reference folder");
    let folder = PathBuf::from(folder).join("spec/crds");
    let read = |name: String| {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let kinds = crds();
    kinds.iter().map(|crd| (crd.spec.names.kind.clone(), read(crd_file_name(crd)))).collect()
}

/// The schema of the only version of a definition.
pub(crate) fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Reads `object` into the type of `kind` and writes it again.
pub(crate) fn rewrite(kind: &str, object: &Value) -> Value {
    fn through<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
        let typed: T = serde_json::from_value(object.clone()).expect("the object can be read");
        serde_json::to_value(typed).expect("the object can be written")
    }
    match kind {
        "BindRequest" => through::<BindRequest>(object),
        "Config" => through::<Config>(object),
        "PodGroup" => through::<PodGroup>(object),
        "Queue" => through::<Queue>(object),
        "SchedulingShard" => through::<SchedulingShard>(object),
        "Topology" => through::<Topology>(object),
        other => panic!("no type for {other}"),
    }
}
