//! Pre-filter checks of a pod that do not depend on a node.

use crate::cluster::Cluster;
use crate::dra::Served;
use crate::ids::PodIdx;
use crate::policy::Policy;
use crate::resource::{self, Dim};
use crate::verdict::{PodRejection, PoolGap};

/// The first reason why no node is feasible for a pod.
pub fn check(cluster: &Cluster, policy: &Policy, pod: PodIdx) -> Result<(), PodRejection> {
    let registry = &policy.registry;
    if registry.builtin.predicates {
        pool_size(cluster, pod, &policy.params.node_pool)?;
        config_maps(cluster, pod)?;
        cluster.volumes_check(pod)?;
    }
    if registry.builtin.dynamic_resources {
        claims(cluster, policy, pod)?;
    }
    for custom in &registry.pre_filters {
        custom.check(cluster, pod).map_err(PodRejection::Plugin)?;
    }
    Ok(())
}

/// The first reason why no node is feasible for a pod, regardless of evictions.
pub fn check_lasting(cluster: &Cluster, policy: &Policy, pod: PodIdx) -> Result<(), PodRejection> {
    if policy.registry.builtin.predicates {
        pool_size(cluster, pod, &policy.params.node_pool)?;
        config_maps(cluster, pod)?;
        cluster.volumes_check(pod)?;
    }
    Ok(())
}

/// Whether for each requested resource some node of the pool has enough allocatable.
pub fn pool_size(cluster: &Cluster, pod: PodIdx, pool: &str) -> Result<(), PodRejection> {
    let shape = cluster.shape(pod);
    let largest = &cluster.figures.largest;
    let gpus = if shape.is_shared() {
        shape.quota_estimate(None)
    } else {
        shape.request.get(resource::GPU) + cluster.pods[pod].claim_gpus
    };
    let too_small = |dim: Dim, wanted: i64| {
        let name = cluster.dims.name(dim);
        (wanted > largest.get(dim) && !cluster.is_device_backed(name))
            .then(|| PodRejection::PoolTooSmall(Box::new(pool_gap(cluster, pod, pool, (dim, wanted)))))
    };
    let others = shape.request.iter().filter(|(dim, _)| *dim != resource::GPU);
    let first = std::iter::once((resource::GPU, gpus)).chain(others).find_map(|(dim, w)| too_small(dim, w));
    first.map_or(Ok(()), Err)
}

fn pool_gap(cluster: &Cluster, pod: PodIdx, pool: &str, (dim, wanted): (Dim, i64)) -> PoolGap {
    let shape = cluster.shape(pod);
    let text = |dim| cluster.text(cluster.dims.name(dim)).to_owned();
    let others = shape.request.iter().filter(|(dim, _)| *dim != resource::GPU);
    PoolGap {
        resource: text(dim),
        wanted,
        largest: cluster.figures.largest.get(dim),
        pool: pool.to_owned(),
        gpus: shape.quota_estimate(None) + cluster.pods[pod].claim_gpus,
        request: others.map(|(dim, amount)| (text(dim), amount)).collect(),
    }
}

fn config_maps(cluster: &Cluster, pod: PodIdx) -> Result<(), PodRejection> {
    let p = &cluster.pods[pod];
    let needed = p.extra.as_ref().map_or(&[][..], |e| &e.config_maps);
    let mut missing: Vec<&str> = needed
        .iter()
        .filter(|name| !cluster.config_maps.contains(&(p.namespace, **name)))
        .map(|name| cluster.text(*name))
        .collect();
    missing.sort_unstable();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PodRejection::ConfigMaps(missing.into_iter().map(str::to_owned).collect()))
}

fn claims(cluster: &Cluster, policy: &Policy, pod: PodIdx) -> Result<(), PodRejection> {
    let p = &cluster.pods[pod];
    if p.extra.as_ref().is_none_or(|e| e.claims.is_empty()) {
        return Ok(());
    }
    let served = if policy.params.device_claims { Served::Yes } else { Served::No };
    let queue = p.group.map_or(p.name, |g| cluster.groups[g].queue_name);
    cluster.devices.precheck(p.uid, queue, served, &cluster.names)
}
