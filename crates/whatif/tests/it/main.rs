//! Hints on random clusters and on constructed ones.

mod constructed;
mod random_objects;
mod law;
