//! Log compaction: of each key the last record stays (Kafka's `cleanup.policy=compact`).
//!
//! Owns: which records go, what takes their place, and the moment from which that counts. Must
//! not know: threads, clocks, how fast it may go: a shell's [`Disk`](super::Disk) says that.
//!
//! ```text
//! Machine::plan_compaction -> Pass      the closed segments, under the machine's lock
//! Pass::survey -> Survey                reads the dirty part: key -> last offset
//! Survey::clean(group) -> Replacement   writes what stays of neighbouring segments, and syncs it
//! Machine::replace                      a round of the journal swaps the segments
//! ```
//!
//! A record goes where a later one of its key is known, where it has no key, and, of a tombstone,
//! when its delete horizon has passed: the first pass that meets a tombstone sets that, in its
//! batch, `delete_retention_ms` ahead, so that who began to read before learns of the deletion. A
//! batch without records goes too, except the last of a producer, which tells its sequence. Offsets
//! never change, and each still has a batch: the one before it reaches over those that are gone, or
//! an empty one stands for them. Records of transactions are superseded by later ones and supersede
//! none, for whether they were committed is not known; control batches stay as they are.
//!
//! What is written has names of its own (`layout::segment_file`), complete before the journal
//! tells of it; nothing is renamed. Hence readers on their way through an old file end there, or
//! find it gone and plan anew, and a crash leaves either the old segments or the new ones.

mod map;
mod output;
mod pass;
mod swap;

pub use pass::{Compaction, CompactionSettings, Group, Pass, Survey};
pub use swap::Replacement;
