//! Tests of the generated shapes, also against the reference generator.

use super::{SHAPES, find, write, write_zip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn generated(name: &str, nodes: usize) -> String {
    let mut bytes = Vec::new();
    write(find(name).expect("the shape exists"), nodes, &mut bytes).expect("memory takes everything");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

fn list<'a>(snapshot: &'a Value, kind: &str) -> &'a [Value] {
    snapshot["rawObjects"][kind].as_array().expect("every list is there")
}

#[test]
fn every_shape_is_valid_json_with_distinct_ages() {
    for shape in SHAPES {
        let snapshot: Value = serde_json::from_str(&generated(shape.name, 20)).expect("valid JSON");
        let lists = snapshot["rawObjects"].as_object().expect("an object");
        let mut ages: Vec<&str> = lists
            .values()
            .flat_map(|list| list.as_array().expect("a list"))
            .map(|object| object["metadata"]["creationTimestamp"].as_str().expect("a time"))
            .collect();
        let count = ages.len();
        ages.sort_unstable();
        ages.dedup();
        assert_eq!(ages.len(), count, "shape `{}` has objects of equal age", shape.name);
        assert_eq!(list(&snapshot, "nodes").len(), 20);
    }
}

#[test]
fn fill_requests_every_gpu_once() {
    let snapshot: Value = serde_json::from_str(&generated("fill", 3)).expect("valid JSON");
    assert_eq!(list(&snapshot, "pods").len(), 24);
    assert_eq!(list(&snapshot, "podGroups").len(), 24);
    assert_eq!(list(&snapshot, "queues").len(), 3);
    assert_eq!(list(&snapshot, "priorityClasses").len(), 4);
}

#[test]
fn generation_is_deterministic() {
    for shape in SHAPES {
        assert_eq!(generated(shape.name, 7), generated(shape.name, 7), "shape `{}`", shape.name);
    }
}

#[test]
fn archive_contains_the_same_text() {
    let path = scratch("gang-archive.zip");
    write_zip(find("gang").expect("the shape exists"), 4, &path).expect("the archive can be written");
    assert_eq!(snapshot_of(&path), generated("gang", 4));
    std::fs::remove_file(&path).expect("the archive is there");
}

#[test]
#[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
fn shapes_equal_the_reference_generator() {
    let reference = std::env::var_os("KAI_REFERENCE").expect("KAI_REFERENCE names the reference folder");
    let tool = Path::new(&reference).join("bench/make-snapshot");
    assert!(tool.is_file(), "`{}` is missing", tool.display());
    for shape in SHAPES {
        for nodes in [1, 20, 53] {
            let path = scratch(&format!("{}-{nodes}-reference.zip", shape.name));
            let made = Command::new("python3")
                .arg(&tool)
                .args([shape.name, "--nodes", &nodes.to_string(), "--out"])
                .arg(&path)
                .output()
                .expect("python3 runs");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let theirs = snapshot_of(&path);
            std::fs::remove_file(&path).expect("the archive is there");
            let ours = generated(shape.name, nodes);
            if let Some(at) = ours.bytes().zip(theirs.bytes()).position(|(a, b)| a != b) {
                let from = at.saturating_sub(200);
                let excerpt = |text: &str| text[from..text.len().min(at + 100)].to_owned();
                panic!("shape `{}`:\nours   {}\ntheirs {}", shape.name, excerpt(&ours), excerpt(&theirs));
            }
            assert_eq!(ours.len(), theirs.len(), "shape `{}` at {nodes} nodes", shape.name);
        }
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kai-shapes-{}-{name}", std::process::id()))
}

fn snapshot_of(path: &Path) -> String {
    let mut archive =
        zip::ZipArchive::new(std::fs::File::open(path).expect("the file is there")).expect("a zip");
    std::io::read_to_string(archive.by_name("snapshot.json").expect("the entry is there")).expect("UTF-8")
}
