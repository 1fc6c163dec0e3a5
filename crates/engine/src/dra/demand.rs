//! Counts the GPUs of claims for queue accounting.

use super::claim::Claim;
use super::claims::Claims;
use super::inventory::Inventory;
use crate::ids::{ClaimIdx, Sym};
use crate::input::RequestMode;
use crate::resource::{AMOUNT_MAX, WHOLE_GPU};
use smallvec::SmallVec;

/// Whether a driver or class name contains `gpu`.
pub fn mentions_gpu(name: &str) -> bool {
    name.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"gpu"))
}

/// GPUs of a claim: exact requests whose class name contains `gpu`, `All` as one. Requests with alternatives, admin
/// access and claims for extended resources do not count.
pub fn claim_gpus(claim: &Claim) -> u64 {
    if claim.synthetic {
        return 0;
    }
    let mut sum: u64 = 0;
    for alternative in claim.spec.requests.iter().filter(|r| !r.is_choice).flat_map(|r| &r.alternatives) {
        if alternative.gpu && !alternative.admin_access {
            sum = sum.saturating_add(match alternative.mode {
                RequestMode::Exactly(count) => count.max(1),
                RequestMode::All => 1,
                RequestMode::Unknown => 0,
            });
        }
    }
    sum
}

/// GPUs of several claims in millionths, saturating.
pub fn gpu_demand(claims: &Claims, related: &[ClaimIdx]) -> i64 {
    let gpus = related.iter().fold(0u64, |sum, claim| sum.saturating_add(claim_gpus(&claims[*claim])));
    i64::try_from(gpus).unwrap_or(AMOUNT_MAX).saturating_mul(WHOLE_GPU).min(AMOUNT_MAX)
}

/// Devices held through the requests that [`claim_gpus`] counts, by id, each once.
pub fn gpu_devices(claims: &Claims, related: &[ClaimIdx], inventory: &Inventory) -> SmallVec<[Sym; 2]> {
    let mut devices: SmallVec<[Sym; 2]> = SmallVec::new();
    for claim in related.iter().map(|claim| &claims[*claim]).filter(|claim| !claim.synthetic) {
        let plain = || claim.spec.requests.iter().filter(|r| !r.is_choice).flat_map(|r| &r.alternatives);
        // A result that names no request of the claim is attributed to its GPU requests, if any.
        let known = |label: Sym| claim.spec.alternatives().any(|a| a.label == label);
        let counted =
            |label: Sym| plain().any(|a| a.gpu && !a.admin_access && (a.label == label || !known(label)));
        let held = claim.state.allocation.iter().flat_map(|a| &a.devices);
        for allocated in held.filter(|g| !g.admin_access && counted(g.request)) {
            let id = inventory.name(allocated.device).id;
            if !devices.contains(&id) {
                devices.push(id);
            }
        }
    }
    devices
}
