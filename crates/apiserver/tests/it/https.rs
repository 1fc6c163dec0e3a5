//! HTTPS: authentication, the kubeconfig, HTTP/1.1 and HTTP/2, and incomplete requests.

use crate::{config_map, server};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tokio::io::AsyncWriteExt;

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kai-apiserver-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn kubeconfig_authenticates_and_other_clients_are_rejected() {
    let server = server();
    let listening = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let path = scratch("config").join("kubeconfig");
    listening.write_kubeconfig(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let kubeconfig = Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    let map: ConfigMap = serde_json::from_value(config_map("a")).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);

    let mut stranger = kubeconfig;
    let access = stranger.auth_infos[0].auth_info.as_mut().unwrap();
    access.token = None;
    let config = kube::Config::from_custom_kubeconfig(stranger, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    listening.stop().await;
}

#[tokio::test]
async fn incomplete_requests_do_not_block_other_clients() {
    let server = server();
    let listening = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut socket = tokio::net::TcpStream::connect(listening.address()).await.unwrap();
        socket.write_all(b"\x16\x03\x01").await.unwrap();
        silent.push(socket);
    }
    let path = scratch("half").join("kubeconfig");
    listening.write_kubeconfig(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(
        Kubeconfig::read_from(&path).unwrap(),
        &KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
    drop(silent);
    listening.stop().await;
}
