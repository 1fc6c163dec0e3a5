//! The files in `deploy/rbac` are generated from the component table.

use kai_components::{COMPONENTS, rbac};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac")
}

#[test]
fn rbac_files_are_current() {
    let update = std::env::var_os("UPDATE").is_some();
    for spec in COMPONENTS {
        let path = folder().join(rbac::file_name(spec));
        let wanted = rbac::yaml(spec);
        if update {
            fs::write(&path, &wanted).expect("the folder can be written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == wanted, "`{}` is stale\nhint: UPDATE=1 cargo test -p kai-components", path.display());
    }
    let known: BTreeSet<_> = COMPONENTS.iter().map(rbac::file_name).collect();
    let kept: BTreeSet<_> = fs::read_dir(folder())
        .expect("the folder exists")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(kept, known, "the folder holds one file per component");
}

#[test]
fn rbac_files_contain_the_objects() {
    for spec in COMPONENTS {
        let read = serde_saphyr::from_multiple::<Value>(&rbac::yaml(spec)).unwrap();
        assert_eq!(read, rbac::objects(spec), "{}", spec.name);
    }
}
