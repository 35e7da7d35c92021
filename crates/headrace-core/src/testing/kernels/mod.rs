//! Loops over one path of the core alone: no sockets, no disk, no Python.
//!
//! What is counted (`tools/instructions.py`), timed (`cargo bench`) and put beside the figures of the
//! original designs (`headrace bench suite`) is the same code. Must not know: how often or under
//! what it runs, and how long that takes.

mod queue;
mod records;
mod relay;
mod topics;

pub use queue::{Queue, QueueShape, POLICY};
pub use relay::{acknowledge, Relay};
pub use topics::Fleet;

use crate::mqtt::packet::QoS;
use crate::Now;

/// When everything happens.
pub const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};

/// Bytes that a busy socket gives at a time.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that a read brings to all subscribers of `fan-out`, but for one publish: what is written
/// meanwhile holds a publisher back.
const FAN_OUT_BYTES: usize = 1 << 20;

/// One path, made ready.
pub trait Kernel: Send + Sync {
    /// Does so many operations, or somewhat more, for it does whole reads; how many it did.
    ///
    /// # Panics
    /// Something of it did not come out as it must.
    fn run(&mut self, operations: u64) -> u64;
}

/// Makes a kernel ready; `payload` is in bytes. None where there is no such.
///
/// | name | an operation | `of` |
/// |---|---|---|
/// | `fan-out` | a publish at `QoS` 0, to all subscribers | subscribers |
/// | `store` | a publish at `QoS` 1 into a stream, to its PUBACK | subscribers |
/// | `match` | a topic against all subscriptions | subscriptions |
/// | `match-mixed` | the same; every twentieth subscribes or unsubscribes instead | subscriptions |
/// | `records` | a record into a batch, and out of it | records of a batch |
/// | `produce` | a record of a batch that is checked as produced | records of a batch |
/// | `enqueue` | a publish to a queue, to its PUBACK | partitions |
/// | `enqueue-parallel` | the same, in turn from as many publishers | partitions |
/// | `deliver` | a message from the log to a consumer, settled by `$ack` | consumers |
/// | `sustained` | both: enqueued, delivered, settled | consumers |
///
/// # Panics
/// `of` is 0 where that makes no sense.
pub fn kernel(name: &str, of: u32, payload: usize) -> Option<Box<dyn Kernel>> {
    let queue = |shape: QueueShape| Queue::new(&QueueShape { payload, ..shape });
    let plain = QueueShape::default();
    Some(match name {
        "fan-out" => {
            let mut relay = Relay::of_bytes(payload, QoS::AtMostOnce);
            relay.read_at_most(FAN_OUT_BYTES / (of.max(1) as usize * payload.max(1)));
            relay.subscribe(of, "fleet/#", QoS::AtMostOnce);
            Box::new(relay)
        }
        "store" => Box::new(Relay::stored(payload, false, of)),
        "match" => Box::new(Fleet::new(of, 0)),
        "match-mixed" => Box::new(Fleet::new(of, 5)),
        "records" => Box::new(records::Codec::new(of, payload)),
        "produce" => Box::new(records::Produced::new(of, payload)),
        "enqueue" => Box::new(queue(QueueShape {
            partitions: of,
            publishers: 1,
            ..plain
        })),
        "enqueue-parallel" => Box::new(queue(QueueShape {
            partitions: of,
            publishers: of,
            ..plain
        })),
        "deliver" => Box::new(queue(QueueShape {
            consumers: of,
            ..plain
        })),
        "sustained" => Box::new(queue(QueueShape {
            publishers: 1,
            consumers: of,
            ..plain
        })),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::kernel;

    #[test]
    fn each_kernel_does_what_it_is_asked_for() {
        for name in [
            "fan-out",
            "store",
            "match",
            "match-mixed",
            "records",
            "produce",
            "enqueue",
            "enqueue-parallel",
            "deliver",
            "sustained",
        ] {
            for (of, payload) in [(1, 4), (10, 1_024), (3, 65_536)] {
                let mut kernel = kernel(name, of, payload).unwrap();
                let done = kernel.run(21);
                assert!((21..2_100).contains(&done), "{name}: {done}");
                assert!(kernel.run(1) > 0);
            }
        }
        assert!(kernel("none", 1, 4).is_none());
    }
}
