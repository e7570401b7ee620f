//! Networks of the kernel without root: namespaces, bridges, veth pairs, addresses and routes, by netlink.

mod links;
mod namespace;
pub mod nft;

pub use links::NetworkError;
pub use namespace::NetNamespace;
