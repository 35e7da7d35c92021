//! What a log may let go: the part of the checker that knows of trims, compactions, and logs that
//! are not synced with each acknowledgement.

use super::checker::{Checker, State};

impl Checker {
    /// Somebody allowed that records below `offset` go.
    pub fn trim(&mut self, log: &str, offset: i64) {
        let known = self.log(log);
        known.trimmed = known.trimmed.max(offset);
    }

    /// Somebody allowed that records below `below` go which a later one there replaces, or which
    /// have no key; and tombstones below `tombstones_below`.
    pub fn compact(&mut self, log: &str, below: i64, tombstones_below: i64) {
        let known = self.log(log);
        known.compacted = known.compacted.max(below);
        known.deleted = known.deleted.max(tombstones_below.min(below));
    }

    /// The power failed when the log was synced up to `synced`, and it ends at `end` now: the last
    /// of what was acknowledged or seen behind the first may be gone, and what clients are told of
    /// those offsets begins anew.
    pub fn cut(&mut self, log: &str, synced: i64, end: i64) {
        let end = synced.max(end);
        for value in self.log(log).forget_from(end) {
            let Some(known) = self.values.get_mut(&value) else {
                continue;
            };
            known.offset = None;
            if known.state == State::Stored {
                known.state = State::Unknown;
            }
        }
        for ((_, of), at) in &mut self.readers {
            if of == log {
                *at = end.min(*at);
            }
        }
    }

    /// The record at `offset` is not there, and need not be.
    pub(super) fn may_be_gone(&self, log: &str, offset: i64) -> bool {
        let history = &self.logs[log];
        if offset < history.trimmed {
            return true;
        }
        if offset >= history.compacted {
            return false;
        }
        let value = &self.values[&history.at[&offset]];
        let Some(key) = value.key else {
            return true;
        };
        let later = offset + 1..history.compacted.max(offset + 1);
        let is_replaced = history.keys[&key].range(later).next().is_some();
        is_replaced
            || value.tombstone && offset < history.deleted
            || self.may_be_replaced_unseen(log, key)
    }

    /// A record of this key may have been stored, and be gone itself, before anybody knew of it.
    fn may_be_replaced_unseen(&self, log: &str, key: u64) -> bool {
        let history = &self.logs[log];
        let astray = history.astray.get(&key).into_iter().flatten();
        let mut since = astray.map(|value| self.values[value].since);
        since.any(|since| since < history.compacted)
    }

    /// A record that was acknowledged without an offset, and need not be found anywhere.
    pub(super) fn may_be_gone_from_anywhere(&self, log: &str, value: u64) -> bool {
        let history = &self.logs[log];
        let value = &self.values[&value];
        let Some(key) = value.key.filter(|_| value.since < history.compacted) else {
            return value.since < history.compacted;
        };
        let known = history.keys.get(&key).into_iter().flatten();
        let mut later = known.filter(|offset| (value.since..history.compacted).contains(*offset));
        later.next().is_some() || value.tombstone && value.since < history.deleted
    }

    // --- values of which nobody knows where they stand ------------------------------------------

    pub(super) fn astray(&mut self, value: u64) {
        let known = &self.values[&value];
        if let (Some(key), None) = (known.key, known.offset) {
            let log = known.log.clone();
            self.log(&log).astray.entry(key).or_default().insert(value);
        }
    }

    /// The value stands somewhere, or is known not to.
    pub(super) fn found(&mut self, value: u64) {
        let known = &self.values[&value];
        let (key, log) = (known.key, known.log.clone());
        let astray = key.and_then(|key| self.log(&log).astray.get_mut(&key));
        if let Some(astray) = astray {
            astray.remove(&value);
        }
    }

    /// Everything in `log` was seen. A value that was not and that was replaced has replaced
    /// nothing that the record after it has not; but a tombstone may leave nothing behind.
    pub(super) fn all_was_seen(&mut self, log: &str) {
        let Self { logs, values, .. } = self;
        let history = logs.get_mut(log).expect("it was scanned");
        for astray in history.astray.values_mut() {
            astray.retain(|value| {
                let value = &values[value];
                value.state == State::Open || value.tombstone && value.since < history.deleted
            });
        }
    }
}
