//! The least that carries messages from one socket to another: what a broker can be held against.
//!
//! It answers CONNECT, SUBSCRIBE and PINGREQ with packets that are always the same, looks at the
//! topic of the first PUBLISH of a connection, and from there on copies each, as it came, to the one
//! connection that has subscribed to it. One thread; at most what one read took waits for a socket,
//! and whoever sends it is not read meanwhile. `QoS` 0, topics without wildcards.
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::client::{Client, Role};
use crate::wire::{frame, Frame, Malformed, Reader};

/// Read at once from one socket; no packet but a PUBLISH is larger.
const READ_BYTES: usize = 256 << 10;

const LISTENER: Token = Token(usize::MAX - 1);
const STOP: Token = Token(usize::MAX - 2);

/// A relay on a thread of its own.
pub struct Relay {
    address: SocketAddr,
    stop: Arc<Waker>,
    thread: JoinHandle<io::Result<()>>,
}

impl Relay {
    /// Listens at this address. Of the messages of each connection it loses every
    /// `drop_every`-th, none where that is 0: what measures brokers is to notice.
    ///
    /// # Errors
    /// The address cannot be had, or the system gives no thread.
    pub fn start(address: SocketAddr, drop_every: u64) -> io::Result<Self> {
        let poll = Poll::new()?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP)?);
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let mut running = Running {
            poll,
            listener,
            drop_every,
            peers: Vec::new(),
            subscribers: HashMap::new(),
            buffer: vec![0; READ_BYTES].into(),
            ready: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("headrace-relay".to_owned())
            .spawn(move || running.run())?;
        Ok(Self {
            address,
            stop,
            thread,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it, and every connection.
    ///
    /// # Errors
    /// What the operating system refused meanwhile.
    ///
    /// # Panics
    /// Where its thread panicked.
    pub fn stop(self) -> io::Result<()> {
        self.stop.wake()?;
        self.thread.join().expect("the relay ends in order")
    }
}

struct Running {
    poll: Poll,
    listener: TcpListener,
    drop_every: u64,
    /// By token; `None` where one has gone.
    peers: Vec<Option<Peer>>,
    /// Who hears a topic.
    subscribers: HashMap<Vec<u8>, usize>,
    buffer: Box<[u8]>,
    /// Connections that may have something to read.
    ready: Vec<usize>,
}

struct Peer {
    socket: Client,
    version: u8,
    /// Who hears what it publishes.
    target: Option<usize>,
    /// Whose messages it hears.
    source: Option<usize>,
    published: u64,
    /// Bytes that are still to come of the PUBLISH under way, and whether it goes on.
    left: usize,
    goes_on: bool,
}

/// What becomes of a connection that says this.
enum Said {
    /// So many bytes were dealt with.
    Taken(usize),
    /// More must come first.
    Unfinished,
}

impl Running {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let wait = (!self.ready.is_empty()).then_some(std::time::Duration::ZERO);
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut ready = std::mem::take(&mut self.ready);
            for event in &events {
                match event.token() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    Token(index) => {
                        if event.is_writable() {
                            ready.extend(self.unblock(index));
                        }
                        ready.push(index);
                    }
                }
            }
            ready.sort_unstable();
            ready.dedup();
            for index in ready {
                if self.read(index).is_err() {
                    self.close(index);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.peers.len());
            self.poll
                .registry()
                .register(&mut stream, token, interest)?;
            self.peers.push(Some(Peer::new(stream)));
        }
    }

    /// A socket takes bytes again: whose messages it hears may be read where all were written.
    fn unblock(&mut self, index: usize) -> Option<usize> {
        let peer = self.peers[index].as_mut()?;
        peer.socket.unblock();
        if peer.socket.flush().is_err() {
            self.close(index);
            return None;
        }
        peer.source
    }

    fn close(&mut self, index: usize) {
        if let Some(mut peer) = self.peers[index].take() {
            self.subscribers
                .retain(|_, subscriber| *subscriber != index);
            // The socket goes now, whatever it answers.
            self.poll
                .registry()
                .deregister(&mut peer.socket.stream)
                .unwrap_or_default();
        }
    }

    /// Reads once, and carries on what came.
    fn read(&mut self, index: usize) -> io::Result<()> {
        let Some(peer) = self.peers[index].as_mut() else {
            return Ok(());
        };
        let target = peer.target;
        if target.is_some_and(|target| self.is_blocked(target)) {
            return Ok(());
        }
        let Some(peer) = self.peers[index].as_mut() else {
            return Ok(());
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let held = peer.socket.input.len();
        buffer[..held].copy_from_slice(&peer.socket.input);
        let read = peer.socket.read(&mut buffer[held..]);
        let result = match read {
            Ok(None) => Ok(()),
            Err(error) => Err(error),
            Ok(Some(taken)) => {
                peer.socket.input.clear();
                if held + taken == buffer.len() {
                    self.ready.push(index);
                }
                self.carry(index, &buffer[..held + taken])
            }
        };
        self.buffer = buffer;
        result
    }

    fn is_blocked(&self, index: usize) -> bool {
        self.peers[index]
            .as_ref()
            .is_some_and(|peer| !peer.socket.output.is_empty())
    }

    fn carry(&mut self, index: usize, input: &[u8]) -> io::Result<()> {
        let mut passed: Range<usize> = 0..0;
        let mut at = 0;
        while at < input.len() {
            let peer = self.peers[index].as_mut().expect("it is being read");
            if peer.left > 0 {
                let end = at + peer.left.min(input.len() - at);
                peer.left -= end - at;
                let (goes_on, target) = (peer.goes_on, peer.target);
                if goes_on && passed.end == at {
                    passed.end = end;
                } else if goes_on {
                    self.send(target, &input[passed])?;
                    passed = at..end;
                }
                at = end;
                continue;
            }
            match self.said(index, &input[at..])? {
                Said::Taken(bytes) => at += bytes,
                Said::Unfinished => {
                    let peer = self.peers[index].as_mut().expect("it is being read");
                    peer.socket.input.extend_from_slice(&input[at..]);
                    break;
                }
            }
        }
        let target = self.peers[index].as_ref().and_then(|peer| peer.target);
        self.send(target, &input[passed])
    }

    fn send(&mut self, target: Option<usize>, bytes: &[u8]) -> io::Result<()> {
        let peer = target.and_then(|target| self.peers[target].as_mut());
        let Some(peer) = peer else {
            return Ok(());
        };
        peer.socket.write(bytes)
    }

    /// Deals with the packet at the start of the input; of a PUBLISH only with where it goes.
    fn said(&mut self, index: usize, input: &[u8]) -> io::Result<Said> {
        let Some(Frame { body, end }) = frame(input).map_err(no_packet)? else {
            return unfinished(input);
        };
        let peer = self.peers[index].as_mut().expect("it is being read");
        if input[0] >> 4 == 3 {
            if peer.target.is_none() && !self.introduce(index, &input[body..])? {
                return unfinished(input);
            }
            let peer = self.peers[index].as_mut().expect("it is being read");
            peer.published += 1;
            peer.goes_on = self.drop_every == 0 || peer.published % self.drop_every != 0;
            peer.left = end;
            return Ok(Said::Taken(0));
        }
        if input.len() < end {
            return unfinished(input);
        }
        match input[0] >> 4 {
            1 => {
                // The level stands behind the name, "MQTT".
                peer.version = *input.get(body + 6).ok_or_else(refused)?;
                let answer: &[u8] = match peer.version {
                    5 => b"\x20\x03\x00\x00\x00",
                    _ => b"\x20\x02\x00\x00",
                };
                peer.socket.write(answer)?;
            }
            8 => self.subscribe(index, &input[body..end])?,
            12 => peer.socket.write(b"\xd0\x00")?,
            _ => return Err(refused()),
        }
        Ok(Said::Taken(end))
    }

    /// Finds who hears the topic of a first PUBLISH; false where its topic has not come whole.
    fn introduce(&mut self, index: usize, body: &[u8]) -> io::Result<bool> {
        let mut reader = Reader { input: body, at: 0 };
        let topic = reader.short().and_then(|length| reader.skip(length.into()));
        let Some(topic) = topic else {
            return Ok(false);
        };
        let target = *self.subscribers.get(&body[topic]).ok_or_else(refused)?;
        let heard = self.peers[target].as_mut().ok_or_else(refused)?;
        if heard.source.is_some() {
            return Err(refused()); // messages of two would mingle
        }
        heard.source = Some(index);
        if let Some(peer) = &mut self.peers[index] {
            peer.target = Some(target);
        }
        Ok(true)
    }

    fn subscribe(&mut self, index: usize, body: &[u8]) -> io::Result<()> {
        let peer = self.peers[index].as_mut().expect("it is being read");
        let (id, filter, qos) = filter_of(body, peer.version).ok_or_else(refused)?;
        let serves = qos == 0 && !filter.iter().any(|byte| b"+#$".contains(byte));
        let [high, low] = id.to_be_bytes();
        let reason = if serves { 0 } else { 0x80 };
        match peer.version {
            5 => peer.socket.write(&[0x90, 4, high, low, 0, reason])?,
            _ => peer.socket.write(&[0x90, 3, high, low, reason])?,
        }
        if serves {
            self.subscribers.insert(filter.to_vec(), index);
        }
        Ok(())
    }
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        Self {
            socket: Client::new(stream, Role::Idle, Vec::new()),
            version: 0,
            target: None,
            source: None,
            published: 0,
            left: 0,
            goes_on: false,
        }
    }
}

/// Packet id, filter and `QoS` of a SUBSCRIBE to one.
fn filter_of(body: &[u8], version: u8) -> Option<(u16, &[u8], u8)> {
    let mut reader = Reader { input: body, at: 0 };
    let id = reader.short()?;
    reader.properties(version)?;
    let length = reader.short()?;
    let filter = reader.skip(length.into())?;
    let qos = reader.byte()? & 3;
    (reader.at == body.len()).then_some((id, &body[filter], qos))
}

/// More must come, as long as the buffer has room for it.
fn unfinished(input: &[u8]) -> io::Result<Said> {
    if input.len() == READ_BYTES {
        return Err(refused());
    }
    Ok(Said::Unfinished)
}

fn refused() -> io::Error {
    ErrorKind::InvalidData.into()
}

fn no_packet(_: Malformed) -> io::Error {
    refused()
}
