//! One file per subcommand: its arguments, and what it does.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod bench;
mod browser;
pub(crate) mod completion;
pub(crate) mod daemon;
pub(crate) mod directory;
pub(crate) mod doctor;
pub(crate) mod enroll;
pub(crate) mod enter;
pub(crate) mod exec;
pub(crate) mod file;
pub(crate) mod init;
pub(crate) mod keep;
pub(crate) mod key;
pub(crate) mod keyd;
pub(crate) mod manual;
pub(crate) mod orders;
pub(crate) mod partition;
pub(crate) mod policy;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod site;
pub(crate) mod start;
pub(crate) mod worker;

/// `1 label`, or `3 labels`.
pub(crate) fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}
