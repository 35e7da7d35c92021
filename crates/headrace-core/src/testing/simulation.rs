//! One run: a store lives and dies several times, while clients use it and the checker looks on.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::anomaly::{Anomaly, Kind};
use super::checker::Checker;
use super::clients::{LogClients, Name, Value};
use super::disk::{Refused, SimDisk};
use super::random::Random;
use super::rot;
use super::sabotage::{Sabotage, Saboteur};
use super::segments;
use super::shell::Shell;
use super::trace::Trace;
use super::workload;
use crate::log::inspect::verify;
use crate::log::{open, Bounds, Error, Fsync, LogId, Options};

/// Steps of one life at most.
const STEPS_MAX: usize = 600;
/// What a failing disk says.
const FAILURES: [&str; 2] = [
    "syncing a file failed: Input/output error: check the disk and its mount",
    "writing a file failed: No space left on device: free space there",
];

/// What is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Decides everything.
    pub seed: u64,
    /// The planted fault.
    pub sabotage: Sabotage,
    /// Keep the trace's lines.
    pub trace: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of every call, answer and effect.
    pub hash: u64,
    /// How many there were.
    pub events: u64,
    /// Starts of the store, those that were cut short included.
    pub starts: u64,
    /// Appends that were acknowledged.
    pub stored: u64,
    /// The first broken promise; the run ended there.
    pub anomaly: Option<Anomaly>,
    /// The trace, where it was asked for.
    pub lines: Vec<String>,
}

/// What waits for a completion.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) name: Name,
    pub(super) incarnation: u64,
    pub(super) values: Vec<Value>,
    pub(super) offset: i64,
    pub(super) by: By,
    /// What the answer promises.
    pub(super) fsync: Fsync,
}

/// Who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Anyone,
    /// Producer and sequence.
    Producer(usize, i32),
    /// Source and sequence.
    Source(usize, u64),
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    PowerCut,
    Kill,
    CleanStop,
}

#[derive(Debug)]
pub(super) struct Simulation {
    pub(super) random: Random,
    pub(super) trace: Trace,
    pub(super) options: Options,
    pub(super) shell: Shell,
    pub(super) checker: Checker,
    pub(super) logs: BTreeMap<Name, LogClients>,
    pub(super) deleting: Vec<&'static str>,
    pub(super) tickets: BTreeMap<u64, Sent>,
    pub(super) ticket: u64,
    pub(super) value: u64,
    pub(super) incarnation: u64,
    pub(super) wall_ms: i64,
    /// How most logs are synced.
    pub(super) fsync: Fsync,
    /// What was not synced may be gone.
    pub(super) is_cut: bool,
    starts: u64,
}

/// Runs `setup`.
///
/// # Panics
/// Where an empty disk does not open.
pub fn simulate(setup: Setup) -> Outcome {
    let mut random = Random::new(setup.seed);
    let options = options(&mut random);
    let port = Saboteur::new(setup.sabotage.disk(), setup.sabotage);
    let (shell, _) = Shell::open(port, options).expect("an empty disk opens");
    let fsync = workload::draw_fsync(&mut random);
    let mut simulation = Simulation {
        random,
        trace: Trace::kept(setup.trace),
        options,
        shell,
        checker: Checker::default(),
        logs: BTreeMap::new(),
        deleting: Vec::new(),
        tickets: BTreeMap::new(),
        ticket: 0,
        value: 0,
        incarnation: 0,
        wall_ms: 1_700_000_000_000,
        fsync,
        is_cut: false,
        starts: 1,
    };
    let ran = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let anomaly = ran.unwrap_or_else(|panic| Err(panicked(&*panic))).err();
    let (stored, ..) = simulation.checker.counts();
    Outcome {
        hash: simulation.trace.hash(),
        events: simulation.trace.events,
        starts: simulation.starts,
        stored,
        anomaly,
        lines: simulation.trace.into_lines(),
    }
}

/// Assertions of the machines hold in every run, or have found something.
fn panicked(panic: &(dyn Any + Send)) -> Anomaly {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Anomaly {
        kind: Kind::Panicked,
        log: "the store".into(),
        text: text.unwrap_or_else(|| "no message".into()),
    }
}

/// Files so small that a short life rolls, rotates and writes directly.
fn options(random: &mut Random) -> Options {
    Options {
        journal_bytes: (32 + 16 * random.below(3) as u64) * 4096,
        segment_bytes: random.between(4_000, 40_000) as u64,
        index_interval_bytes: random.between(100, 1000) as u64,
        direct_write_bytes: random.between(4096, 16_384) as u64,
        reserve_bytes: random.below(2) as u64,
        seed: random.bits() as u32,
        bounds: Bounds {
            index_bytes: random.below(2000) as u64,
            finished_files: random.between(4, 40),
            compaction_keys: random.between(3, 20),
            compaction_piece_bytes: random.between(500, 5000),
            // A node forgets more producers than this run has.
            producers: Bounds::NODE.producers,
        },
    }
}

/// The disk refuses something now and then: for want of descriptors or inodes, what is to be synced,
/// or anything.
fn refuse_some(disk: &SimDisk, random: &mut Random) {
    let what = random.pick(&[Refused::Any, Refused::Opening, Refused::Syncing]);
    let one_in = random.pick(&[15, 60, 250]);
    let random = Random::new(random.bits());
    disk.refuse_one_in(one_in, what, random);
}

impl Simulation {
    fn run(&mut self) -> Result<(), Anomaly> {
        let weights = workload::draw_weights(&mut self.random);
        for _ in 0..self.random.between(2, 5) {
            if self.random.chance(20) {
                let why = FAILURES[self.random.below(FAILURES.len())];
                self.shell.disk().fail_after(self.random.below(300), why);
            }
            if self.random.chance(30) {
                refuse_some(self.shell.disk(), &mut self.random);
            }
            self.live(&weights)?;
            let death = match self.random.below(10) {
                0..5 => Death::PowerCut,
                5..8 => Death::Kill,
                _ => Death::CleanStop,
            };
            self.die(death)?;
        }
        Ok(())
    }

    fn live(&mut self, weights: &[u32]) -> Result<(), Anomaly> {
        let refused = self.shell.disk().refused();
        for _ in 0..self.random.below(STEPS_MAX) {
            self.wall_ms += self.random.below(20_i64);
            match self.random.below(100) {
                0..28 => workload::step(self, weights)?,
                28..62 => self.advance_round()?,
                62..86 => self.advance_chore()?,
                86..97 => self.advance_compaction()?,
                _ => self.shell.advance_errand(&mut self.trace),
            }
            self.verdict()?;
            self.fails_for_a_reason(refused)?;
        }
        Ok(())
    }

    /// Nothing but a disk that has refused something since ends all writing.
    fn fails_for_a_reason(&self, refused: usize) -> Result<(), Anomaly> {
        let disk = self.shell.disk();
        let may_fail = disk.has_failed() || disk.refused() > refused;
        match self.shell.machine.failed() {
            Some(why) if !may_fail => {
                let text = format!("it failed, and its disk did not: {why}");
                Err(Self::refused("the store", text))
            }
            _ => Ok(()),
        }
    }

    /// The first anomaly that the checker has found ends the run.
    pub(super) fn verdict(&self) -> Result<(), Anomaly> {
        self.checker
            .anomalies()
            .first()
            .cloned()
            .map_or(Ok(()), Err)
    }

    pub(super) fn refused(log: &str, text: String) -> Anomaly {
        Anomaly {
            kind: Kind::Refused,
            log: log.to_owned(),
            text,
        }
    }

    // --- the store's work ---------------------------------------------------------------------

    fn advance_round(&mut self) -> Result<(), Anomaly> {
        let refused = self.shell.disk().refused();
        let ended = self.shell.advance_round(&mut self.trace);
        let disk = self.shell.disk();
        let may_refuse = disk.has_failed() || disk.refused() > refused;
        workload::meet_refusals(self, may_refuse)?;
        workload::meet_trims(self)?;
        self.completed(ended)
    }

    fn advance_chore(&mut self) -> Result<(), Anomaly> {
        let ended = self.shell.advance_chore(&mut self.trace);
        self.completed(ended)
    }

    fn advance_compaction(&mut self) -> Result<(), Anomaly> {
        let refused = self.shell.disk().refused();
        let Err(error) = self.shell.advance_compaction(&mut self.trace) else {
            return Ok(());
        };
        self.trace.note(format_args!("compaction: {error}"));
        let disk = self.shell.disk();
        if disk.has_failed() || disk.refused() > refused {
            return Ok(()); // it ends; the next one begins anew
        }
        Err(Self::refused("the compaction", error.to_string()))
    }

    /// Performs whatever is due until nothing is.
    pub(super) fn settle(&mut self) -> Result<(), Anomaly> {
        self.shell.machine.submit();
        let mut idle = 0;
        while idle < 2 {
            if let Some(at) = self.shell.machine.wake_at_ns() {
                self.shell.now_ns = at.max(self.shell.now_ns);
            }
            self.advance_round()?;
            self.advance_chore()?;
            self.advance_compaction()?;
            self.shell.advance_errand(&mut self.trace);
            idle = if self.shell.is_idle() { idle + 1 } else { 0 };
        }
        if self.shell.machine.failed().is_none() {
            self.checker.quiet();
            for clients in self.logs.values_mut() {
                let end = self
                    .shell
                    .machine
                    .bounds(clients.id)
                    .map_or(0, |(_, end)| end);
                clients.synced = clients.synced.max(end.min(clients.synced_in_time));
                clients.synced_in_time = clients.synced_in_time.min(end);
            }
        }
        if self.shell.machine.failed().is_none() && !self.shell.disk().has_failed() {
            segments::judge(self)?;
        }
        self.verdict()
    }

    // --- deaths and births --------------------------------------------------------------------

    fn die(&mut self, death: Death) -> Result<(), Anomaly> {
        self.trace.note(format_args!("death: {death:?}"));
        let mut clean = false;
        if death == Death::CleanStop {
            self.shell.machine.close();
            self.settle()?;
            let failed = self.shell.machine.failed().is_some();
            clean = self.shell.machine.is_closed();
            if clean {
                self.all_is_synced();
            }
            if !clean && !failed {
                return Err(Self::refused("the store", "it does not close".into()));
            }
        }
        self.forget_what_was_under_way();
        let power_cut =
            death == Death::PowerCut || (death == Death::CleanStop && self.random.chance(50));
        self.is_cut = power_cut || self.shell.disk().has_lost();
        let port = self.shell.die(power_cut.then_some(&mut self.random));
        let sound = port.sabotage == Sabotage::None;
        if sound && death == Death::Kill && self.random.chance(30) {
            rot::judge(self, &port)?;
        }
        self.begin_again(port, clean)
    }

    fn forget_what_was_under_way(&mut self) {
        self.checker.crashed();
        self.tickets.clear();
        self.logs.values_mut().for_each(LogClients::crashed);
    }

    /// Starts the store; some starts die before they end, and then the next must do.
    fn begin_again(&mut self, mut port: Saboteur, mut clean: bool) -> Result<(), Anomaly> {
        while self.random.chance(30) {
            self.starts += 1;
            if self.random.chance(30) {
                refuse_some(&port.disk, &mut self.random);
            } else {
                let left = self.random.below(60);
                port.disk.fail_after(left, "this start is cut short");
            }
            let opened = open(&port, self.options).is_ok();
            self.trace.note(format_args!("start cut short: {opened}"));
            clean = false; // what it has begun, the next one mends
            let power_cut = self.random.chance(50);
            self.is_cut |= power_cut || port.disk.has_lost();
            port.disk = if power_cut {
                port.disk.power_cut(&mut self.random)
            } else {
                port.disk.killed()
            };
        }
        if port.sabotage == Sabotage::None && self.random.chance(20) {
            self.verify(&port.disk)?;
        }
        self.starts += 1;
        if self.random.chance(20) {
            let random = Random::new(self.random.bits());
            port.disk.refuse_one_in(2, Refused::Removing, random);
        }
        let (shell, recovery) = Shell::open(port, self.options)
            .map_err(|error| Self::refused("the store", format!("does not open: {error}")))?;
        shell.disk().refuse_nothing();
        self.trace.note(format_args!("start: {recovery:?}"));
        self.shell = shell;
        let mended = recovery.replayed_batches + recovery.truncated_bytes;
        if clean && (!recovery.clean || mended > 0) {
            let text = format!("was closed in order, and {recovery:?}");
            return Err(Self::refused("the store", text));
        }
        if recovery.rebuilt_indexes > 0 {
            let text = format!("indexes that counted were not synced: {recovery:?}");
            return Err(Self::refused("the store", text));
        }
        self.look_at_everything()?;
        self.is_cut = false;
        self.settle()
    }

    /// What a crash leaves, and a start that was cut short, is no damage.
    fn verify(&self, disk: &SimDisk) -> Result<(), Anomaly> {
        let named = self
            .logs
            .iter()
            .map(|(name, clients)| (name.0.to_owned(), clients.incarnation));
        let found = verify(disk, self.options, &named.collect(), |_, _| true, |_| {});
        match found {
            Ok(findings) if findings.is_empty() => Ok(()),
            found => Err(Self::refused("the store", format!("verify: {found:?}"))),
        }
    }

    /// The log ends where it ends: of what was not synced the last may be gone.
    fn meet_end(&mut self, name: Name, id: LogId) -> Result<(), Anomaly> {
        let text = |error: Error| Self::refused("the store", error.to_string());
        let (_, end) = self.shell.machine.bounds(id).map_err(text)?;
        let clients = self.logs.get_mut(&name).expect("it was listed");
        clients.id = id;
        clients.epochs.split_off(&end);
        if self.is_cut {
            self.checker.cut(&clients.label, clients.synced, end);
            clients.lost_from(end);
        }
        (clients.synced, clients.synced_in_time, clients.appended) = (end, end, end);
        let (epoch, fsync) = (clients.epoch, clients.fsync);
        self.shell.machine.lead(id, epoch).map_err(text)?;
        workload::configure_as(self, name, fsync)
    }

    /// Deletes again what was being deleted, opens every log, and reads all of it.
    pub(super) fn look_at_everything(&mut self) -> Result<(), Anomaly> {
        let text = |error: Error| Self::refused("the store", error.to_string());
        for stream in self.deleting.clone() {
            self.shell.machine.delete_stream(stream).map_err(text)?;
        }
        let names: Vec<Name> = self.logs.keys().copied().collect();
        for name in names {
            let clients = &self.logs[&name];
            let opened =
                self.shell
                    .machine
                    .open_log(name.0, name.1, clients.incarnation, self.wall_ms);
            let id = opened.map_err(text)?;
            self.meet_end(name, id)?;
            workload::scan(self, name)?;
            self.verdict()?;
            workload::meet_sources(self, name)?;
        }
        Ok(())
    }
}
