//! What the log refuses, each as one line that names the place and the remedy.

use std::fmt;

use super::disk::DiskError;
use crate::record;

/// Why an operation on the store was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The disk refused, or the store has failed or is closed.
    Storage(String),
    /// The disk is nearly full; the same append may succeed later.
    Full(String),
    /// What the store is made for is reached; the message names the bound.
    Limit(String),
    /// Bytes that were durable are damaged or missing; nothing was cut.
    Corrupt(Damage),
    /// A run of batches that was handed in is malformed.
    Record(record::Error),
    /// An idempotent producer skipped a sequence.
    OutOfOrderSequence {
        /// Its id.
        producer_id: i64,
        /// The sequence that was due.
        expected: i32,
        /// The sequence that came.
        found: i32,
    },
    /// A newer epoch of this producer has written.
    StaleProducerEpoch {
        /// Its id.
        producer_id: i64,
        /// The epoch that has written.
        current: i16,
        /// The epoch that came.
        found: i16,
    },
    /// An argument is outside what the store holds.
    Argument(String),
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, relative to the data folder.
    pub path: String,
    /// First byte that is wrong.
    pub position: u64,
    /// Offset of the record that should stand there, where it is known.
    pub offset: Option<i64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}", self.path, self.position)?;
        if let Some(offset) = self.offset {
            write!(f, " (offset {offset})")?;
        }
        let remedy = if self.path.starts_with("streams/") {
            "restore the file from a backup, or see headrace log repair --help"
        } else {
            "restore the journal from a backup, or see headrace log repair --help"
        };
        write!(f, ": {}; nothing was changed: {remedy}", self.what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(text) | Self::Full(text) | Self::Limit(text) | Self::Argument(text) => {
                f.write_str(text)
            }
            Self::Corrupt(damage) => damage.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::OutOfOrderSequence {
                producer_id,
                expected,
                found,
            } => write!(
                f,
                "producer {producer_id} sent sequence {found} where {expected} was due"
            ),
            Self::StaleProducerEpoch {
                producer_id,
                current,
                found,
            } => write!(
                f,
                "producer {producer_id} sent epoch {found} after epoch {current} has written"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Storage(error.text)
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Corrupt(damage)
    }
}
