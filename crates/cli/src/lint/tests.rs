//! Rules of `kai lint`, by the findings of small manifests.

use super::*;

fn rules(text: &str) -> Vec<(&'static str, Level)> {
    let findings = check(&documents::parse("a.yaml", text).unwrap(), &PluginSet::builtin());
    findings.iter().map(|finding| (finding.rule, finding.level)).collect()
}

#[track_caller]
fn has(text: &str, rule: &'static str, level: Level) {
    let found = rules(text);
    assert!(found.contains(&(rule, level)), "`{rule}` is missing in {found:?}");
}

const QUEUE: &str = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\n";

fn queue(name: &str, parent: &str, gpu: &str) -> String {
    format!(
        "---\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n  parentQueue: \"{parent}\"\n  resources:\n    \
         cpu: {{quota: 0, limit: -1}}\n    memory: {{quota: 0, limit: -1}}\n    gpu: {{{gpu}}}\n"
    )
}

#[test]
fn sound_manifests_have_no_findings() {
    let text = queue("root", "", "quota: 8, limit: -1")
        + &queue("a", "root", "quota: 4, limit: 8, overQuotaWeight: 1");
    let job = "---\nkind: Job\nmetadata: {name: j, labels: {kai.scheduler/queue: a, priorityClassName: train}}\nspec:\n  \
               template:\n    metadata: {annotations: {gpu-fraction: \"0.5\"}}\n    spec:\n      \
               schedulerName: kai-scheduler\n      containers: [{name: main}]\n";
    let configuration = "---\nactions: \"allocate, reclaim\"\n";
    assert_eq!(rules(&(text + job + configuration)), []);
}

#[test]
fn queues_that_admission_refuses_are_errors() {
    has(&format!("{QUEUE}spec: {{}}\n"), "queue-invalid", Level::Error);
    has(&queue("q", "q", "quota: 1, limit: -1"), "queue-invalid", Level::Error);
    has(
        &format!("{QUEUE}spec: {{preemptMinRuntime: soon, resources: {{}}}}\n"),
        "queue-invalid",
        Level::Error,
    );
    has(&format!("{QUEUE}spec: {{resources: {{gpu: {{quota: x}}}}}}\n"), "queue-invalid", Level::Error);
}

#[test]
fn legal_queues_that_are_surely_not_intended_are_warnings() {
    for (gpu, rule) in [
        ("quota: 1", "queue-no-limit"),
        ("quota: 0, limit: 0", "queue-zero-limit"),
        ("quota: 8, limit: 2", "queue-limit-below-quota"),
        ("limit: -1, overQuotaWeight: 1", "queue-weight-without-quota"),
        ("quota: -5, limit: -1", "queue-negative"),
    ] {
        has(&queue("q", "", gpu), rule, Level::Warning);
    }
    let root = queue("root", "", "quota: 4, limit: 4");
    has(
        &(root.clone() + &queue("a", "root", "quota: 8, limit: -1")),
        "queue-unreachable-quota",
        Level::Warning,
    );
    has(&(root + &queue("a", "root", "quota: 8, limit: -1")), "queue-exceeds-parent", Level::Warning);
    has(&queue("a", "gone", "quota: 1, limit: -1"), "queue-parent-unknown", Level::Warning);
}

#[test]
fn workloads_are_checked_by_the_rules_of_admission() {
    let job = |annotation: &str, scheduler: &str| {
        format!(
            "kind: CronJob\nmetadata: {{name: c}}\nspec:\n  jobTemplate:\n    spec:\n      template:\n        \
             metadata: {{annotations: {{{annotation}}}}}\n        \
             spec: {{schedulerName: {scheduler}, containers: [{{name: main}}]}}\n"
        )
    };
    has(&job("gpu-fraction: \"2\"", "kai-scheduler"), "pod-invalid", Level::Error);
    has(&job("gpu-fraction: \"0.5\"", "default-scheduler"), "pod-other-scheduler", Level::Warning);
    has(
        "kind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 1, minSubGroup: 1}\n",
        "pod-group-invalid",
        Level::Error,
    );
    let topology = "kind: Topology\nmetadata: {name: t}\nspec: {levels: [{nodeLabel: a, alias: a}]}\n";
    has(topology, "topology-invalid", Level::Error);
}

#[test]
fn names_that_do_not_exist_and_gangs_that_fit_nowhere_are_found() {
    let queues = queue("root", "", "quota: 8, limit: -1") + &queue("a", "root", "quota: 8, limit: -1");
    let group =
        |spec: &str| format!("{queues}---\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {{{spec}}}\n");
    has(&group("queue: gone, minMember: 1"), "workload-queue", Level::Warning);
    has(&group("queue: root, minMember: 1"), "workload-queue", Level::Warning);
    has(&group("queue: a, priorityClassName: urgent"), "priority-class-unknown", Level::Warning);
    let node = |pool: &str| {
        format!(
            "---\nkind: Node\nmetadata: {{name: n-{pool}, labels: {{kai.scheduler/node-pool: {pool}}}}}\nstatus: \
             {{allocatable: {{nvidia.com/gpu: \"8\", pods: \"110\"}}}}\n"
        )
    };
    let nodes = node("east") + &node("west");
    let pod = |gpus: u32| {
        format!(
            "---\nkind: Pod\nmetadata: {{name: p, annotations: {{pod-group-name: g}}}}\nspec: {{schedulerName: \
             kai-scheduler, containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}\n"
        )
    };
    has(
        &(nodes.clone() + &group("minMember: 3") + &pod(4)),
        "gang-larger-than-every-node-pool",
        Level::Warning,
    );
    has(&(nodes.clone() + &group("minMember: 1") + &pod(9)), "pod-larger-than-every-node", Level::Warning);
    let fits = rules(&(nodes + &group("minMember: 2") + &pod(4)));
    assert_eq!(fits, []);
}

const GPU_NODE: &str = "---\nkind: Node\nmetadata: {name: node-1}\nstatus: {allocatable: {nvidia.com/gpu: \"8\", pods: \"110\"}}\n";

/// A Job of pods with two GPUs each.
fn job(minimum: &str, parallelism: u32) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: j, annotations: {{kai.scheduler/batch-min-member: \
         \"{minimum}\"}}}}\nspec:\n  parallelism: {parallelism}\n  template: {{spec: {{schedulerName: kai-scheduler, \
         containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: 2}}}}}}]}}}}\n"
    )
}

#[test]
fn workloads_are_checked_by_the_rules_of_the_pod_grouper() {
    has(&job("many", 3), "workload-not-grouped", Level::Error);
    has(&job("4", 3), "gang-never-complete", Level::Warning);
    has(&(job("5", 5) + GPU_NODE), "gang-larger-than-every-node-pool", Level::Warning);
    assert_eq!(rules(&(job("4", 5) + GPU_NODE)), []);
    // Its controller knows its pods, and an exported pod has owners elsewhere.
    let machine = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: v}\n";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: k, \
               uid: u}]}\nspec: {schedulerName: kai-scheduler, containers: [{name: main}]}\n";
    assert_eq!(rules(&format!("{machine}{pod}")), []);
}

#[test]
fn job_set_whose_jobs_wait_for_each_other_needs_a_smaller_minimum() {
    let set = |annotations: &str| {
        let job = |name: &str, more: &str| {
            format!(
                "  - name: {name}\n{more}    template: {{spec: {{template: {{spec: {{schedulerName: kai-scheduler, \
                 containers: [{{name: main}}]}}}}}}}}\n"
            )
        };
        let after = "    dependsOn: [{name: leader, status: Ready}]\n";
        format!(
            "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: s, annotations: {{{annotations}}}}}\nspec:\n  \
             replicatedJobs:\n{}{}",
            job("leader", ""),
            job("workers", after)
        )
    };
    has(&set(""), "gang-never-complete", Level::Warning);
    assert_eq!(rules(&set("kai.scheduler/batch-min-member: \"1\"")), []);
}

#[test]
fn documented_workloads_have_no_findings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/grouper");
    let mut count = 0;
    for kind in
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for case in std::fs::read_dir(kind).unwrap().map(|entry| entry.unwrap().path()) {
            let text = std::fs::read_to_string(case.join("manifest.yaml")).unwrap();
            assert_eq!(rules(&text), [], "{}", case.display());
            count += 1;
        }
    }
    assert!(count >= 40, "{count}");
}

#[test]
fn misspelt_labels_and_annotations_name_the_likely_key() {
    let text = "kind: Job\nmetadata: {name: j, labels: {kai.scheduler/queu: a}}\nspec:\n  template:\n    \
                metadata: {annotations: {gpu-fractoin: \"0.5\"}}\n    \
                spec: {schedulerName: kai-scheduler, containers: [{name: main}]}\n";
    let findings = check(&documents::parse("a.yaml", text).unwrap(), &PluginSet::builtin());
    let misspelt: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.rule == "key-misspelt" && finding.level == Level::Warning)
        .map(|finding| finding.message.as_str())
        .collect();
    assert_eq!(misspelt.len(), 2, "{findings:?}");
    for known in ["annotation `gpu-fraction`", "label `kai.scheduler/queue`"] {
        assert!(misspelt.iter().any(|message| message.contains(known)), "{misspelt:?}");
    }
    let pod = "kind: Pod\nmetadata: {name: p, labels: {gpu-fraction: \"0.5\"}}\nspec: {containers: [{name: main}]}\n";
    has(pod, "key-misspelt", Level::Warning);
}

#[test]
fn scheduler_configurations_are_checked() {
    has("actions: \"allocate, fly\"\n", "scheduler-configuration", Level::Error);
    let map = "kind: ConfigMap\nmetadata: {name: c}\ndata:\n  config.yaml: |\n    actions: fly\n";
    has(map, "scheduler-configuration", Level::Error);
    has("color: blue\n", "document-unknown", Level::Warning);
}

#[test]
fn findings_carry_the_line_of_their_document_and_sarif_has_them() {
    let text = format!("# a comment\n---\n{QUEUE}spec: {{}}\n");
    let findings = check(&documents::parse("a.yaml", &text).unwrap(), &PluginSet::builtin());
    assert_eq!(findings[0].line, 3);
    let sarif = finding::sarif(&findings);
    assert_eq!(sarif["version"], "2.1.0");
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["level"], "error");
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 3);
}

#[test]
fn contradictory_time_limits_are_warnings() {
    let limited = |queue: String, annotations: &str, spec: &str| {
        queue.replacen("}\nspec:\n", &format!(", annotations: {{{annotations}}}}}\nspec:\n  {spec}\n"), 1)
    };
    let sound = queue("q", "", "quota: 1, limit: -1");
    has(&limited(sound.clone(), "kai.scheduler/max-runtime: soon", ""), "time-limit", Level::Warning);
    let short = limited(sound.clone(), "kai.scheduler/max-runtime: 1h", "preemptMinRuntime: 2h");
    has(&short, "time-limit", Level::Warning);
    let fine = limited(sound, "kai.scheduler/max-runtime: 8h", "preemptMinRuntime: 2h");
    assert_eq!(rules(&fine), []);
    let job = |limit: &str| {
        format!(
            "---\nkind: Job\nmetadata: {{name: j, labels: {{kai.scheduler/queue: q}}, annotations: \
             {{kai.scheduler/max-runtime: {limit}}}}}\nspec:\n  template:\n    spec:\n      containers: [{{name: main}}]\n"
        )
    };
    assert_eq!(rules(&(fine.clone() + &job("4h"))), []);
    has(&(fine.clone() + &job("9h")), "time-limit", Level::Warning);
    has(&(fine + &job("1h")), "time-limit", Level::Warning);
}
