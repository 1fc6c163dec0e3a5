//! Empty until filled.
