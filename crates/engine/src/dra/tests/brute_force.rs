//! Compares the allocator with a brute-force one on small random instances.

use super::*;
use proptest::prelude::*;

/// One request: class, count (0 is "all"), administration.
type Wanted = (bool, usize, bool);

#[derive(Clone, Debug)]
struct Instance {
    /// Attribute value, accepted by the picky class, counter draw, in use.
    devices: Vec<(u8, bool, i64, bool)>,
    counter: i64,
    /// Requests with their alternatives, grouped by claim.
    claims: Vec<Vec<Vec<Wanted>>>,
    /// Per claim: no constraint, match, distinct; and whether it is about the first request only.
    constraints: Vec<(u8, bool)>,
}

fn instances() -> impl Strategy<Value = Instance> {
    let device = (0..3u8, any::<bool>(), 0..3i64, prop::bool::weighted(0.2));
    let request = (any::<bool>(), 0..4usize, prop::bool::weighted(0.2));
    let claim = prop::collection::vec(prop::collection::vec(request, 1..3), 1..3);
    (
        prop::collection::vec(device, 1..6),
        0..6i64,
        prop::collection::vec(claim, 1..3),
        prop::collection::vec((0..3u8, any::<bool>()), 2),
    )
        .prop_map(|(devices, counter, claims, constraints)| Instance {
            devices,
            counter,
            claims,
            constraints,
        })
}

impl Instance {
    fn fixture(&self) -> TestCluster {
        let counter = |amount| vec![CounterSet { name: "s".into(), counters: vec![("c".into(), amount)] }];
        let mut slice = gpu_slice("n0", self.devices.len());
        // Devices in use have consumed their counters already.
        let drawn: i64 = self.devices.iter().filter(|d| d.3).map(|d| d.2).sum();
        slice.counters = counter(self.counter + drawn);
        for (device, (value, _, draw, _)) in slice.devices.iter_mut().zip(&self.devices) {
            device.attributes = vec![("d/a".into(), value.to_string())];
            device.consumes = counter(*draw);
        }
        let mut fixture = TestCluster::with_gpus(&[("n0", 0)]);
        fixture.slice(slice);
        let picked = (0..self.devices.len()).filter(|i| self.devices[*i].1);
        let picky = DeviceClassInput {
            name: "picky".into(),
            accepts: picked.map(|i| id("n0", &i.to_string())).collect(),
            ..DeviceClassInput::default()
        };
        fixture.devices.set_class(&picky, &mut fixture.names);
        let used = (0..self.devices.len()).filter(|i| self.devices[*i].3);
        let used: Vec<DeviceId> = used.map(|i| id("n0", &i.to_string())).collect();
        fixture.claim(&ClaimInput { allocation: Some(allocated(&used)), ..claim("held", &[]) });
        fixture.refresh();
        fixture
    }

    fn inputs(&self) -> Vec<ClaimInput> {
        let alternative = |at: usize, only: bool, (picky, count, admin): Wanted| RequestAlternative {
            name: if only { String::new() } else { format!("a{at}") },
            class: if picky { "picky".into() } else { GPU_CLASS.into() },
            mode: if count == 0 { RequestMode::All } else { RequestMode::Exactly(count as u64) },
            admin_access: admin,
            ..RequestAlternative::default()
        };
        let mut inputs = Vec::new();
        for (i, (requests, (kind, first))) in self.claims.iter().zip(&self.constraints).enumerate() {
            let requests = requests.iter().enumerate().map(|(r, alternatives)| ClaimRequest {
                name: format!("r{r}"),
                alternatives: (0..)
                    .zip(alternatives)
                    .map(|(a, w)| alternative(a, alternatives.len() == 1, *w))
                    .collect(),
            });
            let mut input = claim(&format!("c{i}"), &requests.collect::<Vec<_>>());
            let about = if *first { vec!["r0".to_owned()] } else { Vec::new() };
            let attribute = "d/a".to_owned();
            match kind {
                0 => {}
                1 => input.constraints = vec![ClaimConstraint::Match { requests: about, attribute }],
                _ => input.constraints = vec![ClaimConstraint::Distinct { requests: about, attribute }],
            }
            inputs.push(input);
        }
        inputs
    }

    /// The first of all ways to serve all requests, by trying them in order.
    fn expected(&self) -> Option<Vec<Vec<String>>> {
        let flat: Vec<(usize, usize, &Vec<Wanted>)> = self
            .claims
            .iter()
            .enumerate()
            .flat_map(|(c, requests)| requests.iter().enumerate().map(move |(r, w)| (c, r, w)))
            .collect();
        let mut served = Vec::new();
        self.serve(&flat, &mut served).then(|| {
            let mut lists = vec![Vec::new(); self.claims.len()];
            for (claim, _, _, devices) in &served {
                lists[*claim].extend(devices.iter().map(ToString::to_string));
            }
            lists
        })
    }

    fn serve(
        &self,
        todo: &[(usize, usize, &Vec<Wanted>)],
        served: &mut Vec<(usize, usize, bool, Vec<usize>)>,
    ) -> bool {
        let Some(((claim, request, alternatives), rest)) = todo.split_first() else {
            return self.is_valid(served);
        };
        for (picky, count, admin) in *alternatives {
            let matching: Vec<usize> =
                (0..self.devices.len()).filter(|i| !picky || self.devices[*i].1).collect();
            let sets: Vec<Vec<usize>> = if *count == 0 {
                if matching.is_empty() { Vec::new() } else { vec![matching] }
            } else {
                let all = (0u32..1 << self.devices.len())
                    .map(|bits| (0..self.devices.len()).filter(|i| bits >> i & 1 == 1).collect::<Vec<_>>());
                let mut sets: Vec<Vec<usize>> =
                    all.filter(|s| s.len() == *count && s.iter().all(|i| matching.contains(i))).collect();
                sets.sort();
                sets
            };
            for set in sets {
                served.push((*claim, *request, *admin, set));
                if self.serve(rest, served) {
                    return true;
                }
                served.pop();
            }
        }
        false
    }

    /// Validates a complete solution independently.
    fn is_valid(&self, served: &[(usize, usize, bool, Vec<usize>)]) -> bool {
        let taken: Vec<usize> = served.iter().filter(|s| !s.2).flat_map(|s| s.3.clone()).collect();
        let once = taken.iter().all(|i| !self.devices[*i].3 && taken.iter().filter(|j| i == *j).count() == 1);
        let drawn: i64 = taken.iter().map(|i| self.devices[*i].2).sum();
        once && drawn <= self.counter
            && (0..self.claims.len()).all(|claim| self.claim_is_valid(claim, served))
    }

    fn claim_is_valid(&self, claim: usize, served: &[(usize, usize, bool, Vec<usize>)]) -> bool {
        let own = || served.iter().filter(|s| s.0 == claim);
        // Within a claim no request for administration may repeat a device chosen before it.
        let mut before: Vec<usize> = Vec::new();
        for (_, _, admin, devices) in own() {
            if *admin && devices.iter().any(|d| before.contains(d)) {
                return false;
            }
            before.extend(devices);
        }
        let (kind, first) = self.constraints[claim];
        let about = own().filter(|s| !first || s.1 == 0).flat_map(|s| &s.3);
        let values: Vec<u8> = about.map(|i| self.devices[*i].0).collect();
        match kind {
            0 => true,
            1 => values.windows(2).all(|w| w[0] == w[1]),
            _ => (0..values.len()).all(|i| !values[..i].contains(&values[i])),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn the_allocator_finds_the_first_solution_exactly_when_there_is_one(instance in instances()) {
        let mut fixture = instance.fixture();
        prop_assert_eq!(fixture.allocate("n0", &instance.inputs()), instance.expected());
    }
}
