//! The loop: choose, mutate, run, keep what is new. Knows no target.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant, SystemTime};

use super::random::Random;

/// Pieces, each a byte that tells the target what to do with the others, and those.
pub type Input = Vec<Vec<u8>>;

/// Longer inputs only repeat themselves.
const PIECES_MAX: usize = 40;
const PIECE_BYTES_MAX: usize = 400;

/// Inputs that may be mutated further; beyond it the run goes on with those.
const KEPT_MAX: usize = 20_000;

/// Values at which code that counts, shifts or compares may turn.
const EDGES: [u8; 10] = [0x00, 0x01, 0x02, 0x10, 0x7F, 0x80, 0x81, 0xC0, 0xFE, 0xFF];

/// A target with its inputs: one a line, pieces in hex, blanks between them.
pub struct Corpus {
    pub target: fn(&Input) -> Words,
    pub lines: &'static str,
    /// Where a run with `HEADRACE_FUZZ_KEEP` set writes what it has found.
    pub file: &'static str,
}

/// When a run ends.
#[derive(Clone, Copy)]
pub enum Budget {
    Inputs(usize),
    Processor(Duration),
}

/// What this thread has run, where the system tells it (Linux); a test has a thread of its own.
fn processor_time() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(told.split(' ').next()?.parse().ok()?))
}

/// What a target has said about one input.
#[derive(Default)]
pub struct Words(BTreeSet<u64>);

impl Words {
    pub fn say(&mut self, word: impl Hash) {
        let mut hasher = DefaultHasher::new();
        word.hash(&mut hasher);
        self.0.insert(hasher.finish());
    }
}

pub fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("the clock is past 1970").as_nanos() as u64
}

/// Runs every input of the corpus, and then mutations of what is kept.
pub fn run(corpus: &Corpus, seed: u64, budget: Budget) {
    let mut random = Random::new(seed);
    let mut known = BTreeSet::new();
    let mut kept: Vec<Input> = Vec::new();
    let mut judge = |input: Input, kept: &mut Vec<Input>| {
        let said = catch_unwind(AssertUnwindSafe(|| (corpus.target)(&input)));
        let Ok(Words(words)) = said else {
            panic!("seed {seed}; add to {}:\n{}", corpus.file, line(&input));
        };
        let before = known.len();
        known.extend(words);
        if known.len() > before && kept.len() < KEPT_MAX {
            kept.push(input);
        }
    };
    for text in corpus.lines.lines() {
        judge(parse(text), &mut kept);
    }
    assert!(!kept.is_empty(), "a corpus says something");
    let clock = Instant::now();
    let mut tried = 0;
    while match budget {
        Budget::Inputs(count) => tried < count,
        Budget::Processor(_) if tried % 64 != 0 => true, // asking takes as long as an input
        Budget::Processor(time) => processor_time().unwrap_or_else(|| clock.elapsed()) < time,
    } {
        let input = mutated(&kept, &mut random);
        judge(input, &mut kept);
        tried += 1;
    }
    if std::env::var_os("HEADRACE_FUZZ_KEEP").is_some() {
        let lines: String = fewest(corpus, kept)
            .iter()
            .map(|input| line(input) + "\n")
            .collect();
        let file = format!("{}/tests/fuzz/{}", env!("CARGO_MANIFEST_DIR"), corpus.file);
        std::fs::write(file, lines).expect("the corpus can be written");
    }
}

/// Short inputs that say together what all of them say.
fn fewest(corpus: &Corpus, mut kept: Vec<Input>) -> Vec<Input> {
    kept.sort_by_key(|input| (input.iter().map(Vec::len).sum::<usize>(), input.clone()));
    let mut known = BTreeSet::new();
    kept.retain(|input| {
        let before = known.len();
        known.extend((corpus.target)(input).0);
        known.len() > before
    });
    kept
}

fn line(input: &Input) -> String {
    let mut line = String::new();
    for piece in input.iter().filter(|piece| !piece.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        for byte in piece {
            write!(line, "{byte:02x}").expect("a string takes all");
        }
    }
    line
}

fn parse(text: &str) -> Input {
    let piece = |hex: &str| {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| {
                let pair = std::str::from_utf8(pair).expect("hex");
                u8::from_str_radix(pair, 16).expect("hex")
            })
            .collect()
    };
    text.split(' ').map(piece).collect()
}

/// One that was kept, changed in a few places.
fn mutated(kept: &[Input], random: &mut Random) -> Input {
    let mut input = random.choose(kept).expect("one is kept").clone();
    for _ in 0..=random.below(4) {
        let other = random.choose(kept).expect("one is kept");
        if random.chance(30) {
            change_pieces(&mut input, other, random);
        } else {
            let at = random.below(input.len());
            change_bytes(&mut input[at], other, random);
        }
    }
    input
}

fn change_pieces(input: &mut Input, other: &Input, random: &mut Random) {
    let at = random.below(input.len());
    match random.below(4) {
        0 if input.len() > 1 => drop(input.remove(at)),
        1 => input.swap(at, at.saturating_sub(1)),
        2 if input.len() < PIECES_MAX => input.insert(at, input[at].clone()),
        _ if input.len() < PIECES_MAX => {
            let piece = random.choose(other).expect("an input has pieces");
            input.insert(at + random.below(2), piece.clone());
        }
        _ => {}
    }
}

fn change_bytes(piece: &mut Vec<u8>, other: &Input, random: &mut Random) {
    if piece.is_empty() {
        piece.push(random.bits() as u8);
    }
    let at = random.below(piece.len());
    match random.below(6) {
        0 => piece[at] ^= 1 << random.below(8),
        1 => piece[at] = EDGES[random.below(EDGES.len())],
        2 => {
            piece[at] = piece[at]
                .wrapping_add(1)
                .wrapping_sub(random.below(3) as u8);
        }
        3 => drop(piece.drain(at..(at + 1 + random.below(4)).min(piece.len()))),
        4 => {
            let from = random.choose(other).expect("an input has pieces");
            let start = random.below(from.len() + 1);
            let end = (start + random.below(12)).min(from.len());
            piece.splice(at..at, from[start..end].iter().copied());
        }
        _ => piece.insert(at, random.bits() as u8),
    }
    piece.truncate(PIECE_BYTES_MAX);
    if random.chance(70) {
        fit_length(piece);
    }
}

/// Gives the packet behind the first byte the length that it has: else nearly every change of its
/// body would end at its header.
fn fit_length(piece: &mut Vec<u8>) {
    let digits = piece.iter().skip(2).take(4);
    let length_bytes = digits.take_while(|byte| **byte >= 0x80).count() + 1;
    let Some(mut length) = piece.len().checked_sub(2 + length_bytes) else {
        return;
    };
    let mut fitting = Vec::new();
    loop {
        let more = length >= 0x80;
        fitting.push((length & 0x7F) as u8 | u8::from(more) << 7);
        length >>= 7;
        if !more {
            break;
        }
    }
    piece.splice(2..2 + length_bytes, fitting);
}
