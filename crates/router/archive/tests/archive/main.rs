//! The archive against a recomputation from raw samples; kills, full disks, clocks, corruption, limits.

mod answers;
mod ends;
mod limits;
mod world;
