//! What arrived, held against what was sent: delivered, duplicated, reordered, lost.
use std::collections::VecDeque;
use std::ops::Range;

/// Gaps remembered for one receiver and publisher; a gap beyond that is taken for lost.
const GAPS_MAX: usize = 4096;

/// What one receiver has of one publisher.
#[derive(Default)]
pub(crate) struct Heard {
    next: u64,
    /// Numbers below `next` that have not arrived, ascending.
    gaps: VecDeque<Range<u64>>,
}

/// What a message was to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The first of its number, and none with a higher number came before it.
    InOrder,
    /// The first of its number, behind one with a higher number.
    Late,
    /// This number was here before.
    Again,
}

impl Heard {
    /// The number after the highest that came.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn arrived(&mut self, sequence: u64) -> Arrival {
        if sequence >= self.next {
            if sequence > self.next {
                if self.gaps.len() == GAPS_MAX {
                    self.gaps.pop_front();
                }
                self.gaps.push_back(self.next..sequence);
            }
            self.next = sequence + 1;
            return Arrival::InOrder;
        }
        let at = self.gaps.partition_point(|gap| gap.end <= sequence);
        let Some(gap) = self.gaps.get_mut(at).filter(|gap| gap.contains(&sequence)) else {
            return Arrival::Again;
        };
        let behind = sequence + 1..gap.end;
        gap.end = sequence;
        let before = !gap.is_empty();
        match (before, behind.is_empty()) {
            (true, true) => {}
            (true, false) => self.gaps.insert(at + 1, behind),
            (false, true) => drop(self.gaps.remove(at)),
            (false, false) => self.gaps[at] = behind,
        }
        Arrival::Late
    }
}

/// One receiver: a subscriber, or all members of a shared subscription.
pub(crate) struct Receiver {
    first: u32,
    heard: Vec<Heard>,
}

impl Receiver {
    /// A receiver that hears `count` publishers from `first` on.
    pub(crate) fn new((first, count): (u32, u32)) -> Self {
        let heard = (0..count).map(|_| Heard::default()).collect();
        Self { first, heard }
    }

    /// Counts a message; `None` where this receiver should not hear this publisher.
    pub(crate) fn arrived(&mut self, publisher: u32, sequence: u64) -> Option<Arrival> {
        let index = publisher.checked_sub(self.first)?;
        Some(self.heard.get_mut(index as usize)?.arrived(sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Receiver, GAPS_MAX};
    use Arrival::{Again, InOrder, Late};

    fn arrivals(sequences: &[u64]) -> Vec<Arrival> {
        let mut receiver = Receiver::new((3, 2));
        sequences
            .iter()
            .map(|&sequence| receiver.arrived(4, sequence).unwrap())
            .collect()
    }

    #[test]
    fn each_number_counts_once_and_late_ones_are_told_from_repeats() {
        assert_eq!(arrivals(&[0, 1, 1]), [InOrder, InOrder, Again]);
        assert_eq!(
            arrivals(&[5, 2, 2, 0, 4, 3, 1, 1, 6]),
            [InOrder, Late, Again, Late, Late, Late, Late, Again, InOrder]
        );
    }

    #[test]
    fn a_receiver_knows_whom_it_should_hear() {
        let mut receiver = Receiver::new((3, 2));
        assert_eq!(receiver.arrived(2, 0), None);
        assert_eq!(receiver.arrived(5, 0), None);
        assert_eq!(receiver.arrived(3, 0), Some(InOrder));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut receiver = Receiver::new((0, 1));
        for number in 0..=GAPS_MAX as u64 {
            receiver.arrived(0, number * 2 + 1);
        }
        assert_eq!(receiver.heard[0].gaps.len(), GAPS_MAX);
        assert_eq!(
            receiver.arrived(0, 0),
            Some(Again),
            "the oldest was given up"
        );
        assert_eq!(receiver.arrived(0, 2), Some(Late));
    }
}
