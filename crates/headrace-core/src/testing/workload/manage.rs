//! Streams come and go, logs are trimmed, rolled and configured.

use super::super::anomaly::Anomaly;
use super::super::clients::{LogClients, Name};
use super::super::simulation::Simulation;
use super::read::bounds;
use super::HOUR_MS;
use crate::log::LogSettings;

const STREAMS: [&str; 3] = ["gpu", "gpu.dlq", "all"];

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
            simulation
                .logs
                .insert(name, LogClients::new(name, incarnation, id));
            Ok(())
        }
        Err(error) => simulation.may_refuse(name, &error),
    }
}

pub(super) fn delete_stream(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let stream = STREAMS[simulation.random.below(STREAMS.len())];
    if simulation.deleting.contains(&stream) {
        return Ok(());
    }
    if let Err(error) = simulation.shell.machine.delete_stream(stream) {
        return simulation.may_refuse(Name(stream, 0), &error);
    }
    simulation.logs.retain(|name, _| name.0 != stream);
    simulation.shell.cancel_errand();
    simulation.deleting.push(stream);
    let ended = simulation.shell.machine.ended();
    simulation.completed(ended)
}

/// A log may begin at any offset that is committed, and does once that is durable.
pub(super) fn trim(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let (start, end) = bounds(simulation, name)?;
    let offset = simulation.random.between(start as usize, end as usize) as i64;
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

pub(super) fn configure(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let random = &mut simulation.random;
    let settings = LogSettings {
        segment_bytes: random.between(5_000, 30_000) as u64,
        segment_ms: random.between(1, 6 * HOUR_MS) as u64,
        segment_index_bytes: random.between(24, 600) as u64,
        ..LogSettings::default()
    };
    let id = simulation.logs[&name].id;
    let answer = simulation.shell.machine.configure(id, settings);
    answer.map_err(|error| Simulation::refused(&format!("{name:?}"), error.to_string()))
}
