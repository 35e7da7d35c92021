//! The message frame of the original queue design, for producers that can afford nothing larger
//! than a socket, a CRC and a line of JSON.
//!
//! Owns: the bytes of a frame; what a run of frames comes to in a log ([`Intake`]), with its
//! acknowledgements; how stored batches become frames again ([`Outflow`]). Must not know: sockets,
//! the line that opens a connection, where batches are kept.
//!
//! Invariants. What is read is never trusted: every length is checked before it is used, and
//! nothing is kept beyond one frame that is not whole. A frame is taken whole and right, or not at
//! all; those before a wrong one are taken, those behind it never.
//!
//! ```text
//! byte  0 length u32, of what follows it     18 key length i32, -1 for null, and the key
//!       4 CRC-32 (IEEE) u32 of 8..           .. value length i32, -1 for null, and the value
//!       8 magic u8 = 1                       .. headers count i32, and for each:
//!       9 attributes u8 = 0                  ..   name length i16, and the name, UTF-8
//!      10 timestamp i64 ms                   ..   value length i32, -1 for null, and the value
//! ```
//!
//! Source: docs/frame.md; ADR 0042.

mod intake;
mod layout;
mod outflow;

pub use intake::{Intake, Rules, Taken, TakenBatch};
pub use layout::{parse, put, Fault, Frame, Headers, Unwritable, LENGTH_MIN, NAME_BYTES_MAX};
pub use outflow::{Error, Outflow};
