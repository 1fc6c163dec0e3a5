//! A Kubernetes API server in one process: what `kubectl` and `kube` clients use works against it unchanged.
//!
//! It keeps everything in memory, knows no KAI concept and is no production store: production is Kubernetes.
