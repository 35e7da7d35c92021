//! One connection of the load: its socket, and the bytes that have not found their way yet.
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;

/// What a connection is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Subscriber(u32),
    Publisher(u32),
    Idle,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// CONNECT waits in the output, or its answer is waited for.
    Connecting,
    /// CONNACK is here, SUBACK not yet.
    Subscribing,
    Ready,
    /// It has said goodbye and waits for the server to close.
    Leaving,
    Closed,
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) began: Instant,
    /// The start of a packet that has not come whole.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    written: usize,
    /// The socket takes bytes, as far as is known.
    writable: bool,
}

impl Client {
    /// A connection that begins with these bytes once its socket is there.
    pub(crate) fn new(stream: TcpStream, role: Role, hello: Vec<u8>) -> Self {
        Self {
            stream,
            role,
            state: State::Connecting,
            began: Instant::now(),
            input: Vec::new(),
            output: hello,
            written: 0,
            writable: false,
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn unblock(&mut self) {
        self.writable = true;
    }

    /// More may be put into the output: the socket takes it, or little waits.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.writable && self.output.len() - self.written < bytes
    }

    /// Writes these bytes, and keeps for later what the socket does not take.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while self.writable && self.output.is_empty() && !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.extend_from_slice(rest);
        Ok(())
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.writable && self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// Reads once; `None` where nothing is there for now.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
