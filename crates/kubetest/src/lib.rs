//! Tests against the real thing: a Kubernetes control plane on this machine, and the suite that compares with it.
//!
//! [`real`] starts etcd, kube-apiserver and, where asked, kube-controller-manager from programs that
//! `cargo xtask kubernetes` built. [`suite`] runs the request files of `tests/api-suite` against any API server and
//! compares the normalised answers with those that a real server gave. [`kubectl`] drives any of them. Nothing here knows a KAI concept, and nothing
//! here ships.

pub mod certificates;
pub mod client;
pub mod kubectl;
pub mod real;
pub mod suite;
pub mod webhook;
