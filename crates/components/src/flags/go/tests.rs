//! Every flag of KAI's programs, in every form that Go's flag packages accept.

use crate::command::{ComponentCommand, adapt};
use clap::{Command, FromArgMatches as _, Subcommand as _};
use std::ffi::OsString;

#[derive(Clone, Copy)]
enum Takes {
    Bool,
    /// An example that is not the default.
    Value(&'static str),
}

use Takes::{Bool, Value};

type Table = &'static [(&'static str, Takes)];

const KUBECONFIG: Table = &[("kubeconfig", Value("/a"))];
const GATES: Table = &[("feature-gates", Value("DynamicResourceAllocation=true"))];
const ZAP: Table = &[
    ("zap-devel", Bool),
    ("zap-encoder", Value("json")),
    ("zap-log-level", Value("debug")),
    ("zap-stacktrace-level", Value("error")),
    ("zap-time-encoding", Value("iso8601")),
];
const SCHEDULER: Table = &[
    ("scheduler-name", Value("a")),
    ("namespace", Value("a")),
    ("metrics-namespace", Value("a")),
    ("resource-reservation-app-label", Value("a")),
    ("restrict-node-scheduling", Bool),
    ("nodepool-label-key", Value("a")),
    ("partition-label-value", Value("a")),
    ("queue-label-key", Value("a")),
    ("scheduler-conf", Value("/etc/config/config.yaml")),
    ("schedule-period", Value("2s")),
    ("leader-elect", Bool),
    ("version", Bool),
    ("listen-address", Value(":1")),
    ("plugin-server-port", Value("1")),
    ("enable-profiler", Bool),
    ("profiler-port", Value("1")),
    ("pyroscope-address", Value("a")),
    ("pyroscope-mutex-profiler-rate", Value("1")),
    ("pyroscope-block-profiler-rate", Value("1")),
    ("v", Value("-1")),
    ("log-json", Bool),
    ("log-flush-frequency", Value("1s")),
    ("max-consolidation-preemptees", Value("-1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("detailed-fit-errors", Bool),
    ("update-pod-eviction-condition", Bool),
    ("schedule-csi-storage", Bool),
    ("use-scheduling-signatures", Bool),
    ("full-hierarchy-fairness", Bool),
    ("allow-consolidating-reclaim", Bool),
    ("num-of-status-recording-workers", Value("1")),
    ("default-staleness-grace-period", Value("-1s")),
    ("stuck-in-releasing-threshold", Value("-1s")),
    ("cpu-worker-node-label-key", Value("a")),
    ("gpu-worker-node-label-key", Value("a")),
    ("mig-worker-node-label-key", Value("a")),
];
const BINDER: Table = &[
    ("scheduler-name", Value("a")),
    ("resource-reservation-namespace", Value("a")),
    ("resource-reservation-service-account", Value("a")),
    ("resource-reservation-app-label", Value("a")),
    ("resource-reservation-pod-image", Value("a")),
    ("resource-reservation-allocation-timeout", Value("1")),
    ("resource-reservation-pod-resources", Value("{\"limits\": {\"cpu\": \"1\"}}")),
    ("resource-reservation-pod-security-context", Value("{}")),
    ("resource-reservation-container-security-context", Value("{}")),
    ("runtime-class-name", Value("nvidia")),
    ("scale-adjust-namespace", Value("a")),
    ("qps", Value("1.5")),
    ("burst", Value("1")),
    ("max-concurrent-reconciles", Value("1")),
    ("rate-limiter-base-delay", Value("2")),
    ("rate-limiter-max-delay", Value("2")),
    ("leader-elect", Bool),
    ("metrics-bind-address", Value(":1")),
    ("health-probe-bind-address", Value(":1")),
    ("fake-gpu-nodes", Bool),
    ("plugins", Value("{\"gpusharing\": {\"enabled\": true}}")),
];
const GROUPER: Table = &[
    ("scheduler-name", Value("a")),
    ("queue-label-key", Value("a")),
    ("nodepool-label-key", Value("")),
    ("pod-label-selector", Value("a=b,c=d")),
    ("namespace-label-selector", Value("a=b")),
    ("search-legacy-pg", Bool),
    ("knative-gang-schedule", Bool),
    ("generic-karta-fallback", Bool),
    ("default-priorities-configmap-name", Value("a")),
    ("default-priorities-configmap-namespace", Value("a")),
    ("max-concurrent-reconciles", Value("1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("leader-elect", Bool),
    ("metrics-bind-address", Value(":1")),
    ("health-probe-bind-address", Value(":1")),
];
const POD_GROUP_CONTROLLER: Table = &[
    ("scheduler-name", Value("a")),
    ("enable-podgroup-webhook", Bool),
    ("max-concurrent-reconciles", Value("1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("leader-elect", Bool),
    ("health-probe-bind-address", Value(":1")),
    ("metrics-bind-address", Value(":1")),
    ("log-level", Value("4")),
    ("skip-controller-name-validation", Bool),
];
const QUEUE_CONTROLLER: Table = &[
    ("enable-webhook", Bool),
    ("enable-quota-validation", Bool),
    ("metrics-listen-address", Value(":1")),
    ("metrics-namespace", Value("a")),
    ("queue-label-to-metric-label", Value("a=b")),
    ("queue-label-to-default-metric-value", Value("a=b")),
    ("leader-elect", Bool),
    ("skip-controller-name-validation", Bool),
    ("qps", Value("1")),
    ("burst", Value("1")),
];
const ADMISSION: Table = &[
    ("scheduler-name", Value("a")),
    ("gpu-sharing-enabled", Bool),
    ("hami-core-enabled", Bool),
    ("block-nvidia-visible-devices", Bool),
    ("gpu-fraction-runtime-class-name", Value("")),
    ("gpu-pod-runtime-class-name", Value("a")),
    ("webhook-addr", Value("1")),
    ("metrics-bind-address", Value(":1")),
    ("health-probe-bind-address", Value(":1")),
    ("leader-elect", Bool),
    ("qps", Value("1.5")),
    ("burst", Value("1")),
    ("rate-limiter-base-delay", Value("2")),
    ("rate-limiter-max-delay", Value("2")),
    ("fake-gpu-nodes", Bool),
];
const COMMANDS: [(&str, &[Table]); 7] = [
    ("scheduler", &[SCHEDULER, GATES]),
    ("binder", &[BINDER, ZAP, KUBECONFIG, GATES]),
    ("pod-grouper", &[GROUPER, ZAP, KUBECONFIG]),
    ("podgroup-controller", &[POD_GROUP_CONTROLLER, ZAP, KUBECONFIG]),
    ("queue-controller", &[QUEUE_CONTROLLER, ZAP, KUBECONFIG]),
    ("admission", &[ADMISSION, ZAP, KUBECONFIG, GATES]),
    ("reservation", &[ZAP, KUBECONFIG]),
];

/// The `Debug` form of the parsed flags.
fn read(words: &[&str]) -> Result<String, String> {
    let typed = std::iter::once("kai").chain(words.iter().copied()).map(OsString::from).collect();
    let (command, typed) = adapt(ComponentCommand::augment_subcommands(Command::new("kai")), typed);
    let parsed =
        command.try_get_matches_from(typed).and_then(|matches| ComponentCommand::from_arg_matches(&matches));
    parsed.map(|command| format!("{command:?}")).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_equal_forms(command: &str, forms: &[Vec<String>]) -> String {
    let results: Vec<String> = forms
        .iter()
        .map(|form| {
            let words: Vec<&str> = std::iter::once(command).chain(form.iter().map(String::as_str)).collect();
            read(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
        })
        .collect();
    for (form, result) in forms.iter().zip(&results) {
        assert_eq!(result, &results[0], "{command} {form:?} is not {:?}", forms[0]);
    }
    results.into_iter().next().expect("there is a form")
}

#[test]
fn every_flag_of_kai_is_accepted_in_every_go_form() {
    for (command, tables) in COMMANDS {
        let plain = read(&[command]).expect("no flag is required");
        for (flag, takes) in tables.iter().copied().flatten() {
            match takes {
                Value(value) => {
                    let forms = ["-", "--"].map(|dashes| {
                        [
                            vec![format!("{dashes}{flag}={value}")],
                            vec![format!("{dashes}{flag}"), (*value).to_owned()],
                        ]
                    });
                    let given = assert_equal_forms(command, forms.as_flattened());
                    assert_ne!(given, plain, "{command}: {flag} is not parsed");
                }
                Bool => {
                    let words = |words: &[&str]| -> Vec<Vec<String>> {
                        let both =
                            |word: &&str| ["-", "--"].map(|dashes| vec![format!("{dashes}{flag}{word}")]);
                        words.iter().flat_map(both).collect()
                    };
                    let yes = assert_equal_forms(
                        command,
                        &words(&["", "=true", "=1", "=t", "=T", "=TRUE", "=True"]),
                    );
                    let no = assert_equal_forms(
                        command,
                        &words(&["=false", "=0", "=f", "=F", "=FALSE", "=False"]),
                    );
                    assert_ne!(yes, no, "{command}: {flag} is not parsed");
                }
            }
        }
    }
}

#[test]
fn last_value_of_a_repeated_flag_wins() {
    let twice = read(&["binder", "-qps", "1", "--qps=2", "-leader-elect", "-leader-elect=false"]);
    assert_eq!(twice, read(&["binder", "--qps=2", "--leader-elect=false"]));
}

#[test]
fn unknown_flag_is_rejected_with_a_suggestion() {
    for flag in ["-leader-elct", "--leader-elct", "-leader-elct=true"] {
        let error = read(&["scheduler", flag]).expect_err("there is no such flag");
        assert!(error.contains("'--leader-elct'") && error.contains("'--leader-elect'"), "{error}");
    }
    let error = read(&["scheduler", "-leader-elect=maybe"]).expect_err("it is not a boolean");
    assert!(error.contains("'maybe'") && error.contains("--leader-elect"), "{error}");
    let error =
        read(&["scheduler", "-leader-elect", "false"]).expect_err("a boolean takes no separate value");
    assert!(error.contains("unexpected argument 'false'"), "{error}");
    let error = read(&["binder", "-burst"]).expect_err("the value is missing");
    assert!(error.contains("a value is required for '--burst"), "{error}");
}

#[test]
fn help_is_not_rewritten() {
    assert!(read(&["scheduler", "-h"]).expect_err("help is not a command").contains("Usage: kai scheduler"));
}
