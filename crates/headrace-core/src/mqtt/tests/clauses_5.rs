//! MQTT 5.0, clause by clause. Test names carry the clause.

use super::super::packet::Version::V5;
use super::refusal;

const MALFORMED: u8 = 0x81;

#[test]
fn mqtt_1_5_4_2_a_string_must_not_hold_u_0000() {
    assert_eq!(refusal(V5, 0x30, "0003 'a' 00 'b' 00"), MALFORMED);
}
