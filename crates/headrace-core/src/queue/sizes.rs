//! How many bytes of a log lie between offsets, to within a few thousand messages.

use std::collections::VecDeque;

use super::CHUNK_MESSAGES;

/// What the log of a partition was told to hold, as it grew.
#[derive(Debug, Default)]
pub struct Sizes {
    /// Ascending offsets, and bytes before each since some beginning.
    marks: VecDeque<(i64, u64)>,
}

impl Sizes {
    /// The log has `bytes` from `start` to `end` now.
    ///
    /// # Panics
    /// Never.
    pub fn told(&mut self, start: i64, end: i64, bytes: u64) {
        if self.marks.is_empty() {
            self.marks.push_back((start, 0));
        }
        let at = self.before(start) + bytes;
        let (last, before) = *self.marks.back().expect("there is one");
        if end <= last {
            return;
        }
        // The last mark is the end, and moves on until it is far enough from the one before.
        let beyond = self
            .marks
            .len()
            .checked_sub(2)
            .map(|place| self.marks[place].0);
        if beyond.is_some_and(|beyond| end - beyond < CHUNK_MESSAGES) {
            self.marks.pop_back();
        }
        self.marks.push_back((end, at.max(before)));
        while self
            .marks
            .get(1)
            .is_some_and(|(offset, _)| *offset <= start)
        {
            self.marks.pop_front();
        }
    }

    /// Bytes from `offset` to the end.
    pub fn from(&self, offset: i64) -> u64 {
        let end = self.marks.back().map_or(0, |(_, bytes)| *bytes);
        end.saturating_sub(self.before(offset))
    }

    fn before(&self, offset: i64) -> u64 {
        let behind = self.marks.partition_point(|(at, _)| *at <= offset);
        let mark = |place: Option<usize>| place.and_then(|place| self.marks.get(place)).copied();
        match (mark(behind.checked_sub(1)), mark(Some(behind))) {
            (Some((low, below)), Some((high, above))) => {
                below + share(above - below, (offset - low) as u64, (high - low) as u64)
            }
            (Some((_, below)), None) => below,
            (None, above) => above.map_or(0, |(_, above)| above),
        }
    }
}

/// `part` of the `whole` of it; none of nothing.
pub fn share(of: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(of) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_between_any_offsets() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.from(0), 0);
        sizes.told(0, 10_000, 1_000_000); // as it was found
        assert_eq!((sizes.from(0), sizes.from(5_000)), (1_000_000, 500_000));
        for end in 10_001..=20_000 {
            sizes.told(0, end, 1_000_000 + (end as u64 - 10_000) * 10);
        }
        assert_eq!((sizes.from(10_000), sizes.from(20_000)), (100_000, 0));
        assert_eq!(sizes.from(15_000), 50_000);
        assert!(sizes.marks.len() < 8, "{:?}", sizes.marks);
        sizes.told(15_000, 20_010, 50_100); // retention took what was before
        assert_eq!((sizes.from(15_000), sizes.from(20_000)), (50_100, 100));
    }
}
