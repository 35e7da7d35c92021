//! Queues without a session: wills and other doors that enqueue, pulls, what they settle, and looks
//! that change nothing.

use headrace_core::mqtt::packet::{Connect, QoS, Will};
use headrace_core::queue::{Late, Order, Policy, Standing};
use headrace_core::switchboard::{
    PeekTerms, PeekedMessage, Published, PullTerms, QueueSettings, Sharing,
};

use super::depot::*;
use super::queues::{depot, with};
use super::stage::*;

const ALL: PullTerms = PullTerms {
    messages_max: 10,
    bytes_max: 1 << 20,
    deadline_ms: None,
    waits: false,
};

const WAITING: PullTerms = PullTerms { waits: true, ..ALL };

impl Depot {
    fn pull(&mut self, group: &str, terms: PullTerms) -> u64 {
        self.pull_of((group, None), terms).unwrap()
    }

    fn pull_of(
        &mut self,
        group: (&str, Option<&str>),
        terms: PullTerms,
    ) -> Result<u64, headrace_core::switchboard::Error> {
        let number = self.stage.switchboard.pull_queue(JOBS, group, terms);
        self.settle();
        number
    }

    /// Payloads and ids of what a pull got; None where it has not ended.
    fn pulled(&mut self, number: u64) -> Option<Vec<(String, String)>> {
        let pulled = self.stage.switchboard.pulled();
        let mine = pulled.into_iter().find(|each| each.number == number)?;
        let told = mine.messages.iter().map(|each| {
            let payload = String::from_utf8(each.publish().payload.to_vec()).unwrap();
            let id = format!("{}:{}:{}", each.partition, each.offset, each.attempt);
            (payload, id)
        });
        Some(told.collect())
    }

    /// Pulls all that is there.
    fn got(&mut self, group: &str) -> Vec<(String, String)> {
        let number = self.pull(group, ALL);
        self.pulled(number).expect("it does not wait")
    }

    fn settled(&mut self, verb: &str, ids: &[&str], delay: Option<&str>) -> Vec<Result<(), Late>> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let (what, now) = ((verb, &*ids), self.stage.now);
        let switchboard = &mut self.stage.switchboard;
        let ends = switchboard.settle_queue(JOBS, ("g", None), what, (delay, None), 5, now);
        self.stage.run();
        let is_noted =
            verb != "extend" && ends.as_ref().unwrap().iter().flatten().any(Result::is_ok);
        let published = self.stage.switchboard.published();
        assert_eq!(published.is_empty(), is_noted, "not before it is durable");
        self.settle();
        let later = self.stage.switchboard.published();
        assert_eq!(published.len() + later.len(), 1);
        ends.unwrap().expect("there is such a group")
    }

    fn peek(&mut self, group: &str) -> Vec<PeekedMessage> {
        self.peek_of((group, None))
    }

    fn peek_of(&mut self, group: (&str, Option<&str>)) -> Vec<PeekedMessage> {
        let batches = self.batches(JOBS, 0);
        let terms = PeekTerms {
            group: Some(group),
            offset: 0,
            count_max: 100,
            has_settled: true,
        };
        let (switchboard, now) = (&mut self.stage.switchboard, self.stage.now);
        let (found, next) = switchboard
            .peek_queue(JOBS, 0, &batches, terms, now)
            .unwrap();
        assert_eq!(next, self.logs[&(JOBS, 0)].end);
        found
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(payload, id): &(&str, &str)| ((*payload).to_owned(), (*id).to_owned());
    all.iter().map(owned).collect()
}

#[test]
fn a_will_and_another_door_enqueue() {
    let (mut depot, _, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    for (topic, user, published) in [
        ("$queue/jobs/a", [("partition-key", "k")], (0, 1)),
        ("$queue/none", [("a", "b")], (0x90, 0)),
    ] {
        let (reason_code, streams) = published;
        let (publish, now) = (
            door(topic, b"door", QoS::AtLeastOnce, &user),
            depot.stage.now,
        );
        depot.stage.switchboard.publish(&publish, 7, now).unwrap();
        depot.settle();
        let expected = Published {
            request: 7,
            reason_code,
            streams,
        };
        assert_eq!(depot.stage.switchboard.published(), [expected]);
    }
    for (topic, user, why) in [
        ("$queue/jobs/$ack", ("a", "b"), "/api/v1/queues/jobs/ack"),
        ("$queue/jobs/$dlq", ("a", "b"), "the broker's"),
        ("$SYS/x", ("a", "b"), "the broker's"),
        ("$queue/jobs", ("delay", "soon"), "delay is a time"),
    ] {
        let (publish, now) = (door(topic, b"", QoS::AtLeastOnce, &[user]), depot.stage.now);
        let error = depot.stage.switchboard.publish(&publish, 8, now);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    for (topic, user) in [
        ("$queue/jobs/gone", ("delay", "0s")),
        ("$queue/none", ("a", "b")),
    ] {
        let mortal = depot.stage.asks(mortal(topic, user));
        depot.stage.decide(0);
        depot.settle();
        depot.stage.hang_up(mortal);
        depot.settle();
    }
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["door", "bye"]);
    assert_eq!(handed[1].topic, "$queue/jobs/gone");
    let lost = "mqtt_messages_dropped_total{reason=\"unknown_queue\"}";
    assert_eq!(depot.stage.statistic(lost), 2);
}

fn mortal<'a>(topic: &'a str, user: (&'a str, &'a str)) -> Connect<'a> {
    let will = Will {
        topic,
        payload: b"bye",
        qos: QOS_1,
        properties: headrace_core::mqtt::packet::PublishProperties {
            user: vec![user],
            ..Default::default()
        },
        ..Will::default()
    };
    Connect {
        client_id: "mortal",
        will: Some(will),
        ..plain(V5)
    }
}

#[test]
fn a_will_that_settles_or_has_no_time_is_refused() {
    let (mut depot, _, _) = depot();
    for (topic, user, code) in [
        ("$queue/jobs/$ack", ("message-id", "0:0:1"), "0x87"),
        ("$queue/", ("a", "b"), "0x87"),
        ("$queue/jobs", ("deliver-at", "soon"), "0x83"),
    ] {
        let asked = depot.stage.asks(mortal(topic, user));
        depot.stage.decide(0);
        let said = depot.stage.hears(asked).remove(0);
        assert!(said.starts_with(&format!("CONNACK {code}")), "{said}");
    }
}

#[test]
fn pulls_share_the_work_of_a_group_and_end_when_they_are_full() {
    let (mut depot, publisher, worker) = depot();
    for payload in ["1", "2", "3", "4"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let one = PullTerms {
        messages_max: 1,
        ..ALL
    };
    let few = PullTerms {
        bytes_max: 1,
        ..ALL
    };
    let first = depot.pull("g", one);
    assert_eq!(depot.pulled(first), Some(pairs(&[("1", "0:0:1")])));
    let second = depot.pull("g", few);
    assert_eq!(depot.pulled(second), Some(pairs(&[("2", "0:1:1")])));
    let rest = depot.got("g");
    assert_eq!(rest, pairs(&[("3", "0:2:1"), ("4", "0:3:1")]));
    let user = [("consumer-group", "g"), ("prefetch", "1")];
    depot.subscribe(worker, "$queue/jobs", &user);
    let third = depot.pull("g", WAITING);
    for payload in ["5", "6"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    assert_eq!(payloads(&depot.take(worker)), ["5"]);
    assert_eq!(depot.pulled(third), Some(pairs(&[("6", "0:5:1")])));
    assert_eq!(depot.got("h").len(), 6, "another group is owed all");
    let ends = depot.settled("ack", &["0:0:1", "0:0:1", "0:1:2", "0:9:1"], None);
    let late = [Late::Settled, Late::Unknown, Late::Unknown];
    assert_eq!(ends[0], Ok(()));
    assert_eq!(ends[1..], late.map(Err));
    depot.crash();
    assert_eq!(depot.got("g").len(), 5, "what is settled survives");
}

#[test]
fn a_pull_that_waits_ends_with_the_first_message_or_when_it_is_told() {
    let (mut depot, publisher, _) = depot();
    let waiting = depot.pull("g", WAITING);
    assert_eq!(depot.pulled(waiting), None);
    let other = depot.pull("g", WAITING);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    assert_eq!(depot.pulled(waiting), Some(pairs(&[("one", "0:0:1")])));
    depot.stage.switchboard.end_pull(other);
    depot.settle();
    assert_eq!(depot.pulled(other), Some(Vec::new()));
    // A disk that does not answer holds up nobody who is told twice.
    depot.is_stuck = true;
    depot.enqueue(publisher, "$queue/jobs", "two", &[]);
    let stuck = depot.pull("g", ALL);
    assert_eq!(depot.pulled(stuck), None, "what is there is not known");
    depot.stage.switchboard.end_pull(stuck);
    assert_eq!(depot.pulled(stuck), Some(Vec::new()));
}

#[test]
fn what_was_pulled_comes_again_after_its_own_deadline() {
    let (mut depot, publisher, _) = depot();
    for payload in ["1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let short = PullTerms {
        deadline_ms: Some(5_000),
        ..ALL
    };
    let number = depot.pull("g", short);
    assert_eq!(depot.pulled(number).unwrap().len(), 2);
    assert_eq!(depot.settled("extend", &["0:1:1"], Some("1m")), [Ok(())]);
    depot.wait(5_000);
    assert_eq!(depot.got("g"), []);
    depot.wait(1_000);
    assert_eq!(depot.got("g"), pairs(&[("1", "0:0:2")]));
    assert_eq!(
        depot.settled("ack", &["0:0:1"], None),
        [Err(Late::Superseded)]
    );
    assert_eq!(depot.settled("nack", &["0:1:1"], Some("1ms")), [Ok(())]);
    depot.wait(1);
    assert_eq!(depot.got("g"), pairs(&[("2", "0:1:2")]));
    assert_eq!(depot.settled("reject", &["0:1:2"], None), [Ok(())]);
    assert_eq!(depot.dead_letters().len(), 1);
}

#[test]
fn who_goes_before_it_is_answered_gives_back_at_once_and_has_not_failed() {
    let (mut depot, publisher, _) = depot();
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let gone = depot.pull("g", ALL);
    let other = depot.pull("g", WAITING);
    let switchboard = &mut depot.stage.switchboard;
    switchboard.return_pull(JOBS, ("g", None), gone);
    depot.settle();
    assert_eq!(depot.pulled(other), Some(pairs(&[("one", "0:0:2")])));
    // One that waits is not there any more.
    let gone = depot.pull("g", WAITING);
    let switchboard = &mut depot.stage.switchboard;
    switchboard.return_pull(JOBS, ("g", None), gone);
    depot.enqueue(publisher, "$queue/jobs", "two", &[]);
    assert_eq!(depot.got("g"), pairs(&[("two", "0:1:1")]));
    let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
    assert_eq!(groups[0].counts, [3, 1, 0, 0, 0, 0]);
}

#[test]
fn what_cannot_be_pulled_from_says_so() {
    for sharing in [Sharing::Single, Sharing::Exclusive] {
        let sole = QueueSettings {
            sharing,
            ..settings()
        };
        let (mut depot, _, _) = with(sole, 1);
        let error = depot.pull_of(("g", None), ALL).unwrap_err().to_string();
        assert!(error.contains("one connected consumer"), "{error}");
    }
    let (mut depot, _, _) = depot();
    for (group, why) in [
        (("", None), "from 1 to 1,024"),
        (("a\0b", None), "from 1 to 1,024"),
        (("g", Some("a/#/b")), "filter: "),
    ] {
        let error = depot.pull_of(group, ALL).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let now = depot.stage.now;
    for (verb, id, delay) in [
        ("burn", "0:0:1", None),
        ("ack", "first", None),
        ("nack", "0:0:1", Some("soon")),
    ] {
        let what = (verb, &[id.to_owned()][..]);
        let switchboard = &mut depot.stage.switchboard;
        let settled = switchboard.settle_queue(JOBS, ("g", None), what, (delay, None), 9, now);
        assert!(settled.is_err(), "{verb} {id}");
    }
    let what = ("ack", &["0:0:1".to_owned()][..]);
    let switchboard = &mut depot.stage.switchboard;
    let settled = switchboard.settle_queue(JOBS, ("nobody", None), what, (None, None), 9, now);
    assert_eq!(settled, Ok(None));
}

#[test]
fn a_pull_has_a_filter_waits_while_the_queue_is_paused_and_ends_with_it() {
    let (mut depot, publisher, _) = depot();
    for topic in ["$queue/jobs/a", "$queue/jobs/b"] {
        depot.enqueue(publisher, topic, topic, &[]);
    }
    let number = depot.pull_of(("g", Some("b")), ALL).unwrap();
    let pulled = depot.pulled(number);
    assert_eq!(pulled, Some(pairs(&[("$queue/jobs/b", "0:1:1")])));
    assert_eq!(depot.settled("ack", &["0:1:1"], None), [Ok(())]);

    let pause = |depot: &mut Depot, is_paused| {
        depot.settings.is_paused = is_paused;
        let settings = depot.settings.clone();
        depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
        depot.settle();
    };
    pause(&mut depot, true);
    assert_eq!(depot.got("all"), []);
    let waiting = depot.pull("all", WAITING);
    assert_eq!(depot.pulled(waiting), None);
    let busy = depot.stage.switchboard.forget_queue_group(JOBS, "all");
    assert!(busy.is_err(), "somebody waits");
    pause(&mut depot, false);
    assert_eq!(depot.pulled(waiting).unwrap().len(), 2);

    // What was collected before a seek can no longer be settled.
    let now = depot.stage.now;
    let switchboard = &mut depot.stage.switchboard;
    switchboard.seek_queue(JOBS, None, &[1], 3, now).unwrap();
    depot.settle();
    let again = depot.got("all");
    assert_eq!(again, pairs(&[("$queue/jobs/b", "0:1:2")]));
    let waiting = depot.pull("all", WAITING);
    depot.stage.switchboard.unbind(JOBS).unwrap();
    depot.stage.run();
    assert_eq!(depot.pulled(waiting), Some(Vec::new()), "it is no more");
}

#[test]
fn a_look_tells_what_each_message_is_to_a_group() {
    let by_key = QueueSettings {
        policy: Policy {
            order: Order::Key,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(by_key, 1);
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    let of = |key| [("partition-key", key)];
    for (payload, user) in [
        ("done", of("a")),
        ("held", of("b")),
        ("behind", of("b")),
        ("failed", of("c")),
        ("later", [("delay", "1h")]),
    ] {
        depot.enqueue(publisher, "$queue/jobs", payload, &user);
    }
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["done", "held", "failed"]);
    depot.ack(worker, &handed[0]);
    let failed = [("message-id", handed[2].id()), ("delay", "5s")];
    depot.end(worker, "$nack", &failed);
    let now = depot.stage.now;
    let found = depot.peek("g");
    let told: Vec<_> = found
        .iter()
        .map(|each| (each.standing.unwrap(), each.attempts))
        .collect();
    let held = depot.peek("g").remove(1);
    assert_eq!(held.client.as_deref(), Some("worker"));
    assert_eq!(held.until_ms, Some(now.wall_ms + 30_000));
    assert_eq!(held.key.as_deref(), Some(&b"b"[..]));
    assert_eq!(held.publish().payload, b"held");
    assert_eq!(told[0], (Standing::Settled, 0));
    assert!(matches!(told[1], (Standing::InFlight(..), 1)));
    assert_eq!(told[2], (Standing::Waiting, 0));
    assert_eq!(told[3], (Standing::Resting(now.mono_ms + 5_000), 1));
    assert_eq!(told[4], (Standing::Resting(now.mono_ms + 3_600_000), 0));
    assert_eq!(depot.peek("g"), found, "nothing has changed");
    depot.wait(5_000);
    let again = depot.take(worker);
    depot.refused.insert(DEAD);
    depot.end(worker, "$reject", &[("message-id", again[0].id())]);
    assert_eq!(depot.peek("g")[3].standing, Some(Standing::Dead));
    // Nobody has read for a group that begins.
    depot.settings.is_paused = true;
    let settings = depot.settings.clone();
    depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
    assert_eq!(depot.got("new"), []);
    let found = depot.peek("new");
    assert_eq!(found[0].standing, Some(Standing::Available));
    assert!(matches!(found[4].standing, Some(Standing::Resting(_))));
    assert_eq!(depot.peek("nobody")[0].standing, None);
}

#[test]
fn a_look_takes_no_message_for_one_that_a_filter_brings() {
    let (mut depot, publisher, worker) = depot();
    for topic in ["$queue/jobs", "$queue/jobs/a", "$queue/jobs/a/b"] {
        depot.enqueue(publisher, topic, "x", &[]);
    }
    depot.is_stuck = true; // no group has read it
    for (filter, wanted) in [("+", [false, true, false]), ("a/#", [false, true, true])] {
        let group = [("consumer-group", "g")];
        depot.subscribe(worker, &format!("$queue/jobs/{filter}"), &group);
        let found = depot.peek_of(("g", Some(filter)));
        let standings = found.iter().map(|each| each.standing.unwrap());
        let told: Vec<_> = standings.map(|each| each == Standing::Available).collect();
        assert_eq!(told, wanted, "{filter}");
    }
}

#[test]
fn what_comes_while_nobody_consumes_is_there_for_who_does_and_grows_too_old() {
    let mut short = settings();
    short.policy.ttl_ms = 10_000;
    short.keeps_dead = false;
    let (mut depot, publisher, worker) = with(short, 1);
    let groups: Vec<String> = (0..5).map(|number| format!("g{number}")).collect();
    for group in &groups {
        assert_eq!(depot.got(group), []);
    }
    depot.subscribe(worker, "$queue/jobs", &[("prefetch", "1")]);
    depot.stage.hang_up(worker);
    depot.enqueue(publisher, "$queue/jobs", "1", &[]);
    depot.wait(4_000);
    for payload in ["2", "3"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    // It is there for who comes, and grows too old in its turn.
    assert_eq!(
        depot.got("g3"),
        pairs(&[("1", "0:0:1"), ("2", "0:1:1"), ("3", "0:2:1")])
    );
    depot.wait(6_000);
    assert_eq!(depot.got("g1"), pairs(&[("2", "0:1:1"), ("3", "0:2:1")]));
    depot.wait(4_000);
    assert_eq!(depot.depth(JOBS), 5, "what is in flight");
    // One that was served and has no more waits for what comes.
    let waiting = depot.pull("g0", WAITING);
    depot.enqueue(publisher, "$queue/jobs", "4", &[]);
    assert_eq!(depot.pulled(waiting), Some(pairs(&[("4", "0:3:1")])));
}
