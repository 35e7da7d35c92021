//! Random runs with power cuts, kills, failing disks; and proof that the checks find faults.

use super::world::World;
use crate::testing::{Lie, SimDisk};

/// Seeds of a plain run; `HEADRACE_SEEDS` asks for more.
const SEEDS: u64 = 300;

pub(super) fn seeds() -> u64 {
    std::env::var("HEADRACE_SEEDS").map_or(SEEDS, |count| count.parse().expect("a number"))
}

/// Several lives of one store, each ended by something.
fn run(seed: u64, lie: Lie) -> Result<(), String> {
    let mut world = World::new(seed, SimDisk::lying(lie));
    for _ in 0..4 {
        for _ in 0..world.random.below(600) {
            world.step()?;
        }
        match world.random.below(10) {
            0..6 => world.power_cut()?,
            6..8 => world.kill()?,
            _ => world.reopen()?,
        }
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_invented() {
    for seed in 0..seeds() {
        run(seed, Lie::None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let ops = |seed| {
        let mut world = World::new(seed, SimDisk::default());
        (0..500).try_for_each(|_| world.step()).unwrap();
        (world.disk.ops(), world.disk.paths())
    };
    assert_eq!(ops(3), ops(3));
    assert_ne!(ops(3), ops(4));
}

/// A disk that lies is found out: the checks above can fail.
fn assert_found(lie: Lie) {
    assert!(
        (0..300).any(|seed| run(seed, lie).is_err()),
        "{lie:?} was not found"
    );
}

#[test]
fn a_journal_that_is_not_synced_is_found() {
    assert_found(Lie::SyncBelow("journal/"));
}

#[test]
fn segments_that_are_not_synced_before_the_journal_is_reused_are_found() {
    assert_found(Lie::SyncBelow("streams/"));
}

#[test]
fn folders_that_are_not_synced_are_found() {
    assert_found(Lie::SyncFolders);
}

#[test]
fn after_a_failed_effect_nothing_is_acknowledged_and_nothing_is_written() {
    for seed in 0..seeds() / 4 {
        let mut world = World::new(seed, SimDisk::default());
        world
            .disk
            .fail_after(world.random.below(300), "disk/0 failed: check it");
        while world.machine.failed().is_none() {
            world
                .step()
                .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
        let why = world.machine.failed().expect("it failed").to_string();
        assert_eq!(why, "disk/0 failed: check it, then restart");
        world.assert_refuses(&why);
        assert!(world.machine.next_round(0).is_none() && world.machine.next_chore().is_none());
        world
            .power_cut()
            .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
