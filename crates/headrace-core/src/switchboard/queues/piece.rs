//! A piece of the log of a queue, gone through record by record.

use std::ops::Range;
use std::sync::Arc;

use crate::record::{Batches, Mark, Record, Records};

/// Batches that were read, decompressed, and how far reading is in them.
#[derive(Debug)]
pub struct Piece {
    batches: Arc<[u8]>,
    /// Where reading was to begin: of what is before it tells nothing.
    from: i64,
    /// Where the batch at hand begins.
    at: usize,
    /// Where in its records; None where it has not begun.
    mark: Option<Mark>,
    /// Behind the last record that was looked at.
    next: i64,
    /// Offsets that the log has and nobody can read.
    damaged: Vec<Range<i64>>,
}

impl Piece {
    /// Nothing has been looked at.
    pub fn new(batches: Arc<[u8]>, from: i64) -> Self {
        Self {
            batches,
            from,
            at: 0,
            mark: None,
            next: 0,
            damaged: Vec::new(),
        }
    }

    /// Where reading was to begin.
    pub const fn from(&self) -> i64 {
        self.from
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        self.batches.len()
    }

    /// Behind all that has been looked at: offsets below that have not come are none.
    pub const fn next(&self) -> i64 {
        self.next
    }

    /// Offsets that nobody can read, of which `see` was not told.
    pub fn take_damaged(&mut self) -> Vec<Range<i64>> {
        std::mem::take(&mut self.damaged)
    }

    /// Has `see` look at the next record at `from` or behind it, and at what nobody can read before
    /// that; None where the piece has none.
    pub fn see<R>(
        &mut self,
        from: i64,
        see: impl FnOnce(&Record<'_>, Vec<Range<i64>>) -> R,
    ) -> Option<R> {
        let batches = Arc::clone(&self.batches);
        loop {
            // What the read has cut off at its end is read again.
            let batch = Batches::new(&batches[self.at..]).next()?.ok()?;
            let end = batch.header.next_offset();
            let is_passed = batch.header.is_control() || end <= from;
            if self.mark.is_none() && !is_passed {
                if batch.check_crc().is_err() || batch.is_compressed() {
                    self.damaged.push(from.max(batch.header.base_offset)..end);
                } else {
                    self.mark = Some(Records::new(&batch.header, batch.body()).mark());
                }
            }
            if let Some(mark) = self.mark.filter(|_| !is_passed) {
                let body = batch.body();
                let rest = &body[body.len() - mark.bytes_left..];
                let mut records = Records::resume(&batch.header, rest, mark.index);
                while let Some(record) = records.next() {
                    let Ok(record) = record else {
                        self.damaged.push(self.next.max(from)..end);
                        break;
                    };
                    self.next = record.offset + 1;
                    self.mark = Some(records.mark());
                    if record.offset >= from {
                        return Some(see(&record, self.take_damaged()));
                    }
                }
            }
            self.next = self.next.max(end);
            self.at += batch.bytes.len();
            self.mark = None;
        }
    }
}
