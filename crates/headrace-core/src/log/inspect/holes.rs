//! A disk whose unreadable stretches are full of zeros: what checks and repairs goes on behind them,
//! for no CRC is right there.
//!
//! Not for the journal: a last round that cannot be read was acknowledged, and one that is all
//! zeros was not.

use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::journal::PAGE;
use crate::log::layout;

#[derive(Debug)]
pub(super) struct Holes<'a, D>(pub(super) &'a D);

impl<D: Disk> Disk for Holes<'_, D> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.0.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.0.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        match self.0.read(path, position, bytes) {
            Err(error) if error.unreadable && !path.starts_with(layout::JOURNAL) => {
                self.read_pages(path, position, bytes)
            }
            outcome => outcome,
        }
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        self.0.perform(op)
    }
}

impl<D: Disk> Holes<'_, D> {
    fn read_pages(&self, path: &str, from: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let size = self.0.size(path)?.unwrap_or(0);
        let end = size.min(from.saturating_add(bytes as u64));
        let mut found = Vec::new();
        let mut at = from;
        while at < end {
            let next = (at + 1).next_multiple_of(PAGE as u64).min(end);
            let wanted = (next - at) as usize;
            match self.0.read(path, at, wanted) {
                Err(error) if error.unreadable => found.resize(found.len() + wanted, 0),
                page => found.extend(page?),
            }
            at = next;
        }
        Ok(found)
    }
}
