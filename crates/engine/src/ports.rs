//! Host ports: two pods on one node cannot listen on the same address and port.

use crate::input::HostPort;
use crate::verdict::NodeMiss;

/// The address that stands for all addresses.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// Whether a pod's host ports are free on a node, given the ports of each pod there.
pub fn filter<'a>(wanted: &[HostPort], taken: impl Iterator<Item = &'a [HostPort]>) -> Result<(), NodeMiss> {
    if wanted.is_empty() {
        return Ok(());
    }
    let mut taken = taken.flatten();
    if taken.any(|there| wanted.iter().any(|port| conflict(port, there))) {
        Err(NodeMiss::Ports)
    } else {
        Ok(())
    }
}

/// Whether two host ports exclude each other: equal protocol and number on equal addresses, or one on all addresses.
pub fn conflict(left: &HostPort, right: &HostPort) -> bool {
    left.port == right.port
        && left.protocol == right.protocol
        && (left.ip == right.ip || is_wildcard(&left.ip) || is_wildcard(&right.ip))
}

fn is_wildcard(ip: &str) -> bool {
    ip.is_empty() || ip == ALL_ADDRESSES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, protocol: &str, port: u16) -> HostPort {
        HostPort { ip: ip.into(), protocol: protocol.into(), port }
    }

    #[test]
    fn ports_conflict_on_equal_address_protocol_and_number() {
        let web = port("10.0.0.1", "TCP", 80);
        assert!(conflict(&web, &web));
        assert!(!conflict(&web, &port("10.0.0.1", "UDP", 80)));
        assert!(!conflict(&web, &port("10.0.0.1", "TCP", 81)));
        assert!(!conflict(&web, &port("10.0.0.2", "TCP", 80)));
    }

    #[test]
    fn the_wildcard_address_conflicts_with_every_address() {
        let all = port("0.0.0.0", "TCP", 80);
        assert!(conflict(&all, &port("10.0.0.1", "TCP", 80)));
        assert!(conflict(&port("10.0.0.1", "TCP", 80), &port("", "TCP", 80)));
        assert!(!conflict(&all, &port("10.0.0.1", "TCP", 81)));
    }

    #[test]
    fn a_node_refuses_a_pod_whose_port_is_taken_by_any_pod() {
        let taken = [vec![], vec![port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 443)]];
        let there = || taken.iter().map(Vec::as_slice);
        assert_eq!(filter(&[port("0.0.0.0", "TCP", 443)], there()), Err(NodeMiss::Ports));
        assert_eq!(filter(&[port("0.0.0.0", "TCP", 8080)], there()), Ok(()));
        assert_eq!(filter(&[], there()), Ok(()));
    }
}
