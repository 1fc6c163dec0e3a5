//! Every flag that KAI's programs have, in every form that Go takes.

use crate::args::Args;
use std::ffi::OsString;

/// What a flag takes.
#[derive(Clone, Copy)]
enum Takes {
    Truth,
    /// A value, such as this one, which is not the default.
    Value(&'static str),
}

use Takes::{Truth, Value};

type Table = &'static [(&'static str, Takes)];

const KUBECONFIG: Table = &[("kubeconfig", Value("/a"))];
const GATES: Table = &[("feature-gates", Value("DynamicResourceAllocation=true"))];
const ZAP: Table = &[
    ("zap-devel", Truth),
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
    ("restrict-node-scheduling", Truth),
    ("nodepool-label-key", Value("a")),
    ("partition-label-value", Value("a")),
    ("queue-label-key", Value("a")),
    ("scheduler-conf", Value("/etc/config/config.yaml")),
    ("schedule-period", Value("2s")),
    ("leader-elect", Truth),
    ("version", Truth),
    ("listen-address", Value(":1")),
    ("plugin-server-port", Value("1")),
    ("enable-profiler", Truth),
    ("profiler-port", Value("1")),
    ("pyroscope-address", Value("a")),
    ("pyroscope-mutex-profiler-rate", Value("1")),
    ("pyroscope-block-profiler-rate", Value("1")),
    ("v", Value("-1")),
    ("log-json", Truth),
    ("log-flush-frequency", Value("1s")),
    ("max-consolidation-preemptees", Value("-1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("detailed-fit-errors", Truth),
    ("update-pod-eviction-condition", Truth),
    ("schedule-csi-storage", Truth),
    ("use-scheduling-signatures", Truth),
    ("full-hierarchy-fairness", Truth),
    ("allow-consolidating-reclaim", Truth),
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
    ("leader-elect", Truth),
    ("metrics-bind-address", Value(":1")),
    ("health-probe-bind-address", Value(":1")),
    ("fake-gpu-nodes", Truth),
    ("plugins", Value("{\"gpusharing\": {\"enabled\": true}}")),
];
const GROUPER: Table = &[
    ("scheduler-name", Value("a")),
    ("queue-label-key", Value("a")),
    ("nodepool-label-key", Value("")),
    ("pod-label-selector", Value("a=b,c=d")),
    ("namespace-label-selector", Value("a=b")),
    ("search-legacy-pg", Truth),
    ("knative-gang-schedule", Truth),
    ("generic-karta-fallback", Truth),
    ("default-priorities-configmap-name", Value("a")),
    ("default-priorities-configmap-namespace", Value("a")),
    ("max-concurrent-reconciles", Value("1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("leader-elect", Truth),
    ("metrics-bind-address", Value(":1")),
    ("health-probe-bind-address", Value(":1")),
];
const POD_GROUP_CONTROLLER: Table = &[
    ("scheduler-name", Value("a")),
    ("enable-podgroup-webhook", Truth),
    ("max-concurrent-reconciles", Value("1")),
    ("qps", Value("1")),
    ("burst", Value("1")),
    ("leader-elect", Truth),
    ("health-probe-bind-address", Value(":1")),
    ("metrics-bind-address", Value(":1")),
    ("log-level", Value("4")),
    ("skip-controller-name-validation", Truth),
];
const QUEUE_CONTROLLER: Table = &[
    ("enable-webhook", Truth),
    ("enable-quota-validation", Truth),
    ("metrics-listen-address", Value(":1")),
    ("metrics-namespace", Value("a")),
    ("queue-label-to-metric-label", Value("a=b")),
    ("queue-label-to-default-metric-value", Value("a=b")),
    ("leader-elect", Truth),
    ("skip-controller-name-validation", Truth),
    ("qps", Value("1")),
    ("burst", Value("1")),
];
const COMMANDS: [(&str, &[Table]); 6] = [
    ("scheduler", &[SCHEDULER, GATES]),
    ("binder", &[BINDER, ZAP, KUBECONFIG, GATES]),
    ("pod-grouper", &[GROUPER, ZAP, KUBECONFIG]),
    ("podgroup-controller", &[POD_GROUP_CONTROLLER, ZAP, KUBECONFIG]),
    ("queue-controller", &[QUEUE_CONTROLLER, ZAP, KUBECONFIG]),
    ("reservation", &[ZAP, KUBECONFIG]),
];

/// What became of a command line, as one text.
fn read(words: &[&str]) -> Result<String, String> {
    let typed = std::iter::once("kai").chain(words.iter().copied()).map(OsString::from);
    Args::read(typed).map(|args| format!("{args:?}")).map_err(|error| error.to_string())
}

#[track_caller]
fn all_the_same(command: &str, forms: &[Vec<String>]) -> String {
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
fn every_flag_of_kais_programs_is_taken_in_every_form_of_go() {
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
                    let given = all_the_same(command, forms.as_flattened());
                    assert_ne!(given, plain, "{command}: {flag} does nothing");
                }
                Truth => {
                    let words = |words: &[&str]| -> Vec<Vec<String>> {
                        let both =
                            |word: &&str| ["-", "--"].map(|dashes| vec![format!("{dashes}{flag}{word}")]);
                        words.iter().flat_map(both).collect()
                    };
                    let yes =
                        all_the_same(command, &words(&["", "=true", "=1", "=t", "=T", "=TRUE", "=True"]));
                    let no = all_the_same(command, &words(&["=false", "=0", "=f", "=F", "=FALSE", "=False"]));
                    assert_ne!(yes, no, "{command}: {flag} does nothing");
                }
            }
        }
    }
}

#[test]
fn of_a_flag_that_is_given_twice_the_last_counts() {
    let twice = read(&["binder", "-qps", "1", "--qps=2", "-leader-elect", "-leader-elect=false"]);
    assert_eq!(twice, read(&["binder", "--qps=2", "--leader-elect=false"]));
}

#[test]
fn a_flag_that_nobody_knows_is_refused_with_the_one_that_was_meant() {
    for flag in ["-leader-elct", "--leader-elct", "-leader-elct=true"] {
        let error = read(&["scheduler", flag]).expect_err("there is no such flag");
        assert!(error.contains("'--leader-elct'") && error.contains("'--leader-elect'"), "{error}");
    }
    let error = read(&["scheduler", "-leader-elect=maybe"]).expect_err("it is neither true nor false");
    assert!(error.contains("'maybe'") && error.contains("--leader-elect"), "{error}");
    let error = read(&["scheduler", "-leader-elect", "false"]).expect_err("truth takes no word of its own");
    assert!(error.contains("unexpected argument 'false'"), "{error}");
    let error = read(&["binder", "-burst"]).expect_err("the value is missing");
    assert!(error.contains("a value is required for '--burst"), "{error}");
}

#[test]
fn other_commands_keep_their_own_forms() {
    let error = read(&["plan", "-json", "x"]).expect_err("one dash is not enough");
    assert!(error.contains("'-j'"), "{error}");
    assert!(read(&["scheduler", "-h"]).expect_err("help is no command").contains("Usage: kai scheduler"));
}
