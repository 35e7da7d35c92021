//! The log engine on a disk that loses what was not synced, under a switchboard: one effect at a
//! time, so that a crash may come between any two.

use std::collections::{BTreeMap, VecDeque};

use headrace_core::log::{
    open, Bounds, Chore, Disk, DiskOp, Draft, LogId, Machine, Options, Plan, Round,
};
use headrace_core::record::Batches;
use headrace_core::switchboard::{SessionAppend, SessionTrim};
use headrace_core::testing::{Random, SimDisk};

/// A stream and a partition of it.
pub type Place = (&'static str, u32);

/// The stream of the sessions.
pub const SESSIONS: &str = "__mqtt";

/// Files so small that a short life begins many of them.
const OPTIONS: Options = Options {
    journal_bytes: 128 << 10,
    segment_bytes: 12_000,
    index_interval_bytes: 500,
    direct_write_bytes: 8_192,
    reserve_bytes: 0,
    seed: 7,
    bounds: Bounds::NODE,
};

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// All that was written is there.
    Kill,
    /// Pages and entries that were not synced are there, torn, or gone, each for itself.
    PowerCut,
}

/// An append that has not ended.
struct OnItsWay {
    place: Place,
    /// Behind its last record.
    next_offset: i64,
}

pub struct Platter {
    disk: SimDisk,
    machine: Machine,
    logs: BTreeMap<Place, LogId>,
    round: Option<(Round, VecDeque<DiskOp>)>,
    chore: Option<(Chore, VecDeque<DiskOp>)>,
    on_their_way: BTreeMap<u64, OnItsWay>,
    /// Offsets up to which appends have ended.
    told: BTreeMap<Place, i64>,
    /// Checkpoints whose space came back.
    pub checkpoints: usize,
}

impl Platter {
    pub fn new(streams: &[(&'static str, u32)]) -> Self {
        let places = streams
            .iter()
            .flat_map(|(name, partitions)| (0..*partitions).map(move |at| (*name, at)));
        let mut platter = Self::on(SimDisk::default(), places.collect());
        platter.settle();
        platter
    }

    fn on(disk: SimDisk, places: Vec<Place>) -> Self {
        let (mut machine, _) = open(&disk, OPTIONS).expect("what a crash leaves opens");
        let mut logs = BTreeMap::new();
        let mut told = BTreeMap::new();
        for (stream, partition) in places {
            let log = machine.open_log(stream, partition, 1, 0).unwrap();
            logs.insert((stream, partition), log);
            told.insert((stream, partition), machine.bounds(log).unwrap().1);
        }
        Self {
            disk,
            machine,
            logs,
            round: None,
            chore: None,
            on_their_way: BTreeMap::new(),
            told,
            checkpoints: 0,
        }
    }

    /// Queues a batch; its offset.
    pub fn append(&mut self, place: Place, batch: Vec<u8>, ticket: u64) -> i64 {
        let log = self.logs[&place];
        let records = Batches::new(&batch).map(|batch| batch.unwrap().header.next_offset());
        let records: i64 = records.sum();
        let appended = self.machine.append(log, batch, ticket, 0, 0).unwrap();
        let on_its_way = OnItsWay {
            place,
            next_offset: appended.base_offset + records,
        };
        self.on_their_way.insert(ticket, on_its_way);
        appended.base_offset
    }

    /// Queues a batch of the sessions; its offset.
    pub fn append_session(&mut self, append: SessionAppend) -> i64 {
        let place = (SESSIONS, append.partition);
        if append.begins {
            self.machine.roll(self.logs[&place], 0).unwrap();
        }
        self.append(place, append.batch, append.ticket)
    }

    /// Lets go what a checkpoint of the sessions has written again.
    pub fn trim(&mut self, trim: SessionTrim) {
        let log = self.logs[&(SESSIONS, trim.partition)];
        self.machine.trim(log, trim.offset).unwrap();
        self.checkpoints += 1;
    }

    /// What is queued commits together.
    pub fn submit(&mut self) {
        self.machine.submit();
    }

    pub fn is_idle(&self) -> bool {
        self.on_their_way.is_empty()
    }

    /// The offset up to which appends have ended.
    pub fn told(&self, place: Place) -> i64 {
        self.told[&place]
    }

    /// One effect of the round; the tickets that it ends.
    pub fn step(&mut self) -> Vec<u64> {
        let Some((round, mut ops)) = self.round.take() else {
            let round = self.machine.next_round(0).map(Draft::build);
            self.round = round.map(|round| {
                let ops = round.before.iter().chain(&round.after).cloned();
                let ops = ops.collect();
                (round, ops)
            });
            return Vec::new();
        };
        if let Some(op) = ops.pop_front() {
            self.perform(&op);
        }
        if !ops.is_empty() {
            self.round = Some((round, ops));
            return Vec::new();
        }
        let ended = self.machine.round_done(round, Ok(()), 0, 0);
        let ended = ended.into_iter().map(|completion| completion.ticket);
        ended.inspect(|ticket| self.ended(*ticket)).collect()
    }

    fn perform(&self, op: &DiskOp) {
        self.disk.perform(op).expect("the disk is sound");
    }

    fn ended(&mut self, ticket: u64) {
        let ended = self.on_their_way.remove(&ticket).expect("it ends once");
        self.told.insert(ended.place, ended.next_offset);
    }

    /// One effect beside the rounds.
    pub fn step_chore(&mut self) {
        for op in self.machine.empty_trash() {
            self.perform(&op);
        }
        let Some((chore, mut ops)) = self.chore.take() else {
            self.chore = self.machine.next_chore().map(|chore| {
                let ops = chore.ops.iter().cloned().collect();
                (chore, ops)
            });
            return;
        };
        if let Some(op) = ops.pop_front() {
            self.perform(&op);
        }
        if ops.is_empty() {
            self.machine.chore_done(&chore, Ok(()));
        } else {
            self.chore = Some((chore, ops));
        }
    }

    /// All that is queued becomes durable; its tickets.
    pub fn settle(&mut self) -> Vec<u64> {
        let (mut ended, mut idle) = (Vec::new(), 0);
        self.submit();
        while idle < 2 {
            ended.extend(self.step());
            self.step_chore();
            let is_idle = self.round.is_none() && self.chore.is_none();
            idle = if is_idle { idle + 1 } else { 0 };
        }
        ended
    }

    /// The process is gone, and another opens what the disk holds.
    pub fn die(&mut self, death: Death, seed: u64) {
        let disk = match death {
            Death::Kill => self.disk.killed(),
            Death::PowerCut => self.disk.power_cut(&mut Random::new(seed)),
        };
        let places = self.logs.keys().copied().collect();
        let checkpoints = self.checkpoints;
        *self = Self {
            checkpoints,
            ..Self::on(disk, places)
        };
    }

    /// The batches of a partition from an offset on.
    pub fn read(&mut self, place: Place, from: i64) -> Vec<u8> {
        let log = self.logs[&place];
        let (start, end) = self.machine.bounds(log).unwrap();
        let (mut at, mut all) = (from.max(start), Vec::new());
        while at < end {
            let batches = match self.machine.plan_read(log, at).unwrap() {
                Plan::Nothing => break,
                Plan::Load(files) => {
                    let index = files.load(&self.disk).unwrap();
                    self.machine.indexed(index);
                    continue;
                }
                Plan::Walk(walk) => walk.read(&self.disk, at, 1 << 20).unwrap(),
            };
            let last = Batches::new(&batches).last().expect("there is one");
            at = last.unwrap().header.next_offset();
            all.extend(batches);
        }
        all
    }

    /// Keeps a state beside a log, with the power gone after so many `effects`; whether it is kept.
    pub fn keep(&self, place: Place, offset: i64, state: &[u8], effects: Option<usize>) -> bool {
        if let Some(effects) = effects {
            self.disk.fail_after(effects, "the power is gone");
        }
        let kept = self.machine.state_place(self.logs[&place]).unwrap();
        let outcome = kept.save(&self.disk, offset, state);
        assert!(outcome.is_ok() || self.disk.has_failed(), "{outcome:?}");
        outcome.is_ok()
    }

    /// The newest state beside a log, and the offset up to which it holds records.
    pub fn kept(&self, place: Place) -> (i64, Vec<u8>) {
        let kept = self.machine.state_place(self.logs[&place]).unwrap();
        let found = kept.load(&self.disk).unwrap();
        assert_eq!(found.ignored, [""; 0], "no crash damages a state");
        (found.offset, found.state)
    }
}
