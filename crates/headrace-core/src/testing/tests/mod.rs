//! The simulation finds nothing in the engine, and everything that is planted.

mod checker;
mod seeds;

use std::ops::Range;

/// Seeds of a run: `plain` of them from 0 on. `HEADRACE_SEEDS` asks for so many, `HEADRACE_SEED_FROM`
/// for those from there on.
pub(crate) fn seeds(plain: u64) -> Range<u64> {
    let asked = |name, otherwise| {
        std::env::var(name).map_or(otherwise, |number| number.parse().expect("a number"))
    };
    let from = asked("HEADRACE_SEED_FROM", 0);
    from..from + asked("HEADRACE_SEEDS", plain)
}
