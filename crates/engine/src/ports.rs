//! Host port conflicts, as in the kube-scheduler plugin `NodePorts`.

use crate::input::HostPort;

/// The wildcard address.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// Whether the host ports of two pods conflict on one node.
pub fn conflict(requested: &[HostPort], used: &[HostPort]) -> bool {
    requested.iter().any(|port| used.iter().any(|other| conflict_between(port, other)))
}

/// Equal protocol and port on equal addresses, or on the wildcard address.
fn conflict_between(left: &HostPort, right: &HostPort) -> bool {
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
        assert!(conflict_between(&web, &web));
        assert!(!conflict_between(&web, &port("10.0.0.1", "UDP", 80)));
        assert!(!conflict_between(&web, &port("10.0.0.1", "TCP", 81)));
        assert!(!conflict_between(&web, &port("10.0.0.2", "TCP", 80)));
    }

    #[test]
    fn the_wildcard_address_conflicts_with_every_address() {
        let all = port("0.0.0.0", "TCP", 80);
        assert!(conflict_between(&all, &port("10.0.0.1", "TCP", 80)));
        assert!(conflict_between(&port("10.0.0.1", "TCP", 80), &port("", "TCP", 80)));
        assert!(!conflict_between(&all, &port("10.0.0.1", "TCP", 81)));
    }

    #[test]
    fn one_port_in_common_is_a_conflict() {
        let used = [port("0.0.0.0", "TCP", 80), port("0.0.0.0", "TCP", 443)];
        assert!(conflict(&[port("", "TCP", 22), port("10.0.0.1", "TCP", 443)], &used));
        assert!(!conflict(&[port("0.0.0.0", "TCP", 8080)], &used));
        assert!(!conflict(&[], &used));
    }
}
