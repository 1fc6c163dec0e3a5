//! The controllers around the scheduler: who makes pod groups, and who says what groups and queues want and hold.
//!
//! Three components, each with `Options` and a `run` that never returns: [`grouper`] turns pods and their owners into
//! pod groups, [`podgroup`] keeps the status of pod groups, [`queue`] keeps the status and the metrics of queues. The
//! latter two also answer the API server's questions about objects of their kind ([`admission`]).
//! Every one has the same two halves: a pure function from what is to what should be, tested by tables, and a thin
//! rest that reads and writes. All of them may be stopped between any two writes.
//! Not here: anything that decides where a pod goes.

pub mod admission;
pub mod grouper;
pub mod kind;
pub mod podgroup;
pub mod queue;

mod amounts;
mod keep;
