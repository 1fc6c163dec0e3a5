//! Configuration of the programs of a node, and credentials that the control plane signs for them.

use super::Error;
use crate::control_plane::ControlPlane;
use crate::network::Network;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The image of the container that holds the namespaces of a pod; it is imported, never pulled.
pub(super) const PAUSE_IMAGE: &str = "kubetest.local/pause:1";
/// The handler of RuntimeClasses of this name: the runtime of all other pods, as NVIDIA's wraps it.
const RUNTIMES: [&str; 2] = ["crun", "nvidia"];
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Where a node is on its network.
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) index: u8,
    pub(super) network: &'a Network,
    pub(super) folder: &'a Path,
}

/// Writes all files of a node.
pub(super) fn write_all(place: &Place<'_>, plane: &ControlPlane) -> Result<(), Error> {
    let write = |name: &str, text: &str| write(&place.folder.join(name), text);
    for (name, text) in [
        ("cgroups.sh", include_str!("cgroups.sh")),
        ("start.sh", include_str!("start.sh")),
        ("setup.sh", include_str!("setup.sh")),
        ("enter.sh", include_str!("enter.sh")),
        ("remove.sh", include_str!("remove.sh")),
    ] {
        write(name, text)?;
    }
    let authority = plane.signer();
    let serving = authority.server(&[place.network.node(place.index)])?;
    write("ca.crt", &authority.certificate)?;
    write("kubelet.crt", &serving.certificate)?;
    write("kubelet.key", &serving.key)?;
    let node = authority.client(&format!("system:node:{}", place.name), Some("system:nodes"))?;
    write("kubelet.kubeconfig", &kubeconfig(place, plane, &node))?;
    let proxy = authority.client("system:kube-proxy", None)?;
    write("kube-proxy.kubeconfig", &kubeconfig(place, plane, &proxy))?;
    write("resolv.conf", "nameserver 192.0.2.53\n")?;
    write("kubelet.yaml", &kubelet(place).to_string())?;
    write("kube-proxy.yaml", &kube_proxy(place).to_string())?;
    write("containerd.toml", &containerd(place))?;
    write("cni/bridge.conflist", &cni(place).to_string())
}

fn write(path: &PathBuf, text: &str) -> Result<(), Error> {
    let failed = |source| Error::System { what: format!("write `{}`", path.display()), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}

fn kubeconfig(place: &Place<'_>, plane: &ControlPlane, user: &crate::certificates::Leaf) -> String {
    use base64::Engine as _;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let port = plane.server().address().port();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "node",
        "clusters": [{"name": "node", "cluster": {
            "server": format!("https://{}:{port}", place.network.host()),
            "certificate-authority-data": encoded(plane.authority()),
        }}],
        "users": [{"name": "node", "user": {
            "client-certificate-data": encoded(&user.certificate),
            "client-key-data": encoded(&user.key),
        }}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
    })
    .to_string()
}

fn kubelet(place: &Place<'_>) -> Value {
    let file = |name: &str| place.folder.join(name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"webhook": {"enabled": true}, "anonymous": {"enabled": false}, "x509": {"clientCAFile": file("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": file("kubelet.crt"), "tlsPrivateKeyFile": file("kubelet.key"),
        "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "resolvConf": file("resolv.conf"),
        "oomScoreAdj": 0,
        // The disk is that of the machine, whatever is on it, and imported images cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        "featureGates": {"ResourceHealthStatus": true},
    })
}

fn kube_proxy(place: &Place<'_>) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "iptables", "oomScoreAdj": 0,
        "clientConnection": {"kubeconfig": place.folder.join("kube-proxy.kubeconfig")},
        "hostnameOverride": place.name,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

fn containerd(place: &Place<'_>) -> String {
    let runtimes = RUNTIMES.map(|name| {
        format!(
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\n\
             runtime_type = \"io.containerd.runc.v2\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}.options]\n\
             BinaryName = \"crun\"\nSystemdCgroup = false\n"
        )
    });
    format!(
        "version = 2\n\
         [grpc]\naddress = \"{CONTAINERD_SOCKET}\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n\
         sandbox_image = \"{PAUSE_IMAGE}\"\n\
         # Without CAP_SYS_RESOURCE no process may get a lower score.\n\
         restrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"{}\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\
         snapshotter = \"overlayfs\"\ndefault_runtime_name = \"{}\"\n{}",
        place.folder.join("cni").display(),
        RUNTIMES[0],
        runtimes.concat(),
    )
}

fn cni(place: &Place<'_>) -> Value {
    json!({
        "cniVersion": "0.4.0", "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": place.network.pods(place.index)}]], "routes": [{"dst": "0.0.0.0/0"}]},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
