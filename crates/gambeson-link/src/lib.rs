//! Links between the processes of distributed programs, with a security context each.
//!
//! | module | what it is |
//! |---|---|
//! | [`carrier`] | what moves bytes between two domains: TCP or shared memory |
#![deny(unsafe_code)]

pub mod carrier;
