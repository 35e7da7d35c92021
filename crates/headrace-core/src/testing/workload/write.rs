//! Clients write: anyone, idempotent producers, MQTT sources.

use super::super::anomaly::Anomaly;
use super::super::clients::{self, Fate, Name, Produced, Published, WINDOW};
use super::super::simulation::{By, Simulation};
use crate::log::{Appended, Error, Saving};
use crate::record::{self, Codec};

/// Records of one append at most.
const RECORDS_MAX: usize = 3;

pub(super) fn append(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let count = simulation.random.between(1, RECORDS_MAX);
    let values = simulation.fresh(count);
    let bytes = clients::bytes(
        &mut simulation.random,
        simulation.options.direct_write_bytes,
    );
    let codec = clients::codec(&mut simulation.random);
    let batch = clients::batch(&values, bytes, codec, None);
    simulation.send(name, batch, &values, By::Anyone).map(drop)
}

/// The next batch of an idempotent producer; what a crash left open comes first.
pub(super) fn produce(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let at = simulation.random.below(2);
    let producer = &simulation.logs[&name].producers[at];
    if producer.count(Fate::UnderWay) >= WINDOW {
        return Ok(()); // more of them, unanswered, the store would not know again
    }
    let due = producer
        .batches
        .iter()
        .find(|batch| batch.fate == Fate::Due);
    if let Some(due) = due {
        return send_produced(simulation, name, at, due.sequence);
    }
    let count = simulation.random.between(1, RECORDS_MAX);
    let values = simulation.fresh(count);
    let bytes = clients::bytes(
        &mut simulation.random,
        simulation.options.direct_write_bytes,
    );
    let codec = clients::codec(&mut simulation.random);
    let plain = clients::batch(&values, bytes, codec, None);
    let producer = &mut simulation.clients(name).producers[at];
    let sequence = producer.sequence;
    let batch = producer.batch(plain, producer.epoch, sequence);
    producer.sequence += count as i32;
    producer.batches.push_back(Produced {
        sequence,
        batch,
        values,
        fate: Fate::Due,
        offset: -1,
    });
    if producer.batches.len() > 2 * WINDOW {
        producer.batches.pop_front();
    }
    send_produced(simulation, name, at, sequence)
}

fn send_produced(
    simulation: &mut Simulation,
    name: Name,
    at: usize,
    sequence: i32,
) -> Result<(), Anomaly> {
    let producer = &mut simulation.clients(name).producers[at];
    let due = producer.find(sequence).expect("it is there").clone();
    let by = By::Producer(at, sequence);
    if let Some(appended) = simulation.send(name, due.batch, &due.values, by)? {
        let producer = &mut simulation.clients(name).producers[at];
        let sent = producer.find(sequence).expect("it is there");
        (sent.fate, sent.offset) = (Fate::UnderWay, appended.base_offset);
    }
    Ok(())
}

/// One of the last five batches comes again: the answer names the first copy.
pub(super) fn repeat(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let at = simulation.random.below(2);
    let producer = &simulation.logs[&name].producers[at];
    if producer.count(Fate::Due) > 0 {
        return Ok(());
    }
    let recent: Vec<Produced> = producer
        .batches
        .iter()
        .rev()
        .take(WINDOW)
        .cloned()
        .collect();
    let Some(batch) = simulation.random.choose(&recent).cloned() else {
        return Ok(());
    };
    let by = By::Producer(at, batch.sequence);
    let appended = simulation.send(name, batch.batch, &batch.values, by)?;
    let first = Appended {
        base_offset: batch.offset,
        duplicate: true,
    };
    if appended.is_some_and(|appended| appended != first) {
        let text = format!(
            "a repeat of sequence {} gave {appended:?}, not {first:?}",
            batch.sequence
        );
        return Err(Simulation::refused(&format!("{name:?}"), text));
    }
    Ok(())
}

/// A producer begins again under a newer epoch.
pub(super) fn fence(simulation: &mut Simulation, name: Name) {
    let at = simulation.random.below(2);
    let producer = &mut simulation.clients(name).producers[at];
    if producer.count(Fate::Stored) == producer.batches.len() {
        producer.begin_anew();
    }
}

/// A producer that skips a sequence, or has been fenced off, is refused.
pub(super) fn refuse(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let at = simulation.random.below(2);
    let producer = simulation.logs[&name].producers[at].clone();
    // Only what the store must know: a batch that is there.
    if producer.count(Fate::Stored) == 0 {
        return Ok(());
    }
    let fenced = producer.epoch > 0 && simulation.random.chance(50);
    let (epoch, sequence) = if fenced {
        (producer.epoch - 1, 0)
    } else {
        (producer.epoch, producer.sequence + 2)
    };
    let plain = clients::batch(&[(0, simulation.wall_ms)], 20, Codec::None, None);
    let batch = producer.batch(plain, epoch, sequence);
    let id = simulation.logs[&name].id;
    let answer = simulation
        .shell
        .machine
        .append(id, batch, 0, simulation.wall_ms, 0);
    simulation.trace.note(format_args!("refuse: {answer:?}"));
    match answer {
        Err(Error::StaleProducerEpoch { .. }) if fenced => Ok(()),
        Err(Error::OutOfOrderSequence { .. }) if !fenced => Ok(()),
        Err(error) => simulation.may_refuse(name, &error),
        Ok(_) => {
            let text = format!(
                "took epoch {epoch}, sequence {sequence} of producer {}",
                producer.id
            );
            Err(Simulation::refused(&format!("{name:?}"), text))
        }
    }
}

/// An MQTT source publishes; what a crash left open comes first.
pub(super) fn publish(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let at = simulation.random.below(2);
    let source = &simulation.logs[&name].sources[at];
    let due = source
        .pending
        .iter()
        .find(|publish| publish.fate == Fate::Due);
    let publish = if let Some(due) = due {
        due.clone()
    } else {
        // The door that takes it stamps it.
        let value = (simulation.fresh(1)[0].0, simulation.wall_ms);
        let bytes = simulation.random.below(500);
        let codec = clients::codec(&mut simulation.random);
        let source = &mut simulation.clients(name).sources[at];
        source.sequence += 1;
        let named = (source.name.as_str(), source.sequence);
        let publish = Published {
            sequence: source.sequence,
            batch: clients::batch(&[value], bytes, codec, Some(named)),
            value,
            fate: Fate::Due,
        };
        source.pending.push_back(publish.clone());
        publish
    };
    let by = By::Source(at, publish.sequence);
    if simulation
        .send(name, publish.batch, &[publish.value], by)?
        .is_some()
    {
        let pending = &mut simulation.clients(name).sources[at].pending;
        let sent = pending
            .iter_mut()
            .find(|found| found.sequence == publish.sequence);
        sent.expect("it is pending").fate = Fate::UnderWay;
    }
    Ok(())
}

/// A mark takes no offset and is no reader's business; it ends after what came before it.
pub(super) fn mark(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let batch = record::mark(&vec![7; simulation.random.below(9000)]);
    simulation.send(name, batch, &[], By::Anyone).map(drop)
}

/// The log gets another leader, or the same again.
pub(super) fn lead(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let newer = simulation.random.below(3);
    let clients = simulation.clients(name);
    clients.epoch += newer;
    let (id, epoch) = (clients.id, clients.epoch);
    let led = simulation.shell.machine.lead(id, epoch);
    led.map_err(|error| Simulation::refused(&format!("{name:?}"), error.to_string()))
}

/// Keeps the windows of the sources, as far as records are committed.
pub(super) fn save_sources(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    if let Some(saving) = sources_to_keep(simulation, name)? {
        // In one go, so that others follow before the journal is synced.
        if simulation.random.chance(50) {
            let trace = &mut simulation.trace;
            simulation.shell.run_at_once(saving, trace);
        } else {
            simulation.shell.run_errand(saving);
        }
    }
    Ok(())
}

/// How they are kept; None where that is under way, or the store has failed.
pub(super) fn sources_to_keep(
    simulation: &mut Simulation,
    name: Name,
) -> Result<Option<Saving>, Anomaly> {
    let shell = &simulation.shell;
    if shell.keeps_sources() || shell.machine.failed().is_some() {
        return Ok(None);
    }
    let id = simulation.logs[&name].id;
    let machine = &simulation.shell.machine;
    let text = |error: Error| Simulation::refused(&format!("{name:?}"), error.to_string());
    let known = machine.plan_sources(id).map_err(text)?;
    let known = known.read(&simulation.shell.port).map_err(text)?;
    machine.save_sources(id, &known).map(Some).map_err(text)
}
