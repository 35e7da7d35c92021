//! What is said to queues and what they answer: whose delivery a settlement means, places that are
//! reserved, options, times and rights.

use headrace_core::mqtt::packet::Connect;
use headrace_core::queue::{Late, Policy};
use headrace_core::switchboard::{PullTerms, QueueSettings};

use super::depot::*;
use super::permit::{access, control};
use super::queues::{depot, with};
use super::stage::*;

const G: (&str, &str) = ("group-id", "g");

impl Depot {
    /// A client that keeps its session.
    fn lasting(&mut self) -> u64 {
        let client = self.stage.asks(Connect {
            client_id: "lasting",
            session_expiry_s: Some(600),
            ..Connect::new(V5)
        });
        self.stage.decide(0);
        self.settle();
        assert!(self.stage.hears(client)[0].starts_with("CONNACK 0x00"));
        client
    }

    fn pull_one(&mut self, filter: Option<&str>) {
        let terms = PullTerms {
            messages_max: 1,
            bytes_max: 1 << 20,
            deadline_ms: None,
            waits: false,
        };
        let switchboard = &mut self.stage.switchboard;
        switchboard.pull_queue(JOBS, ("g", filter), terms).unwrap();
        self.settle();
        assert_eq!(self.stage.switchboard.pulled()[0].messages.len(), 1);
    }

    /// Acknowledges over another door: what became of it, or why nothing did.
    fn ack_of(&mut self, filter: Option<&str>, id: &str) -> Result<Option<Vec<String>>, String> {
        let (ids, now) = ([id.to_owned()], self.stage.now);
        let switchboard = &mut self.stage.switchboard;
        let what = ("ack", &ids[..]);
        let ends = switchboard.settle_queue(JOBS, ("g", filter), what, (None, None), 5, now);
        self.settle();
        let text = |end: &Result<(), Late>| format!("{end:?}");
        let ends = ends.map(|ends| ends.map(|ends| ends.iter().map(text).collect()));
        ends.map_err(|error| error.to_string())
    }

    /// Depths of the groups of the queue, by their filters.
    fn owed(&self) -> Vec<(Option<String>, u64)> {
        let groups = self.stage.switchboard.queue_groups(JOBS).unwrap();
        let depth = |partitions: &[headrace_core::switchboard::QueuePartition]| {
            partitions.iter().map(|each| each.depth).sum()
        };
        let groups = groups.iter();
        groups
            .map(|group| (group.filter.clone(), depth(&group.partitions)))
            .collect()
    }
}

#[test]
fn a_settlement_is_of_the_group_that_has_the_delivery() {
    let (mut depot, publisher, _) = depot();
    depot.enqueue(publisher, "$queue/jobs/eu", "1", &[]);
    depot.pull_one(None);
    depot.pull_one(Some("eu"));
    // The first still owes the message, and has it no more.
    let nack = [("message-id", "0:0:1"), G, ("group-filter", "#")];
    assert_eq!(depot.end(publisher, "$nack", &nack), Some(0));
    let ack = [("message-id", "0:0:1"), G];
    assert_eq!(depot.end(publisher, "$ack", &ack), Some(0));
    assert_eq!(depot.owed(), [(None, 1), (Some("eu".into()), 0)]);
}

#[test]
fn where_several_groups_have_a_delivery_its_filter_says_which() {
    let (mut depot, publisher, _) = depot();
    depot.enqueue(publisher, "$queue/jobs/eu", "1", &[]);
    depot.pull_one(None);
    depot.pull_one(Some("eu"));
    let ack = [("message-id", "0:0:1"), G];
    depot.stage.hears(publisher);
    depot.send(publisher, "$queue/jobs/$ack", "", &ack);
    depot.settle();
    let said = depot.stage.hears(publisher).remove(0);
    assert!(said.contains("0x83"), "{said}");
    assert!(said.contains("group-filter"), "{said}");
    let why = depot.ack_of(None, "0:0:1").unwrap_err();
    assert!(why.contains("say which: filter"), "{why}");
    assert_eq!(depot.ack_of(Some("us"), "0:0:1"), Ok(None), "no such group");
    let ok = Ok(Some(vec!["Ok(())".to_owned()]));
    assert_eq!(depot.ack_of(Some("eu"), "0:0:1"), ok);
    assert_eq!(depot.owed(), [(None, 1), (Some("eu".into()), 0)]);
    let ack = [("message-id", "0:0:1"), G, ("group-filter", "#")];
    assert_eq!(depot.end(publisher, "$ack", &ack), Some(0));
    assert_eq!(depot.owed(), [(None, 0), (Some("eu".into()), 0)]);
}

#[test]
fn a_client_in_two_groups_of_a_name_is_told_their_filters() {
    let (mut depot, publisher, worker) = depot();
    let of = [("consumer-group", "g"), ("prefetch", "5")];
    for filter in ["$queue/jobs", "$queue/jobs/#", "$queue/jobs/eu"] {
        depot.subscribe(worker, filter, &of);
    }
    depot.enqueue(publisher, "$queue/jobs/eu", "1", &[]);
    let handed = depot.take(worker);
    let filters: Vec<_> = handed
        .iter()
        .map(|each| each.user.get("group-filter").map(|filter| &**filter))
        .collect();
    assert_eq!(filters.len(), 2);
    assert!(filters.contains(&None) && filters.contains(&Some("eu")));
    assert_eq!(depot.ack(worker, &handed[0]), Some(0x83), "of which?");
    for filter in ["#", "eu"] {
        let ack = [("message-id", handed[0].id()), ("group-filter", filter)];
        assert_eq!(depot.end(worker, "$ack", &ack), Some(0), "{filter}");
    }
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn the_worst_of_many_settlements_is_told() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    for ids in [["none", "good"], ["good", "none"]] {
        depot.enqueue(publisher, "$queue/jobs", "1", &[]);
        let handed = depot.take(worker);
        let told = ids.map(|id| match id {
            "good" => ("message-id", handed[0].id()),
            id => ("message-id", id),
        });
        assert_eq!(depot.end(worker, "$ack", &told), Some(0x83), "{ids:?}");
        assert_eq!(depot.depth(JOBS), 0, "each that could be settled is");
    }
}

#[test]
fn rules_that_take_a_part_out_end_a_consumer() {
    for is_away in [false, true] {
        let (mut depot, publisher, _) = depot();
        let worker = depot.lasting();
        depot.subscribe(worker, "$queue/jobs", &[]);
        let rules = access(&[
            "-subscribe $queue/jobs/secret",
            "+publish,subscribe $queue/#",
            "+publish,subscribe #",
        ]);
        if is_away {
            depot.stage.hang_up(worker);
        }
        control(&mut depot.stage, Some(rules), &[]);
        depot.settle();
        if !is_away {
            let expected = ["DISCONNECT 0x87", "closed: not_authorized"];
            assert_eq!(depot.stage.hears(worker), expected);
        }
        let worker = depot.lasting();
        depot.enqueue(publisher, "$queue/jobs/secret", "1", &[]);
        assert_eq!(depot.take(worker), []);
        let said = depot.subscribe(worker, "$queue/jobs", &[]);
        assert!(said.starts_with("SUBACK 1 [0x87]"), "{said}");
        assert_eq!(
            depot.subscribe(worker, "$queue/jobs/eu", &[]),
            "SUBACK 1 [0x01]"
        );
    }
}

#[test]
fn what_3_1_1_publishes_to_a_reserved_place_ends_its_connection() {
    let (mut depot, ..) = depot();
    for topic in ["$queue/jobs/$dlq", "$queue/", "$queue/jobs/$akc"] {
        let older = depot.stage.client(V311, "older");
        depot.stage.publish(older, topic, QOS_1, 3, "");
        assert_eq!(
            depot.stage.hears(older),
            ["closed: reserved_topic"],
            "{topic}"
        );
    }
}

#[test]
fn who_was_full_goes_on_after_a_seek() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("prefetch", "1")]);
    depot.enqueue(publisher, "$queue/jobs", "1", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["1"]);
    let now = depot.stage.now;
    let switchboard = &mut depot.stage.switchboard;
    switchboard.seek_queue(JOBS, None, &[1], 5, now).unwrap();
    depot.settle();
    assert_eq!(depot.take(worker), []);
    depot.enqueue(publisher, "$queue/jobs", "2", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["2"]);
}

#[test]
fn the_queue_is_to_be_made_not_that_of_its_dead_letters() {
    let (mut depot, _, worker) = depot();
    let said = depot.subscribe(worker, "$queue/none/$dlq", &[]);
    assert!(said.ends_with("headrace queues create none"), "{said}");
}

#[test]
fn a_message_without_levels_matches_no_level() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs/+", &[]);
    depot.enqueue(publisher, "$queue/jobs", "1", &[]);
    depot.enqueue(publisher, "$queue/jobs/eu", "2", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["2"]);
}

#[test]
fn a_verb_settles_behind_the_topic_of_a_delivery() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs/eu/3", "1", &[]);
    let handed = depot.take(worker).remove(0);
    let verb = format!("{}/$ack", handed.topic);
    let this = [("message-id", handed.id())];
    for wrong in [
        "$queue/jobs/eu/$akc",
        "$queue/jobs/$eu/$ack",
        "$queue/jobs/$ack/eu",
    ] {
        assert_eq!(
            depot.enqueue(worker, wrong, "", &this),
            Some(0x87),
            "{wrong}"
        );
    }
    // Whoever may not settle may not by a longer way.
    let rules = ["-publish $queue/jobs/$ack", "+publish,subscribe $queue/# #"];
    control(&mut depot.stage, Some(access(&rules)), &[]);
    assert_eq!(depot.enqueue(worker, &verb, "", &this), Some(0x87));
    control(&mut depot.stage, None, &[]);
    assert_eq!(depot.enqueue(worker, &verb, "", &this), Some(0));
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn filters_of_reserved_levels_and_unknown_options_are_refused() {
    let (mut depot, _, worker) = depot();
    for (filter, expected) in [
        ("$queue/jobs/$ack", "[0x8f]"),
        ("$queue/jobs/eu/$dlq", "[0x8f]"),
        ("$queue/jobs?gruop=work", "[0x83]"),
        ("$queue/jobs?group=g&group=h", "[0x83]"),
        ("$queue/jobs/eu?group=g", "[0x83]"),
        ("$queue/jobs?prefetch=05", "[0x83]"),
    ] {
        let said = depot.subscribe(worker, filter, &[]);
        assert!(said.contains(expected), "{filter}: {said}");
    }
    let said = depot.subscribe(worker, "$queue/jobs?gruop=work", &[]);
    assert!(said.contains("?group=G&prefetch=N&settle=S"), "{said}");
    assert_eq!(
        depot.subscribe(worker, "$queue/jobs?group=g&settle=ack", &[]),
        "SUBACK 1 [0x01]"
    );
}

#[test]
fn times_that_are_none_and_numbers_with_more_than_digits_are_refused() {
    let settings = settings();
    let policy = Policy {
        prioritises: true,
        ..settings.policy
    };
    let (mut depot, publisher, worker) = with(QueueSettings { policy, ..settings }, 1);
    for (name, value, code) in [
        ("delay", "36525d", 0),
        ("delay", "36526d", 0x83),
        ("delay", "106751991167d", 0x83),
        ("delay", "18446744073709551615", 0x83),
        ("deliver-at", "253402300799999", 0),
        ("deliver-at", "253402300800000", 0x83),
        ("deliver-at", "+5", 0x83),
        ("deliver-at", "-5", 0x83),
        ("priority", "05", 0x83),
        ("priority", "+5", 0x83),
    ] {
        let said = depot.enqueue(publisher, "$queue/jobs", "later", &[(name, value)]);
        assert_eq!(said, Some(code), "{name} {value}");
    }
    depot.enqueue(publisher, "$queue/jobs", "now", &[]);
    depot.subscribe(worker, "$queue/jobs", &[]);
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["now"]);
    let id = handed[0].id();
    for (verb, delay) in [("$nack", "36526d"), ("$extend", "18446744073709551615")] {
        let told = [("message-id", id), ("delay", delay)];
        assert_eq!(depot.end(worker, verb, &told), Some(0x83), "{verb}");
    }
    let (place, attempt) = id.rsplit_once(':').unwrap();
    for wrong in [
        format!("+{id}"),
        format!("0{id}"),
        format!("{place}:0{attempt}"),
    ] {
        let said = depot.end(worker, "$ack", &[("message-id", &wrong)]);
        assert_eq!(said, Some(0x83), "{wrong}");
    }
    assert_eq!(depot.ack(worker, &handed[0]), Some(0), "it is in flight");
}
