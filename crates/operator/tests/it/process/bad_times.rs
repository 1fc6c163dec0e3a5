//! What the operator cannot read, write or deploy: the last good state stays, a condition says why, and the operator heals.

use super::{Installation, NAMESPACE, OPERATOR, SECRET, TIMEOUT, in_virtual_time};
use kai_api::{Config, SchedulingShard};
use kai_object as object;
use kai_operator::process::Check;
use kai_runtime::api::{DeleteOptions, Part};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_sim::{Outage, Right, Rights};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The rights that the chart grants.
fn rights() -> Rights {
    let text = include_str!("../../../../../deploy/rbac/kai-operator.yaml");
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    Rights::of_roles(&documents.collect::<Vec<_>>())
}

impl Installation {
    fn set_rights(&self, rights: Rights) {
        self.cluster.faults().set_rights(OPERATOR, Some(rights));
    }

    async fn reconciling(&self) -> (String, String) {
        self.condition(&ResourceKind::of::<Config>(), "kai-config", "Reconciling").await
    }

    async fn fails_with(&self, texts: &[&str]) {
        let what = format!("the condition says {texts:?}");
        self.wait_until(&what, async || {
            let (status, message) = self.reconciling().await;
            status == "True" && texts.iter().all(|text| message.contains(text))
        })
        .await;
    }

    async fn argument(&self, deployment: &str, wanted: &str) -> bool {
        let deployment = self.get(&kind::DEPLOYMENT, deployment).await.unwrap_or_default();
        let args = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
        args.is_some_and(|args| args.iter().any(|arg| arg.as_str().is_some_and(|arg| arg.contains(wanted))))
    }

    async fn definition(&self, name: &str) -> Value {
        self.api().get_dynamic(&kind::CUSTOM_RESOURCE_DEFINITION, &Key::new("", name)).await.unwrap()
    }

    async fn set_definition(&self, definition: &Value) {
        let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
        let key = Key::new("", object::name(definition));
        let kind = kind::CUSTOM_RESOURCE_DEFINITION;
        self.api().patch_dynamic(&kind, &key, Part::Main, &patch).await.unwrap();
    }

    fn requests(&self) -> u64 {
        self.cluster.faults().counts(OPERATOR).requests
    }
}

#[test]
fn roles_of_the_chart_suffice() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({"global": {"replicaCount": 2}})).await;
        installation.set_rights(rights());
        installation.ready().await;
        let denied = installation.cluster.faults().denied(OPERATOR);
        assert!(denied.is_empty(), "{denied:?}");
    });
}

#[test]
fn namespace_without_rights_leaves_the_last_good_state_and_a_way_back() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.set_rights(rights());
        installation.ready().await;
        installation.patch_config(&json!({"namespace": "kai-two"})).await;
        installation
            .fails_with(&[
                "the operator may not list and watch",
                "deployments.apps",
                "spec.namespace of the Config is `kai-two`, the operator has its Role in `kai-scheduler`",
                "hint:",
            ])
            .await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        for deployment in ["binder", "admission", "kai-scheduler-default"] {
            let stays = installation.get(&kind::DEPLOYMENT, deployment).await;
            assert!(stays.is_some(), "{deployment} was deleted");
        }
        let webhooks = installation
            .get(&kind::VALIDATING_WEBHOOK_CONFIGURATION, "validating-kai-admission")
            .await
            .unwrap();
        let called = object::str_at(&webhooks, "/webhooks/0/clientConfig/service/namespace");
        assert_eq!(called, NAMESPACE, "the API server calls the webhook that runs");
        let config = ResourceKind::of::<Config>();
        assert_eq!(installation.condition(&config, "kai-config", "Ready").await.0, "False");
        let shards = ResourceKind::of::<SchedulingShard>();
        let (status, message) = installation.condition(&shards, "default", "Reconciling").await;
        assert!(status == "True" && message.contains("kai-two"), "{status} {message}");
        let events = installation.events("ReconcileFailed").await;
        assert!(events.iter().any(|event| event.contains("spec.namespace")), "{events:?}");

        installation.patch_config(&json!({"namespace": null})).await;
        installation.ready().await;
        installation.patch_config(&json!({"podGrouper": {"service": {"enabled": false}}})).await;
        installation
            .wait_until("the operator works again", async || {
                installation.get(&kind::DEPLOYMENT, "pod-grouper").await.is_none()
            })
            .await;
    });
}

#[test]
fn rights_that_are_granted_later_move_the_installation() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.set_rights(rights());
        installation.ready().await;
        installation.patch_config(&json!({"namespace": "kai-two"})).await;
        installation.fails_with(&["kai-two"]).await;
        installation.cluster.faults().set_rights(OPERATOR, None);
        let moved = async || {
            let key = Key::new("kai-two", "binder");
            installation.api().get_dynamic(&kind::DEPLOYMENT, &key).await.is_ok()
                && installation.get(&kind::DEPLOYMENT, "binder").await.is_none()
        };
        installation.wait_until("the binder has moved", moved).await;
        installation.ready().await;
    });
}

#[test]
fn missing_right_to_read_a_kind_is_a_condition_and_the_rest_is_reconciled() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let service = Key::new(NAMESPACE, "binder");
        let services = ResourceKind::of::<k8s_openapi::api::core::v1::Service>();
        let before = installation.api().get_dynamic(&services, &service).await.unwrap();
        installation.set_rights(rights().without_resource("services", ""));
        installation.cluster.faults().crash(OPERATOR);
        installation
            .fails_with(&[
                "the operator may not list and watch services in namespace `kai-scheduler`",
                "hint: grant",
            ])
            .await;
        installation.patch_config(&json!({"global": {"jsonLog": true}})).await;
        for deployment in ["pod-grouper", "binder"] {
            installation
                .wait_until("what can be read is reconciled", async || {
                    installation.argument(deployment, "--zap-devel=false").await
                })
                .await;
        }
        installation.fails_with(&["services"]).await;
        let after = installation.api().get_dynamic(&services, &service).await.unwrap();
        assert_eq!(object::uid(&after), object::uid(&before));
        installation.set_rights(rights());
        installation.ready().await;
    });
}

#[test]
fn certificate_that_cannot_be_stored_says_why_and_is_stored_soon_after_it_can_be() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        let without = [Right::new("create", "secrets", ""), Right::new("patch", "secrets", "")];
        installation.set_rights(rights().without(&without));
        installation.fails_with(&["`queue-webhook-tls-secret`", "cannot create resource \"secrets\""]).await;
        assert!(installation.get(&kind::DEPLOYMENT, "binder").await.is_some(), "the others are deployed");
        tokio::time::sleep(Duration::from_mins(5)).await;
        let before = installation.requests();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let requests = installation.requests() - before;
        assert!(requests < 200, "{requests} requests in ten minutes");
        installation.set_rights(rights());
        let granted = Instant::now();
        installation
            .wait_until("the secret is stored", async || {
                installation.get(&SECRET, "queue-webhook-tls-secret").await.is_some()
            })
            .await;
        assert!(granted.elapsed() <= Duration::from_secs(62), "{:?}", granted.elapsed());
        installation.ready().await;
    });
}

#[test]
fn settings_that_a_process_refuses_leave_the_last_good_one_running() {
    in_virtual_time(async || {
        let check = Check::new(|object| {
            let text = object.to_string();
            let refused =
                text.contains("mine").then(|| "invalid `--plugins`: there is no plugin `mine`".to_owned());
            refused.map_or(Ok(()), Err)
        });
        let installation = Installation::checked(&json!({}), check).await;
        installation.ready().await;
        let before = object::generation(&installation.get(&kind::DEPLOYMENT, "binder").await.unwrap());
        installation.patch_config(&json!({"binder": {"plugins": {"mine": {"priority": 5}}}})).await;
        installation.fails_with(&["Binder: spec.binder.plugins", "there is no plugin `mine`"]).await;
        let binder = installation.get(&kind::DEPLOYMENT, "binder").await.unwrap();
        assert_eq!(object::generation(&binder), before, "the last good Deployment stays");
        let config = ResourceKind::of::<Config>();
        assert_eq!(installation.condition(&config, "kai-config", "Available").await.0, "True");
        assert_eq!(installation.condition(&config, "kai-config", "Ready").await.0, "False");
        let events = installation.events("ReconcileFailed").await;
        assert!(events.iter().any(|event| event.contains("spec.binder.plugins")), "{events:?}");
        // Other operands follow the Config.
        installation.patch_config(&json!({"global": {"jsonLog": true}})).await;
        installation
            .wait_until("the pod grouper is reconciled", async || {
                installation.argument("pod-grouper", "--zap-devel=false").await
            })
            .await;
        installation.patch_config(&json!({"binder": {"plugins": null}})).await;
        installation.ready().await;
        assert!(installation.argument("binder", "--zap-devel=false").await);
    });
}

/// The times of all writes of the operator, by object.
fn writes(installation: &Installation) -> BTreeMap<String, Vec<String>> {
    let mut writes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in installation.cluster.journal().lines() {
        let mut words = line.split(' ');
        let (Some(time), Some(OPERATOR), Some("request"), Some(method), Some(path)) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let path = path.split('?').next().unwrap_or_default();
        if method == "GET" || path.contains("/events") {
            continue;
        }
        let body = line.split_once('{').map_or_else(String::new, |(_, body)| format!("{{{body}"));
        let path = if method == "POST" {
            let created: Value = serde_json::from_str(&body).unwrap_or_default();
            format!("{path}/{}", object::name(&created))
        } else {
            path.trim_end_matches("/status").to_owned()
        };
        writes.entry(path).or_default().push(time.to_owned());
    }
    writes
}

#[test]
fn no_object_is_written_twice_within_a_second() {
    in_virtual_time(async || {
        let installation = Installation::recorded(&json!({})).await;
        installation.ready().await;
        let binder = Key::new(NAMESPACE, "binder");
        let secret = Key::new(NAMESPACE, "queue-webhook-tls-secret");
        for round in 0..40 {
            // Another field manager owns a field that an apply does not remove, and a field that it restores.
            let pod = json!({"nodeSelector": {"other": format!("{round}")}});
            let patch = json!({"spec": {"replicas": 5, "template": {"spec": pod}}});
            installation.api().patch_dynamic(&kind::DEPLOYMENT, &binder, Part::Main, &patch).await.unwrap();
            // Every Deployment changes, and the conditions with them.
            installation.patch_config(&json!({"global": {"jsonLog": round % 2 == 0}})).await;
            if round % 5 == 0 {
                let options = DeleteOptions::default();
                let _ = installation.api().delete_dynamic(&SECRET, &secret, &options).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        installation
            .wait_until("the field of the other is gone", async || {
                let deployment = installation.get(&kind::DEPLOYMENT, "binder").await.unwrap();
                let pod = &deployment["spec"]["template"]["spec"];
                pod.get("nodeSelector").is_none() && deployment["spec"]["replicas"] == 1
            })
            .await;
        installation.ready().await;
        let writes = writes(&installation);
        assert!(writes.values().any(|times| times.len() > 10), "{writes:?}");
        for path in ["deployments/binder", "secrets/queue-webhook-tls-secret", "configs/kai-config"] {
            let times =
                writes.iter().find(|(key, _)| key.ends_with(path)).map_or(0, |(_, times)| times.len());
            assert!(times > 2, "{path} was written {times} times");
        }
        for (path, times) in &writes {
            let times: Vec<kai_units::Timestamp> = times.iter().map(|time| time.parse().unwrap()).collect();
            let closest = times.windows(2).map(|pair| pair[1].0 - pair[0].0).min();
            assert!(
                closest.is_none_or(|closest| closest >= 1_000_000),
                "{path}: {closest:?} µs between two writes"
            );
        }
    });
}

#[test]
fn definition_without_a_field_that_is_written_is_said_once() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let mut definition = installation.definition("configs.kai.scheduler").await;
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let status = schema["properties"]["status"]["properties"].as_object_mut().unwrap();
        status.remove("conditions").unwrap();
        installation.set_definition(&definition).await;
        installation.patch_config(&json!({"global": {"jsonLog": true}})).await;
        installation
            .wait_until("the installation is reconciled", async || {
                installation.argument("binder", "--zap-devel=false").await
            })
            .await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = installation.requests();
        tokio::time::sleep(Duration::from_mins(30)).await;
        let requests = installation.requests() - before;
        assert!(requests < 500, "{requests} requests in half an hour");
        let original =
            kai_api::crds().into_iter().map(|definition| serde_json::to_value(&definition).unwrap());
        let original = original.into_iter().find(|one| object::name(one) == "configs.kai.scheduler").unwrap();
        installation.set_definition(&original).await;
        installation.patch_config(&json!({"global": {"jsonLog": false}})).await;
        installation.ready().await;
    });
}

#[test]
fn field_of_a_later_definition_is_an_event() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let mut definition = installation.definition("configs.kai.scheduler").await;
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"]["painter"] =
            json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        installation.set_definition(&definition).await;
        installation.patch_config(&json!({"painter": {"colour": "red"}, "global": {"jsonLog": true}})).await;
        installation
            .wait_until("the event names the field", async || {
                let events = installation.events("SettingHasNoEffect").await;
                events.iter().any(|event| event.contains("`spec.painter`"))
            })
            .await;
        installation.ready().await;
        assert!(
            installation.argument("binder", "--zap-devel=false").await,
            "the rest of the Config is in effect"
        );
    });
}

#[test]
fn definition_that_is_not_served_is_a_condition_until_it_is() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        let faults = installation.cluster.faults();
        faults.set_outage(OPERATOR, Outage::not_served("/schedulingshards"));
        faults.crash(OPERATOR);
        installation.fails_with(&["schedulingshards.kai.scheduler", "cannot be read"]).await;
        assert!(
            installation.get(&kind::DEPLOYMENT, "kai-scheduler-default").await.is_some(),
            "the shard stays"
        );
        let before = installation.requests();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let requests = installation.requests() - before;
        assert!(requests < 400, "{requests} requests in ten minutes");
        faults.heal(OPERATOR);
        installation.ready().await;

        faults.set_outage(OPERATOR, Outage::not_served("/configs"));
        faults.crash(OPERATOR);
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(installation.get(&kind::DEPLOYMENT, "binder").await.is_some(), "the installation stays");
        faults.heal(OPERATOR);
        installation.patch_config(&json!({"global": {"jsonLog": true}})).await;
        installation.ready().await;
        assert!(installation.argument("binder", "--zap-devel=false").await);
    });
}

#[test]
fn deleted_namespaces_are_said_and_filled_again() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        for name in ["kai-resource-reservation", NAMESPACE] {
            installation.ready().await;
            let key = Key::new("", name);
            let options = DeleteOptions::default();
            installation.api().delete_dynamic(&kind::NAMESPACE, &key, &options).await.unwrap();
            installation
                .wait_until("the namespace is gone", async || {
                    installation.api().get_dynamic(&kind::NAMESPACE, &key).await.is_err()
                })
                .await;
            installation.fails_with(&[name, "not found"]).await;
            let before = installation.requests();
            tokio::time::sleep(Duration::from_mins(10)).await;
            let requests = installation.requests() - before;
            assert!(requests < 1_000, "{requests} requests in ten minutes");
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            installation.api().create_dynamic(&kind::NAMESPACE, "", &namespace).await.unwrap();
            let healing = tokio::time::timeout(TIMEOUT, installation.ready());
            assert!(healing.await.is_ok(), "{name}: {:?}", installation.reconciling().await);
        }
    });
}

#[test]
fn operator_at_rest_asks_only_which_optional_apis_there_are() {
    in_virtual_time(async || {
        let installation = Installation::new(&json!({})).await;
        installation.ready().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = installation.requests();
        tokio::time::sleep(Duration::from_mins(30)).await;
        let requests = installation.requests() - before;
        assert!(requests <= 65, "{requests} requests in half an hour, of which discovery makes 60");
    });
}
