//! The log engine: one journal for the node, segments of record batches for every partition.
//!
//! Owns: what is written where and in which order, when it is durable, what a start finds and
//! mends, where a reader finds an offset. Must not know: descriptors, threads, clocks; what is in
//! a record, beyond its batch's header.
//!
//! A shell (`headrace-io`, or a simulated disk) performs [`DiskOp`]s and reports back:
//! [`Machine`] says how they follow on each other, [`open`] how a start proceeds.
//!
//! ```text
//! machine     what callers ask                     journal     the bytes of the journal
//! draft       what the next round commits          recovery    what is on disk -> a machine
//! build       queued runs -> ordered effects       story       journal -> what each log should be
//! ends        what has ended                       mend        one log: redo, verify, load
//! chore       syncing and journal files beside it  index, producers, sources   side files
//! kept, state what is kept beside a log            read, scan  offset or time -> batches
//! partition   one log: offsets                     space       when the disk is too full
//! segment     one of its files                     settings    what differs from log to log
//! roll, trim  where segments begin and go
//! opening     logs that begin to exist: all of a change, or none
//! withdraw    rounds that wrote nothing
//! compact     of each key the last record
//! inspect     a stopped store: what is damaged, what can be rebuilt
//! ```

mod build;
mod chore;
mod codec;
mod compact;
mod disk;
mod draft;
mod ends;
mod epochs;
mod error;
mod held;
mod index;
pub mod inspect;
mod journal;
mod kept;
mod layout;
mod machine;
mod mend;
mod opening;
mod options;
mod partition;
mod producers;
mod read;
mod recovery;
mod roll;
mod round;
mod scan;
mod segment;
mod settings;
mod sources;
mod space;
mod state;
mod statistics;
mod story;
#[cfg(test)]
mod tests;
mod trim;
mod withdraw;

pub use chore::Chore;
pub use compact::{Compaction, CompactionSettings, Group, Pass, Replacement, Survey};
pub use disk::{Disk, DiskError, DiskOp, Path, Slice};
pub use error::{Damage, Error};
pub use held::HeldLog;
pub use machine::{Appended, Completion, Machine};
pub use options::{Bounds, Options, JOURNAL_BYTES_MIN};
pub use partition::LogId;
pub use read::{IndexFiles, LoadedIndex, Plan, Walk};
pub use recovery::{open, Recovery};
pub use round::{Draft, Round};
pub use settings::{Fsync, LogSettings};
pub use sources::{Saving, SourceState, Sources, SourcesPlan};
pub use state::{FoundState, StatePlace};
pub use statistics::{Statistics, COMMIT_BUCKETS_NS};
pub use trim::SegmentFacts;
