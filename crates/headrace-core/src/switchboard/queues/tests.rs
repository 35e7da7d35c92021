use std::sync::Arc;

use super::*;
use crate::queue::Policy;
use crate::record::BatchBuilder;
use crate::switchboard::Limits;
use crate::testing::kernels::POLICY;

const JOBS: u64 = 7;

const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};

fn settings() -> QueueSettings {
    QueueSettings {
        name: "jobs".into(),
        policy: Policy {
            ttl_ms: 60_000,
            ..POLICY
        },
        depth: Depth::default(),
        batch_messages: 500,
        prefetch: 10,
        is_fnv1a: true,
        is_paused: false,
        sharing: Sharing::Shared,
        keeps_dead: false,
        dead_letters: None,
    }
}

fn pull(switchboard: &mut Switchboard, group: &str, waits: bool) {
    let terms = PullTerms {
        messages_max: 1,
        bytes_max: 1,
        deadline_ms: None,
        waits,
    };
    let number = switchboard.pull_queue(JOBS, (group, None), terms);
    number.expect("it is a queue");
    switchboard.collect(NOW);
}

#[test]
fn more_of_a_queue_is_no_work_for_groups_that_nobody_consumes() {
    let mut switchboard = Switchboard::new(Key(1, 2), Limits::default());
    switchboard.keep_sessions(1, 1 << 20, 1 << 20);
    switchboard.bind(JOBS, 1, &[], "topic").unwrap();
    switchboard.set_queue(JOBS, settings()).unwrap();
    for group in ["a", "b"] {
        pull(&mut switchboard, group, false);
    }
    let mut builder = BatchBuilder::new();
    builder.push(NOW.wall_ms, None, Some(b"first"), []);
    let batch: Arc<[u8]> = builder.finish_part(false, false).into();
    switchboard.advanced(JOBS, 0, 1);
    assert!(
        switchboard.queues.is_due(),
        "its first message may grow old"
    );
    switchboard.collect(NOW);
    while let Some(read) = switchboard.next_read(NOW) {
        assert!(switchboard.queue_fed(read.ticket, (&batch, &[]), NOW));
        switchboard.collect(NOW);
    }
    switchboard.advanced(JOBS, 0, 2);
    assert!(!switchboard.queues.is_due(), "it is known when that is");
    // Who comes has some, and what is behind it is looked at anew.
    pull(&mut switchboard, "b", false);
    assert_eq!(switchboard.pulled().last().unwrap().messages.len(), 1);
    switchboard.advanced(JOBS, 0, 3);
    let due = &switchboard.queues.due;
    assert_eq!(due.len(), 1, "of the group that took some");
    switchboard.collect(NOW);
    // Who waits is told.
    pull(&mut switchboard, "a", false);
    pull(&mut switchboard, "a", true);
    switchboard.advanced(JOBS, 0, 4);
    assert!(switchboard.queues.is_due());
}
