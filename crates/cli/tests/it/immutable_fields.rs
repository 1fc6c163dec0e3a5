//! What the API server does not let change is the same as in KAI's installation, so that it can be taken over and given back.

use kai_components::{COMPONENTS, install, rbac};
use kai_operator::{Certificate, Facts, read};
use kai_testkit::{immutable, installed};
use serde_json::Value;

#[test]
fn immutable_fields_are_those_of_kai() {
    let mut theirs = installed::objects().expect("the recording is readable");
    let [config, shard] = ["Config", "SchedulingShard"].map(|kind| {
        theirs.iter().find(|object| kai_object::kind(object) == kind).expect("the installation has one")
    });
    let (config, shard) = (read::config(config).expect("readable"), read::shard(shard).expect("readable"));
    let certificate = Certificate { certificate: "c".into(), key: "k".into(), trusted: Some("c".into()) };
    let certificates = kai_operator::certificates(&config);
    let certificates =
        certificates.iter().map(|request| (request.secret.to_owned(), certificate.clone())).collect();
    let facts = Facts { certificates, ..Facts::default() };
    let desired = kai_operator::desired(Some(&config), &[shard], &facts);
    let mut ours: Vec<Value> = desired.objects().cloned().collect();
    ours.extend(COMPONENTS.iter().flat_map(rbac::objects));
    ours.extend(install::priority_classes().map(|manifest| manifest.object));
    theirs.extend(installed::chart_objects().expect("the recording is readable"));
    let (found, both) = immutable::differences(&theirs, &ours);
    assert_eq!(found, Vec::<String>::new());
    // 29 of the operator, 4 priority classes, and of each component its cluster role and binding.
    assert!(both > 45, "only {both} objects are compared");
}
