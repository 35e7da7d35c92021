//! Limits of a switchboard, by their names.

use headrace_core::switchboard as core;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Limits with those replaced that a caller names.
pub(super) fn limits_from(
    mut limits: core::Limits,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<core::Limits> {
    for (name, value) in named.into_iter().flatten() {
        set_limit(&mut limits, name.cast::<PyString>()?.to_str()?, &value)?;
    }
    Ok(limits)
}

fn strategies(value: &Bound<'_, PyAny>) -> PyResult<Vec<(Box<str>, core::Strategy)>> {
    let named: Vec<(String, Bound<'_, PyAny>)> = value.extract()?;
    let named = named.into_iter().map(|(group, strategy)| {
        let strategy = word(&strategy, core::Strategy::parse)?;
        Ok((group.into_boxed_str(), strategy))
    });
    named.collect()
}

fn set_limit(limits: &mut core::Limits, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "packet_bytes_max" => limits.packet_bytes_max = value.extract()?,
        "receive_max" => limits.receive_max = value.extract()?,
        "topic_alias_max" => limits.topic_alias_max = value.extract()?,
        "session_expiry_s_max" => limits.session_expiry_s_max = value.extract()?,
        "in_flight_max" => limits.in_flight_max = value.extract()?,
        "queued_messages_max" => limits.queued_messages_max = value.extract()?,
        "queued_bytes_max" => limits.queued_bytes_max = value.extract()?,
        "queued_bytes_of_node_max" => limits.queued_bytes_of_node_max = value.extract()?,
        "copies_each" => limits.copies_each = value.extract()?,
        "overflow" => limits.overflow = word(value, core::Policy::parse)?,
        "sessions_max" => limits.sessions_max = value.extract()?,
        "sessions_kept_max" => limits.sessions_kept_max = value.extract()?,
        "queue_groups_max" => limits.queue_groups_max = value.extract()?,
        "subscriptions_max" => limits.subscriptions_max = value.extract()?,
        "unreleased_of_node_max" => limits.unreleased_of_node_max = value.extract()?,
        "subscriptions_of_node_max" => limits.subscriptions_of_node_max = value.extract()?,
        "messages_per_s_max" => limits.messages_per_s_max = value.extract()?,
        "shared_strategy" => limits.shared_strategy = word(value, core::Strategy::parse)?,
        "shared_strategies" => limits.shared_strategies = strategies(value)?,
        "group_messages_max" => limits.group_messages_max = value.extract()?,
        "group_bytes_max" => limits.group_bytes_max = value.extract()?,
        "retained_messages_max" => limits.retained_messages_max = value.extract()?,
        "retained_bytes_max" => limits.retained_bytes_max = value.extract()?,
        "outbound_bytes_max" => limits.outbound_bytes_max = value.extract()?,
        "buffered_bytes_max" => limits.buffered_bytes_max = value.extract()?,
        "stall_ms_max" => limits.stall_ms_max = value.extract()?,
        "undurable_bytes_max" => limits.undurable_bytes_max = value.extract()?,
        "keep_alive_s_max" => limits.keep_alive_s_max = value.extract()?,
        "response_information" => {
            limits.response_information = value.extract::<Option<String>>()?.map(Into::into);
        }
        "connect_timeout_ms" => limits.connect_timeout_ms = value.extract()?,
        _ => {
            return Err(PyTypeError::new_err(format!(
                "\"{name}\" is no limit of a switchboard"
            )))
        }
    }
    Ok(())
}

/// One of the words that a limit takes.
fn word<T>(value: &Bound<'_, PyAny>, parse: impl Fn(&str) -> Option<T>) -> PyResult<T> {
    let text = value.extract::<String>()?;
    parse(&text).ok_or_else(|| PyValueError::new_err(format!("\"{text}\" is not among its words")))
}
