//! Tests of the test kit itself.

mod recorded_calls;
