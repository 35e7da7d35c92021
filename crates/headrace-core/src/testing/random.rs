//! A seeded generator: the only source of chance in a simulation.

/// `SplitMix64`: a seed gives the same run everywhere.
///
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// Where `bound` is not above 0.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, bound: N) -> N {
        let bound = bound.try_into().ok().expect("it is above 0");
        let drawn = N::try_from(self.bits() % bound);
        drawn
            .ok()
            .expect("what is less than a number is of its kind")
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in so many of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// Where there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *self.choose(choices).expect("there are some")
    }

    /// One of `choices`; None where there is none.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        (!choices.is_empty()).then(|| &choices[self.below(choices.len())])
    }
}
