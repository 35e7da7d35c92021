//! Bits that flip, headers that lie, bodies that end too soon.

use super::*;

#[test]
fn a_batch_cut_anywhere_is_truncated_and_says_where() {
    for codec in Codec::ALL {
        let (first, second) = (batch(codec), batch(codec));
        for cut in 1..second.len() {
            let error = validate(&[&first, &second[..cut]].concat(), OPENED).unwrap_err();
            assert_eq!(error.position, first.len());
            assert!(matches!(error.fault, Fault::Truncated { available, .. } if available == cut));
        }
    }
}

#[test]
fn no_flipped_bit_that_the_crc_covers_passes() {
    for codec in Codec::ALL {
        let good = batch(codec);
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let stamp = matches!(bit / 8, 0..=7 | 12..=15);
            for compressed in [OPENED, Compressed::Closed] {
                assert_eq!(
                    validate(&bad, compressed).is_ok(),
                    stamp,
                    "{codec}, bit {bit}"
                );
            }
            let decoded = decode(&bad);
            match bit / 8 {
                // The offsets alone differ.
                0..=7 | 12..=15 => {
                    assert_eq!(decoded.unwrap().values, decode(&good).unwrap().values);
                }
                // A longer batch is not all there yet.
                8..=11 => assert!(decoded.map_or(true, |columns| columns.records == 0)),
                _ => assert!(decoded.is_err(), "{codec}, bit {bit}"),
            }
        }
    }
}

#[test]
fn what_a_liar_signs_is_refused_or_read_alike() {
    for codec in Codec::ALL {
        let good = batch(codec);
        for at in 21..good.len() {
            let flipped = (0..8).map(|bit| good[at] ^ 1 << bit);
            for value in flipped.chain([0, 0x7F, 0x80, 0xFF]) {
                let mut bad = good.clone();
                bad[at] = value;
                sign(&mut bad);
                if let Ok(summary) = validate(&bad, OPENED) {
                    let columns = decode(&bad).unwrap();
                    let expected = if summary.control { 0 } else { summary.records };
                    assert_eq!(
                        columns.records as u64, expected,
                        "{codec}, byte {at} = {value}"
                    );
                } else {
                    let _ = decode(&bad);
                }
            }
        }
    }
}

#[test]
fn a_signed_body_cut_anywhere_loses_no_record_unseen() {
    for codec in Codec::ALL {
        let good = batch(codec);
        let body = &good[HEADER_BYTES..];
        for cut in 0..body.len() {
            let bad = signed(&good, &body[..cut]);
            let Err(error) = validate(&bad, OPENED) else {
                // An LZ4 frame may lack its end mark, four bytes that hold no record.
                assert!(codec == Codec::Lz4 && cut >= body.len() - 4);
                continue;
            };
            assert!(
                matches!(error.fault, Fault::Record { .. } | Fault::Compression(_)),
                "{error}"
            );
            assert_eq!(decode(&bad).unwrap_err(), error);
        }
    }
}

#[test]
fn records_beyond_the_count_are_refused() {
    let good = batch(Codec::None);
    let bad = signed(&good, &[&good[HEADER_BYTES..], &[0]].concat());
    assert_eq!(
        fault(validate(&bad, OPENED)),
        Fault::Record {
            index: 3,
            part: "end of the batch"
        }
    );
}

#[test]
fn the_header_must_be_true() {
    let edit = |at: usize, bytes: &[u8]| {
        let mut batch = batch(Codec::None);
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        sign(&mut batch);
        fault(validate(&batch, OPENED))
    };
    assert_eq!(edit(16, &[1]), Fault::Magic(1));
    assert_eq!(edit(8, &48_i32.to_be_bytes()), Fault::Length(48));
    assert_eq!(edit(8, &(-1_i32).to_be_bytes()), Fault::Length(-1));
    assert_eq!(edit(21, &0x80_i16.to_be_bytes()), Fault::Attributes(0x80));
    assert_eq!(edit(21, &5_i16.to_be_bytes()), Fault::Codec(5));
    assert_eq!(
        edit(23, &3_i32.to_be_bytes()),
        Fault::Count {
            count: 3,
            last_offset_delta: 3
        }
    );
    assert_eq!(
        edit(57, &(-1_i32).to_be_bytes()),
        Fault::Count {
            count: -1,
            last_offset_delta: 2
        }
    );
    assert!(matches!(
        edit(8, &i32::MAX.to_be_bytes()),
        Fault::Truncated { .. }
    ));
}

#[test]
fn a_count_that_lies_takes_no_memory() {
    let mut bad = batch(Codec::None);
    bad[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    bad[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    sign(&mut bad);
    assert_eq!(
        fault(validate(&bad, OPENED)),
        Fault::Record {
            index: 3,
            part: "length"
        }
    );
    decode(&bad).unwrap_err();
}

#[test]
fn the_flags_of_transactions_and_compaction_pass_through() {
    let mut control = batch(Codec::None);
    control[22] = 0x70;
    sign(&mut control);
    let summary = validate(&control, OPENED).unwrap();
    assert!(summary.control && summary.transactional);
    let header = BatchHeader::parse(&control).unwrap();
    assert!(header.has_delete_horizon() && !header.is_log_append_time());
    let columns = decode(&control).unwrap();
    assert_eq!((columns.records, columns.next_offset), (0, 3));
}

#[test]
fn append_time_replaces_the_timestamps_of_the_records() {
    let mut stamped = batch(Codec::None);
    stamped[22] = 0x08;
    sign(&mut stamped);
    let batch = only(&stamped);
    let times: Vec<_> = Records::new(&batch.header, batch.body())
        .map(|r| r.unwrap().timestamp)
        .collect();
    assert_eq!(times, [70_000; 3]);
}

#[test]
fn offsets_that_compaction_left_are_read_and_others_refused() {
    // One record at delta 2 of a batch of three.
    let good = batch(Codec::None);
    let record = |delta: u8| [14, 0, 0, 2 * delta, 1, 1, 0, 0];
    let compacted = |deltas: [u8; 2]| {
        let mut batch = good.clone();
        batch[57..61].copy_from_slice(&2_i32.to_be_bytes());
        let records = deltas.map(|delta| record(delta)[..7].to_vec()).concat();
        let records: Vec<u8> = records
            .chunks(7)
            .flat_map(|r| [&[12][..], &r[1..]].concat())
            .collect();
        signed(&batch, &records)
    };
    let columns = decode(&compacted([0, 2])).unwrap();
    assert_eq!(columns.offsets, [0_i64, 2].map(i64::to_le_bytes).concat());
    assert_eq!(columns.next_offset, 3);
    for deltas in [[1, 1], [2, 0], [0, 3]] {
        let error = decode(&compacted(deltas)).unwrap_err();
        assert_eq!(
            error.fault,
            Fault::Record {
                index: 1,
                part: "offset"
            }
        );
    }
}
