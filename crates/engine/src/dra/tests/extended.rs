//! Claims for extended resources.

use super::*;
use crate::input::{ContainerRequest, WHOLE_GPU};
use crate::resource::{Amounts, Dims};

struct Backed {
    fixture: TestCluster,
    dims: Dims,
}

impl Backed {
    fn new() -> Self {
        let mut fixture = TestCluster::with_gpus(&[("n0", 4)]);
        let mut dims = Dims::new(&mut fixture.names);
        for (class, resource) in [("tpu-class", "example.com/tpu"), ("gpu-class", "nvidia.com/gpu")] {
            let class = DeviceClassInput {
                name: class.into(),
                extended_resource: Some(resource.into()),
                accepts_all: true,
                ..DeviceClassInput::default()
            };
            fixture.devices.set_class(&class, &mut fixture.names);
        }
        dims.requested("example.com/tpu", &mut fixture.names);
        Self { fixture, dims }
    }
    fn request(&mut self, containers: &[ContainerRequest]) -> Option<ExtendedRequest> {
        let inventory = &self.fixture.devices.inventory;
        ExtendedRequest::build(containers, inventory, &mut self.dims, &mut self.fixture.names)
    }
    fn text(&self, sym: Sym) -> &str {
        self.fixture.names.text(sym)
    }
    /// Requests and mappings for a node that has none of the resources.
    fn shown(&mut self, containers: &[ContainerRequest]) -> (Vec<String>, Vec<String>) {
        let claim = self.request(containers).and_then(|r| r.claim_for(|_| true)).unwrap_or_default();
        let requests =
            claim.requests().map(|(name, class, n)| format!("{} {} {n}", self.text(name), self.text(class)));
        let mappings = claim
            .mappings
            .iter()
            .map(|(c, r, q)| format!("{} {} {}", self.text(*c), self.text(*r), self.text(*q)));
        (requests.collect(), mappings.collect())
    }
}

fn container(name: &str, tpus: i64) -> ContainerRequest {
    let request = vec![("cpu".into(), 1000), ("example.com/tpu".into(), tpus * 1000)];
    ContainerRequest { name: name.into(), request, ..ContainerRequest::default() }
}
fn init(name: &str, tpus: i64) -> ContainerRequest {
    ContainerRequest { init: true, ..container(name, tpus) }
}

#[test]
fn containers_without_backed_resources_need_no_claim() {
    let mut backed = Backed::new();
    let other = ContainerRequest { request: vec![("example.com/fpga".into(), 1000)], ..container("c", 0) };
    assert_eq!(backed.request(&[container("c", 0), other]), None);
}

#[test]
fn each_running_container_gets_a_request_of_its_own() {
    let mut backed = Backed::new();
    let sidecar = ContainerRequest { sidecar: true, ..init("side", 1) };
    let (requests, mappings) = backed.shown(&[container("main", 2), sidecar]);
    assert_eq!(requests, vec!["container-0-request-1 tpu-class 1", "container-1-request-1 tpu-class 2"]);
    let expected =
        vec!["side example.com/tpu container-0-request-1", "main example.com/tpu container-1-request-1"];
    assert_eq!(mappings, expected);
}

#[test]
fn init_containers_use_later_devices_and_share_what_is_missing() {
    let mut backed = Backed::new();
    let containers = [init("small", 1), init("large", 4), init("larger", 5), container("main", 2)];
    let (requests, mappings) = backed.shown(&containers);
    assert_eq!(requests, vec!["container-3-request-1 tpu-class 2", "container-2-request-1 tpu-class 3"]);
    let expected = vec![
        "main example.com/tpu container-3-request-1",
        "small example.com/tpu container-3-request-1",
        "large example.com/tpu container-3-request-1",
        "larger example.com/tpu container-3-request-1",
        "large example.com/tpu container-2-request-1",
        "larger example.com/tpu container-2-request-1",
    ];
    assert_eq!(mappings, expected);
}

#[test]
fn only_what_the_node_lacks_is_claimed() {
    let mut backed = Backed::new();
    let gpus = ContainerRequest {
        request: vec![("gpu".into(), 2 * WHOLE_GPU), ("example.com/tpu".into(), 1000)],
        ..container("main", 0)
    };
    let request = backed.request(&[gpus]).expect("both are backed");
    let mut allocatable = Amounts::zero();
    allocatable.set(request.dims().next().expect("two resources"), 8000);
    let claim = request.claim_for(|dim| allocatable.get(dim) == 0).expect("GPUs are lacking");
    let shown: Vec<(&str, u32)> = claim.requests().map(|(_, class, n)| (backed.text(class), n)).collect();
    assert_eq!(shown, vec![("gpu-class", 2)]);
    assert_eq!(backed.text(claim.mappings[0].1), "nvidia.com/gpu", "pods know it by that name");
    assert_eq!(request.claim_for(|_| false), None);
}

#[test]
fn any_backed_resource_is_allocated_and_released() {
    let mut backed = Backed::new();
    let request = backed.request(&[container("main", 3)]).expect("backed");
    let claim = request.claim_for(|_| true).expect("lacking");
    let (first, second) = (backed.fixture.sym("p"), backed.fixture.sym("q"));
    let fit = |fixture: &TestCluster, pod| fixture.devices.fit(pod, Some(&claim), &fixture.view("n0"));
    let found = fit(&backed.fixture, first).expect("four devices are free");
    let undo = backed.fixture.devices.reserve(first, &found);
    assert_eq!(fit(&backed.fixture, second), Err(ClaimRejection::NoDevices));
    let exported =
        backed.fixture.devices.export_extended(first, &claim, &backed.fixture.names).expect("held");
    assert_eq!(exported.devices.len(), 3);
    assert_eq!(exported.devices[0].request, "container-0-request-1");
    let released = backed.fixture.devices.release(first);
    assert!(fit(&backed.fixture, second).is_ok());
    for undo in released.into_iter().chain(undo) {
        backed.fixture.devices.undo(undo);
    }
    assert!(fit(&backed.fixture, second).is_ok());
}
