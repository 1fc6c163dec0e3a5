//! Rules of users for kinds of their own, or instead of a built-in rule.
//!
//! A rule runs on a thread of its own. A panic is an error of the pod that is being grouped; a rule that does not return
//! is cut off: from then on every pod of its kind gets an event that says so, and the other kinds are grouped as before.

use crate::cluster::{ClusterView, ObjectRef, ReadObjects, StoredGroupView};
use crate::defaults::Defaults;
use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject, PodSummary};
use crate::options::Options;
use crate::workload::{Desired, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_runtime::Key;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts, Registry};
use std::fmt::{self, Debug, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// How long a rule may take. Rules only compute, so that microseconds are usual.
const RULE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a rule may ask for objects of the cluster, for one pod.
const QUESTIONS_MAX: usize = 10_000;

/// The rule of one kind of topmost owner.
pub trait OwnRule: Send + Sync {
    /// The kind whose pods it groups. It replaces a built-in rule of this kind.
    fn kind(&self) -> OwnKind;

    /// The desired group of the pod. [`Workload::metadata`] has what all kinds share, and
    /// [`table::built_in`](crate::table::built_in) what the built-in rules would do.
    fn group(&self, workload: &Workload<'_>) -> Result<Desired, Invalid>;

    /// Further objects that it reads, as far as those read so far tell.
    fn reads(&self, _workload: &Workload<'_>) -> Vec<ObjectRef> {
        Vec::new()
    }
}

/// A kind of topmost owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnKind {
    pub group: &'static str,
    /// None for any version.
    pub version: Option<&'static str>,
    pub kind: &'static str,
}

/// The rules that a user's binary adds.
#[derive(Clone, Default)]
pub struct OwnRules {
    entries: Vec<Arc<Entry>>,
    failures: Arc<OnceLock<IntCounterVec>>,
}

struct Entry {
    kind: OwnKind,
    rule: Arc<dyn OwnRule>,
    timeout: Duration,
    /// Why the rule is not called any more.
    cut_off: Mutex<Option<String>>,
}

impl Debug for OwnRules {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| entry.kind)).finish()
    }
}

impl PartialEq for OwnRules {
    fn eq(&self, other: &Self) -> bool {
        let kinds = |rules: &Self| rules.entries.iter().map(|entry| entry.kind).collect::<Vec<_>>();
        kinds(self) == kinds(other)
    }
}

impl Eq for OwnRules {}

impl OwnRules {
    /// Adds a rule; one of the same kind and version is replaced.
    #[must_use]
    pub fn with(self, rule: Arc<dyn OwnRule>) -> Self {
        self.with_timeout(rule, RULE_TIMEOUT)
    }

    /// As [`with`](Self::with), with a time limit of its calls.
    #[must_use]
    pub fn with_timeout(mut self, rule: Arc<dyn OwnRule>, timeout: Duration) -> Self {
        let kind = rule.kind();
        self.entries.retain(|entry| entry.kind != kind);
        self.entries.push(Arc::new(Entry { kind, rule, timeout, cut_off: Mutex::default() }));
        self
    }

    /// Counts failures of rules in these metrics.
    pub(crate) fn register_metrics(&self, registry: &Registry) {
        let options = Opts::new(
            "kai_pod_grouper_rule_failures_total",
            "Failed calls of grouping rules that are not built in",
        );
        if let Ok(counter) = IntCounterVec::new(options, &["kind", "reason"])
            && !self.entries.is_empty()
            && registry.register(Box::new(counter.clone())).is_ok()
        {
            let _ = self.failures.set(counter);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The rule of a kind: of its version, else of any version.
    pub(crate) fn find(&self, group: &str, version: &str, kind: &str) -> Option<Call<'_>> {
        let of = |version: Option<&str>| {
            let is_same = |entry: &&Arc<Entry>| {
                entry.kind.group == group && entry.kind.version == version && entry.kind.kind == kind
            };
            self.entries.iter().find(is_same)
        };
        let entry = of(Some(version)).or_else(|| of(None))?;
        Some(Call { rules: self, entry })
    }
}

/// A rule that is about to be called.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    rules: &'a OwnRules,
    entry: &'a Arc<Entry>,
}

impl Call<'_> {
    pub(crate) fn group(self, workload: &Workload<'_>) -> Result<Desired, Invalid> {
        self.run(workload, |rule, workload| rule.group(workload))?
    }

    /// The objects that the rule reads. One that fails reads nothing, and fails again in [`group`](Self::group).
    pub(crate) fn reads(self, workload: &Workload<'_>) -> Vec<ObjectRef> {
        self.run(workload, |rule, workload| rule.reads(workload)).unwrap_or_default()
    }

    /// Calls the rule on a thread of its own. The caller answers its questions meanwhile.
    fn run<R: Send + 'static>(
        self,
        workload: &Workload<'_>,
        call: impl FnOnce(&dyn OwnRule, &Workload<'_>) -> R + Send + 'static,
    ) -> Result<R, Invalid> {
        if let Some(why) = self.entry.cut_off.lock().clone() {
            return Err(self.failed(workload, "cut_off", why));
        }
        let (messages, received) = mpsc::channel();
        let (rule, owned) = (Arc::clone(&self.entry.rule), OwnedWorkload::of(workload));
        let view = RemoteView { questions: messages.clone() };
        let spawned = std::thread::Builder::new().name("grouping-rule".to_owned()).spawn(move || {
            let called = catch_unwind(AssertUnwindSafe(|| call(&*rule, &owned.workload(&view))));
            let _ = messages.send(Message::Done(called.map_err(|panic| panic_text(&*panic))));
        });
        if let Err(error) = spawned {
            return Err(self.failed(workload, "error", format!("no thread could be started: {error}")));
        }
        for _ in 0..QUESTIONS_MAX {
            match received.recv_timeout(self.entry.timeout) {
                Ok(Message::Question(answer)) => answer(workload.cluster),
                Ok(Message::Done(Ok(result))) => return Ok(result),
                Ok(Message::Done(Err(panic))) => {
                    return Err(self.failed(
                        workload,
                        "panic",
                        format!("its grouping rule panicked: {panic}"),
                    ));
                }
                Err(_) => break,
            }
        }
        let why = format!(
            "its grouping rule did not return within {} s; it is cut off until the pod grouper is restarted",
            self.entry.timeout.as_secs()
        );
        tracing::error!(kind = self.entry.kind.kind, why, "grouping rule cut off");
        *self.entry.cut_off.lock() = Some(why.clone());
        Err(self.failed(workload, "timeout", why))
    }

    fn failed(self, workload: &Workload<'_>, reason: &str, problem: String) -> Invalid {
        if let Some(failures) = self.rules.failures.get() {
            failures.with_label_values(&[self.entry.kind.kind, reason]).inc();
        }
        let top = workload.top();
        Invalid::new(top.kind, top.metadata.name_str(), problem)
    }
}

type Question = Box<dyn FnOnce(&dyn ClusterView) + Send>;

/// From the thread of a rule.
enum Message<R> {
    /// Reads the cluster and sends the answer back.
    Question(Question),
    /// The result, or the text of a panic.
    Done(Result<R, String>),
}

/// The cluster, read by the thread that waits for the rule.
struct RemoteView<R> {
    questions: mpsc::Sender<Message<R>>,
}

impl<R: Send + 'static> RemoteView<R> {
    /// The answer; the default if the rule was cut off meanwhile.
    fn ask<A: Default + Send + 'static>(
        &self,
        question: impl FnOnce(&dyn ClusterView) -> A + Send + 'static,
    ) -> A {
        let (answer, answered) = mpsc::channel();
        let question = move |view: &dyn ClusterView| {
            let _ = answer.send(question(view));
        };
        let _ = self.questions.send(Message::Question(Box::new(question)));
        answered.recv().unwrap_or_default()
    }
}

impl<R: Send + 'static> ClusterView for RemoteView<R> {
    fn priority_class_exists(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.ask(move |view| view.priority_class_exists(&name))
    }

    fn group(&self, key: &Key) -> Option<StoredGroupView> {
        let key = key.clone();
        self.ask(move |view| view.group(&key))
    }

    fn groups_named(&self, namespace: &str, base: &str) -> Vec<StoredGroupView> {
        let (namespace, base) = (namespace.to_owned(), base.to_owned());
        self.ask(move |view| view.groups_named(&namespace, &base))
    }

    fn pods_labelled(&self, namespace: &str, key: &str, value: &str) -> Vec<Arc<PodSummary>> {
        let (namespace, key, value) = (namespace.to_owned(), key.to_owned(), value.to_owned());
        self.ask(move |view| view.pods_labelled(&namespace, &key, &value))
    }
}

/// A workload that a thread can own.
struct OwnedWorkload {
    pod: PodSummary,
    owners: Vec<Arc<OwnerObject>>,
    options: Options,
    defaults: Defaults,
    objects: ReadObjects,
    inherited: Option<ObjectMeta>,
    wrapped: Option<Vec<Arc<OwnerObject>>>,
}

impl OwnedWorkload {
    fn of(workload: &Workload<'_>) -> Self {
        Self {
            pod: workload.pod.clone(),
            owners: workload.owners.to_vec(),
            options: workload.options.clone(),
            defaults: workload.defaults.clone(),
            objects: workload.objects.clone(),
            inherited: workload.inherited.cloned(),
            wrapped: workload.wrapped.map(<[_]>::to_vec),
        }
    }

    fn workload<'a>(&'a self, cluster: &'a dyn ClusterView) -> Workload<'a> {
        Workload {
            pod: &self.pod,
            owners: &self.owners,
            options: &self.options,
            defaults: &self.defaults,
            cluster,
            objects: &self.objects,
            inherited: self.inherited.as_ref(),
            wrapped: self.wrapped.as_deref(),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason given".to_owned())
}
