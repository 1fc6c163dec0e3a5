//! Brings objects into the form in which they are compared: without identities, times and API defaults.
//!
//! Arguments are compared as a map from flag to value: their order has no meaning, and of a flag given twice the last one
//! is used.

use serde_json::{Map, Value, json};

const IDENTITY: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "generateName",
    "deletionTimestamp",
];
const WRITTEN_BY_CONTROLLERS: [&str; 3] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// The object in the form in which it is compared.
pub(super) fn normalise(object: &Value) -> Value {
    let mut object = object.clone();
    let kind = kai_object::kind(&object).to_owned();
    metadata(&mut object);
    remove(&mut object, "status");
    match kind.as_str() {
        "Deployment" | "DaemonSet" => workload(&mut object),
        "Service" => service(&mut object),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => webhooks(&mut object),
        "Secret" => secret(&mut object),
        "ConfigMap" => config_map(&mut object),
        "EndpointSlice" => endpoint_slice(&mut object),
        "ServiceAccount" => {
            if let Some(Value::Array(secrets)) = object.get_mut("imagePullSecrets") {
                secrets.sort_by_key(|secret| secret.get("name").map(Value::to_string));
            }
        }
        "Prometheus" => prometheus(&mut object),
        _ => {}
    }
    object
}

fn metadata(object: &mut Value) {
    let metadata = kai_object::meta_mut(object);
    for field in IDENTITY {
        metadata.remove(field);
    }
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(owner, "uid");
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        for name in WRITTEN_BY_CONTROLLERS {
            annotations.remove(name);
        }
        if let Some(time) = annotations.get_mut("kai/deprecation-timestamp") {
            *time = Value::from("<time>");
        }
    }
    for field in ["labels", "annotations"] {
        if metadata.get(field).is_some_and(|map| map.is_null() || *map == json!({})) {
            metadata.remove(field);
        }
    }
}

fn workload(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    drop_default(spec, "progressDeadlineSeconds", &json!(600));
    drop_default(spec, "revisionHistoryLimit", &json!(10));
    let rolling = json!({"maxUnavailable": "25%", "maxSurge": "25%"});
    drop_default(spec, "strategy", &json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    drop_default(spec, "updateStrategy", &json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
    if let Some(version) = spec.pointer_mut("/template/metadata/annotations/configMapVersion")
        && version.as_str().is_some_and(|text| !text.is_empty())
    {
        *version = Value::from("<resourceVersion of the ConfigMap>");
    }
    if let Some(pod) = spec.pointer_mut("/template/spec") {
        pod_spec(pod);
    }
}

fn pod_spec(pod: &mut Value) {
    for (field, default) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        drop_default(pod, field, &default);
    }
    remove(pod, "serviceAccount");
    for container in list(pod, "containers") {
        drop_default(container, "terminationMessagePath", &json!("/dev/termination-log"));
        drop_default(container, "terminationMessagePolicy", &json!("File"));
        drop_default(container, "resources", &json!({}));
        if let Some(context) = container.get_mut("securityContext") {
            security_context(context);
        }
        for port in list(container, "ports") {
            drop_default(port, "protocol", &json!("TCP"));
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if let Some(probe) = container.get_mut(probe) {
                self::probe(probe);
            }
        }
        for variable in list(container, "env") {
            if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
                drop_default(field, "apiVersion", &json!("v1"));
            }
        }
        if let Some(args) = container.get_mut("args") {
            *args = arguments(args);
        }
    }
    for volume in list(pod, "volumes") {
        for source in ["configMap", "secret"] {
            if let Some(source) = volume.get_mut(source) {
                drop_default(source, "defaultMode", &json!(420));
            }
        }
        if let Some(path) = volume.get_mut("hostPath") {
            drop_default(path, "type", &json!(""));
        }
    }
}

/// Without what ours has beyond KAI's wherever the settings do not say otherwise (`docs/differences.md`).
fn security_context(context: &mut Value) {
    drop_default(context, "readOnlyRootFilesystem", &json!(true));
    drop_default(context, "seccompProfile", &json!({"type": "RuntimeDefault"}));
    if let Some(dropped) = context.pointer_mut("/capabilities/drop")
        && *dropped == json!(["ALL"])
    {
        *dropped = json!(["all"]);
    }
}

fn probe(probe: &mut Value) {
    for (field, default) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        drop_default(probe, field, &json!(default));
    }
    if let Some(request) = probe.get_mut("httpGet") {
        drop_default(request, "scheme", &json!("HTTP"));
    }
}

/// Flags with their values; `true` for a flag without one. A value that is JSON is parsed, selectors are sorted.
fn arguments(args: &Value) -> Value {
    let args: Vec<Value> = args.as_array().into_iter().flatten().map(parsed).collect();
    let mut flags = Map::new();
    let mut rest = args.iter().peekable();
    while let Some(flag) = rest.next() {
        let text = flag.as_str().unwrap_or_default();
        if let Some((name, value)) = text.split_once('=') {
            flags.insert(name.to_owned(), Value::from(value));
            continue;
        }
        let value = rest.next_if(|next| !next.as_str().is_some_and(|next| next.starts_with("--")));
        let mut value = value.cloned().unwrap_or_else(|| Value::from("true"));
        if text.ends_with("-label-selector") {
            let mut labels: Vec<&str> = value.as_str().unwrap_or_default().split(',').collect();
            labels.sort_unstable();
            value = Value::from(labels.join(","));
        }
        flags.insert(text.to_owned(), value);
    }
    Value::Object(flags)
}

fn parsed(argument: &Value) -> Value {
    if let Some(value) = argument.get("$json") {
        return value.clone();
    }
    let text = argument.as_str().unwrap_or_default();
    if text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return value;
    }
    argument.clone()
}

fn service(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
        remove(spec, "clusterIP");
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy", "allocateLoadBalancerNodePorts"] {
        remove(spec, field);
    }
    drop_default(spec, "internalTrafficPolicy", &json!("Cluster"));
    drop_default(spec, "externalTrafficPolicy", &json!("Cluster"));
    drop_default(spec, "sessionAffinity", &json!("None"));
    for port in list(spec, "ports") {
        drop_default(port, "protocol", &json!("TCP"));
        remove(port, "nodePort");
    }
}

fn webhooks(object: &mut Value) {
    for webhook in list(object, "webhooks") {
        if let Some(bundle) = webhook.pointer_mut("/clientConfig/caBundle") {
            *bundle = Value::from("<cert>");
        }
        if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
            drop_default(service, "port", &json!(443));
        }
        for (field, default) in [
            ("matchPolicy", json!("Equivalent")),
            ("timeoutSeconds", json!(10)),
            ("objectSelector", json!({})),
            ("namespaceSelector", json!({})),
            ("reinvocationPolicy", json!("Never")),
        ] {
            drop_default(webhook, field, &default);
        }
        if let Some(Value::Array(expressions)) = webhook.pointer_mut("/namespaceSelector/matchExpressions") {
            expressions.sort_by_key(|expression| expression.get("key").map(Value::to_string));
        }
        for rule in list(webhook, "rules") {
            drop_default(rule, "scope", &json!("*"));
        }
    }
}

fn secret(object: &mut Value) {
    let data = object.get("data").and_then(Value::as_object);
    let keys = data.into_iter().flat_map(|data| data.keys());
    let data = keys.map(|key| {
        let value = if std::path::Path::new(key).extension().is_some_and(|e| e == "crt") {
            "<cert>"
        } else {
            "<key>"
        };
        (key.clone(), Value::from(value))
    });
    object["data"] = Value::Object(data.collect());
    drop_default(object, "type", &json!("Opaque"));
}

fn config_map(object: &mut Value) {
    let data = object.get_mut("data").and_then(Value::as_object_mut);
    for (key, value) in data.into_iter().flatten() {
        let is_yaml = std::path::Path::new(key).extension().is_some_and(|e| e == "yaml" || e == "yml");
        if let (true, Some(text)) = (is_yaml, value.as_str())
            && let Ok(parsed) = serde_saphyr::from_str::<Value>(text)
        {
            *value = json!({"$yaml": parsed});
        }
    }
}

fn endpoint_slice(object: &mut Value) {
    for endpoint in list(object, "endpoints") {
        if let Some(target) = endpoint.get_mut("targetRef") {
            remove(target, "uid");
        }
    }
    if object.get("endpoints").is_some_and(|list| list.is_null() || *list == json!([])) {
        remove(object, "endpoints");
    }
}

/// Removes the empty structures that Go's client writes for fields without a value.
fn prometheus(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    drop_default(spec, "arbitraryFSAccessThroughSMs", &json!({}));
    drop_default(spec, "resources", &json!({}));
    drop_default(spec, "rules", &json!({"alert": {}}));
    if let Some(claim) = spec.pointer_mut("/storage/volumeClaimTemplate") {
        drop_default(claim, "metadata", &json!({}));
        drop_default(claim, "status", &json!({}));
    }
}

fn list<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn drop_default(object: &mut Value, field: &str, default: &Value) {
    if object.get(field) == Some(default) {
        remove(object, field);
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
