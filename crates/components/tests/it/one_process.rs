//! The manifests of `docs/installing.md` for one process.

use kai_components::Extensions;
use kai_components::check::check;
use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/installing.md");

fn manifests() -> Vec<Value> {
    let page = std::fs::read_to_string(PAGE).expect("the page exists");
    let (_, section) = page.split_once("## One process").expect("the page has the section");
    let (_, block) = section.split_once("<<END\n").expect("the section has manifests");
    let (block, _) = block.split_once("\nEND").expect("the manifests end");
    serde_saphyr::from_multiple(block).expect("they are YAML")
}

#[test]
fn process_accepts_the_arguments_of_the_documented_deployment() {
    let mut manifests = manifests();
    let deployment = manifests.first_mut().expect("there is a Deployment");
    assert_eq!(check(deployment, &Extensions::default()), Ok(()));
    let args = deployment.pointer_mut("/spec/template/spec/containers/0/args").expect("it has arguments");
    args.as_array_mut().expect("a list").push(Value::from("--no-such-flag"));
    let error = check(deployment, &Extensions::default()).expect_err("the last section has an unknown flag");
    assert!(error.contains("admission: unexpected argument '--no-such-flag'"), "{error}");
}

#[test]
fn documented_service_reaches_the_webhooks() {
    let [deployment, service] = &manifests()[..] else { panic!("two manifests") };
    let label = deployment.pointer("/spec/template/metadata/labels/app");
    assert_eq!(label, service.pointer("/spec/selector/app"));
    assert_eq!(kai_object::name(service), kai_components::name::ADMISSION);
}
