//! Clients read, and ask where and when.

use super::super::anomaly::Anomaly;
use super::super::checker::Seen;
use super::super::clients::{self, Decoded, LogClients, Name};
use super::super::simulation::Simulation;
use super::timestamp;
use crate::log::LogId;

const READERS: [&str; 2] = ["reader-1", "reader-2"];
/// Times that are looked up after a scan.
const LOOKUPS: usize = 3;

/// A reader goes on where it stands.
pub(super) fn read_on(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let reader = READERS[simulation.random.below(READERS.len())];
    let clients = &simulation.logs[&name];
    if let Some(at) = clients.readers.get(reader).copied() {
        return read(simulation, name, reader, at, false);
    }
    let (start, _) = bounds(simulation, name)?;
    read(simulation, name, reader, start, true)
}

pub(super) fn read_anywhere(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let reader = READERS[simulation.random.below(READERS.len())];
    let (start, end) = bounds(simulation, name)?;
    let at = simulation.random.between(start as usize, end as usize) as i64;
    read(simulation, name, reader, at, true)
}

fn read(
    simulation: &mut Simulation,
    name: Name,
    reader: &'static str,
    at: i64,
    seek: bool,
) -> Result<(), Anomaly> {
    let (start, end) = bounds(simulation, name)?;
    let (at, seek) = (at.max(start), seek || at < start);
    let bytes_max = simulation.random.below(20_000);
    let Decoded { records, next, .. } = fetch(simulation, simulation.logs[&name].id, at, bytes_max)
        .map_err(|error| Simulation::refused(&format!("{name:?}"), error))?;
    simulation
        .trace
        .note(format_args!("{reader} at {at}: {records:?}"));
    if next.is_none_or(|next| next <= at) && at < end {
        let text = format!("nothing at offset {at} below {end}");
        return Err(Simulation::refused(&format!("{name:?}"), text));
    }
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    let from = seek.then_some(at);
    simulation
        .checker
        .read(reader, &clients.label, from, &records);
    clients.readers.insert(reader, next.unwrap_or(at));
    Ok(())
}

fn fetch(
    simulation: &mut Simulation,
    id: LogId,
    at: i64,
    bytes_max: usize,
) -> Result<Decoded, String> {
    let bytes = simulation
        .shell
        .read(id, at, bytes_max)
        .map_err(|error| error.to_string())?;
    clients::decode(&bytes, at)
}

fn bounds_of(simulation: &Simulation, clients: &LogClients) -> Result<(i64, i64), Anomaly> {
    let bounds = simulation.shell.machine.bounds(clients.id);
    bounds.map_err(|error| Simulation::refused(&clients.label, error.to_string()))
}

pub(super) fn bounds(simulation: &mut Simulation, name: Name) -> Result<(i64, i64), Anomaly> {
    let clients = &simulation.logs[&name];
    let (start, end) = bounds_of(simulation, clients)?;
    simulation.checker.bounds(&clients.label, start, end);
    simulation.verdict()?;
    Ok((start, end))
}

pub(super) fn look_up(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let timestamp = timestamp(&mut simulation.random, simulation.wall_ms);
    look_up_time(simulation, name, timestamp)
}

fn look_up_time(simulation: &mut Simulation, name: Name, timestamp: i64) -> Result<(), Anomaly> {
    bounds(simulation, name)?;
    let id = simulation.logs[&name].id;
    let found = simulation
        .shell
        .find_time(id, timestamp)
        .map_err(|error| Simulation::refused(&format!("{name:?}"), error.to_string()))?;
    simulation
        .trace
        .note(format_args!("time {timestamp} in {name:?}: {found:?}"));
    let label = &simulation.logs[&name].label;
    simulation.checker.lookup(label, timestamp, found);
    Ok(())
}

/// Reads a log from its start to its end, and looks up some of the times that stand there.
pub(in crate::testing) fn scan(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let label = simulation.logs[&name].label.clone();
    let refused = |error| Simulation::refused(&label, error);
    let id = simulation.logs[&name].id;
    let (start, end) = bounds(simulation, name)?;
    let mut records: Vec<Seen> = Vec::new();
    let mut at = start;
    while at < end {
        let read = fetch(simulation, id, at, 6000).map_err(refused)?;
        at = match read.next {
            Some(next) if next > at => next,
            _ => return Err(refused(format!("nothing at offset {at} below {end}"))),
        };
        records.extend(read.records);
        let epochs = &simulation.logs[&name].epochs;
        let is_other = |(offset, epoch): &(i64, i32)| {
            epochs.get(offset).is_some_and(|written| written != epoch)
        };
        if let Some((offset, epoch)) = read.epochs.into_iter().find(is_other) {
            let text = format!("the batch at {offset} is of epoch {epoch}, not {epochs:?}");
            return Err(refused(text));
        }
    }
    simulation
        .trace
        .note(format_args!("scan {name:?}: {records:?}"));
    simulation.checker.scan(&label, start, end, &records);
    for _ in 0..LOOKUPS {
        if let Some(seen) = simulation.random.choose(&records).copied() {
            let beside = simulation.random.below(3_i64) - 1;
            look_up_time(simulation, name, seen.timestamp + beside)?;
        }
    }
    Ok(())
}

/// After a start: the windows of the sources know all that was acknowledged. What they know of
/// need not be sent again, and is stored.
pub(in crate::testing) fn meet_sources(
    simulation: &mut Simulation,
    name: Name,
) -> Result<(), Anomaly> {
    let clients = &simulation.logs[&name];
    let refused = |text: String| Simulation::refused(&clients.label, text);
    let known = simulation
        .shell
        .machine
        .plan_sources(clients.id)
        .and_then(|plan| plan.read(&simulation.shell.port))
        .map(|sources| sources.states())
        .map_err(|error| refused(error.to_string()))?;
    let last = |name: &str| {
        let found = known.iter().find(|(found, ..)| found == name);
        found.map_or(0, |(_, _, sequence)| *sequence)
    };
    for source in &clients.sources {
        let last = last(&source.name);
        if last < source.stored || last > source.sequence {
            return Err(refused(format!(
                "source {} was acknowledged to {} and has sent {}, and {last} is known",
                source.name, source.stored, source.sequence
            )));
        }
    }
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    for source in &mut clients.sources {
        let last = last(&source.name);
        for known in source
            .pending
            .iter()
            .filter(|publish| publish.sequence <= last)
        {
            simulation.checker.stored(known.value.0, None);
        }
        source.pending.retain(|publish| publish.sequence > last);
        if last > source.stored {
            source.stored = last; // where it stands, nobody said: not below what did
        }
    }
    Ok(())
}
