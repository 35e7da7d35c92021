//! Fuzzing on a stable compiler: inputs are mutated, and those that make a target say something new
//! are kept and mutated further.
//!
//! What a target says are its own words: the text of each error, each packet and property that was
//! taken, each reason for which a connection ended, each counter that moved. They stand in for the
//! branches that an instrumented build would count, so that plain `cargo test` is guided, too
//! (ADR 0030). A failure prints the input as a line of the corpus, to be added there.

mod decode;
mod engine;
mod frame;
#[expect(dead_code, reason = "not every kind of chance is needed here")]
#[path = "../../src/testing/random.rs"]
mod random;
mod switchboard;

use std::time::Duration;

use engine::{Budget, Corpus};

/// Inputs of one target in `make test`: a second or two.
const INPUTS: usize = 5_000;

/// Processor time of one target in `make soak`.
const SOAK: Duration = Duration::from_secs(600);

fn short(corpus: &Corpus) {
    engine::run(corpus, 1, Budget::Inputs(INPUTS));
}

/// From another seed each time, which a failure prints.
fn soak(corpus: &Corpus) {
    engine::run(corpus, engine::seed_of_now(), Budget::Processor(SOAK));
}

#[test]
fn bytes_decode_or_are_refused() {
    short(&decode::CORPUS);
}

#[test]
fn a_switchboard_outlives_whatever_it_receives() {
    short(&switchboard::CORPUS);
}

#[test]
fn frames_are_taken_as_they_are_or_refused() {
    short(&frame::CORPUS);
}

#[test]
#[ignore = "ten minutes"]
fn frames_are_taken_as_they_are_or_refused_for_minutes() {
    soak(&frame::CORPUS);
}

#[test]
#[ignore = "ten minutes"]
fn bytes_decode_or_are_refused_for_minutes() {
    soak(&decode::CORPUS);
}

#[test]
#[ignore = "ten minutes"]
fn a_switchboard_outlives_whatever_it_receives_for_minutes() {
    soak(&switchboard::CORPUS);
}
