//! What clients do, as a table; a run draws how often it does each, so that some runs do little
//! but delete and others nothing but read. To have the simulation know a new call of the store,
//! add a line and a function.

use super::anomaly::Anomaly;
use super::checker::{Append, Seen};
use super::clients::{self, Fate, LogClients, Name, Produced, Published, Value, WINDOW};
use super::random::Random;
use super::simulation::{By, Sent, Simulation};
use crate::log::{Appended, Error, LogId, LogSettings};

const STREAMS: [&str; 3] = ["gpu", "gpu.dlq", "all"];
const READERS: [&str; 2] = ["reader-1", "reader-2"];
const HOUR_MS: usize = 3_600_000;
/// Records of one append at most.
const RECORDS_MAX: usize = 3;

type Step = fn(&mut Simulation) -> Result<(), Anomaly>;

/// Name, usual weight, what happens.
const OPERATIONS: [(&str, u32, Step); 18] = [
    ("append", 30, append),
    ("produce", 30, produce),
    ("repeat", 6, repeat),
    ("fence", 1, fence),
    ("refuse", 3, refuse),
    ("publish", 12, publish),
    ("save sources", 2, save_sources),
    ("submit", 40, submit),
    ("read on", 25, read_on),
    ("read anywhere", 6, read_anywhere),
    ("look up a time", 6, look_up),
    ("ask for bounds", 4, ask_bounds),
    ("open a log", 6, open_log),
    ("delete a stream", 1, delete_stream),
    ("trim", 3, trim),
    ("roll", 3, roll),
    ("configure", 2, configure),
    ("let hours pass", 2, let_hours_pass),
];

/// How often a run does what.
pub(super) fn draw_weights(random: &mut Random) -> Vec<u32> {
    let draw = |(_, usual, _): &(&str, u32, Step)| match random.below(5) {
        0 => 0,
        1 => 4 * usual,
        _ => *usual,
    };
    let mut weights: Vec<u32> = OPERATIONS.iter().map(draw).collect();
    let always = |name| OPERATIONS.iter().position(|(found, ..)| *found == name);
    for name in ["submit", "open a log"] {
        let at = always(name).expect("it is in the table");
        weights[at] = weights[at].max(OPERATIONS[at].1);
    }
    weights
}

/// One of the table.
pub(super) fn step(simulation: &mut Simulation, weights: &[u32]) -> Result<(), Anomaly> {
    let total: u32 = weights.iter().sum();
    let mut drawn = simulation.random.below(total as usize) as u32;
    for ((name, _, step), weight) in OPERATIONS.iter().zip(weights) {
        if drawn < *weight {
            simulation.trace.note(format_args!("step: {name}"));
            return step(simulation);
        }
        drawn -= weight;
    }
    unreachable!("one weight holds what was drawn")
}

fn any_log(simulation: &mut Simulation) -> Option<Name> {
    let names: Vec<Name> = simulation.logs.keys().copied().collect();
    simulation.random.pick(&names).copied()
}

impl Simulation {
    fn clients(&mut self, name: Name) -> &mut LogClients {
        self.logs.get_mut(&name).expect("it was listed")
    }

    /// Values that nobody has sent; their timestamps are mostly in order.
    fn fresh(&mut self, count: usize) -> Vec<Value> {
        let mut value = || {
            self.value += 1;
            (self.value, timestamp(&mut self.random, self.wall_ms))
        };
        (0..count).map(|_| value()).collect()
    }

    /// Sends a batch and tells the checker; None where a failed store refused it.
    fn send(
        &mut self,
        name: Name,
        batch: Vec<u8>,
        values: &[Value],
        by: By,
    ) -> Result<Option<Appended>, Anomaly> {
        let clients = &self.logs[&name];
        let client = match by {
            By::Anyone => "anyone".to_owned(),
            By::Producer(at, _) => format!("producer {}", clients.producers[at].id),
            By::Source(at, _) => clients.sources[at].name.clone(),
        };
        for (value, timestamp) in values {
            self.checker.append(&Append {
                client: &client,
                log: &clients.label,
                value: *value,
                timestamp: *timestamp,
                key: Some(value % clients::KEYS),
                tombstone: false,
                repeats: false,
            });
        }
        self.ticket += 1;
        let (id, incarnation) = (clients.id, clients.incarnation);
        let answer = self
            .shell
            .machine
            .append(id, batch, self.ticket, self.wall_ms, 0);
        self.trace.note(format_args!(
            "append {} to {name:?} by {client} {by:?}: {answer:?}",
            self.ticket
        ));
        let appended = match answer {
            Ok(appended) => appended,
            Err(error) => {
                values
                    .iter()
                    .for_each(|(value, _)| self.checker.failed(*value));
                self.may_refuse(name, &error)?;
                return Ok(None);
            }
        };
        let sent = Sent {
            name,
            incarnation,
            values: values.to_vec(),
            offset: appended.base_offset,
            by,
        };
        self.tickets.insert(self.ticket, sent);
        Ok(Some(appended))
    }

    /// Only a store whose disk has failed may refuse what is in order, and it says why.
    fn may_refuse(&self, name: Name, error: &Error) -> Result<(), Anomaly> {
        let failed = self.shell.machine.failed();
        match error {
            Error::Storage(why) if failed.is_some_and(|failed| **failed == **why) => Ok(()),
            _ => Err(Self::refused(&format!("{name:?}"), error.to_string())),
        }
    }
}

/// Mostly now, and whatever else clients make up.
fn timestamp(random: &mut Random, wall_ms: i64) -> i64 {
    match random.below(40) {
        0 => -1,
        1 => 0,
        2 => i64::MAX - 10,
        3 => wall_ms + 30 * 24 * HOUR_MS as i64,
        4..14 => wall_ms - random.below(6 * HOUR_MS) as i64,
        _ => wall_ms,
    }
}

// --- writing ----------------------------------------------------------------------------------

fn append(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let count = simulation.random.between(1, RECORDS_MAX);
    let values = simulation.fresh(count);
    let bytes = clients::bytes(
        &mut simulation.random,
        simulation.options.direct_write_bytes,
    );
    let batch = clients::batch(&values, bytes, None);
    simulation.send(name, batch, &values, By::Anyone).map(drop)
}

/// The next batch of an idempotent producer; what a crash left open comes first.
fn produce(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let at = simulation.random.below(2);
    let producer = &simulation.logs[&name].producers[at];
    let due = producer
        .batches
        .iter()
        .find(|batch| batch.fate == Fate::Due);
    if let Some(due) = due {
        return send_produced(simulation, name, at, due.sequence);
    }
    if producer.count(Fate::UnderWay) >= WINDOW {
        return Ok(());
    }
    let count = simulation.random.between(1, RECORDS_MAX);
    let values = simulation.fresh(count);
    let bytes = clients::bytes(
        &mut simulation.random,
        simulation.options.direct_write_bytes,
    );
    let plain = clients::batch(&values, bytes, None);
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
fn repeat(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
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
    let Some(batch) = simulation.random.pick(&recent).cloned() else {
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
fn fence(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let at = simulation.random.below(2);
    let producer = &mut simulation.clients(name).producers[at];
    if producer.count(Fate::Stored) == producer.batches.len() {
        producer.epoch += 1;
        producer.sequence = 0;
        producer.batches.clear();
    }
    Ok(())
}

/// A producer that skips a sequence, or has been fenced off, is refused.
fn refuse(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
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
    let plain = clients::batch(&[(0, simulation.wall_ms)], 20, None);
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
fn publish(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let at = simulation.random.below(2);
    let source = &simulation.logs[&name].sources[at];
    let due = source
        .pending
        .iter()
        .find(|publish| publish.fate == Fate::Due);
    let publish = match due {
        Some(due) => due.clone(),
        None => {
            let value = simulation.fresh(1)[0];
            let bytes = simulation.random.below(500);
            let source = &mut simulation.clients(name).sources[at];
            source.sequence += 1;
            let named = (source.name.as_str(), source.sequence);
            let publish = Published {
                sequence: source.sequence,
                batch: clients::batch(&[value], bytes, Some(named)),
                value,
                fate: Fate::Due,
            };
            source.pending.push_back(publish.clone());
            publish
        }
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

/// Keeps the windows of the sources, as far as records are committed.
fn save_sources(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let shell = &simulation.shell;
    if shell.has_errand() || shell.machine.failed().is_some() {
        return Ok(());
    }
    let id = simulation.logs[&name].id;
    let machine = &simulation.shell.machine;
    let text = |error: Error| Simulation::refused(&format!("{name:?}"), error.to_string());
    let known = machine.plan_sources(id).map_err(text)?;
    let known = known.read(&simulation.shell.port).map_err(text)?;
    let machine = &mut simulation.shell.machine;
    let ops = machine.save_sources(id, &known).map_err(text)?;
    simulation.shell.run_errand(ops);
    Ok(())
}

fn submit(simulation: &mut Simulation) -> Result<(), Anomaly> {
    simulation.shell.machine.submit();
    Ok(())
}

// --- reading ----------------------------------------------------------------------------------

/// A reader goes on where it stands.
fn read_on(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let reader = READERS[simulation.random.below(READERS.len())];
    let clients = &simulation.logs[&name];
    match clients.readers.get(reader).copied() {
        Some(at) => read(simulation, name, reader, at, false),
        None => {
            let (start, _) = bounds(simulation, name)?;
            read(simulation, name, reader, start, true)
        }
    }
}

fn read_anywhere(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
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
    let records = fetch(simulation, simulation.logs[&name].id, at, bytes_max)
        .map_err(|error| Simulation::refused(&format!("{name:?}"), error))?;
    simulation
        .trace
        .note(format_args!("{reader} at {at}: {records:?}"));
    if records.is_empty() && at < end {
        let text = format!("nothing at offset {at} below {end}");
        return Err(Simulation::refused(&format!("{name:?}"), text));
    }
    let clients = simulation.logs.get_mut(&name).expect("it was listed");
    let from = seek.then_some(at);
    simulation
        .checker
        .read(reader, &clients.label, from, &records);
    clients
        .readers
        .insert(reader, records.last().map_or(at, |last| last.offset + 1));
    Ok(())
}

pub(super) fn fetch(
    simulation: &mut Simulation,
    id: LogId,
    at: i64,
    bytes_max: usize,
) -> Result<Vec<Seen>, String> {
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

fn bounds(simulation: &mut Simulation, name: Name) -> Result<(i64, i64), Anomaly> {
    let clients = &simulation.logs[&name];
    let (start, end) = bounds_of(simulation, clients)?;
    simulation.checker.bounds(&clients.label, start, end);
    simulation.verdict()?;
    Ok((start, end))
}

fn ask_bounds(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    bounds(simulation, name).map(drop)
}

fn look_up(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    bounds(simulation, name)?;
    let timestamp = timestamp(&mut simulation.random, simulation.wall_ms);
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

/// Reads a log from its start to its end.
pub(super) fn scan(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let label = simulation.logs[&name].label.clone();
    let refused = |error| Simulation::refused(&label, error);
    let id = simulation.logs[&name].id;
    let (start, end) = bounds(simulation, name)?;
    let mut records: Vec<Seen> = Vec::new();
    let mut at = start;
    while at < end {
        let read = fetch(simulation, id, at, 6000).map_err(refused)?;
        at = match read.last() {
            Some(last) if last.offset >= at => last.offset + 1,
            _ => return Err(refused(format!("nothing at offset {at} below {end}"))),
        };
        records.extend(read);
    }
    simulation
        .trace
        .note(format_args!("scan {name:?}: {records:?}"));
    simulation.checker.scan(&label, start, end, &records);
    Ok(())
}

/// After a start: the windows of the sources know all that was acknowledged. What they know of
/// need not be sent again, and is stored.
pub(super) fn meet_sources(simulation: &mut Simulation, name: Name) -> Result<(), Anomaly> {
    let clients = &simulation.logs[&name];
    let refused = |text: String| Simulation::refused(&clients.label, text);
    let known = simulation
        .shell
        .machine
        .plan_sources(clients.id)
        .and_then(|plan| plan.read(&simulation.shell.port))
        .map_err(|error| refused(error.to_string()))?;
    let last = |name: &str| {
        let found = known.iter().find(|(found, ..)| found == name);
        found.map_or(0, |(_, _, sequence)| *sequence)
    };
    let (start, _) = bounds_of(simulation, clients)?;
    for source in &clients.sources {
        let last = last(&source.name);
        // A window goes with the records that tell of it.
        let forgets = last < source.stored && source.stored_at >= start;
        if forgets || last > source.sequence {
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

// --- streams ----------------------------------------------------------------------------------

fn open_log(simulation: &mut Simulation) -> Result<(), Anomaly> {
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

fn delete_stream(simulation: &mut Simulation) -> Result<(), Anomaly> {
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

// --- segments ---------------------------------------------------------------------------------

/// A log may begin at any offset that is committed, and does once that is durable.
fn trim(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
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
pub(super) fn meet_trims(simulation: &mut Simulation) -> Result<(), Anomaly> {
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

fn roll(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let id = simulation.logs[&name].id;
    match simulation.shell.machine.roll(id, simulation.wall_ms) {
        Ok(()) => Ok(()),
        Err(error) => simulation.may_refuse(name, &error),
    }
}

fn configure(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let Some(name) = any_log(simulation) else {
        return Ok(());
    };
    let random = &mut simulation.random;
    let settings = LogSettings {
        segment_bytes: random.between(5_000, 30_000) as u64,
        segment_ms: random.between(1, 6 * HOUR_MS) as u64,
        segment_index_bytes: random.between(24, 600) as u64,
    };
    let id = simulation.logs[&name].id;
    let answer = simulation.shell.machine.configure(id, settings);
    answer.map_err(|error| Simulation::refused(&format!("{name:?}"), error.to_string()))
}

fn let_hours_pass(simulation: &mut Simulation) -> Result<(), Anomaly> {
    simulation.wall_ms += simulation.random.below(HOUR_MS) as i64;
    Ok(())
}
