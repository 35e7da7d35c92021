//! Streams come and go, logs are trimmed, rolled and configured.

use std::collections::BTreeSet;

use super::super::anomaly::Anomaly;
use super::super::clients::{LogClients, Name};
use super::super::random::Random;
use super::super::simulation::Simulation;
use super::read::bounds;
use super::write::sources_to_keep;
use super::HOUR_MS;
use crate::log::{CompactionSettings, Fsync, LogSettings};

const STREAMS: [&str; 3] = ["gpu", "gpu.dlq", "all"];
/// For so long tombstones stay after the pass that first met them.
const DELETE_RETENTION_MS: u64 = HOUR_MS as u64;

pub(super) fn open_log(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let stream = STREAMS[simulation.random.below(STREAMS.len())];
    let name = Name(stream, simulation.random.below(2) as u32);
    if simulation.logs.contains_key(&name) || simulation.deleting.contains(&stream) {
        return Ok(());
    }
    simulation.incarnation += 1;
    let incarnation = simulation.incarnation;
    match simulation
        .shell
        .machine
        .open_log(name.0, name.1, incarnation, simulation.wall_ms)
    {
        Ok(id) => {
            let compacted = simulation.random.chance(50);
            let clients = LogClients::new(name, incarnation, id, compacted);
            simulation.logs.insert(name, clients);
            configure_as(simulation, name, simulation.fsync)
        }
        Err(error) => simulation.may_refuse(name, &error),
    }
}

pub(super) fn delete_stream(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let stream = STREAMS[simulation.random.below(STREAMS.len())];
    if simulation.deleting.contains(&stream) || simulation.shell.keeps_sources() {
        return Ok(()); // it waits for what is being kept
    }
    if let Err(error) = simulation.shell.machine.delete_stream(stream) {
        return simulation.may_refuse(Name(stream, 0), &error);
    }
    simulation.logs.retain(|name, _| name.0 != stream);
    simulation.deleting.push(stream);
    let ended = simulation.shell.machine.ended();
    simulation.completed(ended)
}

/// A log that could not be made is gone, and who asked for it can learn why. A stream that could
/// not be deleted, of which the journal knew nothing, mostly is asked to go once more.
pub(in crate::testing) fn meet_refusals(
    simulation: &mut Simulation,
    may_refuse: bool,
) -> Result<(), Anomaly> {
    let machine = &mut simulation.shell.machine;
    let logs = simulation.logs.iter();
    let gone = logs.filter(|(_, clients)| machine.bounds(clients.id).is_err());
    let gone: Vec<Name> = gone.map(|(name, _)| *name).collect();
    let ended = simulation.deleting.iter().copied();
    let ended: Vec<&'static str> = ended.filter(|name| !machine.is_deleting(name)).collect();
    let streams: BTreeSet<&'static str> = gone
        .iter()
        .map(|name| name.0)
        .chain(ended.clone())
        .collect();
    let told = |stream: &&'static str| machine.refusal(stream).is_some();
    let (told, untold): (BTreeSet<&'static str>, BTreeSet<_>) = streams.into_iter().partition(told);
    for name in gone {
        simulation.trace.note(format_args!("{name:?} was not made"));
        let clients = simulation.logs.remove(&name).expect("it was listed");
        if untold.contains(&name.0) {
            let text = "it is gone, and nobody is told why".to_owned();
            return Err(Simulation::refused(&clients.label, text));
        }
    }
    let Some(first) = told.first() else {
        return Ok(());
    };
    simulation.trace.note(format_args!("refused: {told:?}"));
    let counted = simulation.shell.machine.statistics().logs;
    if counted != simulation.logs.len() as u64 {
        let text = format!(
            "{counted} logs are counted, and not {:?}",
            simulation.logs.keys()
        );
        return Err(Simulation::refused(first, text));
    }
    if !may_refuse {
        let text = "it was refused by no disk".to_owned();
        return Err(Simulation::refused(first, text));
    }
    for stream in ended.into_iter().filter(|name| told.contains(name)) {
        if simulation.random.chance(80) {
            // It may be closing, or have failed.
            let again = simulation.shell.machine.delete_stream(stream);
            simulation
                .trace
                .note(format_args!("delete {stream} again: {again:?}"));
        }
    }
    Ok(())
}

/// A log may begin at any offset that is committed, and does once that is durable. Who trims keeps
/// the sources first, where not all are kept.
pub(super) fn trim(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let (start, end) = bounds(simulation, name)?;
    let offset = simulation.random.between(start as usize, end as usize) as i64;
    if !are_sources_kept(simulation, name) {
        let Some(saving) = sources_to_keep(simulation, name)? else {
            return Ok(());
        };
        let trace = &mut simulation.trace;
        if !simulation.shell.run_at_once(saving, trace) {
            return Ok(());
        }
    }
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    simulation.checker.trim(&clients.label, offset);
    let answer = simulation.shell.machine.trim(clients.id, offset);
    let note = format_args!("trim {name:?} to {offset}: {answer:?}");
    simulation.trace.note(note);
    match answer {
        Ok(()) => clients.start_wanted = offset.max(clients.start_wanted),
        Err(error) => simulation.may_refuse(name, &error)?,
    }
    Ok(())
}

/// All sources of a log are kept: the store says so, and nobody is about to.
fn are_sources_kept(simulation: &Simulation, name: Name) -> bool {
    let shell = &simulation.shell;
    let unkept = shell.machine.unkept_bytes(simulation.logs[&name].id);
    unkept == Ok(0) && !shell.keeps_sources()
}

/// A trim that has ended is true.
pub(in crate::testing) fn meet_trims(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let machine = &simulation.shell.machine;
    if machine.failed().is_some() {
        return Ok(());
    }
    for clients in simulation.logs.values() {
        let bounds = machine.bounds(clients.id);
        let wanted = clients.start_wanted;
        let behind = bounds.as_ref().is_ok_and(|(start, _)| *start < wanted);
        if behind && !machine.is_trimming(clients.id) {
            let text = format!("it was trimmed to {wanted}, and {bounds:?}");
            return Err(Simulation::refused(&clients.label, text));
        }
    }
    Ok(())
}

pub(super) fn roll(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let id = simulation.logs[&name].id;
    match simulation.shell.machine.roll(id, simulation.wall_ms) {
        Ok(()) => Ok(()),
        Err(error) => simulation.may_refuse(name, &error),
    }
}

/// A pass over a log that is compacted begins, where none is under way.
pub(super) fn compact(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let lag = simulation.random.chance(30);
    let min_lag_ms = if lag { HOUR_MS as u64 } else { 0 };
    begin_compaction(simulation, name, min_lag_ms)
}

pub(in crate::testing) fn begin_compaction(
    simulation: &mut Simulation,
    name: Name,
    min_lag_ms: u64,
) -> Result<(), Anomaly> {
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    let wall_ms = simulation.wall_ms;
    let settings = CompactionSettings {
        wall_ms,
        delete_retention_ms: DELETE_RETENTION_MS,
        min_lag_ms,
        span_ms: simulation.random.chance(30).then_some(HOUR_MS as u64),
    };
    let Some(compactions) = &mut clients.compactions else {
        return Ok(());
    };
    if simulation.shell.compactor.is_some() {
        return Ok(());
    }
    let begun = simulation.shell.begin_compaction(clients.id, settings);
    let segments = simulation.shell.machine.segments(clients.id);
    let active = segments.ok().and_then(|found| found.last().copied());
    let note = format_args!("compact {name:?}: {begun:?}, {active:?}");
    simulation.trace.note(note);
    match (begun, active) {
        (Ok(true), Some(active)) => {
            let below = active.base_offset;
            // A pass may have met their tombstones, and if it did, told when they may go.
            let told = compactions.iter();
            let told = told.filter(|(_, at)| at + DELETE_RETENTION_MS as i64 <= wall_ms);
            let deleted = told.map(|(below, _)| *below).max().unwrap_or(0);
            simulation.checker.compact(&clients.label, below, deleted);
            compactions.push((below, wall_ms));
            Ok(())
        }
        (Err(error), _) => simulation.may_refuse(name, &error),
        _ => Ok(()),
    }
}

/// Mostly in the way of this run.
pub(super) fn configure(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let other = simulation.random.chance(30);
    let fsync = if other {
        draw_fsync(&mut simulation.random)
    } else {
        simulation.fsync
    };
    configure_as(simulation, name, fsync)
}

pub(in crate::testing) fn draw_fsync(random: &mut Random) -> Fsync {
    [Fsync::Commit, Fsync::Interval, Fsync::Os][random.below(3)]
}

pub(in crate::testing) fn configure_as(
    simulation: &mut Simulation,
    name: Name,
    fsync: Fsync,
) -> Result<(), Anomaly> {
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    clients.fsync = fsync;
    if fsync == Fsync::Commit {
        // What was appended before becomes as durable as what comes.
        clients.synced_in_time = clients.appended;
    }
    let random = &mut simulation.random;
    let settings = LogSettings {
        fsync,
        flush_ms: 1000,
        segment_bytes: random.between(5_000, 30_000) as u64,
        segment_ms: random.between(1, 6 * HOUR_MS) as u64,
        segment_index_bytes: random.between(24, 600) as u64,
        ..LogSettings::default()
    };
    let id = simulation.logs[&name].id;
    let answer = simulation.shell.machine.configure(id, settings);
    answer.map_err(|error| Simulation::refused(&format!("{name:?}"), error.to_string()))
}

/// The disk of the data folder has been looked at.
pub(super) fn look_for_room(simulation: &mut Simulation) {
    let reserve = simulation
        .options
        .reserve_bytes
        .max(simulation.options.journal_bytes);
    let free = match simulation.random.below(3) {
        0 => simulation.random.below(reserve as usize) as u64,
        _ => u64::MAX,
    };
    simulation.trace.note(format_args!("{free} bytes are left"));
    simulation.shell.machine.disk_free(free, None);
    let is_full = free < reserve && simulation.options.reserve_bytes > 0;
    assert_eq!(
        simulation.shell.machine.full().is_some(),
        is_full,
        "{free} of {reserve}"
    );
}
