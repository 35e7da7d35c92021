//! A compaction is cut short between any two effects.

use std::panic::catch_unwind;

use super::*;

/// The value of each key, as a reader of all records knows it.
fn state(rows: &[Row]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for (_, _, key, value) in rows {
        let Some(key) = key else { continue };
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

/// Performs rounds and chores until the disk fails or nothing is due.
fn try_commit(machine: &mut Machine, disk: &SimDisk) {
    machine.submit();
    let perform = |op: &DiskOp| disk.perform(op).map_err(|error| error.text);
    loop {
        if let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            let outcome = round
                .before
                .iter()
                .chain(&round.after)
                .try_for_each(perform);
            machine.round_done(round, outcome, 0, 0);
        } else if let Some(chore) = machine.next_chore() {
            let outcome = chore.ops.iter().try_for_each(perform);
            machine.chore_done(&chore, outcome);
        } else {
            return;
        }
    }
}

/// Compactions of one log, each ended by a power cut or a kill at any of its effects.
fn run(seed: u64, lie: Lie) {
    let mut rig = Rig::on(SimDisk::lying(lie), seed);
    for _ in 0..4 {
        let batches = 1 + rig.random.below(60);
        rig.fill(batches);
        rig.disk.fail_after(rig.random.below(90), "power cut");
        let settings = rig.settings();
        let outcome = compact(&mut rig.machine, &rig.disk, settings, try_commit);
        assert!(outcome.is_ok() || rig.disk.has_failed(), "{outcome:?}");
        let mut disk = rig.disk.killed();
        while rig.random.chance(60) {
            disk = disk.power_cut(&mut rig.random);
            disk.fail_after(rig.random.below(60), "power cut");
            let _ = open(&disk, SMALL);
            disk = disk.killed();
        }
        assert_sound(&disk);
        rig.reopen(disk);
        let wanted: Vec<Row> = rig.rows().cloned().collect();
        let found = rig.stored_rows();
        let was_sent = |row: &Row| {
            let at = wanted.binary_search_by_key(&row.0, |row| row.0);
            at.is_ok_and(|at| wanted[at] == *row)
        };
        assert!(found.iter().all(was_sent), "it was never sent");
        assert!(state(&found) == state(&wanted), "the last of a key is lost");
        check_found(&mut rig);
        commit(&mut rig.machine, &rig.disk);
        check_files(&rig);
        assert_sound(&rig.disk);
        rig.wall_ms += rig.random.below(3_i64) * HOUR_MS / 2;
    }
}

/// What a crash left is no damage, before the start that mends it and after.
fn assert_sound(disk: &SimDisk) {
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let findings = verify(disk, SMALL, &streams, |_, _| true, |_| {});
    assert_eq!(findings, Ok(Vec::new()));
}

fn fails(seed: u64, lie: Lie) -> bool {
    catch_unwind(|| run(seed, lie)).is_err()
}

#[test]
fn a_power_cut_between_any_two_effects_leaves_the_old_segments_or_the_new_ones() {
    for seed in seeds(100) {
        assert!(!fails(seed, Lie::None), "seed {seed}");
    }
}

#[test]
#[ignore = "minutes: make soak"]
fn a_power_cut_between_any_two_effects_leaves_the_old_or_the_new_ones_for_many_seeds() {
    for seed in seeds(1000) {
        assert!(!fails(seed, Lie::None), "seed {seed}");
    }
}

#[test]
fn a_disk_that_lies_is_found_out() {
    for lie in [Lie::SyncBelow("streams/"), Lie::SyncFolders] {
        assert!((0..100).any(|seed| fails(seed, lie)), "{lie:?}");
    }
}
