//! What a history may not show.

use std::fmt;

/// A kind of broken promise, by the word that Jepsen's queue and Kafka checkers use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What was acknowledged, or seen by a reader, is not there any more, or was passed over.
    Lost,
    /// One append stands at two offsets.
    Duplicated,
    /// Appends of one client stand in another order than it sent them.
    Reordered,
    /// A record that nobody sent, that was refused, or that belongs elsewhere.
    Invented,
    /// Two values at one offset, or an append acknowledged at another place than its own.
    Inconsistent,
    /// A reader was taken back.
    Backwards,
    /// A log's start or end went back.
    Regressed,
    /// A lookup by time is not what comparing every record gives.
    Lookup,
    /// An append never ended, though nothing was left to do.
    Unanswered,
    /// The store refused what it must take, or took what it must refuse.
    Refused,
    /// A machine found itself in a state that cannot be.
    Panicked,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Which.
    pub kind: Kind,
    /// The log, as the history names it.
    pub log: String,
    /// What was seen, in one line.
    pub text: String,
}

impl Kind {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::Lost,
        Self::Duplicated,
        Self::Reordered,
        Self::Invented,
        Self::Inconsistent,
        Self::Backwards,
        Self::Regressed,
        Self::Lookup,
        Self::Unanswered,
        Self::Refused,
        Self::Panicked,
    ];

    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Invented => "invented",
            Self::Inconsistent => "inconsistent",
            Self::Backwards => "backwards",
            Self::Regressed => "regressed",
            Self::Lookup => "lookup",
            Self::Unanswered => "unanswered",
            Self::Refused => "refused",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}: {}", self.kind.name(), self.log, self.text)
    }
}
