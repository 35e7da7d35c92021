//! What compaction leaves, against a model and in the cases that its definition names.

use super::*;

/// What compaction should leave, by its definition.
#[derive(Default)]
struct Model {
    /// When tombstones of a batch may go, by its base offset.
    horizons: BTreeMap<i64, i64>,
    gone: Vec<i64>,
}

impl Model {
    /// The records that stay of `sent` when all below `end` is compacted at `wall_ms`.
    fn compact(&mut self, sent: &[Sent], end: i64, wall_ms: i64) -> Vec<Row> {
        let mut last = BTreeMap::new();
        let all = sent.iter().flat_map(|sent| &sent.rows);
        for (offset, _, key, _) in all.filter(|row| row.0 < end) {
            last.insert(key, *offset);
        }
        let mut kept = Vec::new();
        for batch in sent {
            let base = batch.header.base_offset;
            let horizon = self.horizons.get(&base).copied();
            for row in &batch.rows {
                let (offset, _, key, value) = row;
                let dirty = *offset >= end;
                let latest = key.is_some() && last.get(key) == Some(offset);
                let expired = value.is_none() && horizon.is_some_and(|at| at <= wall_ms);
                if !dirty && (!latest || expired || self.gone.contains(offset)) {
                    self.gone.push(*offset);
                    continue;
                }
                if !dirty && value.is_none() && horizon.is_none() {
                    self.horizons.insert(base, wall_ms + RETENTION_MS as i64);
                }
                kept.push(row.clone());
            }
        }
        kept
    }
}

#[test]
fn compaction_is_what_its_definition_says() {
    for seed in seeds(100) {
        let mut rig = Rig::new(seed);
        let mut model = Model::default();
        for _ in 0..=rig.random.below(4) {
            let batches = rig.random.below(120);
            rig.fill(batches);
            rig.compact().unwrap();
            let (end, wall_ms) = (rig.cleaned_to(), rig.wall_ms);
            let wanted = model.compact(&rig.sent, end, wall_ms);
            let found = rig.stored_rows();
            assert!(
                found == wanted,
                "seed {seed}: {} of {}",
                found.len(),
                wanted.len()
            );
            let facts = rig.machine.segments(LOG).unwrap();
            let clean = facts
                .iter()
                .filter(|facts| !facts.active)
                .all(|facts| facts.clean);
            assert!(clean, "seed {seed}: {facts:?}");
            rig.wall_ms += rig.random.below(3_i64) * HOUR_MS / 2;
        }
        if rig.next_offset > 0 {
            check_found(&mut rig);
            let wanted = rig.stored();
            rig.reopen(rig.disk.killed());
            assert!(rig.stored() == wanted, "seed {seed}");
            check_found(&mut rig);
            rig.machine.close();
            commit(&mut rig.machine, &rig.disk);
            assert!(rig.machine.is_closed());
            rig.reopen(rig.disk.killed());
            assert!(rig.stored() == wanted, "seed {seed}");
            check_found(&mut rig);
        }
    }
}

/// What a transaction wrote may not have been committed: it supersedes nothing, and its deletions
/// stay.
#[test]
fn records_of_transactions_are_superseded_and_supersede_none() {
    let mut rig = Rig::new(10);
    let send = |rig: &mut Rig, key: &[u8], value: Option<&[u8]>, attributes: u8| {
        let mut builder = BatchBuilder::new();
        builder.push(rig.wall_ms, Some(key), value, []);
        let mut batch = builder.finish();
        batch[22] |= attributes;
        let batch = produced(batch, -1, -1, -1);
        rig.machine.append(LOG, batch, 0, 0, 0).unwrap();
        commit(&mut rig.machine, &rig.disk);
    };
    let (transactional, control) = (0x10, 0x30);
    send(&mut rig, b"a", Some(b"1"), 0);
    send(&mut rig, b"a", None, transactional);
    send(&mut rig, b"b", Some(b"1"), transactional);
    send(&mut rig, b"\0\0\0\x01", None, control);
    send(&mut rig, b"b", Some(b"2"), 0);
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    for _ in 0..3 {
        rig.compact().unwrap();
        let kept: Vec<i64> = rig
            .stored()
            .iter()
            .flat_map(|batch| rows(batch))
            .map(|row| row.0)
            .collect();
        assert_eq!(kept, [0, 1, 3, 4]);
        rig.wall_ms += 9 * HOUR_MS;
    }
}

#[test]
fn a_horizon_that_a_client_made_up_does_not_count() {
    let mut rig = Rig::new(11);
    let mut builder = BatchBuilder::new();
    builder.push(1, Some(b"a"), None, []);
    let mut batch = builder.finish();
    batch[22] |= 0x40;
    let batch = produced(batch, -1, -1, -1);
    rig.machine.append(LOG, batch, 0, 0, 0).unwrap();
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    for kept in [1, 0] {
        rig.compact().unwrap();
        let found = rig.stored_rows();
        assert_eq!(found.len(), kept);
        rig.wall_ms += HOUR_MS;
    }
    let facts = rig.machine.segments(LOG).unwrap();
    assert_eq!(facts[0].horizon_ms, None);
}

#[test]
fn what_cannot_be_decompressed_stays_and_supersedes_nothing() {
    let mut rig = Rig::new(13);
    rig.keys = 1;
    rig.fill(20);
    let mut builder = BatchBuilder::new();
    builder.push(1, Some(b"a"), Some(b"b"), []);
    let mut batch = builder.finish();
    batch[22] |= Codec::Zstd as u8;
    let batch = produced(batch, -1, -1, -1);
    let offset = rig.machine.append(LOG, batch.clone(), 0, 0, 0).unwrap();
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    rig.compact().unwrap();
    let found = read(&mut rig.machine, &rig.disk, LOG, offset.base_offset, 1).unwrap();
    assert_eq!(found, stamped(batch, offset.base_offset));
}
