//! KAI's plugins under KAI's names.

use super::{
    Args, Generator, GpuOrder, GroupOrder, MemberOrder, MinRuntime, NumaArgs, Placement, Plugin, PodOrder,
    Proportion, QueueOrder, Registry, Strategy,
};
use crate::share::min_runtime::ReclaimResolution;
use kai_units::Span;
use std::sync::Arc;

/// Adds a plugin's entries.
type Register = fn(&mut Args<'_>, &mut Registry);

/// A built-in plugin.
struct BuiltIn {
    name: &'static str,
    register: Register,
}

impl Plugin for BuiltIn {
    fn name(&self) -> &str {
        self.name
    }
    fn register(&self, args: &mut Args<'_>, to: &mut Registry) {
        (self.register)(args, to);
    }
}

/// All built-in plugins.
pub fn all() -> Vec<Arc<dyn Plugin>> {
    let table: [(&'static str, Register); 23] = [
        ("predicates", |_, to| {
            to.builtin.predicates = true;
            to.builtin.soft_scores = true;
        }),
        ("proportion", proportion),
        ("priority", |_, to| to.group_order.push(GroupOrder::Priority)),
        ("elastic", |_, to| to.group_order.push(GroupOrder::Elastic)),
        ("kubeflow", |_, to| to.pod_order.push(PodOrder::Kubeflow)),
        ("ray", |_, to| to.pod_order.push(PodOrder::Ray)),
        ("taskorder", |_, to| to.pod_order.push(PodOrder::TaskPriority)),
        ("subgrouporder", |_, to| to.member_order.push(MemberOrder::BySatisfaction)),
        ("nodeavailability", |_, to| to.builtin.availability = true),
        ("gpusharingorder", |_, to| to.builtin.gpu_sharing = true),
        ("gpupack", |_, to| to.gpu_order.push(GpuOrder::Pack)),
        ("gpuspread", |_, to| to.gpu_order.push(GpuOrder::Spread)),
        ("resourcetype", |_, to| to.builtin.resource_type = true),
        ("podaffinity", |_, to| to.builtin.pod_affinity = true),
        ("nominatednode", |_, to| to.builtin.nominated_node = true),
        ("dynamicresources", |_, to| to.builtin.dynamic_resources = true),
        ("nodeplacement", placement),
        ("topology", |_, to| to.builtin.topology = true),
        ("numa", |args, to| {
            let ignore = args.text("ignoreList").unwrap_or_default().to_owned();
            to.builtin.numa =
                Some(NumaArgs { ignore, reconstruct: args.switch("reconstructAvailable", true) });
        }),
        ("minruntime", min_runtime),
        ("sg-nodelocalgreedy", |_, to| to.generators.push(Generator::NodeLocalGreedy)),
        ("sg-multinodegang", |_, to| to.generators.push(Generator::MultiNodeGang)),
        // Snapshots and job order are HTTP endpoints of the process; the names are accepted here.
        ("snapshot", |_, _| {}),
    ];
    let reflect = BuiltIn { name: "reflectjoborder", register: |_, _| {} };
    let plugin = |(name, register)| Arc::new(BuiltIn { name, register }) as Arc<dyn Plugin>;
    table.into_iter().map(plugin).chain([Arc::new(reflect) as Arc<dyn Plugin>]).collect()
}

fn min_runtime(args: &mut Args<'_>, to: &mut Registry) {
    let zero = Span(0);
    let preempt = Some(args.span("defaultPreemptMinRuntime", zero).max(zero));
    let reclaim = Some(args.span("defaultReclaimMinRuntime", zero).max(zero));
    let resolution = match args.text("reclaimResolveMethod") {
        None | Some("lca") => ReclaimResolution::LowestCommonAncestor,
        Some("queue") => ReclaimResolution::VictimQueue,
        Some(_) => {
            args.problem("reclaimResolveMethod", "use `lca` or `queue`; `lca` is used");
            ReclaimResolution::LowestCommonAncestor
        }
    };
    to.builtin.min_runtime = Some(MinRuntime { preempt, reclaim, resolution });
}

fn proportion(args: &mut Args<'_>, to: &mut Registry) {
    // KAI's guide names the first key, its code reads the second one, which is misspelt.
    let documented = args.number("reclaimerUtilizationMultiplier", 1.0);
    let multiplier = args.number("relcaimerSaturationMultiplier", documented);
    let k_value = args.number("kValue", 1.0);
    to.builtin.proportion = Some(Proportion {
        k_value: k_value.max(0.0),
        saturation_multiplier: multiplier.max(1.0),
        rules_reclaim: true,
    });
    to.queue_order.push(QueueOrder::Proportion);
}

fn placement(args: &mut Args<'_>, to: &mut Registry) {
    let mut strategy = |key: &str| match args.text(key) {
        None | Some("binpack") => Strategy::Binpack,
        Some("spread") => Strategy::Spread,
        Some(_) => {
            args.problem(key, "use `binpack` or `spread`; `binpack` is used");
            Strategy::Binpack
        }
    };
    to.builtin.placement = Some(Placement { gpu: strategy("gpu"), cpu: strategy("cpu") });
}
