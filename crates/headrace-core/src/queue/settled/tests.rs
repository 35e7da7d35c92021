use super::*;
use crate::testing::Random;

fn kept(settled: &Settled) -> Vec<(i64, Chunk)> {
    let numbers = settled.base..settled.base + settled.chunks.len() as i64;
    let records = numbers.filter_map(|number| Some((number, settled.record(number)?)));
    records
        .map(|(number, record)| (number, read(&record).expect("it is one")))
        .collect()
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
        let mut records = std::collections::BTreeMap::new();
        for _ in 0..random.between(1, 6_000) {
            let offset = start + random.below(span);
            assert_eq!(settled.settle(offset), model.insert(offset));
            if random.chance(5) && !settled.has(offset + 1) {
                let tried = Try {
                    attempt: random.below(9_u32),
                    failures: 2,
                    first_ms: random.below(1 << 40),
                    due_ms: 7,
                };
                settled.note(offset + 1, tried);
                assert_eq!(settled.tried(offset + 1), Some(tried));
            }
            if random.chance(1) {
                for number in settled.take_changed() {
                    match settled.record(number) {
                        Some(record) => records.insert(number, record),
                        None => records.remove(&number),
                    };
                }
                let read = records
                    .iter()
                    .map(|(n, each)| (*n, read(each).expect("it is one")));
                let again = Settled::restored(read).expect("there is one");
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
    };
    settled.note(101, tried);
    let whole = settled.record(0).expect("it is the first");
    assert_eq!(read(&whole).expect("it is one").tries, [(101, tried)]);
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
    settled.take_changed();
    settled.seek(5_000);
    assert_eq!(
        (settled.floor(), settled.open_below(10_000)),
        (5_000, 5_000)
    );
    assert_eq!(settled.take_changed(), [1, 2]);
    assert_eq!(settled.record(2), None);
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
        let numbers = settled.numbers();
        let records = numbers.filter_map(|number| Some((number, settled.record(number)?)));
        let kept: Vec<_> = records
            .map(|(n, record)| (n, read(&record).unwrap()))
            .collect();
        let again = Settled::restored(kept).expect("there is one");
        assert_eq!(again.floor(), settled.floor());
    }
}
