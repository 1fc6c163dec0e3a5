//! Plugins of users: they run like the built-in ones, and a failing one is named and cut off.
//!
//! Every call runs in a task of its own, so that a panic or a call that never returns ends there. A call beyond the time
//! limit is cancelled and fails the attempt; a plugin that does not even react to that is not called any more.

use crate::bind_target::BindTarget;
use crate::error::{Error, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::BindRequestSpec;
use kai_runtime::Key;
use kai_runtime::api::Api;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts, Registry};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a cancelled call may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A plugin of the binder. A call owns what it needs, since it runs in a task of its own.
pub trait BinderPlugin: Send + Sync {
    /// Prepares the pod for its node. It is called again when an attempt is repeated, also by another process, so it must
    /// be idempotent. An error fails the attempt, and every plugin whose call has started is rolled back.
    fn pre_bind(self: Arc<Self>, bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>>;

    /// The pod is bound. It is not called if the binder ends before, so nothing may depend on it.
    fn post_bind(self: Arc<Self>, _bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Reverses [`pre_bind`](Self::pre_bind), which may have ended anywhere.
    fn rollback(self: Arc<Self>, _bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// One bind attempt, as a plugin sees it.
#[derive(Clone, Debug)]
pub struct BindContext {
    /// Sends requests with the identity and the rights of the binder.
    pub api: Api,
    pub pod: Pod,
    pub node: Arc<Node>,
    /// Namespace and name of the BindRequest.
    pub request: Key,
    /// Annotations of the BindRequest, which plugins of the scheduler add.
    pub annotations: BTreeMap<String, String>,
    /// The BindRequest, without its claims.
    pub spec: BindRequestSpec,
    /// The reserved GPUs of a pod with a GPU fraction, in the order of its GPU groups.
    pub devices: Vec<String>,
}

impl BindContext {
    pub(crate) fn new(
        api: &Api,
        target: &BindTarget,
        pod: &Pod,
        node: &Arc<Node>,
        devices: &[String],
    ) -> Self {
        Self {
            api: api.clone(),
            pod: pod.clone(),
            node: Arc::clone(node),
            request: target.key.clone(),
            annotations: target.annotations.clone(),
            spec: target.spec.clone(),
            devices: devices.to_vec(),
        }
    }
}

/// Arguments of a plugin in `--plugins`.
pub type Arguments = BTreeMap<String, String>;

type Build = Arc<dyn Fn(&Arguments) -> Result<Arc<dyn BinderPlugin>, String> + Send + Sync>;

/// The plugins that `--plugins` can name besides the built-in ones.
#[derive(Clone, Default)]
pub struct BinderPlugins {
    builders: BTreeMap<String, Build>,
}

impl BinderPlugins {
    /// Adds a plugin, which is built from its arguments. The name of a built-in plugin stays built in.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        build: impl Fn(&Arguments) -> Result<Arc<dyn BinderPlugin>, String> + Send + Sync + 'static,
    ) -> Self {
        self.builders.insert(name.to_owned(), Arc::new(build));
        self
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.builders.keys().map(String::as_str)
    }

    /// Builds a plugin; none if there is none of this name.
    pub(super) fn build(
        &self,
        name: &str,
        arguments: &Arguments,
    ) -> Option<Result<Arc<dyn BinderPlugin>, String>> {
        self.builders.get(name).map(|build| build(arguments))
    }
}

impl Debug for BinderPlugins {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.builders.keys()).finish()
    }
}

/// An enabled plugin.
#[derive(Clone)]
pub struct CustomPlugin {
    pub(crate) name: String,
    /// Time limit of each call.
    pub(crate) timeout: Duration,
    plugin: Arc<dyn BinderPlugin>,
    /// Why it is not called any more.
    cut_off: Arc<Mutex<Option<String>>>,
}

impl Debug for CustomPlugin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomPlugin").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for CustomPlugin {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.timeout == other.timeout
    }
}

impl Eq for CustomPlugin {}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    PreBind,
    PostBind,
    Rollback,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::PreBind => "PreBind",
            Self::PostBind => "PostBind",
            Self::Rollback => "Rollback",
        }
    }
}

/// Why a call has no result.
enum Failure {
    Panic(String),
    Timeout(String),
}

impl CustomPlugin {
    pub(super) fn new(name: &str, timeout: Duration, plugin: Arc<dyn BinderPlugin>) -> Self {
        Self { name: name.to_owned(), timeout, plugin, cut_off: Arc::default() }
    }

    /// Time limit of all its calls in one attempt.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.timeout.saturating_add(CANCEL_TIMEOUT).saturating_mul(3)
    }

    /// Calls a step, and counts and reports its failure.
    pub(crate) async fn call(
        &self,
        step: Step,
        bind: Arc<BindContext>,
        failures: &PluginFailures,
    ) -> Result<()> {
        let (kind, reason) = match self.run(step, bind).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => ("error", reason),
            Err(Failure::Panic(reason)) => ("panic", reason),
            Err(Failure::Timeout(reason)) => ("timeout", reason),
        };
        failures.0.with_label_values(&[self.name.as_str(), step.name(), kind]).inc();
        tracing::warn!(plugin = self.name, step = step.name(), reason, "binder plugin failed");
        Err(Error::Plugin { plugin: self.name.clone(), step: step.name(), reason })
    }

    async fn run(&self, step: Step, bind: Arc<BindContext>) -> Result<Result<(), String>, Failure> {
        if let Some(why) = self.cut_off.lock().clone() {
            return Err(Failure::Timeout(why));
        }
        let plugin = Arc::clone(&self.plugin);
        // Dropping the set cancels the call.
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            match step {
                Step::PreBind => plugin.pre_bind(bind).await,
                Step::PostBind => plugin.post_bind(bind).await,
                Step::Rollback => plugin.rollback(bind).await,
            }
        });
        let limit = self.timeout.as_secs();
        match tokio::time::timeout(self.timeout, tasks.join_next()).await {
            Ok(Some(Ok(result))) => Ok(result),
            Ok(Some(Err(error))) => {
                let text = error.try_into_panic().map_or("it was cancelled".to_owned(), |panic| {
                    format!("it panicked: {}", super::panic_text(&*panic))
                });
                Err(Failure::Panic(text))
            }
            Ok(None) => Err(Failure::Panic("it did not run".to_owned())),
            Err(_) => {
                tasks.abort_all();
                if tokio::time::timeout(CANCEL_TIMEOUT, tasks.join_next()).await.is_err() {
                    let why = format!(
                        "a call neither returned within {limit} s nor could be cancelled; it is cut off until the \
                         binder is restarted"
                    );
                    tracing::error!(plugin = self.name, why, "binder plugin cut off");
                    *self.cut_off.lock() = Some(why.clone());
                    return Err(Failure::Timeout(why));
                }
                Err(Failure::Timeout(format!("it took longer than {limit} s")))
            }
        }
    }
}

/// Counts failed calls by plugin, step and reason.
#[derive(Clone, Debug)]
pub(crate) struct PluginFailures(IntCounterVec);

impl PluginFailures {
    #[expect(clippy::expect_used, reason = "name and labels are valid constants")]
    pub(crate) fn register(registry: &Registry) -> Self {
        let options = Opts::new(
            "kai_binder_plugin_failures_total",
            "Failed calls of binder plugins that are not built in",
        );
        let counter = IntCounterVec::new(options, &["plugin", "step", "reason"]).expect("valid constants");
        // Where several binders share a registry, the first one's counter is served.
        let _ = registry.register(Box::new(counter.clone()));
        Self(counter)
    }
}
