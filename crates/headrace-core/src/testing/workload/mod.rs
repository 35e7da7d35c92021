//! What clients do, as a table; a run draws how often it does each, so that some runs do little
//! but delete and others nothing but read. To have the simulation know a new call of the store,
//! add a line and a function.

mod manage;
mod read;
mod write;

use super::anomaly::Anomaly;
use super::checker::Append;
use super::clients::{self, LogClients, Name, Value};
use super::random::Random;
use super::simulation::{By, Sent, Simulation};
use crate::log::{Appended, Error, Fsync};

pub(super) use manage::{begin_compaction, configure_as, draw_fsync, meet_refusals, meet_trims};
pub(super) use read::{meet_sources, scan};

const HOUR_MS: usize = 3_600_000;

type OfLog = fn(&mut Simulation, Name) -> Result<(), Anomaly>;
type Other = fn(&mut Simulation) -> Result<(), Anomaly>;

enum Step {
    /// Happens to some log, where there is one.
    OfLog(OfLog),
    Other(Other),
}

/// Name, usual weight, what happens.
const OPERATIONS: [(&str, u32, Step); 24] = [
    ("append", 30, Step::OfLog(write::append)),
    ("produce", 30, Step::OfLog(write::produce)),
    ("repeat", 6, Step::OfLog(write::repeat)),
    (
        "fence",
        1,
        Step::OfLog(|simulation, name| {
            write::fence(simulation, name);
            Ok(())
        }),
    ),
    ("refuse", 3, Step::OfLog(write::refuse)),
    ("publish", 12, Step::OfLog(write::publish)),
    ("save sources", 2, Step::OfLog(write::save_sources)),
    (
        "submit",
        40,
        Step::Other(|simulation| {
            simulation.shell.machine.submit();
            Ok(())
        }),
    ),
    ("read on", 25, Step::OfLog(read::read_on)),
    ("read anywhere", 6, Step::OfLog(read::read_anywhere)),
    ("look up a time", 6, Step::OfLog(read::look_up)),
    (
        "ask for bounds",
        4,
        Step::OfLog(|simulation, name| read::bounds(simulation, name).map(drop)),
    ),
    ("open a log", 6, Step::Other(manage::open_log)),
    ("delete a stream", 1, Step::Other(manage::delete_stream)),
    ("trim", 3, Step::OfLog(manage::trim)),
    ("roll", 3, Step::OfLog(manage::roll)),
    ("configure", 2, Step::OfLog(manage::configure)),
    ("lead", 1, Step::OfLog(write::lead)),
    ("mark", 2, Step::OfLog(write::mark)),
    (
        "look for room",
        2,
        Step::Other(|simulation| {
            manage::look_for_room(simulation);
            Ok(())
        }),
    ),
    ("settle", 1, Step::Other(Simulation::settle)),
    (
        "let seconds pass",
        4,
        Step::Other(|simulation| {
            simulation.shell.now_ns += simulation.random.below(3_000_000_000_u64);
            Ok(())
        }),
    ),
    ("compact", 8, Step::OfLog(manage::compact)),
    (
        "let hours pass",
        2,
        Step::Other(|simulation| {
            simulation.wall_ms += simulation.random.below(HOUR_MS) as i64;
            Ok(())
        }),
    ),
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
            return step.happen(simulation);
        }
        drawn -= weight;
    }
    unreachable!("one weight holds what was drawn")
}

impl Step {
    fn happen(&self, simulation: &mut Simulation) -> Result<(), Anomaly> {
        let names: Vec<Name> = simulation.logs.keys().copied().collect();
        match self {
            Self::Other(step) => step(simulation),
            Self::OfLog(step) => match simulation.random.choose(&names).copied() {
                Some(name) => step(simulation, name),
                None => Ok(()),
            },
        }
    }
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
                timestamp: Some(*timestamp),
                key: clients::key(*value),
                tombstone: clients::is_tombstone(*value),
                repeats: false,
            });
        }
        self.ticket += 1;
        let (id, incarnation, fsync) = (clients.id, clients.incarnation, clients.fsync);
        let (wall_ms, now_ns) = (self.wall_ms, self.shell.now_ns);
        let machine = &mut self.shell.machine;
        let answer = machine.append(id, batch, self.ticket, wall_ms, now_ns);
        self.trace.note(format_args!(
            "append {} to {name:?} by {client} {by:?}: {answer:?}",
            self.ticket
        ));
        let appended = match answer {
            Ok(appended) => appended,
            Err(error) => {
                for (value, _) in values {
                    self.checker.failed(*value);
                }
                self.may_refuse(name, &error)?;
                return Ok(None);
            }
        };
        let clients = self.clients(name);
        if !appended.duplicate {
            clients.epochs.insert(appended.base_offset, clients.epoch);
            clients.appended = appended.base_offset + values.len() as i64;
            if fsync != Fsync::Os {
                clients.synced_in_time = clients.appended;
            }
        }
        let sent = Sent {
            name,
            incarnation,
            fsync,
            values: values.to_vec(),
            offset: appended.base_offset,
            by,
        };
        self.tickets.insert(self.ticket, sent);
        Ok(Some(appended))
    }

    /// Only a store whose disk has failed or is full may refuse what is in order, and it says why.
    fn may_refuse(&self, name: Name, error: &Error) -> Result<(), Anomaly> {
        let failed = self.shell.machine.failed();
        match error {
            Error::Storage(why) if failed.is_some_and(|failed| **failed == **why) => Ok(()),
            Error::Full(why)
                if self
                    .shell
                    .machine
                    .full()
                    .is_some_and(|full| **full == **why) =>
            {
                Ok(())
            }
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
