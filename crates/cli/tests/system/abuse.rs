//! Bad input and bad times: a clear reason on the object, nobody else is harmed, and everything resumes.

mod annotations;
mod churn;
mod disk;
mod nodes;
mod outage;
mod queues;
