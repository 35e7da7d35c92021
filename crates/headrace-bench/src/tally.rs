//! What arrived, held against what was sent: delivered, duplicated, reordered, lost.
use std::collections::VecDeque;

/// Numbers of a word.
const WORD: u64 = 64;
/// Words that are remembered for one receiver and publisher: a number that is a million behind the
/// highest is taken for lost.
const WORDS_MAX: usize = 16_384;

/// What one receiver has of one publisher.
#[derive(Default)]
pub(crate) struct Heard {
    next: u64,
    /// The word of the first number that is not known to be here, by its place among all words.
    first: u64,
    /// From there to the highest number, a bit for each that is here.
    words: VecDeque<u64>,
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
        let (word, bit) = (sequence / WORD, 1 << (sequence % WORD));
        let Some(at) = word.checked_sub(self.first) else {
            return Arrival::Again;
        };
        let excess = at.saturating_sub(WORDS_MAX as u64 - 1);
        self.words.drain(..self.words.len().min(excess as usize));
        self.first += excess;
        let at = (at - excess) as usize;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        let here = &mut self.words[at];
        if *here & bit != 0 {
            return Arrival::Again;
        }
        *here |= bit;
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.first += 1;
        }
        if sequence < self.next {
            return Arrival::Late;
        }
        self.next = sequence + 1;
        Arrival::InOrder
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
    use super::{Arrival, Receiver, WORD, WORDS_MAX};
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
    fn what_is_remembered_is_bounded() {
        let mut receiver = Receiver::new((0, 1));
        let numbers = WORDS_MAX as u64 * WORD;
        for number in (1..numbers).step_by(2) {
            assert_eq!(receiver.arrived(0, number), Some(InOrder));
        }
        assert_eq!(receiver.arrived(0, 0), Some(Late));
        assert_eq!(receiver.arrived(0, numbers), Some(InOrder));
        assert_eq!(receiver.heard[0].words.len(), WORDS_MAX);
        let oldest = receiver.arrived(0, 2);
        assert_eq!(oldest, Some(Again), "it was given up");
        assert_eq!(receiver.arrived(0, WORD), Some(Late));
        assert_eq!(receiver.arrived(0, numbers * 5), Some(InOrder), "far ahead");
    }
}
