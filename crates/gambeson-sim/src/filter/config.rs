//! Which ports filter, and what filtering costs.

use serde::{Deserialize, Serialize};

/// Partition enforcement of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterConfig {
    /// Who filters, and when.
    pub scheme: Scheme,
    /// One look-up in a table of keys: 5 ns for the paper's 1,024 KB of SRAM (section 7.3).
    pub lookup_ns: f64,
    /// Keys of the valid table, p; once a port has been told of more invalid ones it uses this table instead.
    pub valid_keys: u32,
    /// How long the violation counter of a port must stand still until its filter goes off. Unstated in the paper.
    pub timeout_us: f64,
    /// The least time between two traps of one adapter. Unstated in the paper.
    pub trap_interval_us: f64,
    /// What the subnet manager needs for one trap, one after the other. Unstated in the paper.
    pub processing_us: f64,
    /// From the manager's decision to the port's table. Unstated in the paper.
    pub update_us: f64,
    /// Traps that wait at the manager; more are lost. Unstated in the paper.
    pub queue: u32,
    /// How long the manager ignores repeated traps for a port and key, as packets under way still cause some.
    /// Unstated in the paper.
    pub holdoff_us: f64,
}

/// Who filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Nobody but the receiving adapter: the paper's "Original".
    #[default]
    None,
    /// DT: every switch port has the valid table and looks every packet up.
    DuplicateTable,
    /// IF: so do the ports that nodes are connected to.
    Ingress,
    /// SIF: those, only while the manager has turned their filter on.
    StatefulIngress,
}

impl FilterConfig {
    /// Whether a port has a filter; `ingress` is one that a node is connected to.
    #[must_use]
    pub fn filters(&self, ingress: bool) -> bool {
        match self.scheme {
            Scheme::None => false,
            Scheme::DuplicateTable => true,
            Scheme::Ingress | Scheme::StatefulIngress => ingress,
        }
    }

    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        let times = [
            ("lookup_ns", self.lookup_ns),
            ("timeout_us", self.timeout_us),
            ("trap_interval_us", self.trap_interval_us),
            ("processing_us", self.processing_us),
            ("update_us", self.update_us),
            ("holdoff_us", self.holdoff_us),
        ];
        if let Some((name, value)) = times.iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
            return Err(format!("filter.{name} is {value}; give 0 to 1e9"));
        }
        if !(1..=32_768).contains(&self.valid_keys) {
            return Err(format!("filter.valid_keys is {}; a port has 1 to 32768 P_Keys", self.valid_keys));
        }
        if self.scheme == Scheme::StatefulIngress && self.timeout_us == 0.0 {
            return Err(
                "filter.timeout_us is 0, so that a filter would go off at once; give what an attack may pause".into()
            );
        }
        if self.queue == 0 {
            return Err("filter.queue is 0, so that every trap would be lost; give at least 1".into());
        }
        Ok(())
    }
}

impl Default for FilterConfig {
    fn default() -> Self {
        FilterConfig {
            scheme: Scheme::None,
            lookup_ns: 5.0,
            valid_keys: 32,
            timeout_us: 1000.0,
            trap_interval_us: 10.0,
            processing_us: 5.0,
            update_us: 1.0,
            queue: 64,
            holdoff_us: 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, complaint: &str) {
        let config: FilterConfig = toml::from_str(text).expect("the text is well-formed");
        match config.validate() {
            Ok(()) => assert_eq!(complaint, "", "{text}"),
            Err(sentence) => assert!(!complaint.is_empty() && sentence.contains(complaint), "{text}: {sentence}"),
        }
    }

    #[test]
    fn configuration_errors_are_sentences() {
        check("", "");
        check("scheme = 'stateful-ingress'", "");
        check("scheme = 'stateful-ingress'\ntimeout_us = 0", "timeout_us is 0");
        check("valid_keys = 0", "valid_keys is 0");
        check("valid_keys = 40000", "valid_keys is 40000");
        check("lookup_ns = -5", "lookup_ns is -5");
        check("holdoff_us = nan", "holdoff_us is NaN");
        check("queue = 0", "queue is 0");
        assert!(toml::from_str::<FilterConfig>("schema = 'ingress'").is_err());
    }

    #[test]
    fn schemes_filter_where_the_paper_has_them() {
        let check = |scheme, everywhere: [bool; 2]| {
            let config = FilterConfig { scheme, ..FilterConfig::default() };
            assert_eq!([config.filters(true), config.filters(false)], everywhere, "{scheme:?}");
        };
        check(Scheme::None, [false, false]);
        check(Scheme::DuplicateTable, [true, true]);
        check(Scheme::Ingress, [true, false]);
        check(Scheme::StatefulIngress, [true, false]);
    }
}
