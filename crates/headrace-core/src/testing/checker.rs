//! The judge of a history: what clients sent, what they were told, what readers saw.
//!
//! Events come in the order in which they happened. An append that was not answered is unknown:
//! its record may be there or not, and once a reader has seen it, it must stay. Each event is
//! judged when it comes, against all before it, so the first anomaly is close to its cause.
//!
//! Sound on partial histories: what nobody saw is never held against the log.
//! Source: the anomalies of `jepsen.tests.kafka`, for logs without transactions.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{Anomaly, Kind};
use super::history::LogHistory;

/// An append as its client sends it.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// Who sends; what one client sends to one log keeps its order.
    pub client: &'a str,
    /// The log, by any name that is its own, also among those deleted before.
    pub log: &'a str,
    /// A number that no other append has.
    pub value: u64,
    /// Of the record, in milliseconds; None where the broker chooses it.
    pub timestamp: Option<i64>,
    /// The record's key, where the log may be compacted.
    pub key: Option<u64>,
    /// Its value is null: compaction may remove it altogether.
    pub tombstone: bool,
    /// The client may send it again without saying so: a second copy is no anomaly.
    pub repeats: bool,
}

/// A record as a reader got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its offset.
    pub offset: i64,
    /// The number in its value; None where there is none.
    pub value: Option<u64>,
    /// In milliseconds.
    pub timestamp: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Unknown,
    Stored,
    Failed,
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) log: String,
    client: String,
    /// Place among the appends of its client to its log.
    order: usize,
    timestamp: Option<i64>,
    pub(super) key: Option<u64>,
    pub(super) tombstone: bool,
    repeats: bool,
    /// It was sent more than once: a refusal tells of one copy alone.
    again: bool,
    pub(super) state: State,
    pub(super) offset: Option<i64>,
    /// The log had reached that far when it was sent first: it stands nowhere below.
    pub(super) since: i64,
}

/// The judge.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    pub(super) values: BTreeMap<u64, Value>,
    pub(super) logs: BTreeMap<String, LogHistory>,
    /// Where each reader of each log goes on.
    pub(super) readers: BTreeMap<(String, String), i64>,
    open: BTreeSet<u64>,
    anomalies: Vec<Anomaly>,
}

impl Checker {
    /// What was found so far.
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.anomalies
    }

    /// Appends of each outcome: stored, refused, not known.
    pub fn counts(&self) -> (u64, u64, u64) {
        let count = |states: &[State]| {
            self.values
                .values()
                .filter(|v| states.contains(&v.state))
                .count()
        };
        (
            count(&[State::Stored]) as u64,
            count(&[State::Failed]) as u64,
            count(&[State::Open, State::Unknown]) as u64,
        )
    }

    pub(super) fn report(&mut self, kind: Kind, log: &str, text: String) {
        self.anomalies.push(Anomaly {
            kind,
            log: log.to_owned(),
            text,
        });
    }

    pub(super) fn log(&mut self, log: &str) -> &mut LogHistory {
        if !self.logs.contains_key(log) {
            self.logs.insert(log.to_owned(), LogHistory::default());
        }
        self.logs.get_mut(log).expect("just made")
    }

    // --- what clients do ----------------------------------------------------------------------

    /// A client sends, for the first time or again.
    pub fn append(&mut self, append: &Append) {
        let Append {
            value, log, client, ..
        } = *append;
        let end = self.log(log).end;
        if let Some(known) = self.values.get_mut(&value) {
            known.again = true;
            known.since = end.min(known.since);
            if known.state != State::Stored {
                known.state = State::Open;
                self.open.insert(value);
                self.astray(value);
            }
            return;
        }
        let history = self.log(log);
        let sent = history.sent.entry(client.to_owned()).or_default();
        *sent += 1;
        let (order, since) = (*sent, history.end);
        self.open.insert(value);
        self.values.insert(
            value,
            Value {
                log: log.to_owned(),
                client: client.to_owned(),
                order,
                timestamp: append.timestamp,
                key: append.key,
                tombstone: append.tombstone,
                repeats: append.repeats,
                again: false,
                state: State::Open,
                offset: None,
                since,
            },
        );
        self.astray(value);
    }

    /// The client was told that it is stored, and at which offset where the protocol says so.
    pub fn stored(&mut self, value: u64, offset: Option<i64>) {
        let Some(known) = self.ended(value, State::Stored) else {
            return;
        };
        let (log, placed) = (known.log.clone(), known.offset);
        match offset {
            Some(offset) => self.learn(&log, offset, value, None),
            None if placed.is_none() => drop(self.log(&log).unplaced.insert(value)),
            None => {}
        }
    }

    /// The client was told that it was refused and is not stored.
    pub fn failed(&mut self, value: u64) {
        let Some(known) = self.ended(value, State::Failed).cloned() else {
            return;
        };
        if known.state == State::Failed {
            self.found(value);
        }
        if let (State::Failed, Some(offset)) = (known.state, known.offset) {
            let log = known.log;
            let text = format!("value {value} was refused, though it stands at offset {offset}");
            self.report(Kind::Invented, &log, text);
        }
    }

    /// The client was told nothing, or that nobody knows.
    pub fn unknown(&mut self, value: u64) {
        self.ended(value, State::Unknown);
    }

    fn ended(&mut self, value: u64, state: State) -> Option<&mut Value> {
        self.open.remove(&value);
        if !self.values.contains_key(&value) {
            let text = format!("an answer to value {value}, which nobody sent");
            self.report(Kind::Invented, "?", text);
        }
        let known = self.values.get_mut(&value)?;
        if known.state != State::Stored {
            let doubtful = state == State::Failed && known.again;
            known.state = if doubtful { State::Unknown } else { state };
        }
        Some(known)
    }

    /// Nothing is under way: whatever was sent must have been answered.
    pub fn quiet(&mut self) {
        for value in std::mem::take(&mut self.open) {
            let known = &self.values[&value];
            let text = format!("value {value} of {} was never answered", known.client);
            let log = known.log.clone();
            self.report(Kind::Unanswered, &log, text);
        }
    }

    /// The node is gone: what was not answered is unknown.
    pub fn crashed(&mut self) {
        for value in std::mem::take(&mut self.open) {
            self.ended(value, State::Unknown);
        }
    }

    // --- what readers see ---------------------------------------------------------------------

    /// A reader goes on where it stands, or at `from`, and gets `records`.
    pub fn read(&mut self, reader: &str, log: &str, from: Option<i64>, records: &[Seen]) {
        let place = (reader.to_owned(), log.to_owned());
        let stands = self.readers.get(&place).copied();
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            if let Some(from) = from {
                self.readers.insert(place, from);
            }
            return;
        };
        let begins = from.or(stands).unwrap_or(first.offset);
        let mut expected = begins;
        for record in records {
            if record.offset < expected {
                let text = format!(
                    "{reader} got offset {} where {expected} was next",
                    record.offset
                );
                self.report(Kind::Backwards, log, text);
            }
            expected = record.offset + 1;
        }
        self.readers.insert(place, last.offset + 1);
        self.meet(log, records);
        self.pass(log, begins, last.offset + 1, records);
    }

    /// A reader went through all of the log, from its start to its end.
    pub fn scan(&mut self, log: &str, start: i64, end: i64, records: &[Seen]) {
        self.bounds(log, start, end);
        self.meet(log, records);
        self.all_was_seen(log);
        self.pass(log, start, end, records);
        for value in std::mem::take(&mut self.log(log).unplaced) {
            let is_nowhere = self.values[&value].offset.is_none() && start == 0;
            if is_nowhere && !self.may_be_gone_from_anywhere(log, value) {
                let text = format!("value {value} was acknowledged and is nowhere");
                self.report(Kind::Lost, log, text);
            }
        }
    }

    /// The journal is damaged, and its last rounds look like some that were never synced: a trim
    /// among them may be forgotten, and where logs started before is no promise.
    pub(super) fn may_forget_trims(&mut self) {
        self.logs.values_mut().for_each(|known| known.start = 0);
    }

    /// Somebody asked where the log starts and ends.
    pub fn bounds(&mut self, log: &str, start: i64, end: i64) {
        let known = self.log(log);
        let (before, trimmed) = ((known.start, known.end), known.trimmed);
        known.start = known.start.max(start);
        known.end = known.end.max(end);
        let last = known.at.last_key_value().map(|(offset, _)| *offset);
        if let Some(last) = last.filter(|last| *last >= end.max(start)) {
            let text = format!("it ends at {end}, though offset {last} was stored or seen");
            self.report(Kind::Lost, log, text);
        } else if end < before.1 {
            let text = format!("it ends at {end}, and ended at {} before", before.1);
            self.report(Kind::Regressed, log, text);
        }
        if start < before.0 {
            let text = format!("it starts at {start}, and started at {} before", before.0);
            self.report(Kind::Regressed, log, text);
        } else if start > trimmed {
            let text = format!("it starts at {start}, though nobody trimmed beyond {trimmed}");
            self.report(Kind::Lost, log, text);
        }
    }

    /// Somebody asked for the first record at or after a timestamp: `(offset, timestamp)`.
    pub fn lookup(&mut self, log: &str, timestamp: i64, found: Option<(i64, i64)>) {
        let history = self.log(log);
        let (start, end) = (history.start, history.end);
        let until = found.map_or(end, |(offset, _)| offset);
        let earlier = self.logs[log]
            .at
            .range(start..until.max(start))
            .find(|(offset, value)| {
                self.values[value].timestamp >= Some(timestamp) && !self.may_be_gone(log, **offset)
            });
        if let Some((offset, _)) = earlier {
            let text = format!("time {timestamp} gave {found:?}, and offset {offset} fits");
            self.report(Kind::Lookup, log, text);
        }
        let Some((offset, said)) = found else { return };
        let stands = self.logs[log]
            .at
            .get(&offset)
            .and_then(|value| self.values[value].timestamp);
        if said < timestamp || stands.is_some_and(|stands| stands != said) {
            let text = format!("time {timestamp} gave {found:?}, whose record has {stands:?}");
            self.report(Kind::Lookup, log, text);
        }
    }

    // --- what readers went through ------------------------------------------------------------

    fn meet(&mut self, log: &str, records: &[Seen]) {
        for record in records {
            if let Some(value) = record.value {
                self.learn(log, record.offset, value, Some(record.timestamp));
            } else {
                let text = format!("what stands at offset {} nobody sent", record.offset);
                self.report(Kind::Invented, log, text);
            }
        }
    }

    /// Readers went from `from` to before `to` and met `records`, and no others.
    fn pass(&mut self, log: &str, from: i64, to: i64, records: &[Seen]) {
        let seen: BTreeSet<i64> = records.iter().map(|record| record.offset).collect();
        let known = self.log(log).at.range(from..to.max(from));
        let missing: Vec<i64> = known.map(|(offset, _)| *offset).collect();
        for offset in missing {
            if !seen.contains(&offset) && !self.may_be_gone(log, offset) {
                self.lost(log, offset);
            }
        }
        self.log(log).cover(from, to);
    }

    fn lost(&mut self, log: &str, offset: i64) {
        let value = self.logs[log].at[&offset];
        let text = format!("value {value} at offset {offset} was passed over");
        self.report(Kind::Lost, log, text);
    }

    /// `value` stands at `offset`: somebody was told so, or saw it.
    fn learn(&mut self, log: &str, offset: i64, value: u64, timestamp: Option<i64>) {
        if let Err(text) = self.belongs(log, offset, value, timestamp) {
            return self.report(Kind::Invented, log, text);
        }
        let known = self.values.get_mut(&value).expect("it belongs");
        let Value {
            client,
            order,
            key,
            repeats,
            ..
        } = known.clone();
        match known.offset {
            Some(before) if before != offset && !known.repeats => {
                let text = format!("value {value} stands at offsets {before} and {offset}");
                return self.report(Kind::Duplicated, log, text);
            }
            Some(_) => {}
            None => known.offset = Some(offset),
        }
        let history = self.log(log);
        history.unplaced.remove(&value);
        match history.at.insert(offset, value) {
            Some(other) if other == value => return,
            Some(other) => {
                let text = format!("offset {offset} holds values {other} and {value}");
                return self.report(Kind::Inconsistent, log, text);
            }
            None => {}
        }
        if let Some(key) = key {
            history.keys.entry(key).or_default().insert(offset);
        }
        // Copies of one append may come after later appends.
        let swapped = (!repeats).then(|| history.place(&client, order, offset));
        let covered = history.is_covered(offset);
        self.found(value);
        if let Some(other) = swapped.flatten() {
            let text = format!("{client} sent value {value} on the other side of offset {other}");
            self.report(Kind::Reordered, log, text);
        }
        if covered && !self.may_be_gone(log, offset) {
            self.lost(log, offset);
        }
    }

    /// Why a record cannot be what it says.
    fn belongs(
        &self,
        log: &str,
        offset: i64,
        value: u64,
        timestamp: Option<i64>,
    ) -> Result<(), String> {
        let Some(known) = self.values.get(&value) else {
            return Err(format!("value {value} at offset {offset} was never sent"));
        };
        if known.log != log {
            return Err(format!(
                "value {value} at offset {offset} was sent to {}",
                known.log
            ));
        }
        if known.state == State::Failed {
            return Err(format!("value {value} at offset {offset} was refused"));
        }
        let differs = |sent: i64| timestamp.is_some_and(|timestamp| timestamp != sent);
        if let Some(sent) = known.timestamp.filter(|sent| differs(*sent)) {
            return Err(format!(
                "value {value} has timestamp {timestamp:?}, not {sent}"
            ));
        }
        Ok(())
    }
}
