//! Everything that the scheduler reads, read through the API, and one cycle planned on it.
//!
//! A kind that may not be listed, and an object that cannot be read, cost a warning; only what nothing can be said
//! without is an error.

use super::connection::{Connection, unreachable};
use anyhow::{Result, anyhow, bail};
use kai_cache::{Kind, Object, Objects, Store, Stored};
use kai_engine::plugin::PluginSet;
use kai_engine::verdict::GroupVerdict;
use kai_engine::{ClusterState, Cycle, Outcome, Policy};
use kai_runtime::api::{self, Api};
use kai_runtime::health::Health;
use kai_runtime::watch::{self, News, Source};
use kai_scheduler::Options;
use kai_scheduler::resources::{self, Offered, Reader, of, of_any_kind};
use kai_units::Timestamp;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// How long reading everything may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// How many objects that cannot be read are named.
const NAMED_MAX: usize = 5;

/// The cluster as it was at one moment, and what a cycle would make of it.
pub(super) struct Moment {
    pub(super) store: Store,
    pub(super) cluster: ClusterState,
    pub(super) outcome: Outcome,
    pub(super) now: Timestamp,
}

impl Moment {
    /// Why a group waits, if it does.
    pub(super) fn verdict(&self, group: &kai_engine::input::Key) -> Option<&GroupVerdict> {
        self.outcome.verdicts.iter().find(|verdict| verdict.group == *group)
    }
}

/// Sees a cluster.
pub(super) struct Eyes {
    moment: Moment,
    policy: Policy,
    offered: Offered,
    warnings: Vec<String>,
    /// Kinds that cannot be read.
    unseen: BTreeSet<Kind>,
    following: Option<Following>,
}

/// What arrives of the server's news.
struct Following {
    news: UnboundedReceiver<(Kind, News<Object>)>,
    /// They end when this is dropped.
    _tasks: JoinSet<()>,
}

impl Eyes {
    /// Reads everything and plans a first time.
    pub(super) async fn open(
        connection: &Connection,
        mut options: Options,
        plugins: &PluginSet,
    ) -> Result<Self> {
        let offered = connection.offered;
        options.settings.device_claims &= offered.device_claims;
        options.settings.numa_zones &= offered.numa_zones;
        options.params.device_claims = options.settings.device_claims;
        let policy = Policy::resolve(&options.config.engine, &options.params, plugins);
        let mut seen = Seen::default();
        seen.warnings.extend(options.config.warnings.iter().chain(&policy.warnings).cloned());
        let read = tokio::time::timeout(PATIENCE, seen.read(connection)).await;
        read.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            anyhow!("the cluster at {} was not read within {seconds} s; hint: try again", connection.url)
        })??;
        let moment = Moment {
            store: Store::of(options.settings, seen.objects),
            cluster: ClusterState::new(),
            outcome: Outcome::default(),
            now: Timestamp(0),
        };
        let (warnings, unseen) = (seen.warnings, seen.unseen);
        let mut eyes = Self { moment, policy, offered, warnings, unseen, following: None };
        eyes.plan();
        Ok(eyes)
    }

    /// What could not be read, and what is odd about the configuration.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What was seen last.
    pub(super) fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Plans a cycle on what is known.
    pub(super) fn plan(&mut self) {
        let Moment { store, cluster, outcome, now } = &mut self.moment;
        *now = Timestamp(kai_clock::unix_micros());
        store.drain_into(cluster);
        *outcome = kai_engine::plan(cluster, &self.policy, Cycle { now: *now, seed: 0 });
    }

    /// Begins to follow what changes.
    pub(super) fn follow(&mut self, connection: &Connection) {
        let (sender, news) = unbounded_channel();
        let mut watches = Watches {
            api: connection.api.clone(),
            health: Health::default(),
            unseen: &self.unseen,
            sender,
            tasks: JoinSet::new(),
        };
        resources::each(self.offered, &mut watches);
        self.following = Some(Following { news, _tasks: watches.tasks });
    }

    /// Takes in what has changed; says whether anything has.
    pub(super) fn take_news(&mut self) -> bool {
        let mut has_news = false;
        let Some(following) = &mut self.following else { return false };
        let store = &mut self.moment.store;
        while let Ok((kind, news)) = following.news.try_recv() {
            has_news = true;
            match news {
                News::All(objects, _) => store.reset(kind, objects),
                News::Applied(object) => {
                    store.apply(object);
                }
                News::Gone(object) => {
                    store.delete(kind, &object.key());
                }
                News::Unreadable(key, _) => {
                    store.delete(kind, &kai_engine::input::Key::new(key.namespace, key.name));
                }
            }
        }
        has_news
    }
}

/// What has been read so far.
#[derive(Default)]
struct Seen {
    objects: Objects,
    warnings: Vec<String>,
    unseen: BTreeSet<Kind>,
}

impl Seen {
    async fn read(&mut self, connection: &Connection) -> Result<()> {
        let mut lists = Lists { api: connection.api.clone(), tasks: JoinSet::new() };
        resources::each(connection.offered, &mut lists);
        let mut all = Vec::new();
        while let Some(read) = lists.tasks.join_next().await {
            all.push(read?);
        }
        // Answers come in any order; warnings and errors do not.
        all.sort_by_key(|(kind, _)| *kind);
        for (kind, list) in all {
            match list {
                Ok(news) => self.take(kind, news),
                Err(error) => self.miss(kind, &error, &connection.url)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, kind: Kind, news: Vec<News<Object>>) {
        let mut unreadable = Vec::new();
        for one in news {
            match one {
                News::All(objects, _) => {
                    for object in objects {
                        self.objects.insert(object);
                    }
                }
                News::Unreadable(key, why) => unreadable.push(format!("`{key}` ({why})")),
                News::Applied(_) | News::Gone(_) => {}
            }
        }
        if unreadable.is_empty() {
            return;
        }
        let more = unreadable.len().saturating_sub(NAMED_MAX);
        unreadable.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.warnings.push(format!("{kind} {}{more} cannot be read and is left out", unreadable.join(", ")));
    }

    /// Goes on without a kind, where that makes sense.
    fn miss(&mut self, kind: Kind, error: &api::Error, url: &str) -> Result<()> {
        let is_needed = matches!(kind, Kind::Pod | Kind::Node | Kind::Queue | Kind::PodGroup);
        let resource = of(kind);
        match error.code() {
            404 if is_needed => bail!(
                "the cluster at {url} has no {} of {}: KAI's definitions are not installed there; hint: `kai crds | \
                 kubectl apply --server-side -f -` installs them",
                resource.plural,
                resource.api_version(),
            ),
            403 | 404 if !is_needed => {
                let why = if error.is_not_found() { "the cluster has none".to_owned() } else { error.told() };
                self.warnings.push(format!(
                    "{} are left out ({why}), so what depends on them may be told wrongly",
                    resource.plural
                ));
                self.unseen.insert(kind);
                Ok(())
            }
            _ => Err(unreachable(url, error)),
        }
    }
}

/// Lists every kind at the same time.
struct Lists {
    api: Api,
    tasks: JoinSet<(Kind, api::Result<Vec<News<Object>>>)>,
}

impl Reader for Lists {
    fn read<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let (api, source) = (self.api.clone(), source::<T>(query));
        self.tasks.spawn(async move {
            let mut news = Vec::new();
            let read = watch::all(&api, &source, &mut |one: News<T>| news.push(of_any_kind(one))).await;
            (T::KIND, read.map(|_| news))
        });
    }
}

/// Follows every kind that could be read.
struct Watches<'a> {
    api: Api,
    health: Health,
    unseen: &'a BTreeSet<Kind>,
    sender: UnboundedSender<(Kind, News<Object>)>,
    tasks: JoinSet<()>,
}

impl Reader for Watches<'_> {
    fn read<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        if self.unseen.contains(&T::KIND) {
            return;
        }
        let (api, source, sender) = (self.api.clone(), source::<T>(query), self.sender.clone());
        let freshness = self.health.watch(&source.kind.plural);
        self.tasks.spawn(async move {
            watch::follow(&api, &source, &freshness, |news: News<T>| {
                // Nobody listens any more only when everything ends.
                let _ = sender.send((T::KIND, of_any_kind(news)));
            })
            .await;
        });
    }
}

fn source<T: Stored>(query: Option<&'static str>) -> Source {
    Source { query: query.map(str::to_owned), ..Source::all(of(T::KIND)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refusal(code: u16) -> api::Error {
        let status = Status::failure("it is forbidden", "Forbidden").with_code(code);
        api::Error::Request {
            method: "GET".to_owned(),
            path: "/x".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn what_may_not_be_listed_costs_a_warning_unless_nothing_can_be_said_without_it() {
        let mut seen = Seen::default();
        seen.miss(Kind::ConfigMap, &refusal(403), "u").expect("it goes on");
        seen.miss(Kind::Topology, &refusal(404), "u").expect("it goes on");
        assert_eq!(
            seen.warnings,
            [
                "configmaps are left out (it is forbidden), so what depends on them may be told wrongly",
                "topologies are left out (the cluster has none), so what depends on them may be told wrongly",
            ]
        );
        assert_eq!(seen.unseen, BTreeSet::from([Kind::ConfigMap, Kind::Topology]));
        for (kind, code) in [(Kind::Pod, 403), (Kind::Queue, 404), (Kind::ConfigMap, 500), (Kind::Node, 401)]
        {
            let error = seen.miss(kind, &refusal(code), "u").expect_err("nothing can be said").to_string();
            assert!(error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn objects_that_cannot_be_read_are_named_and_the_others_are_taken() {
        let mut seen = Seen::default();
        let broken = |name: &str| News::Unreadable(kai_runtime::Key::new("a", name), "odd".to_owned());
        let mut news = vec![News::All(vec![Object::from(kai_cache::object::Queue::default())], 1)];
        news.extend(["1", "2", "3", "4", "5", "6", "7"].map(broken));
        seen.take(Kind::Queue, news);
        assert_eq!(seen.objects.queues.len(), 1);
        let [warning] = seen.warnings.as_slice() else {
            panic!("one warning is enough: {:?}", seen.warnings)
        };
        assert!(warning.starts_with("Queue `a/1` (odd), ") && warning.contains(" and 2 more "), "{warning}");
    }
}
