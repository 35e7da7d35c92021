//! Simulated lives of the log engine, and the judge of what its clients saw; loops to be measured.
//!
//! Owns: a disk in memory that fails as disks do, clients with their promises, random schedules
//! of all of it from one seed, planted faults, and the checker of histories, which also judges
//! the histories of real nodes. Must not know: the insides of the machines that it drives; it
//! goes through the same face as `headrace-io`. Nothing here is part of a running node.
//!
//! Invariant. A seed is a run: no clock, no hash order, no other randomness. [`Outcome::hash`]
//! covers every call, answer and effect, so two runs can be told apart.
//!
//! ```text
//! disk, random, trace   the world               shell        effects one by one, and how it lies
//! clients, payload      what is sent and read   checker      what they may see, and may not
//! simulation, answers   lives, deaths, steps    leave        what a log may let go
//! compactor             beside the rounds       sabotage     planted faults
//! kernels               paths to be measured
//! ```

mod anomaly;
mod answers;
mod checker;
mod clients;
mod compactor;
mod disk;
mod history;
pub mod kernels;
mod leave;
mod payload;
mod random;
mod rot;
mod sabotage;
mod segments;
mod shell;
mod simulation;
#[cfg(test)]
pub(crate) mod tests;
mod trace;
mod workload;

pub use anomaly::{Anomaly, Kind};
pub use checker::{Append, Checker, Seen};
pub use disk::{Lie, Refused, SimDisk};
pub use payload::{payload, value_of};
pub use random::Random;
pub use sabotage::Sabotage;
pub use simulation::{simulate, Outcome, Setup};
