//! Writes snapshots in the format that KAI's snapshot tool loads.

use super::Snapshot;
use super::params::{Discovery, Replay, SchedulerParams};
use crate::config_file::{self, SchedulerConfig};
use crate::object::{Kind, Objects};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_engine::input::Key;
use kai_units::Timestamp;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::{BufWriter, Error, Write};
use std::sync::Arc;

/// Kinds that KAI's snapshots lack; they are written under `replay`.
const BEYOND_KAI: [Kind; 3] = [Kind::PodDisruptionBudget, Kind::CsiNode, Kind::Namespace];

/// The borrowed contents of a snapshot: a running scheduler writes from its store without a copy.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    pub config: &'a SchedulerConfig,
    pub params: &'a SchedulerParams,
    pub objects: &'a Objects,
    pub replay: &'a Replay,
    /// The served APIs; derived from the objects when absent.
    pub discovery: Option<&'a Discovery>,
}

impl<'a> From<&'a Snapshot> for Contents<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Self {
            config: &snapshot.config,
            params: &snapshot.params,
            objects: &snapshot.objects,
            replay: &snapshot.replay,
            discovery: snapshot.discovery.as_ref(),
        }
    }
}

/// Writes a zip archive with the entry `snapshot.json`, from its beginning to its end.
pub fn write_zip<'a>(contents: impl Into<Contents<'a>>, output: impl Write) -> Result<(), Error> {
    write_archive(output, |entry| write_json(contents, entry))
}

/// Writes a zip archive with a snapshot that is JSON already.
pub fn write_zip_text(json: &[u8], output: impl Write) -> Result<(), Error> {
    write_archive(output, |entry| entry.write_all(json))
}

fn write_archive(
    output: impl Write,
    write_entry: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut archive = zip::ZipWriter::new_stream(output);
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .large_file(true);
    archive.start_file("snapshot.json", options)?;
    let mut buffered = BufWriter::with_capacity(64 * 1024, &mut archive);
    write_entry(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    archive.finish()?;
    Ok(())
}

/// Writes the JSON text alone.
pub fn write_json<'a>(contents: impl Into<Contents<'a>>, mut output: impl Write) -> Result<(), Error> {
    let snapshot: Contents<'a> = contents.into();
    let out = &mut output;
    out.write_all(b"{\"config\":")?;
    serde_json::to_writer(&mut *out, &config_file::to_value(snapshot.config))?;
    out.write_all(b",\n\"schedulerParams\":")?;
    serde_json::to_writer(&mut *out, &snapshot.params.value())?;
    out.write_all(b",\n\"rawObjects\":{")?;
    let mut separator = "\n";
    for kind in Kind::ALL.iter().filter(|kind| !BEYOND_KAI.contains(kind)) {
        out.write_all(separator.as_bytes())?;
        write_list(*kind, snapshot.objects, out)?;
        separator = ",\n";
    }
    out.write_all(b"},\n\"discovery\":")?;
    let discovery = snapshot.discovery.cloned().unwrap_or_else(|| Discovery::of(snapshot.objects));
    serde_json::to_writer(&mut *out, &discovery)?;
    out.write_all(b",\n\"replay\":")?;
    let mut replay = serde_json::to_vec(snapshot.replay)?;
    // The lists are inserted before the closing brace of the object.
    replay.pop();
    out.write_all(&replay)?;
    for kind in BEYOND_KAI.into_iter().filter(|kind| snapshot.objects.count(*kind) > 0) {
        out.write_all(b",\n")?;
        write_list(kind, snapshot.objects, out)?;
    }
    out.write_all(b"}}\n")
}

fn write_list(kind: Kind, objects: &Objects, out: &mut impl Write) -> Result<(), Error> {
    write!(out, "\"{}\":", kind.list_key())?;
    match kind {
        Kind::Pod => write_all(&objects.pods, out),
        Kind::Node => write_all(&objects.nodes, out),
        Kind::Queue => {
            let queues = objects.queues.values();
            write_items(
                queues.map(|queue| Exact {
                    created: queue.metadata.creation_timestamp.clone(),
                    object: &**queue,
                }),
                out,
            )
        }
        Kind::PodGroup => {
            let groups = objects.pod_groups.values();
            write_items(
                groups.map(|group| Exact {
                    created: group.metadata.creation_timestamp.clone(),
                    object: &**group,
                }),
                out,
            )
        }
        Kind::BindRequest => write_all(&objects.bind_requests, out),
        Kind::PriorityClass => write_all(&objects.priority_classes, out),
        Kind::ConfigMap => write_all(&objects.config_maps, out),
        Kind::PersistentVolume => write_all(&objects.persistent_volumes, out),
        Kind::PersistentVolumeClaim => write_all(&objects.persistent_volume_claims, out),
        Kind::CsiStorageCapacity => write_all(&objects.csi_storage_capacities, out),
        Kind::StorageClass => write_all(&objects.storage_classes, out),
        Kind::CsiDriver => write_all(&objects.csi_drivers, out),
        Kind::ResourceClaim => write_all(&objects.resource_claims, out),
        Kind::ResourceSlice => write_all(&objects.resource_slices, out),
        Kind::DeviceClass => write_all(&objects.device_classes, out),
        Kind::Topology => write_all(&objects.topologies, out),
        Kind::NodeResourceTopology => write_all(&objects.node_resource_topologies, out),
        Kind::PodDisruptionBudget => write_all(&objects.pod_disruption_budgets, out),
        Kind::CsiNode => write_all(&objects.csi_nodes, out),
        Kind::Namespace => write_all(&objects.namespaces, out),
    }
}

fn write_all<T: Serialize>(objects: &BTreeMap<Key, Arc<T>>, out: &mut impl Write) -> Result<(), Error> {
    write_items(objects.values().map(|object| &**object), out)
}

fn write_items<T: Serialize>(items: impl Iterator<Item = T>, out: &mut impl Write) -> Result<(), Error> {
    let mut separator = "[";
    for item in items {
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *out, &item)?;
        separator = ",\n";
    }
    out.write_all(if separator == "[" { b"[]" } else { b"]" })
}

/// Keeps the microseconds of the creation time, which orders queues and groups.
struct Exact<T> {
    created: Option<Time>,
    object: T,
}

impl<T: Serialize> Serialize for Exact<T> {
    #[expect(clippy::indexing_slicing, reason = "objects of Kubernetes types have metadata")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = self.created.as_ref().map_or(0, |time| time.0.as_microsecond());
        if micros % 1_000_000 == 0 {
            return self.object.serialize(serializer);
        }
        let mut value = serde_json::to_value(&self.object).map_err(S::Error::custom)?;
        value["metadata"]["creationTimestamp"] = Timestamp(micros).to_string().into();
        value.serialize(serializer)
    }
}
