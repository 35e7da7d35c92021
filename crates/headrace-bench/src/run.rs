//! The run itself: one thread, one poll, every socket of the load.
mod queue;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::client::{Client, Role, State};
use crate::judge::Judge;
use crate::plan::{Pace, Plan};
use crate::report::Report;
use crate::wire::{self, Packet};

/// Read at once from one socket.
const READ_BYTES: usize = 256 << 10;
/// Put into one socket before the next has its turn: large enough for few calls.
const WRITE_BYTES: usize = 64 << 10;
/// Between two looks at the clock for phases and progress.
const BEAT: Duration = Duration::from_millis(50);
/// A closed loop at `QoS` 0 takes what is under way for lost after this silence.
const SILENCE: Duration = Duration::from_secs(1);

/// What a run and its watcher share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) report: Mutex<Report>,
    pub(crate) stop: AtomicBool,
}

/// Does what the plan says and leaves the counts in the shared report.
pub(crate) fn run(plan: Plan, shared: &Shared) -> io::Result<Report> {
    let mut run = Run::new(plan)?;
    let queue = run.judge.plan.queue();
    if let Some(queue) = queue.filter(|queue| queue.fill > 0) {
        run.connect(run.publishers, shared)?;
        if run.judge.report.connected == run.publishers as u64 {
            run.fill_queue(queue, shared)?;
        }
    }
    run.connect(run.roles.len(), shared)?;
    if let Some(queue) = queue.filter(|queue| queue.open > 0) {
        run.open_deliveries(queue, shared)?;
    }
    let connected = run.judge.report.connected;
    if connected == run.roles.len() as u64 && run.judge.plan.publishers > 0 {
        run.load(shared)?;
    } else if connected == run.roles.len() as u64 {
        run.hold(shared)?;
    }
    run.leave();
    run.enter("done", shared);
    Ok(run.judge.report())
}

struct Run {
    poll: Poll,
    events: Events,
    buffer: Box<[u8]>,
    started: Instant,
    /// What each connection is for, in the order in which they are opened.
    roles: Vec<Role>,
    clients: Vec<Client>,
    /// The first so many connections publish.
    publishers: usize,
    /// Connections that are being opened.
    opening: u32,
    /// Connections with more to read than one read took.
    unread: Vec<usize>,
    /// Publishers that wait for their time, soonest first: (microseconds, publisher).
    schedule: BinaryHeap<Reverse<(u64, u32)>>,
    publishing: bool,
    last_delivery: (u64, Instant),
    judge: Judge,
}

impl Run {
    fn new(plan: Plan) -> io::Result<Self> {
        let roles: Vec<_> = (0..plan.publishers)
            .map(Role::Publisher)
            .chain((0..plan.subscribers).map(Role::Subscriber))
            .chain((0..plan.idle).map(|_| Role::Idle))
            .collect();
        let now = Instant::now();
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            buffer: vec![0; READ_BYTES].into(),
            started: now,
            clients: Vec::with_capacity(roles.len()),
            publishers: plan.publishers as usize,
            roles,
            opening: 0,
            unread: Vec::new(),
            schedule: BinaryHeap::new(),
            publishing: false,
            last_delivery: (0, now),
            judge: Judge::new(plan),
        })
    }

    fn micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn enter(&mut self, phase: &'static str, shared: &Shared) {
        self.judge.report.phase = phase;
        *shared.report.lock().expect("no holder panics") = self.judge.report();
    }

    // --- phases -------------------------------------------------------------------------------

    /// Opens the first so many connections, some at a time, until each is answered or gone.
    fn connect(&mut self, count: usize, shared: &Shared) -> io::Result<()> {
        self.enter("connecting", shared);
        let began = Instant::now();
        let mut progress = (0, began);
        let settled = |run: &Run| run.judge.report.connected + run.judge.report.disconnected;
        while settled(self) < count as u64 && !shared.stop.load(Ordering::Relaxed) {
            while self.opening < self.judge.plan.opening && self.clients.len() < count {
                self.open()?;
            }
            self.turn(BEAT)?;
            if progress.0 != settled(self) {
                progress = (settled(self), Instant::now());
                *shared.report.lock().expect("no holder panics") = self.judge.report();
            } else if progress.1.elapsed() > self.judge.plan.drain {
                let wait = self.judge.plan.drain;
                self.judge
                    .trouble(|| format!("no connection was answered for {} s", wait.as_secs()));
                break;
            }
        }
        self.judge.report.connect_seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Publishes, measures, and waits for what is under way.
    fn load(&mut self, shared: &Shared) -> io::Result<()> {
        let (warm_up, duration) = (self.judge.plan.warm_up, self.judge.plan.duration);
        self.enter("warming", shared);
        let begin = self.micros() + warm_up.as_micros() as u64;
        let end = begin + duration.as_micros() as u64;
        self.judge.report.by_second = vec![0; duration.as_secs() as usize];
        self.judge.report.queue.settled_by_second = self.judge.report.by_second.clone();
        self.start_publishing();
        self.until(begin, shared)?;
        self.judge.measured = begin..end;
        self.enter("measuring", shared);
        self.until(end, shared)?;
        let end = self.micros().min(end);
        self.judge.measured.end = end;
        let report = &mut self.judge.report;
        report.seconds = (end - begin.min(end)) as f64 / 1e6;
        report.by_second.truncate(report.seconds as usize);
        report
            .queue
            .settled_by_second
            .truncate(report.seconds as usize);
        self.publishing = false;
        self.enter("draining", shared);
        self.release(shared);
        self.last_delivery.1 = Instant::now();
        while !self.judge.is_complete()
            && self.last_delivery.1.elapsed() < self.judge.plan.drain
            && !shared.stop.load(Ordering::Relaxed)
        {
            self.turn(BEAT)?;
            self.beat(shared);
        }
        Ok(())
    }

    /// Nobody publishes: the connections are held for the time.
    fn hold(&mut self, shared: &Shared) -> io::Result<()> {
        self.enter("measuring", shared);
        let begin = self.micros();
        let end = begin + self.judge.plan.duration.as_micros() as u64;
        self.until(end, shared)?;
        self.judge.report.seconds = (self.micros() - begin) as f64 / 1e6;
        Ok(())
    }

    fn until(&mut self, end: u64, shared: &Shared) -> io::Result<()> {
        let mut beat = Instant::now();
        while self.micros() < end
            && !self.judge.is_exhausted()
            && !shared.stop.load(Ordering::Relaxed)
        {
            let left = Duration::from_micros(end.saturating_sub(self.micros()));
            self.turn(left.min(BEAT))?;
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.beat(shared);
            }
        }
        Ok(())
    }

    /// Shows progress, and goes on where a closed loop waits for what is lost.
    fn beat(&mut self, shared: &Shared) {
        let delivered = self.judge.report.delivered + self.judge.report.queue.settled;
        if delivered != self.last_delivery.0 {
            self.last_delivery = (delivered, Instant::now());
        } else if self.publishing && self.last_delivery.1.elapsed() > SILENCE {
            self.last_delivery.1 = Instant::now();
            self.judge.give_up_waiting();
        }
        *shared.report.lock().expect("no holder panics") = self.judge.report();
    }

    fn leave(&mut self) {
        self.publishing = false;
        let outlives = self.judge.plan.session_expiry_s > 0;
        for index in 0..self.clients.len() {
            self.say_goodbye(index, outlives);
        }
    }

    fn say_goodbye(&mut self, index: usize, outlives: bool) {
        let client = &mut self.clients[index];
        if client.state != State::Closed {
            client.output.extend(match client.role {
                Role::Subscriber(_) if outlives => wire::END_OF_SESSION,
                _ => wire::DISCONNECT,
            });
            // Nothing more is wanted of it: a socket that is gone may stay gone.
            client.flush().unwrap_or_default();
        }
    }

    // --- one turn of the loop -----------------------------------------------------------------

    fn turn(&mut self, longest: Duration) -> io::Result<()> {
        let wait = if self.unread.is_empty() && self.judge.woken.is_empty() {
            longest.min(self.until_due()).min(self.until_flush())
        } else {
            Duration::ZERO
        };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut readable = std::mem::take(&mut self.unread);
        let mut writable = Vec::new();
        for event in &self.events {
            let index = event.token().0;
            if event.is_writable() {
                writable.push(index);
            }
            if event.is_readable() || event.is_error() || event.is_read_closed() {
                readable.push(index);
            }
        }
        for index in writable {
            self.clients[index].unblock();
            self.flush(index);
            if let Role::Publisher(publisher) = self.clients[index].role {
                self.judge.woken.push(publisher);
            }
        }
        readable.sort_unstable();
        readable.dedup();
        for index in readable {
            self.read(index);
        }
        self.flush_batches();
        if self.publishing {
            self.publish();
        } else {
            self.judge.woken.clear();
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let index = self.clients.len();
        let role = self.roles[index];
        let mut stream = TcpStream::connect(self.judge.plan.server)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(index), interest)?;
        let plan = &self.judge.plan;
        let client = format!("{}-{index}", plan.prefix.replace('/', "-"));
        let expiry_s = match role {
            Role::Subscriber(_) => plan.session_expiry_s,
            _ => 0,
        };
        let hello = wire::connect(plan.version, &client, plan.credentials.as_ref(), expiry_s);
        self.clients.push(Client::new(stream, role, hello));
        self.opening += 1;
        Ok(())
    }

    fn flush(&mut self, index: usize) {
        if self.clients[index].state != State::Closed {
            if let Err(error) = self.clients[index].flush() {
                self.close(index, &error.to_string());
            }
        }
    }

    fn close(&mut self, index: usize, reason: &str) {
        let client = &mut self.clients[index];
        if client.state == State::Closed {
            return;
        }
        match client.state {
            State::Ready => self.judge.report.connected -= 1,
            _ => self.opening -= 1,
        }
        let role = client.role;
        self.part(index);
        self.judge.report.disconnected += 1;
        self.judge.trouble(|| format!("{role:?}: {reason}"));
    }

    /// Hears nothing more of a connection.
    fn part(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.state = State::Closed;
        client.output = Vec::new();
        // Nothing more is wanted of the socket, whatever it answers.
        self.poll
            .registry()
            .deregister(&mut client.stream)
            .unwrap_or_default();
    }

    fn read(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.state == State::Closed {
            return;
        }
        let taken = match client.read(&mut self.buffer) {
            Ok(None) => return,
            Ok(Some(taken)) => taken,
            Err(error) => return self.close(index, &error.to_string()),
        };
        let now = self.started.elapsed().as_micros() as u64;
        let before = client.state;
        let result = parse(client, &mut self.judge, &self.buffer[..taken], now);
        let after = client.state;
        if let Err(reason) = result {
            return self.close(index, &reason);
        }
        if before != State::Ready && after == State::Ready {
            self.opening -= 1;
            self.judge.report.connected += 1;
        }
        self.flush(index);
        // Only a socket that was read empty speaks up again; a short read has emptied it.
        if taken == self.buffer.len() {
            self.unread.push(index);
        }
    }

    // --- publishing ---------------------------------------------------------------------------

    fn start_publishing(&mut self) {
        self.publishing = true;
        let now = self.micros();
        let publishers = self.judge.plan.publishers;
        if let Pace::Open { rate } = self.judge.plan.pace {
            // Spread over one interval: publishers that all begin at once would be a storm.
            let interval = 1e6 / rate;
            for publisher in 0..publishers {
                let phase = interval * f64::from(publisher) / f64::from(publishers);
                self.judge.flows[publisher as usize].due = now as f64 + phase;
                self.schedule
                    .push(Reverse(((now as f64 + phase) as u64, publisher)));
            }
        } else {
            self.judge.woken.extend(0..publishers);
        }
    }

    fn until_due(&self) -> Duration {
        match self.schedule.peek() {
            Some(Reverse((due, _))) if self.publishing => {
                Duration::from_micros(due.saturating_sub(self.micros()))
            }
            _ => BEAT,
        }
    }

    fn publish(&mut self) {
        let now = self.micros();
        while let Some(&Reverse((due, publisher))) = self.schedule.peek() {
            if due > now {
                break;
            }
            self.schedule.pop();
            self.judge.woken.push(publisher);
        }
        let mut woken = std::mem::take(&mut self.judge.woken);
        woken.sort_unstable();
        woken.dedup();
        for publisher in woken {
            self.fill(publisher, now);
            self.flush(publisher as usize);
        }
    }

    /// Puts into a publisher's output what it may send now.
    fn fill(&mut self, publisher: u32, now: u64) {
        let plan = &self.judge.plan;
        let flow = &mut self.judge.flows[publisher as usize];
        let client = &mut self.clients[publisher as usize];
        if client.state != State::Ready {
            return;
        }
        let interval = match plan.pace {
            Pace::Open { rate } => Some(1e6 / rate),
            Pace::Closed { .. } => None,
        };
        while flow.may_send(plan) && client.has_room(WRITE_BYTES) {
            let Some(interval) = interval else {
                flow.send(plan, now as u32, &mut client.output);
                continue;
            };
            if flow.due > now as f64 {
                self.schedule.push(Reverse((flow.due as u64, publisher)));
                return;
            }
            flow.send(plan, flow.due as u64 as u32, &mut client.output);
            flow.due += interval;
        }
        if interval.is_none() && flow.may_send(plan) && client.has_room(usize::MAX) {
            self.judge.woken.push(publisher);
        }
    }
}

/// Judges every whole packet of what a connection has received.
fn parse(client: &mut Client, judge: &mut Judge, fresh: &[u8], now: u64) -> Result<(), String> {
    let mut held = std::mem::take(&mut client.input);
    let input = if held.is_empty() {
        fresh
    } else {
        held.extend_from_slice(fresh);
        &held
    };
    let waited = client.began.elapsed().as_micros() as u64;
    let mut at = 0;
    while let Some((packet, length)) = scan(&input[at..], judge.plan.version)? {
        let bytes = &input[at..at + length];
        client.state = judge.packet(
            client.role,
            client.state,
            (packet, bytes),
            (now, waited),
            &mut client.output,
        )?;
        at += length;
    }
    client.input = if at == input.len() {
        Vec::new()
    } else {
        input[at..].to_vec()
    };
    Ok(())
}

fn scan(input: &[u8], version: u8) -> Result<Option<(Packet, usize)>, String> {
    wire::scan(input, version)
        .map_err(|wire::Malformed| "the server sent what is no MQTT packet".to_owned())
}
