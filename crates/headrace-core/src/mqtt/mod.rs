//! MQTT 3.1.1 and 5.0: bytes to packets and back.
//!
//! One packet model serves both versions; 3.1.1 is the case of empty properties. Knows the wire
//! format and what a packet may contain; knows no session, no topic tree and no policy.

pub mod decode;
pub mod encode;
pub mod packet;
pub(crate) mod property;
pub mod reason;

pub use decode::{DecodeError, Frame};

#[cfg(test)]
mod tests;
