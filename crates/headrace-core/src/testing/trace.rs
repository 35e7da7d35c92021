//! Everything that happened in a run, as one number, and as lines where somebody wants to read.

use std::fmt::{Arguments, Write};
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::log::DiskOp;

#[derive(Debug, Default)]
pub(super) struct Trace {
    hasher: SipHasher13,
    line: String,
    lines: Option<Vec<String>>,
    pub(super) events: u64,
}

impl Trace {
    /// A trace that keeps its lines.
    pub(super) fn kept(kept: bool) -> Self {
        Self {
            lines: kept.then(Vec::new),
            ..Self::default()
        }
    }

    pub(super) fn note(&mut self, event: Arguments) {
        self.events += 1;
        self.line.clear();
        let _ = self.line.write_fmt(event); // a String takes everything
        self.hasher.write(self.line.as_bytes());
        self.hasher.write_u8(b'\n');
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    /// An effect, with a checksum of what it writes.
    pub(super) fn effect(&mut self, lane: &str, op: &DiskOp, failed: bool) {
        let crc = match op {
            DiskOp::Write { data, .. } => crc32c::crc32c(data),
            _ => 0,
        };
        let end = if failed { " FAILS" } else { "" };
        self.note(format_args!("{lane}: {op:?} {crc:08x}{end}"));
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
