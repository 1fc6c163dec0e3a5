//! Settings with which a component would end at once are refused before it is replaced.

use kai_binder::plugin::{BindContext, BinderPlugin, BoxFuture};
use kai_components::Extensions;
use kai_components::check::check;
use kai_operator::{Certificate, Desired, Facts, Images, read};
use serde_json::{Value, json};
use std::sync::Arc;

fn desired(config: &Value, shard: &Value) -> Desired {
    let config = json!({"metadata": {"name": "kai-config", "uid": "c"}, "spec": config});
    let config = read::config(&config).expect("the Config is readable");
    let shard = json!({"metadata": {"name": "default", "uid": "s"}, "spec": shard});
    let shard = read::shard(&shard).expect("the shard is readable");
    let secrets =
        ["kai-admission-webhook-tls-secret", "queue-webhook-tls-secret", "podgroup-webhook-tls-secret"];
    let certificate = Certificate { certificate: "c".to_owned(), key: "k".to_owned(), trusted: None };
    let facts = Facts {
        images: Images { repository: "registry".to_owned(), tag: "v1".to_owned() },
        certificates: secrets.map(|name| (name.to_owned(), certificate.clone())).into(),
        ..Facts::default()
    };
    kai_operator::desired(Some(&config), &[shard], &facts)
}

/// Why objects are refused, each with its name.
fn refused(desired: &Desired, extensions: &Extensions) -> Vec<String> {
    let all = desired.objects().filter_map(|object| {
        let error = check(object, extensions).err()?;
        Some(format!("{}: {error}", kai_object::name(object)))
    });
    all.collect()
}

#[test]
fn usual_settings_are_accepted() {
    let config = json!({
        "global": {"jsonLog": true, "replicaCount": 2},
        "binder": {
            "plugins": {"hamicore": {"enabled": true}, "volumebinding": {"arguments": {"bindTimeoutSeconds": "60"}}},
            "resourceReservation": {"allocationTimeout": 9, "image": {"pullPolicy": "Always"}},
        },
        "nodeScaleAdjuster": {"args": {"scalingPodImage": {"pullPolicy": "Never"}}},
        "numaPlacementExporter": {"service": {"enabled": true}, "pollInterval": "2s"},
    });
    let shard =
        json!({"plugins": {"numa": {}}, "usageDBConfig": {"clientType": "ledger"}, "args": {"v": "5"}});
    assert_eq!(refused(&desired(&config, &shard), &Extensions::default()), Vec::<String>::new());
}

#[test]
fn settings_that_a_component_refuses_are_named_with_what_is_allowed() {
    let plugins = |plugins: Value| json!({"binder": {"plugins": plugins}});
    let exporter = |interval: &str| json!({"numaPlacementExporter": {"service": {"enabled": true}, "pollInterval": interval}});
    let configs = [
        (
            plugins(json!({"mine": {}})),
            "binder",
            "`mine`",
            "volumebinding, dynamicresources, gpusharing and hamicore",
        ),
        (
            plugins(json!({"hamicore": {"enabled": true, "priority": 500}})),
            "binder",
            "`hamicore` needs `gpusharing`",
            "hint",
        ),
        (
            plugins(json!({"volumebinding": {"arguments": {"other": "1"}}})),
            "binder",
            "`bindTimeoutSeconds`",
            "it must be a number of seconds",
        ),
        (exporter("soon"), "numa-placement-exporter", "--poll-interval", "such as 90s or 5m"),
        (exporter("0s"), "numa-placement-exporter", "--poll-interval", "not above 0"),
        (
            json!({"binder": {"resourceReservation": {"image": {"pullPolicy": "Sometimes"}}}}),
            "binder",
            "--resource-reservation-pod-image-pull-policy",
            "Sometimes",
        ),
        (
            json!({"queueController": {"metricsNamespace": "9-lives"}}),
            "queue-controller",
            "--metrics-namespace",
            "9-lives",
        ),
    ];
    for (config, component, what, allowed) in configs {
        let refused = refused(&desired(&config, &json!({})), &Extensions::default());
        let error = refused.iter().find(|one| one.starts_with(component)).cloned().unwrap_or_default();
        assert!(error.contains(what) && error.contains(allowed), "{config}: {refused:?}");
    }
    let shards = [
        (
            json!({"actions": {"dance": {}}}),
            "spec.actions: `dance` is not an action; hint: the actions are allocate",
        ),
        (json!({"args": {"schedule-period": "soon"}}), "--schedule-period"),
    ];
    for (shard, what) in shards {
        let refused = refused(&desired(&json!({}), &shard), &Extensions::default());
        assert!(refused.iter().any(|error| error.contains(what)), "{shard}: {refused:?}");
    }
}

#[test]
fn plugin_of_this_binary_is_accepted() {
    let mut extensions = Extensions::default();
    extensions.binder = extensions.binder.with("mine", |_| Ok(Arc::new(NoSteps)));
    let config = json!({"binder": {"plugins": {"mine": {"priority": 5}}}});
    assert_eq!(refused(&desired(&config, &json!({})), &extensions), Vec::<String>::new());
}

struct NoSteps;

impl BinderPlugin for NoSteps {
    fn pre_bind(self: Arc<Self>, _bind: Arc<BindContext>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
