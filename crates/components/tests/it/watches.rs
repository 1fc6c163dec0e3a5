//! The watches that the table declares for the scheduler are those that it starts.

use kai_cache::{Object, Stored};
use kai_components::Component;
use kai_scheduler::resources::{self, KindVisitor, ServedApis};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

#[derive(Default)]
struct Resources(BTreeSet<(String, String)>);

impl KindVisitor for Resources {
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        _: Option<&'static str>,
    ) {
        let kind = resources::of(T::KIND);
        self.0.insert((kind.group.to_string(), kind.plural.to_string()));
    }
}

#[test]
fn scheduler_watches_are_declared() {
    let mut started = Resources::default();
    resources::visit_kinds(ServedApis { device_claims: Some("v1"), numa_zones: true }, &mut started);
    let declared = Component::Scheduler.spec().watches.iter().flat_map(|watch| {
        watch.resources.iter().map(|resource| (watch.api_group.to_owned(), (*resource).to_owned()))
    });
    assert_eq!(declared.collect::<BTreeSet<_>>(), started.0);
}
