//! Time of an operation: `cargo bench -p headrace-core --bench kernels`. The rows of the original designs, which
//! `headrace bench suite` puts beside their figures.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use headrace_core::testing::kernels::kernel;

/// Kernel, of how many, bytes of a payload.
const ROWS: [(&str, u32, usize); 26] = [
    ("fan-out", 1, 256),
    ("fan-out", 10, 256),
    ("fan-out", 100, 256),
    ("fan-out", 500, 256),
    ("fan-out", 1_000, 256),
    ("fan-out", 1, 1_024),
    ("fan-out", 10, 1_024),
    ("fan-out", 100, 1_024),
    ("fan-out", 500, 1_024),
    ("fan-out", 1_000, 1_024),
    ("store", 0, 100),
    ("match", 100, 0),
    ("match", 1_000, 0),
    ("match", 10_000, 0),
    ("match-mixed", 1_000, 0),
    ("match-mixed", 10_000, 0),
    ("records", 100, 100),
    ("produce", 100, 100),
    ("enqueue", 1, 25),
    ("enqueue", 10, 25),
    ("enqueue", 1, 4),
    ("enqueue", 1, 65_536),
    ("enqueue-parallel", 10, 25),
    ("deliver", 1, 25),
    ("deliver", 10, 25),
    ("sustained", 10, 25),
];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, of, payload) in ROWS {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1)).sample_size(20);
        group.bench_function(format!("{of}/{payload}"), |bencher| {
            let mut kernel = kernel(name, of, payload).expect("there is such a kernel");
            bencher.iter_custom(|operations| {
                let began = Instant::now();
                let done = kernel.run(operations);
                let nanos = began.elapsed().as_nanos() * u128::from(operations) / u128::from(done);
                Duration::from_nanos(nanos as u64)
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
