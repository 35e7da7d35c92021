//! Names, filters and the tree, clause by clause and against a model.

use std::collections::BTreeSet;

use super::{
    matches, validate_name, Filter, Subscription, TopicError, Tree, BYTES_MAX, LEVELS_MAX,
};
use crate::hash::Key;
use crate::testing::Random;

fn filter(text: &str) -> Filter<'_> {
    Filter::parse(text).unwrap()
}

/// Both ways to ask: the function and a tree that holds this one filter.
fn agree(pattern: &str, name: &str) -> bool {
    let mut tree = Tree::new(Key(1, 2));
    tree.insert(filter(pattern), 0, ());
    let mut found = false;
    tree.matches(name, &mut |_: &u8, ()| found = true);
    assert_eq!(found, matches(pattern, name), "{pattern} {name}");
    found
}

/// Holds 5.0: 4.7.0-1.
/// Holds 3.1.1: 4.7.1-1.
#[test]
fn mqtt_4_7_0_1_a_name_must_not_hold_wildcards() {
    assert_eq!(validate_name("a/+"), Err(TopicError::WildcardInName));
    assert_eq!(validate_name("a#"), Err(TopicError::WildcardInName));
}

/// Holds 5.0: 4.7.1-1.
/// Holds 3.1.1: 4.7.1-2.
#[test]
fn mqtt_4_7_1_1_number_sign_stands_alone_in_the_last_level() {
    for valid in ["#", "sport/#", "sport/tennis/#", "/#"] {
        assert!(Filter::parse(valid).is_ok(), "{valid}");
    }
    for invalid in ["sport/tennis#", "sport/#/ranking", "#/", "##", "#a", "a/#b"] {
        assert_eq!(
            Filter::parse(invalid),
            Err(TopicError::MultiLevel),
            "{invalid}"
        );
    }
}

#[test]
fn mqtt_4_7_1_2_number_sign_matches_the_parent_and_any_number_of_child_levels() {
    for name in [
        "sport/tennis/player1",
        "sport/tennis/player1/ranking",
        "sport/tennis/player1/score/wimbledon",
    ] {
        assert!(agree("sport/tennis/player1/#", name));
    }
    assert!(agree("sport/#", "sport"));
    assert!(agree("sport/#", "sport/"));
    assert!(!agree("sport/#", "sports"));
    assert!(agree("#", "a"));
    assert!(agree("#", "/"));
    assert!(agree("+/#", "a"));
}

/// Holds 5.0: 4.7.1-2.
/// Holds 3.1.1: 4.7.1-3.
#[test]
fn mqtt_4_7_1_2_plus_stands_alone_in_its_level() {
    for valid in ["+", "+/tennis/#", "sport/+/player1", "/+", "+/+"] {
        assert!(Filter::parse(valid).is_ok(), "{valid}");
    }
    for invalid in ["sport+", "+sport", "a/b+/c", "++"] {
        assert_eq!(
            Filter::parse(invalid),
            Err(TopicError::SingleLevel),
            "{invalid}"
        );
    }
}

#[test]
fn mqtt_4_7_1_3_plus_matches_exactly_one_level_empty_or_not() {
    assert!(agree("sport/tennis/+", "sport/tennis/player1"));
    assert!(!agree("sport/tennis/+", "sport/tennis/player1/ranking"));
    assert!(!agree("sport/+", "sport"));
    assert!(agree("sport/+", "sport/"));
    assert!(agree("+/+", "/finance"));
    assert!(agree("/+", "/finance"));
    assert!(!agree("+", "/finance"));
}

/// Holds 5.0: 4.7.2-1.
/// Holds 3.1.1: 4.7.2-1.
#[test]
fn mqtt_4_7_2_1_a_leading_wildcard_does_not_match_a_leading_dollar() {
    assert!(!agree("#", "$SYS/monitor/Clients"));
    assert!(!agree("+/monitor/Clients", "$SYS/monitor/Clients"));
    assert!(!agree("+", "$SYS"));
    assert!(!agree("+/#", "$SYS"));
    assert!(agree("$SYS/#", "$SYS/monitor/Clients"));
    assert!(agree("$SYS/#", "$SYS"));
    assert!(agree("$SYS/monitor/+", "$SYS/monitor/Clients"));
    assert!(agree("a/#", "a/$b"));
    assert!(agree("a/+", "a/$b"));
}

/// Holds 5.0: 4.7.3-1.
/// Holds 3.1.1: 4.7.3-1.
#[test]
fn mqtt_4_7_3_1_names_and_filters_are_not_empty() {
    assert_eq!(validate_name(""), Err(TopicError::Empty));
    assert_eq!(Filter::parse(""), Err(TopicError::Empty));
    assert_eq!(validate_name("/"), Ok(()));
    assert_eq!(validate_name(" "), Ok(()));
}

/// Holds 5.0: 4.7.3-2.
/// Holds 3.1.1: 4.7.3-2.
#[test]
fn mqtt_4_7_3_2_names_and_filters_hold_no_control_character() {
    for code in (0..0x20).chain(0x7F..0xA0) {
        let control = char::from(code);
        let name = format!("a/{control}/b");
        assert_eq!(validate_name(&name), Err(TopicError::Control));
        assert_eq!(Filter::parse(&name), Err(TopicError::Control));
    }
    assert_eq!(
        validate_name("\u{20}\u{7E}\u{A0}\u{BF}\u{FF}\u{FEFF}"),
        Ok(())
    );
}

/// Holds 5.0: 4.7.3-3.
/// Holds 3.1.1: 4.7.3-3.
#[test]
fn mqtt_4_7_3_3_names_and_filters_end_at_65_535_bytes() {
    assert_eq!(validate_name(&"a".repeat(BYTES_MAX)), Ok(()));
    assert_eq!(
        validate_name(&"a".repeat(BYTES_MAX + 1)),
        Err(TopicError::TooLong)
    );
    assert_eq!(
        Filter::parse(&"a".repeat(BYTES_MAX + 1)),
        Err(TopicError::TooLong)
    );
}

/// Holds 5.0: 4.7.3-4.
/// Holds 3.1.1: 4.7.3-4.
#[test]
fn mqtt_4_7_3_4_matching_does_not_fold_case_or_normalise() {
    assert!(!agree("ACCOUNTS", "Accounts"));
    assert!(!agree("/finance", "finance"));
    assert!(agree("Accounts payable", "Accounts payable"));
    assert!(!agree("caf\u{e9}", "cafe\u{301}"));
    assert!(!agree("a", "\u{feff}a"));
}

#[test]
fn levels_are_bounded() {
    let deepest = vec!["a"; LEVELS_MAX].join("/");
    assert_eq!(validate_name(&deepest), Ok(()));
    assert_eq!(
        validate_name(&format!("{deepest}/")),
        Err(TopicError::TooDeep)
    );
    assert_eq!(
        Filter::parse(&format!("{deepest}/#")),
        Err(TopicError::TooDeep)
    );
    let filter = format!("{}#", "+/".repeat(LEVELS_MAX - 1));
    assert!(agree(&filter, &deepest));
    assert!(agree(&filter, &"/".repeat(BYTES_MAX)));
}

/// Holds 5.0: 4.8.2-1.
#[test]
fn mqtt_4_8_2_1_a_share_name_has_at_least_one_character() {
    assert_eq!(
        Subscription::parse("$share//a"),
        Err(TopicError::ShareGroup)
    );
    assert_eq!(Subscription::parse("$share/"), Err(TopicError::ShareGroup));
    let shared = Subscription::parse("$share/consumer1/sport/tennis/+").unwrap();
    assert_eq!(shared.group, Some("consumer1"));
    assert_eq!(shared.filter.as_str(), "sport/tennis/+");
}

/// Holds 5.0: 4.8.2-2.
#[test]
fn mqtt_4_8_2_2_a_share_name_holds_no_wildcard_and_a_filter_follows_it() {
    assert_eq!(
        Subscription::parse("$share/a+/x"),
        Err(TopicError::ShareGroup)
    );
    assert_eq!(
        Subscription::parse("$share/a#/x"),
        Err(TopicError::ShareGroup)
    );
    assert_eq!(
        Subscription::parse("$share/a"),
        Err(TopicError::ShareFilter)
    );
    assert_eq!(
        Subscription::parse("$share/a/"),
        Err(TopicError::ShareFilter)
    );
    assert_eq!(
        Subscription::parse("$share/a/x#"),
        Err(TopicError::MultiLevel)
    );
    assert_eq!(
        Subscription::parse("$share/a//x").unwrap().filter.as_str(),
        "/x"
    );
    assert_eq!(Subscription::parse("$shared/a").unwrap().group, None);
}

#[test]
fn a_subscriber_has_one_value_for_each_filter() {
    let mut tree = Tree::new(Key(1, 2));
    for pattern in ["a/b", "a/+", "a/#"] {
        assert_eq!(tree.insert(filter(pattern), 1, "old"), None);
        assert_eq!(tree.insert(filter(pattern), 1, "new"), Some("old"));
        assert_eq!(tree.insert(filter(pattern), 2, "other"), None);
    }
    assert_eq!(tree.len(), 6);
    let mut seen = Vec::new();
    tree.matches("a/b", &mut |subscriber, value: &&str| {
        seen.push((*subscriber, *value));
    });
    assert_eq!(seen, [(1, "new"), (2, "other")].repeat(3));
    assert_eq!(tree.remove(filter("a/+"), &1), Some("new"));
    assert_eq!(tree.remove(filter("a/+"), &1), None);
    assert_eq!(tree.remove(filter("a/c"), &1), None);
    assert_eq!(tree.remove(filter("b/+"), &1), None);
    assert_eq!(tree.len(), 5);
}

/// Inserts and removes random filters, and asks for random names, of up to `depth` levels.
fn compare_with_plain_match(seed: u64, depth: u64, levels: &[&str]) {
    let mut random = Random::new(seed);
    let mut tree = Tree::new(Key(5, 6));
    let mut model: BTreeSet<(String, u64)> = BTreeSet::new();
    for _ in 0..1_500 {
        let pattern = random_topic(&mut random, depth, levels);
        let subscriber = random.below(4);
        if let Ok(filter) = Filter::parse(&pattern) {
            let key = (pattern.clone(), subscriber);
            if random.below(5) < 3 {
                let fresh = model.insert(key);
                assert_eq!(
                    tree.insert(filter, subscriber, pattern.clone()).is_none(),
                    fresh
                );
            } else {
                assert_eq!(
                    tree.remove(filter, &subscriber).is_some(),
                    model.remove(&key)
                );
            }
        }
        assert_eq!(tree.len(), model.len());
        let name = random_topic(&mut random, depth, levels).replace(['+', '#'], "c");
        let mut found = Vec::new();
        tree.matches(&name, &mut |subscriber, pattern: &String| {
            found.push((pattern.clone(), *subscriber));
        });
        found.sort();
        let matching = model.iter().filter(|(pattern, _)| matches(pattern, &name));
        assert_eq!(found, matching.cloned().collect::<Vec<_>>(), "{name}");
    }
    tree.validate();
    for (pattern, subscriber) in model {
        assert_eq!(
            tree.remove(filter(&pattern), &subscriber),
            Some(pattern.clone())
        );
    }
    assert_eq!((tree.len(), tree.validate()), (0, 0));
}

#[test]
fn a_walk_of_the_tree_ends_where_it_may_and_keeps_to_a_range_of_subscribers() {
    let mut tree = Tree::new(Key(3, 4));
    for (subscriber, text) in [
        (1, "a/b"),
        (2, "a/b"),
        (3, "a/b"),
        (2, "a/+"),
        (4, "+/b"),
        (5, "#"),
        (6, "a/#"),
        (1, "a/#"),
    ] {
        tree.insert(filter(text), subscriber, ());
    }
    for enough in 1..=9 {
        let mut visits = 0;
        tree.matches_while("a/b", &mut |_, ()| {
            visits += 1;
            visits < enough
        });
        assert_eq!(visits, enough.min(8));
    }
    for (from, to) in [(0, 7), (2, 2), (1, 3), (3, 5), (5, 9)] {
        let (mut all, mut found) = (Vec::new(), Vec::new());
        tree.matches("a/b", &mut |each, ()| all.push(*each));
        tree.matches_within("a/b", from..to, &mut |each, ()| found.push(*each));
        all.retain(|each| (from..to).contains(each));
        assert_eq!(found, all, "{from}..{to}");
    }
}

/// Holds 5.0: 3.3.2-3.
/// Holds 3.1.1: 3.3.2-3.
#[test]
fn the_tree_agrees_with_the_plain_match_on_random_filters() {
    for seed in 1..4 {
        compare_with_plain_match(seed, 3, &["a", "b", "", "$x", "+", "#"]);
        compare_with_plain_match(seed, 7, &["a", "a", "a", "+", "#"]);
        compare_with_plain_match(seed, 5, &["a", "ab", "+"]);
    }
}

fn random_topic(random: &mut Random, depth: u64, levels: &[&str]) -> String {
    let count = 1 + random.below(depth);
    let topic: Vec<_> = (0..count).map(|_| random.pick(levels)).collect();
    topic.join("/")
}

#[test]
fn a_name_is_plain_when_each_byte_is() {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'+' && byte != b'#';
    for length in 0..=17 {
        let mut name = vec![b'a'; length];
        assert!(super::is_plain(&name));
        for at in 0..length {
            for byte in 0..=u8::MAX {
                name[at] = byte;
                assert_eq!(
                    super::is_plain(&name),
                    plain(byte),
                    "{byte:#x} at {at} of {length}"
                );
            }
            name[at] = b'a';
        }
    }
}
