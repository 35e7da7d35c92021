//! The run itself: one thread, one poll, every socket of the load.
mod alive;
mod parse;
mod publish;
mod queue;
mod sessions;
mod storm;

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
use crate::plan::Plan;
use crate::report::Report;
use crate::wait;
use crate::wire::{self, Session};

/// Read at once from one socket.
const READ_BYTES: usize = 256 << 10;
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
    if run.judge.report.connected == run.roles.len() as u64 {
        match run.judge.plan.storm() {
            Some(storm) => run.storm(storm, shared)?,
            None if run.judge.plan.publishers > 0 => run.load(shared)?,
            None => run.hold(shared)?,
        }
    }
    run.leave();
    run.enter("done", shared);
    let report = run.judge.report();
    run.end_sessions(shared)?;
    Ok(report)
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
    /// Connections that nothing more is heard of.
    parted: u64,
    /// Time in which there was nothing to do.
    waited: Duration,
    /// PINGREQs that have gone.
    pinged: u64,
    judge: Judge,
}

impl Run {
    fn new(plan: Plan) -> io::Result<Self> {
        wait::on_time()?;
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
            parted: 0,
            waited: Duration::ZERO,
            pinged: 0,
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
        let waited = self.waited;
        self.until(end, shared)?;
        let end = self.micros().min(end);
        self.judge.measured.end = end;
        self.tell_busy(begin, waited);
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

    /// Says how much of the time since then, when so much had been waited, there was work.
    fn tell_busy(&mut self, since: u64, waited: Duration) {
        let idle = self.waited.saturating_sub(waited).as_micros() as f64;
        let lasted = (self.micros() - since).max(1) as f64;
        self.judge.report.busy = (1.0 - idle / lasted).max(0.0);
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

    /// Publishes so much and waits until all of it is answered.
    fn fill_up(&mut self, total: u64, shared: &Shared) -> io::Result<()> {
        self.enter("filling", shared);
        for (publisher, flow) in (0..).zip(&mut self.judge.flows) {
            flow.limit = (total + publisher) / self.publishers as u64;
        }
        self.start_publishing();
        self.while_answered(shared, |run| {
            let report = &run.judge.report;
            Ok(report.acknowledged + report.refused < total)
        })?;
        self.publishing = false;
        Ok(())
    }

    /// Turns while it is so, until the server says nothing for too long.
    fn while_answered(
        &mut self,
        shared: &Shared,
        mut is_so: impl FnMut(&mut Self) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut last = (0, Instant::now());
        let mut beat = Instant::now();
        while is_so(self)? && !shared.stop.load(Ordering::Relaxed) {
            self.turn(BEAT)?;
            if beat.elapsed() < BEAT {
                continue;
            }
            beat = Instant::now();
            let report = self.judge.report();
            let seen = self.parted
                + report.connected
                + report.acknowledged
                + report.refused
                + report.delivered;
            if seen != last.0 {
                last = (seen, beat);
            } else if last.1.elapsed() > self.judge.plan.drain {
                let (phase, wait) = (report.phase, self.judge.plan.drain.as_secs_f64());
                self.judge
                    .trouble(|| format!("{phase}: nothing came for {wait} s"));
                return Ok(());
            }
            *shared.report.lock().expect("no holder panics") = report;
        }
        Ok(())
    }

    fn until(&mut self, end: u64, shared: &Shared) -> io::Result<()> {
        let mut beat = Instant::now();
        while self.micros() < end
            && !(self.judge.is_exhausted() && self.is_answered())
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

    /// Every settlement was, or nothing came for as long as is waited.
    fn is_answered(&self) -> bool {
        !self.judge.is_settling() || self.last_delivery.1.elapsed() > self.judge.plan.drain
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
        let plan = &self.judge.plan;
        let outlives = plan.version == 5 && plan.lasts();
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
        let before = Instant::now();
        wait::poll(&mut self.poll, &mut self.events, wait)?;
        if !wait.is_zero() {
            self.waited += before.elapsed();
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
        self.keep_alive(before);
        if self.publishing {
            self.publish();
        } else {
            self.judge.woken.clear();
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let index = self.clients.len();
        let plan = &self.judge.plan;
        let (is_clean, expiry_s) = match self.roles[index] {
            // In 3.1.1 a session that lasts is one that was not begun anew.
            Role::Subscriber(_) => (plan.version == 5 || !plan.lasts(), plan.session_expiry_s),
            _ => (true, 0),
        };
        let client = self.dial(index, Session { is_clean, expiry_s })?;
        self.clients.push(client);
        Ok(())
    }

    /// A connection that begins now.
    fn dial(&mut self, index: usize, session: Session) -> io::Result<Client> {
        let mut stream = TcpStream::connect(self.judge.plan.server)?;
        // What Nagle's algorithm holds back would count as the server's latency.
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(index), interest)?;
        let plan = &self.judge.plan;
        let client = format!("{}-{index}", plan.prefix.replace('/', "-"));
        let hello = wire::connect(plan.version, &client, plan.credentials.as_ref(), session);
        self.opening += 1;
        Ok(Client::new(stream, self.roles[index], hello))
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
            State::Leaving => return self.part(index),
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
        if client.state == State::Closed {
            return;
        }
        self.parted += 1;
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
        if before == State::Leaving {
            self.unread.push(index);
            return;
        }
        let result = parse::parse(client, &mut self.judge, &self.buffer[..taken], now);
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
}
