//! A load for any MQTT server, payloads for any log, and the judges of what becomes of them.
//!
//! One thread opens every connection, publishes in a closed loop (as fast as the server answers)
//! or on a schedule, and holds each delivery against what was sent: [`Report`] says what was
//! delivered, lost, duplicated, reordered or corrupted, never what was only acknowledged.
// Counts and microseconds become seconds and rates for people: 52 bits are more than they read.
#![allow(clippy::cast_precision_loss)]

mod client;
mod consumer;
mod flow;
mod judge;
mod plan;
mod queue;
mod records;
mod relay;
mod report;
mod run;
pub mod stamp;
mod tally;
mod template;
mod wait;
mod wire;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use plan::{Pace, Pattern, Plan, Queue, Storm};
pub use records::{Payloads, Read, RecordJudge};
pub use relay::Relay;
pub use report::{Latency, QueueReport, Report, StormReport, QUANTILES};

use run::Shared;

/// A run on a thread of its own.
pub struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<Report>>,
}

impl Load {
    /// Starts a run.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(plan: Plan) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("headrace-bench".to_owned())
            .spawn(move || run::run(plan, &theirs))?;
        Ok(Self { shared, thread })
    }

    /// The counts so far.
    ///
    /// # Panics
    /// Where the run's thread panicked.
    pub fn progress(&self) -> Report {
        self.shared.report.lock().expect("the run goes on").clone()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the run soon; what it has counted stays.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// The counts of the whole run, once it is over.
    ///
    /// # Errors
    /// What the operating system refused: sockets, descriptors.
    ///
    /// # Panics
    /// Where the run's thread panicked.
    pub fn finish(self) -> io::Result<Report> {
        self.thread.join().expect("the run ends in order")
    }
}
