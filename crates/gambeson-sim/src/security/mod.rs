//! Security in the adapter: how long sealing and opening take, and where the keys are (SKC paper, sections 3 and 4; IBA
//! paper, sections 5 and 7.2).
//!
//! ```text
//!               hit: cache access time
//!  packet ──> session-key cache ─┬─> GCM pipeline ──> packet
//!             prefetch buffer ───┘
//!               │ miss: access + unwrap, one or more at a time
//!             memory off the chip <── lists of frequent keys, updated at each eviction
//! ```

pub mod key_distribution;

mod calendar;
mod config;
mod forging;
mod gcm;
mod key_cache;
mod prefetch;
mod replay;
mod stack_distance;
mod unit;

pub use config::{
    BufferReplacement, BusConfig, CacheConfig, HostConfig, KeyLevel, ListOrder, MemoryConfig, Placement,
    PrefetchConfig, SecurityConfig,
};
pub use forging::{AlertConfig, Authenticator, Authenticity, ForgingStats};
pub use gcm::Gcm;
pub use key_cache::{Evicted, KeyCache};
pub use replay::{ReplayConfig, ReplayDefence, ReplayGuard};
pub use stack_distance::StackDistances;
pub use unit::{Pass, Unit, UnitStats};
