//! libgambeson-link.so: links ([`gambeson_link`]) for programs in C. The header, include/gambeson/link.h, is written by
//! cbindgen from what stands here (`make reference`), and its comments begin with the words of the Rust crate.
//!
//! | module | what it is |
//! |---|---|
//! | [`failure`] | status codes, sentences; no panic leaves this library |
//! | [`raw`] | what C gives becomes references, slices and numbers, or an error |
//! | [`launch`] | processes on other hosts ([`gambeson_launch`]) |
//! | [`identity`], [`policy`], [`domain`], [`refusals`], [`endpoint`], [`startpoint`], [`transport`], [`buffers`], [`region`], [`group`], [`own`] | C calls, mapped to safe calls |
//!
//! Handles are boxes, and pointers to them `Option`s of references: C's null is `None`. What is filled in is
//! `MaybeUninit`, since C need not have put anything there.
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(clippy::missing_safety_doc, reason = "the header begins with what holds for all its functions")]

pub mod buffers;
pub mod domain;
pub mod endpoint;
pub mod failure;
pub mod group;
pub mod identity;
pub mod launch;
pub mod own;
pub mod policy;
mod raw;
pub mod refusals;
pub mod region;
pub mod startpoint;
pub mod transport;
