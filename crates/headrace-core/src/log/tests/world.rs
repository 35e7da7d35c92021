//! A store on a simulated disk, a model of what it promised, and random steps between them.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::{batch, produced, read, SMALL};
use crate::log::chore::Chore;
use crate::log::disk::{Disk, DiskOp};
use crate::log::layout;
use crate::log::machine::{Completion, Machine};
use crate::log::partition::LogId;
use crate::log::round::Round;
use crate::log::{open, Error, Fsync, LogSettings};
use crate::record::{mark, set_base_offset, set_leader_epoch, BatchHeader, Batches};
use crate::testing::{Random, SimDisk};

const PRODUCER: i64 = 7;
const HOUR_MS: usize = 3_600_000;
const FSYNCS: [Fsync; 3] = [Fsync::Commit, Fsync::Interval, Fsync::Os];

/// What was promised about one log.
#[derive(Clone, Debug)]
struct Promise {
    id: LogId,
    incarnation: u64,
    /// As sent, and where it must stand.
    batches: Vec<(Vec<u8>, i64)>,
    acknowledged: usize,
    /// How many must survive a power cut, and how many once nothing is due any more.
    durable: usize,
    durable_later: usize,
    fsync: Fsync,
    next_offset: i64,
    sequence: i32,
    /// In which its batches are written.
    epoch: i32,
    /// Where it begins, as far as that is durable, and as it may be already.
    start: i64,
    start_wanted: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(&'static str, u32);

const STREAMS: [&str; 3] = ["gpu", "gpu.dlq", "all"];

/// What a ticket is for.
struct Sent {
    name: Name,
    /// Its place among the batches.
    at: usize,
    fsync: Fsync,
    repeats: bool,
}

/// Work under way: its effects, and how many were performed.
struct UnderWay<T> {
    work: T,
    ops: VecDeque<DiskOp>,
}

pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) random: Random,
    pub(super) machine: Machine,
    promises: BTreeMap<Name, Promise>,
    deleting: Vec<&'static str>,
    tickets: BTreeMap<u64, Sent>,
    ticket: u64,
    incarnation: u64,
    /// The wall clock.
    wall_ms: i64,
    now_ns: u64,
    /// How most logs of this world are synced.
    habit: Fsync,
    is_full: bool,
    round: Option<UnderWay<Round>>,
    chore: Option<UnderWay<Chore>>,
}

fn epoch_of(sent: &[u8]) -> i32 {
    BatchHeader::parse(sent).expect("it was sent").leader_epoch
}

fn is_produced((sent, _): &(Vec<u8>, i64)) -> bool {
    sent[43..51] == PRODUCER.to_be_bytes()
}

impl World {
    pub(super) fn new(seed: u64, disk: SimDisk) -> Self {
        let (machine, recovery) = open(&disk, SMALL).expect("an empty disk opens");
        assert!(recovery.clean);
        let mut random = Random::new(seed);
        let habit = FSYNCS[random.below(3)];
        Self {
            disk,
            random,
            habit,
            is_full: false,
            machine,
            promises: BTreeMap::new(),
            deleting: Vec::new(),
            tickets: BTreeMap::new(),
            ticket: 0,
            incarnation: 0,
            wall_ms: 1_700_000_000_000,
            now_ns: 0,
            round: None,
            chore: None,
        }
    }

    /// One random thing happens. An error is a promise broken.
    pub(super) fn step(&mut self) -> Result<(), String> {
        match self.random.below(1000) {
            0..250 => self.append(),
            250..280 => self.open_log(),
            280..284 => self.delete_stream(),
            284..294 => self.trim(),
            294..304 => self.roll(),
            304..310 => self.configure(),
            310..320 => {
                self.wall_ms += self.random.below(HOUR_MS) as i64;
                self.now_ns += self.random.below(3_000_000_000) as u64;
                Ok(())
            }
            320..330 => self.repeat(),
            336..342 => self.mark(),
            342..346 => self.lead(),
            330..336 => {
                self.is_full = self.random.chance(40);
                let free = if self.is_full { 9 } else { u64::MAX };
                self.machine.disk_free(free, None);
                Ok(())
            }
            346..700 => self.advance_round(),
            _ => self.advance_chore(),
        }
    }

    /// Some log, where there is one.
    fn any(&mut self) -> Option<Name> {
        let count = self.promises.len();
        let names = &mut self.promises.keys();
        (count > 0).then(|| *names.nth(self.random.below(count)).expect("in range"))
    }

    /// Logs begin at any offset that is committed, and say so once that is durable.
    fn trim(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let promise = self.promises.get_mut(&name).expect("it was listed");
        let text = |error: Error| format!("{name:?}: {error}");
        let (start, end) = self.machine.bounds(promise.id).map_err(text)?;
        let beyond = self.machine.trim(promise.id, end + 1);
        if !matches!(beyond, Err(Error::Argument(_))) {
            return Err(format!("{name:?}: trimmed beyond its end: {beyond:?}"));
        }
        let offset = start + self.random.below((end - start) as usize + 1) as i64;
        promise.start_wanted = offset.max(promise.start_wanted);
        self.machine.trim(promise.id, offset).map_err(text)
    }

    fn roll(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let rolled = self.machine.roll(self.promises[&name].id, self.wall_ms);
        rolled.map_err(|error| format!("roll refused: {error}"))
    }

    fn configure(&mut self) -> Result<(), String> {
        match self.any() {
            Some(name) if self.random.chance(30) => {
                let fsync = FSYNCS[self.random.below(3)];
                self.configure_log(name, fsync)
            }
            Some(name) => self.configure_log(name, self.habit),
            None => Ok(()),
        }
    }

    fn configure_log(&mut self, name: Name, fsync: Fsync) -> Result<(), String> {
        let settings = LogSettings {
            fsync,
            flush_ms: 1000,
            producer_expiry_ms: u64::MAX,
            segment_bytes: 10_000 + self.random.below(20_000) as u64,
            segment_ms: 1 + self.random.below(6 * HOUR_MS) as u64,
            segment_index_bytes: 24 + self.random.below(600) as u64,
        };
        let promise = self.promises.get_mut(&name).expect("it was listed");
        if fsync == Fsync::Commit {
            promise.durable_later = promise.batches.len();
        }
        promise.fsync = fsync;
        let configured = self.machine.configure(promise.id, settings);
        configured.map_err(|error| format!("configure refused: {error}"))
    }

    /// Mostly now, and whatever else clients make up.
    fn timestamp(&mut self) -> i64 {
        match self.random.below(20) {
            0 => -1,
            1 => 0,
            2 => i64::MAX - 10,
            3 => self.wall_ms + 30 * 24 * HOUR_MS as i64,
            4..8 => self.wall_ms - self.random.below(6 * HOUR_MS) as i64,
            _ => self.wall_ms,
        }
    }

    fn append(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return self.open_log();
        };
        let bytes = match self.random.below(10) {
            0..6 => self.random.below(300),
            6..9 => self.random.below(5000),
            _ => 4000 + self.random.below(14_000),
        };
        let records = 1 + self.random.below(3);
        self.ticket += 1;
        let timestamp = self.timestamp();
        if self.is_full {
            let (id, sent) = (self.promises[&name].id, batch(1, 1, 1, timestamp));
            let refused = self.machine.append(id, sent, self.ticket, self.wall_ms, 0);
            let as_asked = matches!(refused, Err(Error::Full(_)));
            return as_asked
                .then_some(())
                .ok_or(format!("{name:?}: no room, and {refused:?}"));
        }
        let sent = batch(records, bytes / records, self.ticket as u8, timestamp);
        let promise = self.promises.get_mut(&name).expect("it was listed");
        let sent = if self.random.chance(50) {
            let sequence = promise.sequence;
            promise.sequence += records as i32;
            produced(sent, PRODUCER, 0, sequence)
        } else {
            sent
        };
        let appended = self
            .machine
            .append(
                promise.id,
                sent.clone(),
                self.ticket,
                self.wall_ms,
                self.now_ns,
            )
            .map_err(|error| format!("append refused: {error}"))?;
        if appended.base_offset != promise.next_offset || appended.duplicate {
            return Err(format!(
                "{name:?}: {appended:?}, not {}",
                promise.next_offset
            ));
        }
        let ticket = Sent {
            name,
            at: promise.batches.len(),
            fsync: promise.fsync,
            repeats: false,
        };
        self.tickets.insert(self.ticket, ticket);
        let mut sent = sent;
        set_leader_epoch(&mut sent, promise.epoch);
        promise.batches.push((sent, promise.next_offset));
        if promise.fsync != Fsync::Os {
            promise.durable_later = promise.batches.len();
        }
        promise.next_offset += records as i64;
        if self.random.chance(70) {
            self.machine.submit();
        }
        Ok(())
    }

    /// An idempotent producer has not heard of its last batch.
    fn repeat(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let promise = &self.promises[&name];
        if self.is_full {
            return Ok(());
        }
        let Some(at) = promise.batches.iter().rposition(is_produced) else {
            return Ok(());
        };
        self.ticket += 1;
        let (sent, offset) = promise.batches[at].clone();
        let (wall_ms, now_ns) = (self.wall_ms, self.now_ns);
        let appended = self
            .machine
            .append(promise.id, sent, self.ticket, wall_ms, now_ns)
            .map_err(|error| format!("{name:?}: a repeat was refused: {error}"))?;
        if !appended.duplicate || appended.base_offset != offset {
            return Err(format!("{name:?}: {appended:?}, a repeat of {offset}"));
        }
        let ticket = Sent {
            name,
            at,
            fsync: promise.fsync,
            repeats: true,
        };
        self.tickets.insert(self.ticket, ticket);
        self.machine.submit();
        Ok(())
    }

    fn lead(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let promise = self.promises.get_mut(&name).expect("it was listed");
        promise.epoch += self.random.below(3) as i32;
        let led = self.machine.lead(promise.id, promise.epoch);
        led.map_err(|error| format!("{name:?}: {error}"))
    }

    /// A mark takes no offset and is no reader's business; it ends after what came before it.
    fn mark(&mut self) -> Result<(), String> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let promise = &self.promises[&name];
        if self.is_full || promise.batches.is_empty() {
            return Ok(());
        }
        self.ticket += 1;
        let (wall_ms, now_ns) = (self.wall_ms, self.now_ns);
        let sent = mark(&vec![7; self.random.below(9000)]);
        let appended = self
            .machine
            .append(promise.id, sent, self.ticket, wall_ms, now_ns)
            .map_err(|error| format!("{name:?}: a mark was refused: {error}"))?;
        if appended.duplicate || appended.base_offset != promise.next_offset {
            return Err(format!("{name:?}: {appended:?}, a mark"));
        }
        let ticket = Sent {
            name,
            at: promise.batches.len() - 1,
            fsync: promise.fsync,
            repeats: true,
        };
        self.tickets.insert(self.ticket, ticket);
        Ok(())
    }

    fn open_log(&mut self) -> Result<(), String> {
        let stream = STREAMS[self.random.below(STREAMS.len())];
        let name = Name(stream, self.random.below(2) as u32);
        if self.promises.contains_key(&name) || self.deleting.contains(&stream) {
            return Ok(());
        }
        self.incarnation += 1;
        let id = self
            .machine
            .open_log(name.0, name.1, self.incarnation, self.wall_ms)
            .map_err(|error| format!("open_log refused: {error}"))?;
        let promise = Promise {
            id,
            incarnation: self.incarnation,
            batches: Vec::new(),
            acknowledged: 0,
            durable: 0,
            durable_later: 0,
            fsync: Fsync::Commit,
            next_offset: 0,
            sequence: 0,
            epoch: 0,
            start: 0,
            start_wanted: 0,
        };
        self.promises.insert(name, promise);
        self.configure_log(name, self.habit)
    }

    fn delete_stream(&mut self) -> Result<(), String> {
        let stream = STREAMS[self.random.below(STREAMS.len())];
        if self.deleting.contains(&stream) {
            return Ok(());
        }
        self.machine
            .delete_stream(stream)
            .map_err(|error| format!("delete refused: {error}"))?;
        self.promises.retain(|name, _| name.0 != stream);
        self.deleting.push(stream);
        let ended = self.machine.ended();
        self.completed(ended)
    }

    /// One effect of the round under way, or its end, or the beginning of the next.
    fn advance_round(&mut self) -> Result<(), String> {
        let Some(round) = &mut self.round else {
            self.round = self.machine.next_round(self.now_ns).map(|draft| {
                let work = draft.build();
                let ops = work.before.iter().chain(&work.after).cloned().collect();
                UnderWay { work, ops }
            });
            return Ok(());
        };
        let outcome = match round.ops.pop_front() {
            Some(op) => self.disk.perform(&op).map_err(|error| error.text),
            None => Ok(()),
        };
        if outcome.is_ok() && !round.ops.is_empty() {
            return Ok(());
        }
        let round = self.round.take().expect("under way").work;
        let ended = self.machine.round_done(round, outcome, 0, 0);
        self.trimmed()?;
        self.completed(ended)
    }

    /// Trims that have ended are promises.
    fn trimmed(&mut self) -> Result<(), String> {
        if self.machine.failed().is_some() {
            return Ok(());
        }
        for (name, promise) in &mut self.promises {
            if self.machine.is_trimming(promise.id) {
                continue;
            }
            promise.start = promise.start_wanted;
            let bounds = self.machine.bounds(promise.id);
            if bounds.is_ok_and(|(start, _)| start != promise.start) {
                return Err(format!("{name:?} was trimmed to {}", promise.start));
            }
        }
        Ok(())
    }

    fn advance_chore(&mut self) -> Result<(), String> {
        let Some(chore) = &mut self.chore else {
            self.chore = self.machine.next_chore().map(|work| {
                let ops = work.ops.iter().cloned().collect();
                UnderWay { work, ops }
            });
            return Ok(());
        };
        let outcome = match chore.ops.pop_front() {
            Some(op) => self.disk.perform(&op).map_err(|error| error.text),
            None => Ok(()),
        };
        if outcome.is_ok() && !chore.ops.is_empty() {
            return Ok(());
        }
        let chore = self.chore.take().expect("under way").work;
        let ended = self.machine.chore_done(&chore, outcome);
        self.completed(ended)
    }

    /// Acknowledgements come in order of each log.
    fn completed(&mut self, ended: Vec<Completion>) -> Result<(), String> {
        self.deleting
            .retain(|stream| self.machine.is_deleting(stream));
        for completion in ended {
            let Some(sent) = self.tickets.remove(&completion.ticket) else {
                return Err(format!("ticket {} ended twice", completion.ticket));
            };
            let promise = self
                .promises
                .get_mut(&sent.name)
                .filter(|found| found.id == completion.log);
            let (Some(promise), None) = (promise, &completion.error) else {
                continue;
            };
            let (name, at) = (sent.name, sent.at);
            if sent.repeats && promise.acknowledged <= at {
                return Err(format!("{name:?}: a repeat ended before batch {at}"));
            }
            if !sent.repeats && promise.acknowledged != at {
                return Err(format!("{name:?}: batch {at} acknowledged out of order"));
            }
            promise.acknowledged = promise.acknowledged.max(at + 1);
            if sent.fsync == Fsync::Commit {
                promise.durable = promise.durable.max(at + 1);
            }
        }
        Ok(())
    }

    /// Performs whatever is due until nothing is.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.machine.submit();
        loop {
            let before = self.disk.ops();
            while self.round.is_some() || self.chore.is_some() {
                self.advance_round()?;
                self.advance_chore()?;
            }
            self.advance_round()?;
            self.advance_chore()?;
            let idle = self.round.is_none() && self.chore.is_none();
            if !idle || before != self.disk.ops() {
                continue;
            }
            match self.machine.wake_at_ns() {
                Some(at) => self.now_ns = at.max(self.now_ns),
                None => break,
            }
        }
        if self.machine.failed().is_none() {
            for promise in self.promises.values_mut() {
                promise.durable = promise.durable.max(promise.durable_later);
            }
        }
        self.check_files()
    }

    /// Every call that would write is refused, and says why.
    pub(super) fn assert_refuses(&mut self, why: &str) {
        let opened = self.machine.open_log("other", 0, 1, 0).map(drop);
        let deleted = self.machine.delete_stream("other");
        let mut refusals = vec![opened, deleted];
        if let Some(promise) = self.promises.values().next() {
            let appended = self.machine.append(promise.id, batch(1, 9, 1, 1), 0, 0, 0);
            refusals.push(appended.map(drop));
        }
        for refused in refusals {
            assert_eq!(refused, Err(Error::Storage(why.to_owned())));
        }
    }

    /// Closes in order and opens again.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        self.machine.close();
        self.settle()?;
        if !self.machine.is_closed() {
            return Err(format!("did not close: {:?}", self.machine.failed()));
        }
        let unacknowledged = |promise: &Promise| promise.acknowledged < promise.batches.len();
        if self.promises.values().any(unacknowledged) {
            return Err("closed before all was acknowledged".into());
        }
        self.recover(self.disk.killed(), true)
    }

    /// The power goes, and comes back; maybe goes again while the store opens. It may also go then
    /// for the first time, after the process has died.
    pub(super) fn power_cut(&mut self) -> Result<(), String> {
        let mut disk = if self.random.chance(20) {
            self.disk.killed()
        } else {
            self.disk.power_cut(&mut self.random)
        };
        while self.random.chance(40) {
            disk.fail_after(self.random.below(60), "power cut");
            if open(&disk, SMALL).is_ok() && !disk.has_failed() {
                disk = disk.killed();
                break;
            }
            disk = disk.power_cut(&mut self.random);
        }
        for promise in self.promises.values_mut() {
            promise.acknowledged = promise.durable;
        }
        self.recover(disk, false)
    }

    /// The process dies, the disk keeps everything.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.recover(self.disk.killed(), false)
    }

    fn recover(&mut self, disk: SimDisk, clean: bool) -> Result<(), String> {
        self.disk = disk;
        self.round = None;
        self.chore = None;
        self.is_full = false;
        self.tickets.clear();
        let (machine, recovery) =
            open(&self.disk, SMALL).map_err(|error| format!("does not open: {error}"))?;
        self.machine = machine;
        if clean && (!recovery.clean || recovery.replayed_batches + recovery.truncated_bytes > 0) {
            return Err(format!("closed in order, but {recovery:?}"));
        }
        // A deletion that had not returned is asked for again.
        for stream in std::mem::take(&mut self.deleting) {
            self.machine
                .delete_stream(stream)
                .map_err(|error| error.to_string())?;
            self.deleting.push(stream);
        }
        let names: Vec<Name> = self.promises.keys().copied().collect();
        for name in names {
            self.check_log(name)
                .map_err(|error| format!("{name:?}: {error}"))?;
        }
        self.settle()
    }

    /// Once nothing is due, no file is left of segments that are gone.
    fn check_files(&self) -> Result<(), String> {
        if self.machine.failed().is_some() {
            return Ok(());
        }
        for (name, promise) in &self.promises {
            let segments = self.machine.segments(promise.id).expect("it is open");
            let kept = |base: i64| segments.iter().any(|segment| segment.base_offset == base);
            let folder = format!("streams/{}/{}", name.0, name.1);
            let names = self.disk.list(&folder).expect("it is listed");
            let epochs = self
                .machine
                .log(promise.id)
                .expect("it is open")
                .epochs
                .file();
            if self.disk.bytes(&layout::epochs(&folder)) != epochs {
                return Err(format!("{folder}: the file of epochs is not {epochs:?}"));
            }
            for kind in ["log", "index", "timeindex"] {
                let gone = layout::offsets(&names, kind)
                    .into_iter()
                    .find(|base| !kept(*base));
                if let Some(base) = gone {
                    return Err(format!("{folder}: {base}.{kind} is left"));
                }
            }
        }
        Ok(())
    }

    /// Segments follow on each other, and each is needed.
    fn check_segments(&self, promise: &Promise) -> Result<(), String> {
        let segments = self.machine.segments(promise.id).expect("it is open");
        let (start, end) = self.machine.bounds(promise.id).expect("it is open");
        let follows = segments
            .windows(2)
            .all(|pair| pair[0].next_offset == pair[1].base_offset && pair[1].base_offset > start);
        let last = segments.last().expect("there is one");
        let whole = follows && segments[0].base_offset <= start && last.next_offset == end;
        let told = segments.iter().all(|segment| {
            segment.created_ms.is_some()
                && (segment.base_offset == segment.next_offset || segment.max_timestamp.is_some())
        });
        if whole && told && last.active {
            return Ok(());
        }
        Err(format!("[{start}, {end}) in {segments:?}"))
    }

    /// What was acknowledged is there, in order; what is there was sent, in order.
    fn check_log(&mut self, name: Name) -> Result<(), String> {
        let promise = self.promises.get_mut(&name).expect("it was listed");
        let text = |error: Error| error.to_string();
        promise.id = self
            .machine
            .open_log(name.0, name.1, promise.incarnation, self.wall_ms)
            .map_err(text)?;
        let (start, end) = self.machine.bounds(promise.id).map_err(text)?;
        let (durable, wanted) = (promise.start, promise.start_wanted);
        if !(durable..=wanted).contains(&start) {
            return Err(format!("begins at {start}, not in [{durable}, {wanted}]"));
        }
        (promise.start, promise.start_wanted) = (start, start);
        let mut found = Vec::new();
        let mut offset = start;
        while offset < end {
            let bytes =
                read(&mut self.machine, &self.disk, promise.id, offset, 6000).map_err(text)?;
            for stored in Batches::new(&bytes) {
                let stored = stored.map_err(|error| error.to_string())?;
                offset = stored.header.next_offset();
                found.push(stored.bytes.to_vec());
            }
        }
        // The batch in which it begins is read whole.
        let is_gone = |sent: &[u8], offset: i64| {
            offset + BatchHeader::parse(sent).expect("it was sent").last_offset() < start
        };
        let gone = promise
            .batches
            .partition_point(|(sent, offset)| is_gone(sent, *offset));
        let sent = promise.batches[gone..].iter().map(|(sent, offset)| {
            let mut sent = sent.clone();
            set_base_offset(&mut sent, *offset);
            sent
        });
        let known = gone + found.len();
        if known < promise.acknowledged {
            return Err(format!("{known} of {} acknowledged", promise.acknowledged));
        }
        if known > promise.batches.len() || !sent.zip(&found).all(|(sent, found)| sent == *found) {
            return Err("holds what was never sent".into());
        }
        promise.batches.truncate(known);
        promise.acknowledged = known;
        promise.durable = known;
        promise.durable_later = known;
        promise.next_offset = end;
        let log = self.machine.log(promise.id).expect("it is open");
        for (sent, offset) in &promise.batches {
            let (found, written) = (log.epochs.at(*offset), epoch_of(sent));
            if found.is_some_and(|found| found != written) {
                return Err(format!("epoch {found:?} at {offset}, not {written}"));
            }
        }
        self.machine
            .lead(promise.id, promise.epoch)
            .map_err(|error| error.to_string())?;
        Self::check_producer(&mut self.machine, promise)?;
        self.configure_log(name, self.habit)?;
        self.check_segments(&self.promises[&name])
    }

    /// The last idempotent batch is known as a repeat, and its sequence goes on.
    fn check_producer(machine: &mut Machine, promise: &mut Promise) -> Result<(), String> {
        promise.sequence = 0;
        if let Some((sent, offset)) = promise.batches.iter().rfind(|batch| is_produced(batch)) {
            let header = crate::record::BatchHeader::parse(sent).expect("it was sent");
            promise.sequence = header.base_sequence + header.count;
            let log = machine.log(promise.id).expect("it is open");
            let verdict = log.producers.check(&header);
            if verdict != Ok(crate::log::producers::Verdict::Duplicate(*offset)) {
                return Err(format!(
                    "a repeat is {verdict:?}, not a duplicate of {offset}"
                ));
            }
        }
        Ok(())
    }
}
