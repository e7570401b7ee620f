//! What is rendered for tenants, with real API servers on a real etcd.

// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api_server;
mod read_only;
mod requests;
mod secrets_at_rest;
