//! Admission webhooks for pods, queues, pod groups and topologies, and the TLS server that exposes them.
//!
//! [`review`] decodes an `AdmissionReview` and encodes the response. [`pod`], [`queue`], [`podgroup`] and [`topology`] hold
//! the rules as pure functions and a router each; [`registration`] builds the configurations that tell the API server which
//! requests to send; [`server`] serves a router over TLS; [`managed`] and [`certificate`] keep the certificate and rotate it.
//! The paths and the rules are those of KAI's webhooks, except for what `docs/differences.md` lists.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod certificate;
pub mod managed;
pub mod pod;
pub mod podgroup;
pub mod queue;
pub mod registration;
pub mod review;
pub mod server;
pub mod topology;

mod names;
mod patch;
