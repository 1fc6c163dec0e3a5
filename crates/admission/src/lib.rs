//! Admission webhooks for pods, queues, pod groups and topologies, and the TLS server that exposes them.
//!
//! [`review`] decodes an `AdmissionReview` and encodes the response. [`pod`], [`queue`], [`podgroup`] and [`topology`] hold
//! the rules as pure functions and a router each; [`registration`] builds the configurations that tell the API server which
//! requests to send; [`server`] serves a router over TLS; [`managed`] and [`certificate`] keep the certificate and rotate it.
//! The paths and the rules are those of KAI's webhooks, except for what `docs/differences.md` lists.

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
