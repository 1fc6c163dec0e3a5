//! Pods that contradict themselves, or name what is not there.

use crate::world::{Pod, World};
use kai_scheduler::resources::POD_GROUP;
use serde_json::json;
use std::time::Duration;

/// A pod's name, what its annotations say, how many whole GPUs it asks for, what it is told, and whether it runs all the
/// same.
type Odd = (&'static str, &'static [(&'static str, &'static str)], u32, &'static str, bool);

const ODD: [Odd; 10] = [
    ("both", &[("gpu-fraction", "0.5"), ("gpu-memory", "1000")], 0, "`gpu-fraction` is there too", true),
    ("whole", &[("gpu-fraction", "0.5")], 1, "a part of a GPU and for whole GPUs as well", false),
    ("whole-memory", &[("gpu-memory", "1000")], 2, "a part of a GPU and for whole GPUs as well", false),
    ("more", &[("gpu-fraction", "1.5")], 0, "`1.5` is not a decimal above 0 and up to 1", true),
    ("word", &[("gpu-fraction", "abc")], 0, "`abc` is not a decimal above 0 and up to 1", true),
    ("negative", &[("gpu-fraction", "-0.5")], 0, "`-0.5` is not a decimal above 0 and up to 1", true),
    ("infinite", &[("gpu-fraction", "1e309")], 0, "`1e309` is not a decimal above 0 and up to 1", true),
    ("nothing", &[("gpu-fraction", "")], 0, "`` is not a decimal above 0 and up to 1", true),
    ("debt", &[("gpu-memory", "-5")], 0, "`-5` is not a positive number of MiB", true),
    ("none", &[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")], 0, "`0` is not a positive", true),
];

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_contradict_themselves_are_told_so_and_their_neighbours_run() {
    let world = World::new(1).await;
    world.queue("a", 8).await;
    for (name, annotations, gpus, _, _) in ODD {
        let pod = Pod::new(name, "a", gpus);
        let pod = annotations.iter().fold(pod, |pod, (name, value)| pod.annotated(name, value));
        world.pod(pod).await;
    }
    world.pod(Pod::new("good", "a", 4)).await;
    world.runs("good", 1).await;
    world.pass(Duration::from_secs(30)).await;
    for (name, _, _, told, runs) in ODD {
        let events = world.events("OddInput", name).await;
        assert!(events.iter().any(|text| text.contains(told)), "{name}: {events:?}");
        assert_eq!(world.placed(name).await.iter().any(|(pod, _)| pod == name), runs, "{name}");
        if !runs {
            let (reason, message) = world.pod_condition(name).await;
            assert_eq!(reason, "Unschedulable", "{name}");
            assert!(message.contains(told), "{name}: {message}");
        }
    }
    let told = world.list(&kai_runtime::kind::EVENT).await.len();
    world.pass(Duration::from_mins(30)).await;
    assert_eq!(world.list(&kai_runtime::kind::EVENT).await.len(), told, "nobody is told the same twice");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_that_is_corrected_runs() {
    let world = World::new(1).await;
    world.pod(Pod::new("whole", "default-queue", 1).annotated("gpu-fraction", "0.5")).await;
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.placed("whole").await, []);
    let patch = json!({"metadata": {"annotations": {"gpu-fraction": null}}});
    world.change(&kai_runtime::kind::POD, "whole", &patch).await;
    world.runs("whole", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_of_a_group_that_is_not_there_says_so_and_runs_when_it_is() {
    let world = World::new(1).await;
    world.pod(Pod::new("early", "default-queue", 1).in_group("late")).await;
    world.pod(Pod::new("other", "default-queue", 1)).await;
    world.runs("other", 1).await;
    world.pass(Duration::from_secs(10)).await;
    let (_, message) = world.pod_condition("early").await;
    assert!(message.contains("the group `late` is not in the pod's namespace"), "{message}");
    let spec = json!({"minMember": 1, "queue": "default-queue"});
    world.create(&POD_GROUP, json!({"metadata": {"name": "late"}, "spec": spec})).await;
    world.runs("early", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_whose_label_names_another_queue_than_its_group_is_of_the_group() {
    let world = World::new(1).await;
    world.queue("a", 8).await;
    world.queue("b", 8).await;
    let spec = json!({"minMember": 1, "queue": "a"});
    world.create(&POD_GROUP, json!({"metadata": {"name": "torn"}, "spec": spec})).await;
    world.pod(Pod::new("torn-0", "b", 2).in_group("torn")).await;
    world.runs("torn-0", 1).await;
    world.pass(Duration::from_secs(5)).await;
    let allocated = |queue: &serde_json::Value| queue["status"]["allocated"]["nvidia.com/gpu"].clone();
    let queue = world.get(&kai_scheduler::resources::QUEUE, "a").await.unwrap();
    assert_eq!(allocated(&queue), "2", "{queue}");
    let queue = world.get(&kai_scheduler::resources::QUEUE, "b").await.unwrap();
    assert!(allocated(&queue).is_null() || allocated(&queue) == "0", "{queue}");
}
