//! One file: what is on the disk, what the page cache holds, which pages differ.

use std::collections::BTreeSet;

use super::super::random::Random;

/// Unit of the page cache.
pub(super) const PAGE: usize = 4096;
/// What a disk writes whole.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) durable: Vec<u8>,
    pub(super) current: Vec<u8>,
    /// Pages that a sync would write.
    pub(super) dirty: BTreeSet<usize>,
    /// Pages that a failed sync has dropped: they look clean, and are not on the disk.
    lost: BTreeSet<usize>,
}

impl File {
    /// A file of durable bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            current: bytes,
            ..Self::default()
        }
    }

    pub(super) fn write(&mut self, position: usize, data: &[u8]) {
        let end = position + data.len();
        if self.current.len() < end {
            self.current.resize(end, 0);
        }
        self.current[position..end].copy_from_slice(data);
        if !data.is_empty() {
            let pages = position / PAGE..=(end - 1) / PAGE;
            self.lost.retain(|page| !pages.contains(page));
            self.dirty.extend(pages);
        }
    }

    pub(super) fn sync(&mut self) {
        let mut bytes = self.current.clone();
        for page in &self.lost {
            let range = page * PAGE..((page + 1) * PAGE).min(bytes.len());
            for at in range {
                bytes[at] = self.durable.get(at).copied().unwrap_or(0);
            }
        }
        self.durable = bytes;
        self.dirty.clear();
    }

    /// Some pages are written, the others are forgotten: the cache goes on showing them, and no
    /// later sync writes them (as Linux does).
    pub(super) fn fail_to_sync(&mut self, random: &mut Random) {
        for page in std::mem::take(&mut self.dirty) {
            let (start, end) = (page * PAGE, (page * PAGE + PAGE).min(self.current.len()));
            if start >= end {
                continue; // the file was cut meanwhile
            }
            if random.chance(50) {
                let length = end.max(self.durable.len());
                self.durable.resize(length, 0);
                self.durable[start..end].copy_from_slice(&self.current[start..end]);
            } else {
                self.lost.insert(page);
            }
        }
    }

    /// Pages that look clean are read from the disk again.
    pub(super) fn drop_cache(&mut self) {
        for page in std::mem::take(&mut self.lost) {
            let (start, end) = (page * PAGE, (page * PAGE + PAGE).min(self.current.len()));
            for at in start..end {
                self.current[at] = self.durable.get(at).copied().unwrap_or(0);
            }
        }
    }

    /// Each unsynced page on its own; the length is any that the file had at a page boundary.
    pub(super) fn after_cut(&self, random: &mut Random) -> Self {
        let (before, after) = (self.durable.len(), self.current.len());
        let length = match random.below(3) {
            0 => before,
            1 => after,
            _ => {
                let (low, high) = (before.min(after), before.max(after));
                random
                    .between(low, high)
                    .next_multiple_of(PAGE)
                    .clamp(low, high)
            }
        };
        let mut bytes = self.durable.clone();
        bytes.resize(length, 0);
        for page in &self.dirty {
            let start = page * PAGE;
            let end = (start + PAGE).min(length).min(after);
            if start < end {
                self.cut_page(&mut bytes[start..end], start, random);
            }
        }
        Self::of(bytes)
    }

    /// Kept as it was, written, torn between sectors, or garbled.
    fn cut_page(&self, page: &mut [u8], start: usize, random: &mut Random) {
        let written = &self.current[start..start + page.len()];
        match random.below(4) {
            0 => {}
            1 => page.copy_from_slice(written),
            2 => {
                for (sector, written) in page.chunks_mut(SECTOR).zip(written.chunks(SECTOR)) {
                    if random.chance(50) {
                        sector.copy_from_slice(written);
                    }
                }
            }
            _ => page.fill_with(|| random.bits() as u8),
        }
    }
}
