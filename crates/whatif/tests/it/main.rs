//! Hints on random clusters and on constructed ones.

mod constructed;
mod law;
mod random_objects;
