//! The pure part of headrace: protocol, routing, session, record and log machines.
//!
//! Owns every decision that is made per message. An event goes in, effects come out: nothing
//! here opens a socket or a file, reads a clock, starts a thread or draws a random number, so
//! any run replays from its inputs. Hash maps take an injected key ([`hash`]).
#![forbid(unsafe_code)]

pub mod access;
pub mod frame;
pub mod hash;
mod leb128;
pub mod log;
pub mod mqtt;
pub mod payload;
pub mod queue;
pub mod record;
pub mod session;
mod sums;
pub mod switchboard;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod topic;

/// The instant at which an event happened, as the shell observed it.
///
/// Machines never read a clock; every event carries this pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Milliseconds on a clock that never steps back; its zero is arbitrary.
    pub mono_ms: u64,
    /// Milliseconds since 1970-01-01T00:00:00Z; may step either way.
    pub wall_ms: i64,
}
