//! Seeds: sound runs, planted faults, runs that repeat.

use super::seeds;
use crate::testing::{simulate, Sabotage, Setup};

/// Sound runs in `cargo test`, unoptimised; `make soak` runs thousands through Python.
const SEEDS: u64 = 60;
/// Each planted fault is found within so many seeds.
const SEEDS_OF_FAULT: u64 = 400;

#[test]
fn no_seed_breaks_a_promise() {
    for seed in seeds(SEEDS) {
        let outcome = simulate(Setup {
            seed,
            ..Setup::default()
        });
        assert_eq!(outcome.anomaly, None, "seed {seed}");
    }
}

#[test]
fn every_planted_fault_is_found() {
    for sabotage in Sabotage::ALL {
        let finds = |seed: &u64| {
            let setup = Setup {
                seed: *seed,
                sabotage,
                ..Setup::default()
            };
            simulate(setup).anomaly.is_some()
        };
        let found = (0..SEEDS_OF_FAULT).find(finds);
        assert!(found.is_some(), "{sabotage:?} was not found");
    }
}

#[test]
fn a_seed_is_a_run() {
    let hash = |seed, trace| {
        simulate(Setup {
            seed,
            trace,
            ..Setup::default()
        })
        .hash
    };
    for seed in 0..5 {
        assert_eq!(hash(seed, false), hash(seed, true));
        assert_ne!(hash(seed, false), hash(seed + 1, false));
    }
}
