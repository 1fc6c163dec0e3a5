//! Validating admission webhooks for queues and pod groups, and the TLS server that exposes them.
//!
//! [`review`] decodes an `AdmissionReview` and encodes the response. [`queue`] and [`podgroup`] hold the validation rules
//! as pure functions and a router each; [`server`] serves a router over TLS and reloads the certificate.
//! The paths and the rules are those of KAI's webhooks.

pub mod podgroup;
pub mod queue;
pub mod review;
pub mod server;
