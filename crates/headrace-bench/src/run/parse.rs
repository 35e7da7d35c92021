//! Bytes of a connection become packets for the judge.
use crate::client::Client;
use crate::judge::Judge;
use crate::wire::{self, Malformed};

/// Judges every whole packet of what a connection has received. What is not whole is kept, and
/// copied no more often than that.
pub(super) fn parse(
    client: &mut Client,
    judge: &mut Judge,
    mut fresh: &[u8],
    now: u64,
) -> Result<(), String> {
    let waited = client.began.elapsed().as_micros() as u64;
    let times = (now, waited);
    if !client.input.is_empty() {
        if !complete(&mut client.input, &mut fresh).map_err(no_packet)? {
            return Ok(());
        }
        let held = std::mem::take(&mut client.input);
        judge_all(client, judge, &held, times)?;
    }
    let rest = judge_all(client, judge, fresh, times)?;
    client.input.extend_from_slice(rest);
    Ok(())
}

/// Judges whole packets, and gives back what is left.
fn judge_all<'a>(
    client: &mut Client,
    judge: &mut Judge,
    mut input: &'a [u8],
    times: (u64, u64),
) -> Result<&'a [u8], String> {
    while let Some((packet, length)) = wire::scan(input, judge.plan.version).map_err(no_packet)? {
        let (bytes, rest) = input.split_at(length);
        client.state = judge.packet(
            client.role,
            client.state,
            (packet, bytes),
            times,
            &mut client.output,
        )?;
        input = rest;
    }
    Ok(input)
}

/// Moves bytes over until the packet that is held is whole; whether it is.
fn complete(held: &mut Vec<u8>, fresh: &mut &[u8]) -> Result<bool, Malformed> {
    loop {
        let frame = wire::frame(held)?;
        let missing = frame.map_or(1, |frame| frame.end - held.len());
        held.reserve_exact(missing);
        let (taken, rest) = fresh.split_at(missing.min(fresh.len()));
        held.extend_from_slice(taken);
        *fresh = rest;
        if taken.len() < missing || frame.is_some() {
            return Ok(taken.len() == missing);
        }
    }
}

fn no_packet(_: Malformed) -> String {
    "the server sent what is no MQTT packet".to_owned()
}

#[cfg(test)]
mod tests {
    use super::complete;
    use crate::wire::Malformed;

    #[test]
    fn a_packet_in_pieces_is_put_together_and_no_more() {
        let input = [&b"\x30\x80\x01"[..], &[7; 128], b"\xd0\x00"].concat();
        for first in 1..131 {
            for second in first..=131 {
                let mut held = input[..first].to_vec();
                let mut fresh = &input[first..second];
                let is_whole = complete(&mut held, &mut fresh).unwrap();
                assert_eq!((is_whole, held.len()), (second == 131, second));
                let mut fresh = &input[second..];
                if !is_whole {
                    assert!(complete(&mut held, &mut fresh).unwrap());
                    assert_eq!(fresh, b"\xd0\x00");
                }
                assert_eq!(held, input[..131]);
            }
        }
        let mut fresh = &b"\xff\xff\xff\xff"[..];
        assert_eq!(complete(&mut vec![0x30], &mut fresh), Err(Malformed));
    }
}
