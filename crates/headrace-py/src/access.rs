//! `Principal` and `AccessRules`: conversions alone.

use std::sync::Arc;

use headrace_core::access as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Somebody who was let in.
#[pyclass(frozen, module = "headrace._native")]
pub struct Principal(pub core::Principal);

#[pymethods]
impl Principal {
    #[new]
    #[pyo3(signature = (username = None, roles = Vec::new(), host = None, *, is_certified = false))]
    fn new(
        username: Option<String>,
        roles: Vec<String>,
        host: Option<&str>,
        is_certified: bool,
    ) -> Self {
        let address = host.map(|host| host.split('%').next().unwrap_or(host));
        Self(core::Principal {
            username: username.map(Into::into),
            roles: roles.into_iter().map(Into::into).collect(),
            address: address.and_then(|address| address.parse().ok()),
            is_certified,
        })
    }

    #[getter]
    fn username(&self) -> Option<&str> {
        self.0.username.as_deref()
    }

    #[getter]
    fn roles(&self) -> Vec<&str> {
        self.0.roles.iter().map(|role| &**role).collect()
    }
}

/// Rules, in the order in which they are asked.
#[pyclass(module = "headrace._native")]
pub struct AccessRules(pub Arc<core::Rules>);

#[pymethods]
impl AccessRules {
    #[new]
    fn new(no_match: bool) -> Self {
        Self(Arc::new(core::Rules::new(no_match)))
    }

    #[pyo3(signature = (*, allows, actions, users, roles, clients, addresses, topics, streams, groups))]
    #[expect(clippy::too_many_arguments, reason = "the parts of a rule")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn add(
        &mut self,
        allows: bool,
        actions: Vec<String>,
        users: Vec<String>,
        roles: Vec<String>,
        clients: Vec<String>,
        addresses: Vec<String>,
        topics: Vec<String>,
        streams: Vec<String>,
        groups: Vec<String>,
    ) -> PyResult<()> {
        let all = Arc::get_mut(&mut self.0)
            .ok_or_else(|| PyValueError::new_err("the rules are in use; make others"))?;
        let draft = core::Draft {
            allows,
            actions: &actions,
            users: &users,
            roles: &roles,
            clients: &clients,
            addresses: &addresses,
            topics: &topics,
            streams: &streams,
            groups: &groups,
        };
        all.add(&draft)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn check(
        &self,
        principal: &Principal,
        client_id: &str,
        action: &str,
        topic: &str,
    ) -> PyResult<Verdict> {
        let identity = self.0.identify(principal.0.clone(), client_id);
        let decision = self.0.decide(&identity, client_id, parsed(action)?, topic);
        Ok((decision.is_allowed, decision.rule, decision.hole))
    }

    fn check_group(
        &self,
        principal: &Principal,
        client_id: &str,
        action: &str,
        group: &str,
    ) -> PyResult<Verdict> {
        let identity = self.0.identify(principal.0.clone(), client_id);
        let decision = self
            .0
            .decide_group(&identity, client_id, parsed(action)?, group);
        Ok((decision.is_allowed, decision.rule, decision.hole))
    }
}

/// Whether it may be, and the numbers of the rule that says so and of the first that denies some.
type Verdict = (bool, Option<u16>, Option<u16>);

fn parsed(action: &str) -> PyResult<core::Action> {
    let unknown = || PyValueError::new_err(format!("\"{action}\" is no action"));
    core::Action::parse(action).ok_or_else(unknown)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AccessRules>()?;
    module.add_class::<Principal>()
}
