//! The arguments of the control plane's programs.

use crate::network::Network;
use std::path::Path;

/// kube-apiserver rejects a loopback address here; this one is reserved for documentation (RFC 5737).
const ADVERTISE_ADDRESS: &str = "192.0.2.1";

pub(super) fn etcd(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    vec![
        "--unsafe-no-fsync".to_owned(),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn api_server(folder: &Path, store: u16, secure: u16, network: Option<&Network>) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        format!("--secure-port={secure}"),
        format!("--cert-dir={}", file("certificates")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ];
    match network {
        None => arguments.extend([
            "--bind-address=127.0.0.1".to_owned(),
            format!("--advertise-address={ADVERTISE_ADDRESS}"),
            "--authorization-mode=RBAC".to_owned(),
        ]),
        Some(network) => arguments.extend([
            // Only this machine and its nodes can reach it: the token of the administrator is known to everyone.
            format!("--bind-address={}", network.host()),
            format!("--advertise-address={}", network.host()),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--kubelet-certificate-authority={}", file("ca.crt")),
            format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
            format!("--kubelet-client-key={}", file("kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // Addresses of services exist on the nodes only: webhooks are called by the addresses of their pods.
            "--enable-aggregator-routing=true".to_owned(),
        ]),
    }
    arguments
}

/// One file: without a size the log is rotated after 100 MB.
pub(super) fn audit(folder: &Path) -> [String; 4] {
    let file = |name: &str| folder.join(name).display().to_string();
    [
        format!("--audit-policy-file={}", file("audit.yaml")),
        format!("--audit-log-path={}", file("audit.log")),
        "--audit-log-mode=blocking".to_owned(),
        "--audit-log-maxsize=100000".to_owned(),
    ]
}

pub(super) fn controllers(folder: &Path, secure: u16) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("kubeconfig")),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={secure}"),
        format!("--cert-dir={}", file("certificates")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=false".to_owned(),
    ]
}

pub(super) fn scheduler(folder: &Path, secure: u16) -> Vec<String> {
    let kubeconfig = folder.join("kubeconfig").display().to_string();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={secure}"),
        "--leader-elect=false".to_owned(),
    ]
}
