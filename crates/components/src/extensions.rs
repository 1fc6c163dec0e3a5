//! What a user's binary adds to the components.

use crate::in_process::ComponentOptions;
use anyhow::{Context, Result};
use kai_api::config::component::BinderPlugin;
use kai_binder::plugin::BinderPlugins;
use kai_engine::plugin::PluginSet;
use kai_podgrouper::OwnRules;

/// Plugins of the scheduler and the binder, and rules of the pod grouper. The default has KAI's plugins alone.
#[derive(Clone)]
pub struct Extensions {
    /// The scheduler plugins that its configuration may name.
    pub scheduler: PluginSet,
    /// The binder plugins that `--plugins` may name, besides the built-in ones.
    pub binder: BinderPlugins,
    /// Rules for kinds of the user's own, which are always in effect.
    pub grouper: OwnRules,
}

impl Default for Extensions {
    fn default() -> Self {
        Self {
            scheduler: PluginSet::builtin(),
            binder: BinderPlugins::default(),
            grouper: OwnRules::default(),
        }
    }
}

impl From<PluginSet> for Extensions {
    fn from(scheduler: PluginSet) -> Self {
        Self { scheduler, ..Self::default() }
    }
}

impl Extensions {
    /// Adds them to the options of components in this process, where no flags name them: every binder plugin runs.
    pub fn apply(&self, options: &mut ComponentOptions) -> Result<()> {
        let named = self.binder.names().map(|name| (name.to_owned(), BinderPlugin::default())).collect();
        let plugins = kai_binder::plugin::resolve_with(&named, &self.binder);
        options.binder.plugins = plugins.context("cannot build the binder plugins")?;
        if self.binder.names().next().is_some() {
            // A user's plugin runs for every pod.
            options.scheduler.binding = kai_scheduler::Binding::Requests;
        }
        options.pod_grouper.own_rules = self.grouper.clone();
        Ok(())
    }
}
