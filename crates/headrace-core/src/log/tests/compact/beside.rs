//! What goes on beside a compaction: readers, trims, deletions, a store that fails.

use super::*;

#[test]
fn a_reader_on_its_way_through_a_segment_ends_there_or_plans_anew() {
    let mut rig = Rig::new(5);
    rig.fill(300);
    let Plan::Walk(walk) = rig.machine.plan_read(LOG, 0).unwrap() else {
        panic!("nothing to read");
    };
    let before = walk.read(&rig.disk, 0, usize::MAX).unwrap();
    let edition = rig.machine.edition(LOG).unwrap();
    let mut old_is_gone = false;
    let settings = rig.settings();
    compact(&mut rig.machine, &rig.disk, settings, |machine, disk| {
        while let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            for op in round.before.iter().chain(&round.after) {
                disk.perform(op).unwrap();
                let found = walk.read(disk, 0, usize::MAX);
                assert!(old_is_gone || found.as_ref() == Ok(&before));
            }
            machine.round_done(round, Ok(()), 0, 0);
        }
        assert_ne!(machine.edition(LOG), Ok(edition), "before the file goes");
        while let Some(chore) = machine.next_chore() {
            for op in &chore.ops {
                disk.perform(op).unwrap();
                let found = walk.read(disk, 0, usize::MAX);
                old_is_gone |= found.is_err();
                assert!(old_is_gone || found.as_ref() == Ok(&before));
            }
            machine.chore_done(&chore, Ok(()));
        }
    })
    .unwrap();
    assert!(old_is_gone);
}

#[test]
fn an_index_that_was_loaded_before_a_swap_is_not_taken_for_the_new_one() {
    let mut rig = Rig::new(6);
    rig.fill(200);
    rig.reopen(rig.disk.killed());
    let Plan::Load(files) = rig.machine.plan_read(LOG, 0).unwrap() else {
        panic!("the index is in memory");
    };
    let old = files.load(&rig.disk).unwrap();
    rig.compact().unwrap();
    let segment = &mut rig.machine.logs.get_mut(&LOG).unwrap().segments[0];
    segment.unload();
    rig.machine.indexed(old);
    assert!(matches!(rig.machine.plan_read(LOG, 0), Ok(Plan::Load(_))));
}

#[test]
fn a_trim_or_a_deletion_overtakes_a_compaction() {
    for delete in [false, true] {
        let mut rig = Rig::new(7);
        rig.fill(300);
        let mut report = Compaction::default();
        let settings = rig.settings();
        let pass = rig.machine.plan_compaction(LOG, settings).unwrap().unwrap();
        let survey = pass.survey(&rig.disk, &mut report).unwrap();
        let group = &survey.groups()[0];
        let replacement = survey.clean(&rig.disk, group, &mut report).unwrap();
        if delete {
            rig.machine.delete_stream("gpu").unwrap();
            assert_eq!(rig.machine.replace(replacement), Ok(false));
            survey.sweep(&rig.disk, group).unwrap();
            commit(&mut rig.machine, &rig.disk);
            assert!(!rig
                .disk
                .paths()
                .iter()
                .any(|path| path.starts_with("streams/gpu/")));
        } else {
            rig.machine.trim(LOG, rig.next_offset).unwrap();
            assert_eq!(rig.machine.replace(replacement), Ok(true), "both wait");
            commit(&mut rig.machine, &rig.disk);
            assert!(!rig.machine.is_replacing());
            survey.sweep(&rig.disk, group).unwrap();
            check_files(&rig);
        }
    }
}

#[test]
fn what_took_its_place_is_nobodys_to_remove_and_a_store_that_failed_cannot_tell() {
    let mut rig = Rig::new(14);
    rig.fill(200);
    let mut report = Compaction::default();
    let settings = rig.settings();
    let pass = rig.machine.plan_compaction(LOG, settings).unwrap().unwrap();
    let survey = pass.survey(&rig.disk, &mut report).unwrap();
    let groups = survey.groups();
    swap(
        &mut rig.machine,
        &rig.disk,
        &survey,
        &groups[0],
        &mut report,
    )
    .unwrap();
    assert!(rig.machine.is_abandoned(&survey, &groups[1]));
    commit(&mut rig.machine, &rig.disk);
    assert!(!rig.machine.is_abandoned(&survey, &groups[0]));
    rig.machine.abort("the disk is gone");
    assert!(!rig.machine.is_abandoned(&survey, &groups[1]));
}

/// Lengths are held when a store starts; who cuts a file later is told by whoever reads it.
#[test]
fn a_segment_that_is_cut_inside_a_batch_while_the_store_runs_ends_a_compaction() {
    for cut in [1, 30] {
        let mut rig = Rig::new(8);
        rig.fill(300);
        let path = rig.disk.path_of("log");
        let mut bytes = rig.disk.bytes(&path);
        bytes.truncate(bytes.len() - cut);
        rig.disk.overwrite(&path, bytes);
        let refused = rig.compact().unwrap_err();
        assert!(
            matches!(&refused, Error::Corrupt(damage) if damage.path == path),
            "{refused:?}"
        );
    }
}
