//! A publish of another door, from its parts.

use headrace_core::mqtt::packet::{Publish, PublishProperties, QoS};
use pyo3::exceptions::PyValueError;
use pyo3::PyResult;

pub(super) fn publish_of<'a>(
    topic: &'a str,
    payload: &'a [u8],
    qos: u8,
    retain: bool,
    properties: &'a [(String, String)],
) -> PyResult<Publish<'a>> {
    let qos = match qos {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => return Err(PyValueError::new_err(format!("qos is 0 or 1, not {qos}"))),
    };
    let user = properties.iter();
    let user = user.map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(Publish {
        topic,
        payload,
        qos,
        retain,
        properties: PublishProperties {
            user: user.collect(),
            ..PublishProperties::default()
        },
        ..Publish::default()
    })
}
