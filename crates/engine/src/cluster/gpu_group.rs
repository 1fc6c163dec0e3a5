//! Shared GPUs of a node: how much memory of each is used, allocated and being released.
//!
//! A GPU group is one physical GPU that pods share; its name is generated when the first pod is placed on it.

use crate::ids::Sym;
use smallvec::SmallVec;

/// One shared GPU, in MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedGpu {
    /// Name of the GPU group.
    pub group: Sym,
    /// In use, pipelined pods included.
    pub used: i64,
    /// Held by placed pods, releasing ones included.
    pub allocated: i64,
    /// Being released, less what pipelined pods reserve of it.
    pub releasing: i64,
    /// The whole GPU is counted as being released.
    pub flagged: bool,
    /// Some pod uses the GPU, or did in this cycle: a GPU assigned to pipelined pods only is not available now.
    pub backed: bool,
    /// The GPU has lost its reservation: the pods that use it keep it, and no other pod may share it.
    pub drained: bool,
}

impl SharedGpu {
    /// A request of this size fits, now or after releasing pods have terminated.
    pub fn fits(&self, mib: i64, gpu_memory: i64) -> bool {
        !self.drained
            && self.used != 0
            && gpu_memory - self.allocated + self.releasing >= mib
            && self.allocated != self.releasing
    }
    /// A request of this size fits now.
    pub fn fits_now(&self, mib: i64, gpu_memory: i64) -> bool {
        !self.drained && self.backed && gpu_memory - self.allocated >= mib
    }
    /// All of its pods are releasing.
    pub fn all_releasing(&self) -> bool {
        self.used != 0 && self.used == self.releasing
    }
}

/// The shared GPUs of one node, in order of first use.
#[derive(Clone, Debug, Default)]
pub struct SharedGpus(SmallVec<[SharedGpu; 2]>);

impl SharedGpus {
    /// The shared GPUs.
    pub fn iter(&self) -> std::slice::Iter<'_, SharedGpu> {
        self.0.iter()
    }
    /// A shared GPU by group name.
    pub fn get(&self, group: Sym) -> Option<&SharedGpu> {
        self.0.iter().find(|g| g.group == group)
    }
    /// Whether no GPU is shared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// A shared GPU by group name, created on first use.
    pub fn entry(&mut self, group: Sym) -> &mut SharedGpu {
        let position = self.0.iter().position(|g| g.group == group).unwrap_or_else(|| {
            self.0.push(SharedGpu {
                group,
                used: 0,
                allocated: 0,
                releasing: 0,
                flagged: false,
                backed: false,
                drained: false,
            });
            self.0.len() - 1
        });
        &mut self.0[position]
    }
    /// Largest request in MiB that fits any shared GPU, now or eventually.
    pub fn most_free(&self, gpu_memory: i64) -> i64 {
        self.iter()
            .filter(|g| !g.drained && g.used != 0 && g.allocated != g.releasing)
            .map(|g| gpu_memory - g.allocated + g.releasing)
            .max()
            .unwrap_or(0)
    }
}

impl<'a> IntoIterator for &'a SharedGpus {
    type Item = &'a SharedGpu;
    type IntoIter = std::slice::Iter<'a, SharedGpu>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for SharedGpus {
    fn eq(&self, other: &Self) -> bool {
        let live = |gpus: &Self| {
            let mut list: Vec<_> = gpus
                .iter()
                .filter(|g| g.used != 0 || g.allocated != 0 || g.releasing != 0)
                .cloned()
                .collect();
            list.sort_by_key(|g| g.group);
            list
        };
        live(self) == live(other)
    }
}
impl Eq for SharedGpus {}
