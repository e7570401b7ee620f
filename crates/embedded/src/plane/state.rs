//! What a home keeps about its plane: the network and the ports, so that a restart finds everything where it was.

use std::net::{Ipv4Addr, TcpListener};

use serde::{Deserialize, Serialize};

use super::PlaneError;
use crate::home::Home;
use crate::net::LoopbackNet;
use crate::ports;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pub network: LoopbackNet,
    pub api_port: u16,
    pub etcd_port: u16,
    pub etcd_peer_port: u16,
    pub controller_manager_port: u16,
    pub scheduler_port: u16,
}

impl State {
    /// What was chosen at the first start, or a new choice that is written down.
    pub fn load_or_choose(home: &Home) -> Result<Self, PlaneError> {
        let path = home.state_file();
        let file = |source| PlaneError::File { path: path.clone(), source };
        match std::fs::read(&path) {
            Ok(text) => {
                let state: State = serde_json::from_slice(&text)
                    .map_err(|source| PlaneError::BadState { path: path.clone(), source })?;
                state.check_ports(home)?;
                Ok(state)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let state = Self::choose(LoopbackNet::choose(home.path())?).map_err(file)?;
                let text = serde_json::to_vec_pretty(&state).map_err(|error| file(error.into()))?;
                hangar_node::small_file::keep(&path, &text).map_err(file)?;
                Ok(state)
            }
            Err(error) => Err(file(error)),
        }
    }

    fn choose(network: LoopbackNet) -> std::io::Result<Self> {
        let at = network.plane();
        Ok(Self {
            network,
            api_port: free_port(at, ports::API_SERVER)?,
            etcd_port: free_port(at, ports::ETCD)?,
            etcd_peer_port: free_port(at, ports::ETCD_PEER)?,
            controller_manager_port: free_port(at, ports::CONTROLLER_MANAGER)?,
            scheduler_port: free_port(at, ports::SCHEDULER)?,
        })
    }

    fn check_ports(&self, home: &Home) -> Result<(), PlaneError> {
        let address = self.network.plane();
        let ports =
            [self.api_port, self.etcd_port, self.etcd_peer_port, self.controller_manager_port, self.scheduler_port];
        match ports.into_iter().find(|&port| TcpListener::bind((address, port)).is_err()) {
            Some(port) => Err(PlaneError::PortTaken { address, port, state_file: home.state_file() }),
            None => Ok(()),
        }
    }
}

/// The preferred port, or any that is free.
fn free_port(address: Ipv4Addr, preferred: u16) -> std::io::Result<u16> {
    let listener = TcpListener::bind((address, preferred)).or_else(|_| TcpListener::bind((address, 0)))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_taken_meanwhile_is_named_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let holder = TcpListener::bind((LoopbackNet::new(7).plane(), 0)).unwrap();
        let port = holder.local_addr().unwrap().port();
        let mut state = State::choose(LoopbackNet::new(7)).unwrap();
        state.etcd_port = port;
        std::fs::write(home.state_file(), serde_json::to_vec(&state).unwrap()).unwrap();
        let error = State::load_or_choose(&home).unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("state.json"), "{error}");
    }
}
