//! Invalid objects and API server failures: the object reports the reason, other workloads are not affected, and
//! processing resumes after the cause is gone.

mod api_server_errors;
mod churn;
mod invalid_groups;
mod invalid_nodes;
mod invalid_pods;
mod invalid_queues;
mod lease_write_failures;
