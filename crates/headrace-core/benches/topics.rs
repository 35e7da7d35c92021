//! Time and memory of topics: `cargo bench -p headrace-core --bench topics`.
//!
//! A row is the best of five rounds in processor time, for other processes only ever add to it.

use std::hint::black_box;
use std::process::Command;

use headrace_core::hash::Key;
use headrace_core::testing::kernels::Fleet;
use headrace_core::topic::{Cursor, Filter, Retained, Tree};

const ROUNDS: usize = 5;

/// Each case has a process of its own, or memory that an earlier one gave back would hide its own.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, count] = &arguments[..] {
        let count = count.parse().expect("it was given by this process");
        return match &**kind {
            "subscriptions" => subscriptions(count),
            _ => retained(count),
        };
    }
    let cases = [1_000, 10_000, 100_000, 1_000_000].map(|count| ("subscriptions", count));
    let cases = cases
        .into_iter()
        .chain([("retained", 10_000), ("retained", 1_000_000)]);
    for (kind, count) in cases {
        let program = std::env::current_exe().expect("it runs");
        let mut case = Command::new(program);
        let status = case.args([kind, &count.to_string()]).status();
        assert!(status.expect("it ran before").success());
    }
}

fn subscriptions(count: u32) {
    let before = resident_bytes();
    let mut tree = Tree::new(Key(1, 2));
    for number in 0..count {
        let filter = Fleet::filter(number);
        tree.insert(Filter::parse(&filter).unwrap(), number, [0_u64; 2]);
    }
    let bytes = resident_bytes().saturating_sub(before) / count as usize;
    let topics = Fleet::topics(count);
    let mut matched = 0;
    let nanos = best(topics.len(), || {
        matched = 0;
        for topic in &topics {
            tree.matches(black_box(topic), &mut |_, _| matched += 1);
        }
    });
    let each = f64::from(matched) / f64::from(topics.len() as u32);
    println!("{count:>9} subscriptions {nanos:>10} ns a match of {each:.2} {bytes:>6} bytes each");
}

fn retained(count: u32) {
    let before = resident_bytes();
    let mut retained = Retained::default();
    for number in 0..count {
        retained.insert(&Fleet::topic(number / 10, number), number);
    }
    let bytes = resident_bytes().saturating_sub(before) / count as usize;
    for text in [
        "fleet/#",
        "fleet/+/+/power",
        "fleet/rack-7/+/power",
        "+/+/node-77/fan",
    ] {
        let filter = Filter::parse(text).unwrap();
        let (mut found, mut looked_at) = (0, 0);
        let nanos = best(1, || {
            (found, looked_at) = (0, usize::MAX);
            let mut cursor = Cursor::default();
            while retained.next(filter, &mut cursor, &mut looked_at).is_some() {
                found += 1;
            }
        });
        let (micros, looked_at) = (nanos / 1000, usize::MAX - looked_at);
        println!(
            "{count:>9} retained {text:<22} {micros:>10} µs {found:>8} found of {looked_at} \
             looked at {bytes:>4} bytes each"
        );
    }
}

/// Nanoseconds for one of `count`, in the best of the rounds. A round lasts for a while, as the
/// kernel counts in ticks.
fn best(count: usize, mut work: impl FnMut()) -> u64 {
    let rounds = (0..ROUNDS).map(|_| {
        let (start, mut times) = (processor_nanos(), 0);
        while processor_nanos() - start < 80_000_000 {
            work();
            times += 1;
        }
        (processor_nanos() - start) / (count * times) as u64
    });
    rounds.min().expect("there are rounds")
}

/// That this process has had.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
