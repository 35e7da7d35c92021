//! Waiting for sockets until a moment, to the microsecond: what waits in milliseconds sends too
//! late, and the server would have to answer for it.
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::{Events, Poll};

/// Has the system wake this thread when it asked for it, and not up to 50 µs later (prctl(2)).
pub(crate) fn on_time() -> io::Result<()> {
    // SAFETY: this option takes a number and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As `Poll::poll`, which rounds up to whole milliseconds.
pub(crate) fn poll(poll: &mut Poll, events: &mut Events, longest: Duration) -> io::Result<()> {
    let mut longest = longest;
    if longest.subsec_nanos() % 1_000_000 != 0 {
        sleep(poll, longest)?;
        longest = Duration::ZERO;
    }
    match poll.poll(events, Some(longest)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

/// Waits until there are events, or so long.
fn sleep(poll: &Poll, longest: Duration) -> io::Result<()> {
    let mut descriptor = libc::pollfd {
        fd: poll.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let until = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(longest.subsec_nanos() as i32),
    };
    // SAFETY: one descriptor and a time, both alive through the call; no signal mask is given.
    let result = unsafe { libc::ppoll(&raw mut descriptor, 1, &raw const until, std::ptr::null()) };
    let error = io::Error::last_os_error();
    if result < 0 && error.kind() != io::ErrorKind::Interrupted {
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use mio::{Events, Poll};

    #[test]
    fn no_wait_is_shorter_than_it_should_be() {
        super::on_time().unwrap();
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(1));
        for micros in [0, 1, 300, 1000, 1300] {
            let wait = Duration::from_micros(micros);
            let began = Instant::now();
            super::poll(&mut poll, &mut events, wait).unwrap();
            assert!(began.elapsed() >= wait, "{wait:?}");
            assert!(events.is_empty());
        }
    }
}
