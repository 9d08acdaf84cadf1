//! What the two papers have in closed form or by small models of their own: how many keys a cache is enough for, the
//! synthetic streams of keys, and the estimates and tables, each with what the paper prints and what its rule gives.

pub mod estimates;
pub mod markov;
pub mod on_off;
pub mod tables;
