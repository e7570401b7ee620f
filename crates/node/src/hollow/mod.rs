//! A node that only pretends to run its pods.
