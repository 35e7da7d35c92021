use super::*;
use crate::testing::Random;

fn kept(settled: &Settled) -> Vec<(i64, Chunk)> {
    let numbers = settled.base..settled.base + settled.chunks.len() as i64;
    let records = numbers.filter_map(|number| Some((number, settled.whole_record(number)?)));
    records
        .map(|(number, record)| (number, read(&record).expect("it is one")))
        .collect()
}

fn read(record: &[u8]) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    chunk.take_in(record)?;
    Some(chunk)
}

/// What a log has by chunk, of records one after the other.
type Log = BTreeMap<i64, Chunk>;

/// Writes what has changed to a log: which chunks, and how many bytes.
fn write_to(log: &mut Log, settled: &mut Settled) -> (Vec<i64>, usize) {
    let (numbers, mut bytes) = (settled.take_changed(), 0);
    for number in numbers.iter().copied() {
        match settled.record(number) {
            Some(record) => {
                bytes += record.len();
                let chunk = log.entry(number).or_default();
                chunk.take_in(&record).expect("it is one");
            }
            None => drop(log.remove(&number)),
        }
    }
    (numbers, bytes)
}

fn tried(attempt: u32) -> Try {
    Try {
        attempt,
        failures: attempt,
        first_ms: 1_700_000_000_000,
        due_ms: 1_700_000_001_000,
        rest_ms: 1_000,
    }
}

/// Against a set of offsets, with the records that are kept on the way.
#[test]
fn it_is_a_set_of_offsets_that_its_records_tell() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let start = random.below(3 * CHUNK_MESSAGES);
        let span = random.pick(&[100, 5_000, 20_000_i64]);
        let mut settled = Settled::new(start);
        let mut model: BTreeSet<i64> = BTreeSet::new();
        let mut log = Log::new();
        for _ in 0..random.between(1, 6_000) {
            let offset = start + random.below(span);
            assert_eq!(settled.settle(offset), model.insert(offset));
            if random.chance(5) && !settled.has(offset + 1) {
                let tried = Try {
                    attempt: random.below(9_u32),
                    failures: 2,
                    first_ms: random.below(1 << 40),
                    due_ms: 7,
                    rest_ms: random.below(1 << 20),
                };
                settled.note(offset + 1, tried);
                assert_eq!(settled.tried(offset + 1), Some(tried));
            }
            if random.chance(1) {
                if random.chance(10) {
                    // A round that was refused, whether or not the log has it.
                    let (mut lost, is_lost) = (log.clone(), random.chance(50));
                    let to = if is_lost { &mut lost } else { &mut log };
                    for number in write_to(to, &mut settled).0 {
                        settled.refused(number);
                    }
                }
                write_to(&mut log, &mut settled);
                let again = Settled::restored(log.clone()).expect("there is one");
                assert_eq!(again.floor(), settled.floor());
                assert_eq!(kept(&again), kept(&settled));
                assert_eq!(
                    again.open_below(start + span),
                    settled.open_below(start + span)
                );
            }
        }
        let open: Vec<i64> = (start..start + span)
            .filter(|at| !model.contains(at))
            .collect();
        let floor = open.first().copied().unwrap_or(start + span);
        assert_eq!(settled.floor(), floor);
        assert_eq!(settled.open_below(start + span), open.len() as u64);
        let mut at = start;
        for each in open {
            assert_eq!(settled.next_unsettled(at), each);
            assert!(!settled.has(each));
            at = each + 1;
        }
    }
}

#[test]
fn what_is_no_record_is_refused_at_every_length() {
    let mut settled = Settled::new(77);
    for offset in (100..4_000).step_by(3) {
        settled.settle(offset);
    }
    let tried = Try {
        attempt: 3,
        failures: 2,
        first_ms: 1_700_000_000_000,
        due_ms: 1_700_000_001_000,
        rest_ms: 1_000,
    };
    settled.note(101, tried);
    let whole = settled.whole_record(0).expect("it is the first");
    let found = read(&whole).expect("it is one").tries;
    assert_eq!(found, BTreeMap::from([(101, tried)]));
    // One of an older node does not tell how long the message was to rest.
    let older = [&[OLDER], &whole[1..whole.len() - 2]].concat();
    let rest_ms = u64::MAX;
    let told = read(&older).expect("it is one").tries;
    assert_eq!(told, BTreeMap::from([(101, Try { rest_ms, ..tried })]));
    let bits = whole.len() - 1;
    for length in 0..bits {
        let cut = read(&whole[..length]);
        // Without its tries it is one, too.
        assert!(cut.is_none_or(|chunk| chunk.tries.is_empty()), "{length}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut other = whole.clone();
            other[at] ^= 1 << bit;
            let _ = read(&other);
        }
    }
}

#[test]
fn a_group_that_begins_elsewhere_forgets_what_it_had() {
    let mut settled = Settled::new(0);
    for offset in 0..10_000 {
        settled.settle(offset);
    }
    write_to(&mut Log::new(), &mut settled);
    settled.seek(5_000);
    assert_eq!(
        (settled.floor(), settled.open_below(10_000)),
        (5_000, 5_000)
    );
    assert_eq!(settled.take_changed(), [1, 2]);
    assert_eq!(settled.record(2), None);
}

/// What was tried is so no more, whatever its records and those behind them tell.
#[test]
fn what_failed_before_a_seek_or_a_loss_of_the_log_is_not_found_again() {
    let cuts: [fn(&mut Settled); 2] = [|settled| settled.seek(3), |settled| settled.clip(50)];
    for cut in cuts {
        let (mut log, mut settled) = (Log::new(), Settled::new(3));
        for offset in [60, 70] {
            settled.note(offset, tried(1));
        }
        write_to(&mut log, &mut settled);
        settled.settle(60);
        write_to(&mut log, &mut settled);
        cut(&mut settled);
        write_to(&mut log, &mut settled);
        let again = Settled::restored(log).expect("there is one");
        assert_eq!((again.tried(60), again.tried(70)), (None, None));
        assert!(!again.has(60));
    }
}

/// Against a set of offsets: what is settled as a whole, and what the log has lost.
#[test]
fn it_is_cut_at_both_ends() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut settled = Settled::new(random.below(2 * CHUNK_MESSAGES));
        let floor = settled.floor();
        let mut model: BTreeSet<i64> = (0..floor).collect();
        for _ in 0..random.between(0, 3_000) {
            let offset = floor + random.below(20_000);
            settled.settle(offset);
            model.insert(offset);
        }
        let at = random.below(floor + 21_000);
        let is_clip = random.chance(50);
        if is_clip {
            settled.clip(at);
            let first = settled.base * CHUNK_MESSAGES;
            model.retain(|offset| *offset < at || *offset < first);
        } else {
            settled.settle_below(at);
            model.extend(0..at);
        }
        for offset in 0..floor + 22_000 {
            assert_eq!(
                settled.has(offset),
                model.contains(&offset),
                "{seed}: {offset}"
            );
        }
        let end = floor + 22_000;
        let open = (0..end).filter(|offset| !model.contains(offset)).count();
        assert_eq!(settled.open_below(end), open as u64, "{seed}");
        let again = Settled::restored(kept(&settled)).expect("there is one");
        assert_eq!(again.floor(), settled.floor());
    }
}

/// As nodes wrote it that had no other record: a version, runs of bits, then all tries.
#[test]
fn a_record_of_before_tells_all_of_its_chunk() {
    let mut record = vec![0, 1 << 2 | 2, 0b101, 0, 0, 0, 0, 0, 0, 0];
    leb128::write(&mut record, 63 << 2);
    record.extend([1, 3, 2, 7, 9, 70, 1, 1, 5, 6]);
    let mut chunk = read(&record).expect("it is one");
    let mut log = Log::from([(0, chunk.clone())]);
    let mut settled = Settled::restored(log.clone()).expect("there is one");
    assert!(settled.has(0) && !settled.has(1) && settled.has(2));
    let is = |attempt, failures, first_ms, due_ms| {
        Some(Try {
            attempt,
            failures,
            first_ms,
            due_ms,
            rest_ms: u64::MAX,
        })
    };
    assert_eq!(settled.tried(1), is(3, 2, 7, 9));
    assert_eq!(settled.tried(70), is(1, 1, 5, 6));
    // What comes of it is told beside that, and goes with it.
    settled.settle(70);
    settled.note(8, tried(1));
    write_to(&mut log, &mut settled);
    let again = Settled::restored(log).expect("there is one");
    assert_eq!(again.tried(1), is(3, 2, 7, 9));
    assert_eq!((again.tried(8), again.tried(70)), (Some(tried(1)), None));
    // One that tells all leaves nothing of those before it.
    chunk.take_in(&record).expect("it is one");
    assert_eq!(chunk.tries.len(), 2);
}

/// What is written of a settlement is bounded, however much of its chunk has failed.
#[test]
fn a_record_does_not_grow_with_what_failed_before() {
    const BITS_BYTES: usize = 1 + 2 + 8 * WORDS;
    const TRY_BYTES: usize = 2 + 1 + 1 + 6 + 6 + 2;
    let mut random = Random::new(7);
    let (mut log, mut settled) = (Log::new(), Settled::new(0));
    for offset in 0..CHUNK_MESSAGES {
        settled.note(offset, tried(1));
    }
    let (_, all) = write_to(&mut log, &mut settled);
    assert!(all <= BITS_BYTES + CHUNK_MESSAGES as usize * TRY_BYTES);
    while settled.floor() < CHUNK_MESSAGES {
        let mut failed = 0;
        for _ in 0..random.between(1, 40) {
            let offset = settled.next_unsettled(random.below(CHUNK_MESSAGES));
            if offset >= CHUNK_MESSAGES {
                settled.settle(settled.floor());
            } else if random.chance(20) {
                settled.note(offset, tried(2));
                failed += 1;
            } else {
                settled.settle(offset);
            }
        }
        let (_, bytes) = write_to(&mut log, &mut settled);
        assert!(bytes <= 2 * BITS_BYTES + failed * TRY_BYTES, "{bytes}");
        let again = Settled::restored(log.clone()).expect("there is one");
        assert_eq!(kept(&again), kept(&settled));
    }
}

#[test]
fn a_chunk_is_written_once_until_its_record_is_taken() {
    let mut settled = Settled::new(0);
    assert_eq!(settled.take_changed(), [0]);
    for offset in 0..=CHUNK_MESSAGES {
        settled.settle(offset);
    }
    assert_eq!(settled.take_changed(), [1], "the first waits to be written");
    assert_eq!(settled.record(0), None);
    settled.settle(CHUNK_MESSAGES + 5);
    assert!(settled.take_changed().is_empty());
    assert!(settled.record(1).is_some());
    settled.settle(CHUNK_MESSAGES + 6);
    assert_eq!(settled.take_changed(), [1]);
}
