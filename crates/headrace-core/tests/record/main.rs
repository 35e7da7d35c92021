//! Record batches against damage, lies and other writers' framings.

mod codecs;
mod damage;

use std::io::Write;

use headrace_core::record::{
    decode_columns, recode, record_bytes, set_base_offset, set_leader_epoch, validate, Batch,
    BatchBuilder, BatchHeader, Batches, Codec, Columns, Compressed, Error, Fault, Record, Records,
    Source, Summary, DECOMPRESSED_BYTES_MAX, HEADER_BYTES, LATER_RECORD_BYTES,
};

const OPENED: Compressed = Compressed::Opened {
    bytes_max: DECOMPRESSED_BYTES_MAX,
};

/// Three records with keys, nulls and headers.
fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let headers = [
        (&b"mqtt.topic"[..], Some(&b"dcgm/node-1"[..])),
        (b"empty", Some(b"")),
        (b"null", None),
    ];
    builder.push(1_000, Some(b"key"), Some(&[b'v'; 100]), headers);
    builder.push(999, None, Some(b""), headers[..1].iter().copied());
    builder.push(70_000, Some(b""), None, []);
    builder.finish_with(codec)
}

/// The batch around `body`, as a client would sign it.
fn signed(template: &[u8], body: &[u8]) -> Vec<u8> {
    let mut batch = [&template[..HEADER_BYTES], body].concat();
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    sign(&mut batch);
    batch
}

fn sign(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn decode(data: &[u8]) -> Result<Columns, Error> {
    decode_columns(data, i64::MIN, i64::MAX, usize::MAX)
}

fn only(data: &[u8]) -> Batch<'_> {
    Batches::new(data).next().unwrap().unwrap()
}

fn fault(result: Result<Summary, Error>) -> Fault {
    result.unwrap_err().fault
}

#[test]
fn a_run_of_batches_is_summed_up() {
    let mut second = batch(Codec::Zstd);
    set_base_offset(&mut second, 3);
    let summary = validate(&[batch(Codec::None), second].concat(), OPENED).unwrap();
    assert_eq!(
        (summary.batches, summary.records, summary.max_timestamp),
        (2, 6, 70_000)
    );
    assert!(!summary.control && !summary.transactional);
    assert_eq!(validate(&[], OPENED).unwrap().batches, 0);
}

#[test]
fn offset_and_epoch_are_stamped_outside_the_crc() {
    let mut stamped = batch(Codec::None);
    set_base_offset(&mut stamped, i64::MAX - 3);
    set_leader_epoch(&mut stamped, 7);
    validate(&stamped, OPENED).unwrap();
    let header = BatchHeader::parse(&stamped).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (i64::MAX - 3, 7));
    assert_eq!(
        (header.last_offset(), header.next_offset()),
        (i64::MAX - 1, i64::MAX)
    );
}

#[test]
fn how_large_a_record_will_be_is_known_before_it_is_there() {
    let mut builder = BatchBuilder::new();
    for at in [0, 1, 7, 63, 64, 8_191, 8_192, 1 << 20] {
        let long = vec![b'x'; at];
        let header = (&b"name"[..], Some(&long[..]));
        for headers in [
            vec![],
            vec![header],
            vec![header, (b"", None)],
            vec![header; 64],
        ] {
            for (key, value) in [
                (None, None),
                (None, Some(&long[..])),
                (Some(&long[..]), None),
            ] {
                builder.push(5, key, value, headers.iter().copied());
                let size = record_bytes(key, value, headers.iter().copied());
                assert_eq!(builder.bytes(), HEADER_BYTES + size);
                builder.push(i64::MAX, key, value, headers.iter().copied());
                let later = builder.bytes() - HEADER_BYTES - size;
                assert!((size..=size + LATER_RECORD_BYTES).contains(&later));
                builder.finish();
            }
        }
    }
}

#[test]
fn a_record_tells_its_headers_and_its_source() {
    let mut builder = BatchBuilder::new();
    let source = [
        (&b"source"[..], Some(&b"rack-7"[..])),
        (b"epoch", Some(b"2")),
        (b"sequence", Some(b"9")),
    ];
    builder.push(0, None, None, source);
    builder.push(0, None, None, [(&b"source"[..], None), (b"null", None)]);
    let data = builder.finish_published(Codec::None);
    let batch = only(&data);
    assert!(batch.header.is_published());
    assert!(matches!(
        validate(&data, Compressed::Closed).unwrap_err().fault,
        Fault::Attributes(_)
    ));
    let records: Vec<Record> = Records::new(&batch.header, batch.body())
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        records[0].source(),
        Some(Source {
            name: "rack-7".into(),
            epoch: 2,
            sequence: 9
        })
    );
    assert_eq!(records[1].source(), None);
    assert_eq!(records[0].header(b"epoch"), Some(&b"2"[..]));
    assert_eq!(
        (records[1].header(b"null"), records[1].header(b"other")),
        (None, None)
    );
}

#[test]
fn a_walk_ends_at_the_first_batch_that_is_wrong() {
    let good = batch(Codec::None);
    let mut bad = good.clone();
    bad[16] = 0;
    let data = [&good[..], &bad, &good].concat();
    let mut walk = Batches::new(&data);
    assert!(walk.next().unwrap().is_ok());
    assert_eq!(walk.next().unwrap().unwrap_err().fault, Fault::Magic(0));
    assert!(walk.next().is_none());
    assert_eq!(walk.position(), good.len());
}
