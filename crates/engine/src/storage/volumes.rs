//! Node filter of volumes: nodes that can use a pod's volumes or have them provisioned.

use super::{Claim, Storage, SymKey};
use crate::ids::Sym;
use crate::intern::Interner;
use crate::terms::selector::label;
use crate::verdict::{NodeRejection, VolumeRejection};
use smallvec::SmallVec;

/// A node, as volumes see it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeNode<'a> {
    /// Its name.
    pub name: Sym,
    /// Its labels, sorted by key symbol.
    pub labels: &'a [(Sym, Sym)],
    /// Attach limits by driver.
    pub attach_limits: &'a [(Sym, u32)],
}

/// Where capacity for volumes to be provisioned is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityCheck {
    /// Per claim, against the reported capacities.
    Reported,
    /// In the accounting of the CSI simulation.
    Simulated,
}

/// Zone and region labels, deprecated names last.
const ZONE_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Symbols of the zone labels, once a volume has one.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneKeys(SmallVec<[Sym; 4]>);

impl ZoneKeys {
    pub(super) fn fill(&mut self, names: &mut Interner) {
        if self.0.is_empty() {
            self.0 = ZONE_LABELS.iter().map(|label| names.intern(label)).collect();
        }
    }
}

/// A zone label of a volume.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    key: Sym,
    /// The current name of a deprecated key, for nodes without the deprecated one.
    current_key: Sym,
    values: Box<[Sym]>,
}

impl Zone {
    pub(super) fn resolve(key: &str, values: &[String], names: &mut Interner) -> Self {
        let current = match key {
            "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
            current => current,
        };
        Self {
            key: names.intern(key),
            current_key: names.intern(current),
            values: values.iter().map(|value| names.intern(value)).collect(),
        }
    }

    fn admits(&self, labels: &[(Sym, Sym)]) -> bool {
        let value = label(labels, self.key).or_else(|| label(labels, self.current_key));
        value.is_some_and(|value| self.values.contains(&value))
    }
}

/// What counts as one attachment of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attached {
    Volume(Sym),
    /// A claim whose volume is not provisioned.
    Claim(SymKey),
}

impl Storage {
    /// Whether a node can serve a pod's claims. `others` are the claims of the node's pods, by namespace.
    pub fn filter<'a>(
        &self,
        namespace: Sym,
        claims: &[Sym],
        node: &VolumeNode<'_>,
        others: impl Iterator<Item = (Sym, &'a [Sym])>,
        capacity: CapacityCheck,
        names: &Interner,
    ) -> Result<(), NodeRejection> {
        let known =
            |name: &Sym| self.claims.get(&(namespace, *name)).map(|claim| ((namespace, *name), claim));
        let claims: SmallVec<[(SymKey, &Claim); 4]> = claims.iter().filter_map(known).collect();
        self.bound_claims_fit(&claims, node, names)
            .and_then(|()| self.unbound_claims_fit(&claims, node, capacity, names))
            .and_then(|()| self.attachments_fit(&claims, node, others))
            .map_err(NodeRejection::Volume)
    }

    fn bound_claims_fit(
        &self,
        claims: &[(SymKey, &Claim)],
        node: &VolumeNode<'_>,
        names: &Interner,
    ) -> Result<(), VolumeRejection> {
        let mut zoned = false;
        for volume in claims.iter().filter_map(|(_, claim)| claim.bound_volume()) {
            let Some(volume) = self.volumes.get(&volume) else { return Err(VolumeRejection::NodeConflict) };
            if !volume.nodes.is_empty() && !volume.nodes.matches(node.name, node.labels, names) {
                return Err(VolumeRejection::NodeConflict);
            }
            zoned |= !volume.zones.iter().all(|zone| zone.admits(node.labels));
        }
        // A node without zone and region labels matches all of them, as in kube-scheduler's `VolumeZone`.
        let has_zone_label = || self.zone_keys.0.iter().any(|key| label(node.labels, *key).is_some());
        if zoned && has_zone_label() { Err(VolumeRejection::Zone) } else { Ok(()) }
    }

    fn unbound_claims_fit(
        &self,
        claims: &[(SymKey, &Claim)],
        node: &VolumeNode<'_>,
        capacity: CapacityCheck,
        names: &Interner,
    ) -> Result<(), VolumeRejection> {
        let waiting = claims
            .iter()
            .filter(|(_, claim)| claim.bound_volume().is_none() && self.waits_for_consumer(claim));
        let mut waiting: SmallVec<[(SymKey, &Claim); 4]> = waiting.copied().collect();
        // Small claims are matched first, so that large volumes remain for large claims.
        waiting.sort_by_key(|(_, claim)| claim.bytes);
        let mut chosen: SmallVec<[Sym; 4]> = SmallVec::new();
        let mut to_make: SmallVec<[&Claim; 4]> = SmallVec::new();
        for (key, claim) in waiting {
            match claim.selected_node {
                Some(selected) if selected != node.name => return Err(VolumeRejection::NodeConflict),
                Some(_) => to_make.push(claim),
                None => match self.find_volume(key, claim, node, &chosen, names) {
                    Some(volume) => chosen.push(volume),
                    None => to_make.push(claim),
                },
            }
        }
        to_make.into_iter().try_for_each(|claim| self.can_make(claim, node, capacity, names))
    }

    /// The volume reserved for a claim, or the smallest free one that the node can use.
    fn find_volume(
        &self,
        key: SymKey,
        claim: &Claim,
        node: &VolumeNode<'_>,
        chosen: &[Sym],
        names: &Interner,
    ) -> Option<Sym> {
        let large_enough = self.available.get(&claim.class)?.range((claim.bytes, crate::ids::Idx::new(0))..);
        let mut best = None;
        for &(_, name) in large_enough {
            let volume = &self.volumes[&name];
            let usable = volume.nodes.is_empty() || volume.nodes.matches(node.name, node.labels, names);
            match volume.claim {
                Some(reserved) if reserved == key => return usable.then_some(name),
                None if usable && best.is_none() && !chosen.contains(&name) => best = Some(name),
                Some(_) | None => {}
            }
        }
        best
    }

    fn can_make(
        &self,
        claim: &Claim,
        node: &VolumeNode<'_>,
        capacity: CapacityCheck,
        names: &Interner,
    ) -> Result<(), VolumeRejection> {
        let Some(class) = self.class_of(claim).filter(|class| class.makes_volumes) else {
            return Err(VolumeRejection::Unbound);
        };
        if !class.allowed.is_empty() && !class.allowed.matches(node.name, node.labels, names) {
            return Err(VolumeRejection::Unbound);
        }
        let reported = || {
            let enough =
                |c: &super::capacities::Capacity| Some(c.class) == claim.class && c.bytes >= claim.bytes;
            self.capacities.reaching(node.labels).any(|(_, capacity)| enough(capacity))
        };
        match capacity {
            CapacityCheck::Reported if class.tracks_capacity && !reported() => Err(VolumeRejection::Capacity),
            CapacityCheck::Reported | CapacityCheck::Simulated => Ok(()),
        }
    }

    fn attachments_fit<'a>(
        &self,
        claims: &[(SymKey, &Claim)],
        node: &VolumeNode<'_>,
        others: impl Iterator<Item = (Sym, &'a [Sym])>,
    ) -> Result<(), VolumeRejection> {
        let limit =
            |driver: Sym| node.attach_limits.iter().find(|(d, _)| *d == driver).map(|(_, most)| *most);
        let counted = |key, claim| self.attachment(key, claim).filter(|(driver, _)| limit(*driver).is_some());
        let mut added: Vec<(Sym, Attached)> = if node.attach_limits.is_empty() {
            Vec::new()
        } else {
            claims.iter().filter_map(|(key, claim)| counted(*key, claim)).collect()
        };
        if added.is_empty() {
            return Ok(());
        }
        let mut attached: Vec<(Sym, Attached)> = others
            .flat_map(|(namespace, claims)| claims.iter().map(move |name| (namespace, *name)))
            .filter_map(|key| counted(key, self.claims.get(&key)?))
            .collect();
        added.retain(|attachment| !attached.contains(attachment));
        attached.extend(&added);
        attached.sort_unstable();
        attached.dedup();
        let fits = added.iter().all(|(driver, _)| {
            let count = attached.iter().filter(|(d, _)| d == driver).count();
            limit(*driver).is_none_or(|most| count <= most as usize)
        });
        if fits { Ok(()) } else { Err(VolumeRejection::AttachLimit) }
    }

    /// The driver that attaches a claim's volume, and what it attaches.
    fn attachment(&self, key: SymKey, claim: &Claim) -> Option<(Sym, Attached)> {
        match claim.bound_volume().and_then(|name| Some((name, self.volumes.get(&name)?))) {
            Some((name, volume)) => Some((volume.driver?, Attached::Volume(name))),
            None => Some((self.class_of(claim)?.provisioner, Attached::Claim(key))),
        }
    }
}
