//! Test fixtures: a real Kubernetes control plane on the loopback address, and the API suite.
//!
//! [`control_plane`] starts etcd, kube-apiserver and optionally kube-controller-manager from programs that
//! `cargo xtask kubernetes` builds. [`suite`] sends the requests of `tests/api-suite` to any API server and compares the
//! normalised responses with recordings of a real one. [`kubectl`] runs `kubectl` against either.
//! [`balancer`] stands for a Service. [`node`] adds real nodes, which run the pods of images that [`image`] writes.
//! [`third_party`] starts controllers of others beside a control plane.
//! This crate knows no KAI concept and is not part of any shipped binary.

pub mod balancer;
pub mod certificates;
pub mod client;
pub mod control_plane;
pub mod image;
pub mod kubectl;
pub mod network;
pub mod node;
pub mod suite;
pub mod third_party;
pub mod webhook;
