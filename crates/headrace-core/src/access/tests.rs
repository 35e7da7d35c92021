//! Rules as they are written, and what they decide.

use super::*;
use crate::topic;

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// `allow`, `deny`; actions; topics.
fn rules(no_match: bool, lines: &[(bool, &str, &[&str])]) -> Rules {
    let mut rules = Rules::new(no_match);
    for (allows, action, topics) in lines {
        let draft = Draft {
            allows: *allows,
            actions: &list(&[action]),
            topics: &list(topics),
            ..Draft::default()
        };
        rules.add(&draft).unwrap();
    }
    rules
}

fn user(name: &str) -> Principal {
    Principal {
        username: Some(name.into()),
        ..Principal::default()
    }
}

fn may(rules: &Rules, principal: Principal, client_id: &str, action: Action, topic: &str) -> bool {
    let identity = rules.identify(principal, client_id);
    rules.decide(&identity, client_id, action, topic).is_allowed
}

fn publishes(rules: &Rules, topic: &str) -> bool {
    may(rules, user("ann"), "c1", Action::Publish, topic)
}

fn subscribes(rules: &Rules, filter: &str) -> bool {
    may(rules, user("ann"), "c1", Action::Subscribe, filter)
}

#[test]
fn the_first_rule_that_is_about_a_topic_decides() {
    let rules = rules(
        false,
        &[
            (true, "publish", &["a/open"]),
            (false, "publish", &["a/+"]),
            (true, "publish", &["a/#", "b"]),
        ],
    );
    for (topic, allowed) in [
        ("a/open", true),
        ("a/x", false),
        ("a/x/y", true),
        ("a", true),
        ("b", true),
        ("c", false),
    ] {
        assert_eq!(publishes(&rules, topic), allowed, "{topic}");
    }
    assert!(
        !subscribes(&rules, "b"),
        "a rule is about its actions alone"
    );
    let identity = rules.identify(user("ann"), "c1");
    let decision = rules.decide(&identity, "c1", Action::Publish, "a/x");
    assert_eq!(decision.rule, Some(1));
    let decision = rules.decide(&identity, "c1", Action::Connect, "");
    assert!(decision.is_allowed && decision.rule.is_none());
}

#[test]
fn a_subscription_is_held_against_all_that_it_matches() {
    let allow = |topic: &str| rules(false, &[(true, "subscribe", &[topic])]);
    for (topic, filter, allowed) in [
        ("a/+", "a/b", true),
        ("a/+", "a/+", true),
        ("a/+", "a/#", false),
        ("a/+", "+/b", false),
        ("a/#", "a/#", true),
        ("a/#", "a", true),
        ("a/#", "a/+/c", true),
        ("a/#", "#", false),
        ("#", "#", true),
        ("#", "+/x", true),
        ("#", "$SYS/#", false),
        ("+/x", "$SYS/x", false),
        ("$SYS/#", "$SYS/#", true),
        ("$SYS/#", "#", false),
        ("a", "a/#", false),
        ("a/b", "a", false),
        ("a", "a/b", false),
    ] {
        assert_eq!(
            subscribes(&allow(topic), filter),
            allowed,
            "{filter} under {topic}"
        );
    }
}

#[test]
fn a_rule_that_denies_some_of_a_subscription_leaves_a_hole_in_it() {
    const WHOLE: Option<bool> = Some(false);
    const HOLES: Option<bool> = Some(true);
    for (topic, filter, expected) in [
        ("a/secret", "a/secret", None),
        ("a/secret", "a/+", HOLES),
        ("a/secret", "#", HOLES),
        ("a/secret", "a/secret/#", HOLES),
        ("a/secret/#", "a/secret/+", None),
        ("a/secret/#", "a/secret/#", None),
        ("a/secret/#", "a/#", HOLES),
        ("a/secret", "+/+/x", WHOLE),
        ("a/secret", "a/open", WHOLE),
        ("a/+/x", "+/b/+", HOLES),
        ("$SYS/#", "#", WHOLE),
        ("$SYS/#", "+/x", WHOLE),
        ("$SYS/#", "$SYS/broker", None),
        ("#", "$SYS/broker", WHOLE),
        ("a/#", "a", None),
        ("u/{username}", "u/+", HOLES),
    ] {
        let rules = rules(true, &[(false, "subscribe", &[topic])]);
        let identity = rules.identify(user("ann"), "c1");
        let decision = rules.decide(&identity, "c1", Action::Subscribe, filter);
        let found = decision.is_allowed.then_some(decision.hole.is_some());
        assert_eq!(found, expected, "{filter} under {topic}");
    }
}

#[test]
fn a_hole_does_not_come_from_a_rule_behind_the_one_that_decides() {
    let rules = rules(
        false,
        &[(true, "subscribe", &["#"]), (false, "subscribe", &["a"])],
    );
    let identity = rules.identify(user("ann"), "c1");
    let decision = rules.decide(&identity, "c1", Action::Subscribe, "#");
    assert!(decision.is_allowed && decision.hole.is_none());
}

/// What is said of filters holds for names: over all filters and names of a small alphabet.
#[test]
fn no_name_comes_through_a_subscription_without_holes_that_could_not_be_had_alone() {
    let levels = ["a", "b", "+", "#", "$S"];
    let mut filters: Vec<String> = Vec::new();
    for first in levels {
        filters.push(first.into());
        for second in levels {
            filters.push(format!("{first}/{second}"));
            filters.extend(["a", "#"].map(|third| format!("{first}/{second}/{third}")));
        }
    }
    filters.retain(|filter| topic::Filter::parse(filter).is_ok());
    let is_name = |filter: &&String| !filter.contains(['+', '#']);
    let names: Vec<&String> = filters.iter().filter(is_name).collect();
    for first in &filters {
        for (deny, second) in filters.iter().enumerate() {
            let both = |first: &str, second: &str| {
                rules(
                    false,
                    &[
                        (deny % 2 == 0, "subscribe", &[first]),
                        (deny % 2 == 1, "subscribe", &[second]),
                    ],
                )
            };
            let rules = both(first, second);
            for filter in &filters {
                let matched = || names.iter().filter(|name| topic::matches(filter, name));
                let identity = rules.identify(user("ann"), "c1");
                let decision = rules.decide(&identity, "c1", Action::Subscribe, filter);
                if decision.is_allowed && decision.hole.is_none() {
                    let leak = matched().find(|name| !subscribes(&rules, name));
                    assert_eq!(leak, None, "{filter} of {first}, {second}");
                }
            }
        }
    }
}

#[test]
fn placeholders_are_whole_levels_or_parts_of_them() {
    let rules = rules(
        false,
        &[(
            true,
            "publish",
            &["d/{clientid}/#", "u/x-{username}", "{username}"],
        )],
    );
    for (topic, allowed) in [
        ("d/c1/t", true),
        ("d/c2/t", false),
        ("d/c1", true),
        ("u/x-ann", true),
        ("u/x-bob", false),
        ("u/x-ann2", false),
        ("ann", true),
    ] {
        assert_eq!(publishes(&rules, topic), allowed, "{topic}");
    }
}

#[test]
fn a_name_that_a_client_chose_widens_nothing() {
    let allow = rules(false, &[(true, "subscribe", &["d/{clientid}"])]);
    let deny = rules(true, &[(false, "subscribe", &["d/{clientid}"])]);
    for client_id in ["+", "#", "a/b", "a+", ""] {
        let ask = |rules, filter| may(rules, user("ann"), client_id, Action::Subscribe, filter);
        for filter in ["d/+", "d/#", "d/a/b", "d/x", "d/a+", "d/"] {
            assert!(!ask(&allow, filter), "{filter} for {client_id}");
        }
        for filter in ["d/+", "d/a/b", "d/x", "d/a+", "d/"] {
            assert!(!ask(&deny, filter), "{filter} for {client_id}");
        }
        let identity = deny.identify(user("ann"), client_id);
        let decision = deny.decide(&identity, client_id, Action::Subscribe, "d/#");
        assert!(decision.hole.is_some(), "it matches d, too");
    }
    let by_name = rules(false, &[(true, "publish", &["u/{username}"])]);
    let nobody = || Principal::default();
    assert!(!may(&by_name, nobody(), "c", Action::Publish, "u/"));
}

#[test]
fn a_rule_is_about_those_that_it_names() {
    let draft = Draft {
        allows: true,
        users: &list(&["ann", "meter-*"]),
        roles: &list(&["field"]),
        clients: &list(&["{username}", "{username}-*"]),
        addresses: &list(&["10.1.0.0/16", "fe80::/10", "192.0.2.7"]),
        ..Draft::default()
    };
    let mut rules = Rules::new(false);
    rules.add(&draft).unwrap();
    let principal = |name: &str, role: &str, address: &str| Principal {
        username: Some(name.into()),
        roles: [role.into()].into(),
        address: address.parse().ok(),
        is_certified: false,
    };
    for (name, role, client_id, address, allowed) in [
        ("ann", "field", "ann", "10.1.2.3", true),
        ("ann", "field", "ann-2", "fe80::1", true),
        ("meter-7", "field", "meter-7", "::ffff:10.1.2.3", true),
        ("ann", "field", "ann", "192.0.2.7", true),
        ("ann", "field", "ann", "192.0.2.8", false),
        ("ann", "field", "ann", "10.2.2.3", false),
        ("ann", "field", "ann", "a socket", false),
        ("ann", "office", "ann", "10.1.2.3", false),
        ("ann", "field", "bob", "10.1.2.3", false),
        ("bob", "field", "bob", "10.1.2.3", false),
    ] {
        let asked = may(
            &rules,
            principal(name, role, address),
            client_id,
            Action::Publish,
            "t",
        );
        assert_eq!(asked, allowed, "{name} {role} {client_id} {address}");
    }
}

#[test]
fn a_rule_about_streams_is_about_no_topics_and_the_other_way_round() {
    let add = |rules: &mut Rules, topics: &[&str], streams: &[&str]| {
        let draft = Draft {
            allows: true,
            topics: &list(topics),
            streams: &list(streams),
            ..Draft::default()
        };
        rules.add(&draft).unwrap();
    };
    let ask = |rules: &Rules, action, topic| may(rules, user("ann"), "c", action, topic);
    let mut rules = Rules::new(false);
    add(&mut rules, &[], &["gpu-*", "{username}"]);
    for (stream, allowed) in [("gpu-a", true), ("ann", true), ("bob", false)] {
        assert_eq!(ask(&rules, Action::Read, stream), allowed);
        assert_eq!(ask(&rules, Action::Write, stream), allowed);
    }
    assert!(!ask(&rules, Action::Publish, "gpu-a"));
    add(&mut rules, &["#"], &[]);
    assert!(ask(&rules, Action::Publish, "gpu-a"));
    assert!(!ask(&rules, Action::Read, "bob"));
    add(&mut rules, &[], &[]);
    assert!(ask(&rules, Action::Read, "bob"));
}

#[test]
fn who_may_read_or_write_a_stream_may_see_it() {
    let mut rules = Rules::new(false);
    for (allows, action, stream) in [
        (false, "describe", "hidden-*"),
        (false, "read", "secret-*"),
        (true, "write", "in"),
        (true, "describe", "seen"),
        (true, "read", "*"),
    ] {
        let draft = Draft {
            allows,
            actions: &list(&[action]),
            streams: &list(&[stream]),
            ..Draft::default()
        };
        rules.add(&draft).unwrap();
    }
    for (stream, sees, reads) in [
        ("hidden-1", false, true),
        ("secret-1", false, false),
        ("in", true, true),
        ("seen", true, true),
    ] {
        let ask = |action| may(&rules, user("ann"), "c", action, stream);
        let found = (ask(Action::Describe), ask(Action::Read));
        assert_eq!(found, (sees, reads), "{stream}");
    }
}

#[test]
fn groups_are_everybodys_until_a_rule_names_some() {
    let rules = |lines: &[(bool, &str, &[&str], &[&str])]| {
        let mut rules = Rules::new(false);
        for (allows, action, streams, groups) in lines {
            let draft = Draft {
                allows: *allows,
                actions: &list(&[action]),
                streams: &list(streams),
                groups: &list(groups),
                ..Draft::default()
            };
            rules.add(&draft).unwrap();
        }
        rules
    };
    let ask = |rules: &Rules, action, group| {
        let identity = rules.identify(user("ann"), "c");
        rules.decide_group(&identity, "c", action, group).is_allowed
    };
    let open = rules(&[(true, "read", &["open"], &[])]);
    assert!(ask(&open, Action::Read, "any"));
    let closed = rules(&[
        (true, "read", &["open"], &[]),
        (false, "read", &[], &["{username}-old"]),
        (true, "read", &[], &["{username}-*"]),
    ]);
    for (action, group, allowed) in [
        (Action::Read, "ann-new", true),
        (Action::Read, "ann-old", false),
        (Action::Read, "open", false),
        (Action::Describe, "ann-new", true),
        (Action::Describe, "ann-old", false),
    ] {
        assert_eq!(ask(&closed, action, group), allowed, "{group}");
    }
    let identity = closed.identify(user("ann"), "c");
    let stream = closed.decide(&identity, "c", Action::Read, "ann-new");
    assert!(
        !stream.is_allowed,
        "a rule about groups is about no streams"
    );
    let topic = closed.decide(&identity, "c", Action::Publish, "ann-new");
    assert!(!topic.is_allowed);
}

#[test]
fn what_cannot_be_a_rule_is_told() {
    let refused = |draft: &Draft<'_>| Rules::new(false).add(draft).unwrap_err().to_string();
    let topics = |text: &str| {
        refused(&Draft {
            topics: &list(&[text]),
            ..Draft::default()
        })
    };
    assert_eq!(
        topics("a/#/b"),
        "topic \"a/#/b\": # must stand alone in the last level of a topic filter"
    );
    for text in ["{device}", "{clientid", "clientid}"] {
        let expected = "the only placeholders are {clientid} and {username}";
        let told = topics(&format!("a/{text}"));
        assert_eq!(told, format!("\"{text}\": {expected}"));
    }
    let actions = list(&["pub"]);
    let draft = Draft {
        actions: &actions,
        ..Draft::default()
    };
    assert!(refused(&draft).starts_with("\"pub\" is no action"));
    for address in ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/x", "host"] {
        let addresses = list(&[address]);
        let draft = Draft {
            addresses: &addresses,
            ..Draft::default()
        };
        assert!(refused(&draft).contains("is no network"), "{address}");
    }
    let clients = list(&["a*b"]);
    let draft = Draft {
        clients: &clients,
        ..Draft::default()
    };
    assert!(refused(&draft).contains("at the end alone"));
}
