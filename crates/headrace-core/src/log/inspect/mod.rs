//! Looking at a stopped store: what is damaged, what can be rebuilt, what would be lost.
//!
//! [`verify`] changes nothing: it plays what a start would do on an [`overlay`] and walks every
//! batch of the outcome. [`repair`] rebuilds what holds no records, and where it may, leaves out
//! batches that cannot be read: a batch without records takes their place, so that offsets stay
//! dense and none is ever used twice. Formats are read by the code that a start reads them with.

mod dump;
mod examine;
mod holes;
mod overlay;
mod repair;
mod rewrite;
mod snapshots;
mod story;
mod survey;
mod verify;

pub use dump::{journal, journal_bytes, logs, snapshots, JournalEntry, LogFacts, Snapshot};
pub use repair::{repair, Action, Consent};
pub use verify::{verify, Class, Finding};
