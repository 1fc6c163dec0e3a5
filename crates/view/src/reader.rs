//! Reads through the API everything that the scheduler reads, and plans one cycle on it.
//!
//! A resource that may not be listed and an object that cannot be decoded become warnings. Only resources without which
//! no view is possible (pods, nodes, queues, pod groups) are required.

use crate::hints::HintsView;
use kai_cache::{ImplicitGroups, Kind, Object, Objects, Store, Stored};
use kai_engine::plugin::PluginSet;
use kai_engine::verdict::GroupVerdict;
use kai_engine::{ClusterState, Cycle, Outcome, Policy};
use kai_runtime::api::{self, Api};
use kai_runtime::health::Health;
use kai_runtime::invalid::InvalidObject;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_scheduler::Options;
use kai_scheduler::resources::{self, KindVisitor, ServedApis, into_any_kind, of};
use kai_units::{Span, Timestamp};
use kai_whatif::Model;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// How long listing everything may take.
const LIST_TIMEOUT: Duration = Duration::from_mins(2);
/// How many undecodable objects of a resource a warning names.
const NAMED_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the custom resource definition of {plural} ({api_version}) is not installed")]
    NotInstalled { plural: String, api_version: String },
    #[error(transparent)]
    Request(#[from] api::Error),
    #[error("listing took longer than {} s", LIST_TIMEOUT.as_secs())]
    Timeout,
    #[error("a task that lists objects failed")]
    Task(#[from] tokio::task::JoinError),
}

/// The objects of a cluster at one time, and the outcome of a cycle that is planned on them.
pub struct ClusterView {
    pub store: Store,
    pub cluster: ClusterState,
    pub outcome: Outcome,
    pub now: Timestamp,
    /// How long a group without a grace period of its own may run below its minimum.
    pub staleness_grace: Span,
}

impl ClusterView {
    /// Why a group is pending; `None` if it is not.
    pub fn verdict(&self, group: &kai_engine::input::Key) -> Option<&GroupVerdict> {
        self.outcome.verdicts.iter().find(|verdict| verdict.group == *group)
    }
}

/// Keeps a [`ClusterView`] current.
pub struct ClusterReader {
    view: ClusterView,
    policy: Policy,
    offered: ServedApis,
    warnings: Vec<String>,
    /// Resources that could not be listed, and are not watched.
    unreadable: BTreeSet<Kind>,
    watches: Option<WatchEvents>,
    /// Hints of the last plan.
    hints: BTreeMap<kai_engine::input::Key, HintsView>,
}

/// How long watches may be interrupted before the objects count as stale: a watch that ends is usually begun again at
/// once.
const INTERRUPTED_MAX: Span = Span::from_secs(3);

/// The objects are no longer kept current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// When they were last known to be current.
    pub since: String,
    pub why: String,
    #[serde(skip)]
    pub since_at: Timestamp,
}

/// Events of all watches, until they are applied.
struct WatchEvents {
    health: Health,
    /// When all watches last worked.
    current_at: Timestamp,
    events: UnboundedReceiver<(Kind, WatchEvent<Object>)>,
    /// Ends the watches when it is dropped.
    _tasks: JoinSet<()>,
}

impl ClusterReader {
    /// Lists everything and plans a cycle.
    pub async fn open(
        api: &Api,
        offered: ServedApis,
        mut options: Options,
        plugins: &PluginSet,
    ) -> Result<Self, Error> {
        options.settings.device_claims &= offered.device_claims.is_some();
        options.settings.numa_zones &= offered.numa_zones;
        options.params.device_claims = options.settings.device_claims;
        let policy = Policy::resolve(&options.config.engine, &options.params, plugins);
        let mut listing = Listing::default();
        listing.warnings.extend(options.config.warnings.iter().chain(&policy.warnings).cloned());
        let listed = tokio::time::timeout(LIST_TIMEOUT, listing.read(api, offered)).await;
        listed.map_err(|_| Error::Timeout)??;
        // A scheduler that places pods without a pod group marks them.
        if listing.objects.pods.values().any(|pod| kai_api::implicit_group::is_marked(&pod.metadata)) {
            options.settings.implicit_groups = ImplicitGroups::OfAllPods;
        }
        let view = ClusterView {
            store: Store::of(options.settings, listing.objects),
            cluster: ClusterState::new(),
            outcome: Outcome::default(),
            now: Timestamp(0),
            staleness_grace: options.params.staleness_grace,
        };
        let (warnings, unreadable) = (listing.warnings, listing.unreadable);
        let mut reader =
            Self { view, policy, offered, warnings, unreadable, watches: None, hints: BTreeMap::new() };
        reader.plan();
        Ok(reader)
    }

    /// What could not be read, and what is invalid in the configuration.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Plans a cycle on the objects as they are known.
    pub fn plan(&mut self) {
        let ClusterView { store, cluster, outcome, now, .. } = &mut self.view;
        *now = Timestamp(kai_clock::unix_micros());
        store.drain_into(cluster);
        let before = outcome.hash;
        *outcome = kai_engine::plan(cluster, &self.policy, Cycle { now: *now, seed: 0 });
        if outcome.hash != before {
            self.hints.clear();
        }
    }

    /// The smallest changes that would run a pending group.
    pub fn hints(&mut self, group: &kai_engine::input::Key) -> HintsView {
        if let Some(known) = self.hints.get(group) {
            return known.clone();
        }
        let effort = kai_whatif::hints::Effort::of(&self.view.cluster);
        let ClusterView { store, cluster, outcome, now, .. } = &mut self.view;
        let mut model = Model { store, cluster, policy: &self.policy, cycle: Cycle { now: *now, seed: 0 } };
        let found = HintsView::new(&kai_whatif::hints::find(&mut model, outcome, group, effort));
        self.hints.insert(group.clone(), found.clone());
        found
    }

    /// The view and the policy that it was planned with.
    pub fn into_parts(self) -> (ClusterView, Policy) {
        (self.view, self.policy)
    }

    /// Starts to watch everything that could be listed.
    pub fn watch(&mut self, api: &Api) {
        let (sender, events) = unbounded_channel();
        let health = Health::tolerating(Duration::ZERO);
        let mut watches = Watches {
            api: api.clone(),
            health: health.clone(),
            offered: self.offered,
            unreadable: &self.unreadable,
            sender,
            tasks: JoinSet::new(),
        };
        resources::visit_kinds(self.offered, &mut watches);
        let current_at = self.view.now;
        self.watches = Some(WatchEvents { health, current_at, events, _tasks: watches.tasks });
    }

    /// Since when and why the objects are not kept current, such as after the server was lost; `None` while they are, and
    /// without [`watch`](Self::watch).
    pub fn stale(&mut self) -> Option<Stale> {
        let watches = self.watches.as_mut()?;
        let now = Timestamp(kai_clock::unix_micros());
        let problems = watches.health.problems();
        let Some(why) = problems.first() else {
            watches.current_at = now;
            return None;
        };
        let since_at = watches.current_at;
        let is_stale = now - since_at > INTERRUPTED_MAX;
        is_stale.then(|| Stale { since: since_at.to_string(), why: why.clone(), since_at })
    }

    /// Applies watch events that have arrived; `false` if there are none.
    pub fn apply_events(&mut self) -> bool {
        let mut has_events = false;
        let Some(watches) = &mut self.watches else { return false };
        let store = &mut self.view.store;
        while let Ok((kind, event)) = watches.events.try_recv() {
            has_events = true;
            match event {
                WatchEvent::Listed(objects, _) => store.reset(kind, objects),
                WatchEvent::Applied(object) => {
                    store.apply(object);
                }
                WatchEvent::Deleted(object) => {
                    store.delete(kind, &object.key());
                }
                WatchEvent::Invalid(InvalidObject { key, .. }) => {
                    store.delete(kind, &kai_engine::input::Key::new(key.namespace, key.name));
                }
                WatchEvent::Denied => store.reset(kind, Vec::new()),
            }
        }
        has_events
    }
}

/// The objects that have been listed.
#[derive(Default)]
struct Listing {
    objects: Objects,
    warnings: Vec<String>,
    unreadable: BTreeSet<Kind>,
}

impl Listing {
    async fn read(&mut self, api: &Api, offered: ServedApis) -> Result<(), Error> {
        let mut lists = Lists { api: api.clone(), offered, tasks: JoinSet::new() };
        resources::visit_kinds(offered, &mut lists);
        let mut all = Vec::new();
        while let Some(listed) = lists.tasks.join_next().await {
            all.push(listed?);
        }
        // Responses arrive in any order; warnings and errors have a fixed one.
        all.sort_by_key(|(kind, _)| *kind);
        for (kind, list) in all {
            match list {
                Ok(events) => self.insert(kind, events),
                Err(error) => self.omit(kind, error)?,
            }
        }
        Ok(())
    }

    fn insert(&mut self, kind: Kind, events: Vec<WatchEvent<Object>>) {
        let mut undecodable = Vec::new();
        for event in events {
            match event {
                WatchEvent::Listed(objects, _) => {
                    for object in objects {
                        self.objects.insert(object);
                    }
                }
                WatchEvent::Invalid(InvalidObject { key, reason: why, .. }) => {
                    undecodable.push(format!("`{key}` ({why})"));
                }
                WatchEvent::Applied(_) | WatchEvent::Deleted(_) | WatchEvent::Denied => {}
            }
        }
        if undecodable.is_empty() {
            return;
        }
        let more = undecodable.len().saturating_sub(NAMED_MAX);
        undecodable.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.warnings
            .push(format!("{kind} {}{more} cannot be decoded and is left out", undecodable.join(", ")));
    }

    /// Continues without a resource that is not required.
    fn omit(&mut self, kind: Kind, error: api::Error) -> Result<(), Error> {
        let is_required = matches!(kind, Kind::Pod | Kind::Node | Kind::Queue | Kind::PodGroup);
        let resource = of(kind);
        match error.code() {
            404 if is_required => Err(Error::NotInstalled {
                plural: resource.plural.to_string(),
                api_version: resource.api_version(),
            }),
            403 | 404 if !is_required => {
                let why = if error.is_not_found() {
                    "not served by the cluster".to_owned()
                } else {
                    error.message()
                };
                self.warnings.push(format!(
                    "{} are left out ({why}); verdicts that depend on them may be wrong",
                    resource.plural
                ));
                self.unreadable.insert(kind);
                Ok(())
            }
            _ => Err(Error::Request(error)),
        }
    }
}

/// Lists every resource concurrently.
struct Lists {
    api: Api,
    offered: ServedApis,
    tasks: JoinSet<(Kind, api::Result<Vec<WatchEvent<Object>>>)>,
}

impl KindVisitor for Lists {
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let (api, source) = (self.api.clone(), source::<T>(self.offered, query));
        self.tasks.spawn(async move {
            let mut events = Vec::new();
            let listed =
                watch::list(&api, &source, &mut |event: WatchEvent<T>| events.push(into_any_kind(event)))
                    .await;
            (T::KIND, listed.map(|_| events))
        });
    }
}

/// Watches every resource that could be listed.
struct Watches<'a> {
    api: Api,
    health: Health,
    offered: ServedApis,
    unreadable: &'a BTreeSet<Kind>,
    sender: UnboundedSender<(Kind, WatchEvent<Object>)>,
    tasks: JoinSet<()>,
}

impl KindVisitor for Watches<'_> {
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        if self.unreadable.contains(&T::KIND) {
            return;
        }
        let (api, source, sender) = (self.api.clone(), source::<T>(self.offered, query), self.sender.clone());
        let freshness = self.health.watch(&source.kind.plural);
        self.tasks.spawn(async move {
            watch::list_and_watch(&api, &source, &freshness, |event: WatchEvent<T>| {
                // The receiver is dropped together with this task.
                let _ = sender.send((T::KIND, into_any_kind(event)));
            })
            .await;
        });
    }
}

fn source<T: Stored>(offered: ServedApis, query: Option<&'static str>) -> Source {
    let shape = resources::shape_of(T::KIND);
    Source { query: query.map(str::to_owned), shape, ..Source::all(offered.resource(T::KIND)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn failure(code: u16) -> api::Error {
        let status = Status::failure("it is forbidden", "Forbidden").with_code(code);
        api::Error::Request {
            method: "GET".to_owned(),
            path: "/x".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn unlistable_resource_becomes_a_warning_unless_it_is_required() {
        let mut listing = Listing::default();
        listing.omit(Kind::ConfigMap, failure(403)).expect("it is not required");
        listing.omit(Kind::Topology, failure(404)).expect("it is not required");
        assert_eq!(
            listing.warnings,
            [
                "configmaps are left out (it is forbidden); verdicts that depend on them may be wrong",
                "topologies are left out (not served by the cluster); verdicts that depend on them may be wrong",
            ]
        );
        assert_eq!(listing.unreadable, BTreeSet::from([Kind::ConfigMap, Kind::Topology]));
        for (kind, code) in [(Kind::Pod, 403), (Kind::Queue, 404), (Kind::ConfigMap, 500), (Kind::Node, 401)]
        {
            listing.omit(kind, failure(code)).expect_err("it is required, or the server failed");
        }
    }

    #[test]
    fn undecodable_objects_are_named_and_the_others_are_kept() {
        let mut listing = Listing::default();
        let broken = |name: &str| {
            WatchEvent::Invalid(InvalidObject {
                key: kai_runtime::Key::new("a", name),
                uid: String::new(),
                resource_version: String::new(),
                reason: "malformed".to_owned(),
                deleted: false,
            })
        };
        let mut events = vec![WatchEvent::Listed(vec![Object::from(kai_cache::object::Queue::default())], 1)];
        events.extend(["1", "2", "3", "4", "5", "6", "7"].map(broken));
        listing.insert(Kind::Queue, events);
        assert_eq!(listing.objects.queues.len(), 1);
        let [warning] = listing.warnings.as_slice() else { panic!("one warning: {:?}", listing.warnings) };
        assert!(
            warning.starts_with("Queue `a/1` (malformed), ") && warning.contains(" and 2 more "),
            "{warning}"
        );
    }
}
