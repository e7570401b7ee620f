//! What happens in one world, drawn from a seed: what people do and when, and which troubles there are.
//!
//! Holds: a history is data; the same history and the same seed are the same run. So a run that fails can be tried again without some of its actions.

use std::time::Duration;

use hangar_simulation::chance::mix;

/// One thing that a person does to one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Scale(usize),
    /// Another kubelet version: every machine is replaced.
    ChangeVersion,
    /// Another machine template.
    ChangeTemplate,
    Pause,
    Resume,
    /// Somebody edits the scheduler's Deployment.
    EditDeployment,
    /// Somebody removes the label by which an OpenStackMachine is found.
    RemoveLabel,
    DeleteMachine,
    /// In the cloud, and its Machine with it, as an operator would who sees that it is broken.
    DeleteServer,
    DeletePort,
    DeleteSecurityGroup,
    /// If it is there; else it is applied again.
    DeleteOrApply,
}

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So long after the one before.
    After(Duration),
    /// As soon as an answer of the cloud to a create is on its way for a while, and to the cluster that it is about: in the middle of a pass.
    DuringCreate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    pub moment: Moment,
    pub cluster: usize,
    pub deed: Deed,
}

/// Sorts of trouble, each of which may be left out when a failing run is made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Troubles {
    pub management: bool,
    pub cloud: bool,
    pub tenants: bool,
    pub deaths: bool,
    pub twin: Twin,
}

/// A second process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    None,
    /// Whoever holds the Lease acts.
    Waiting,
    /// Both act at the same time: the Lease was lost, and one does not know.
    Acting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    pub seed: u64,
    pub clusters: usize,
    pub actions: Vec<Action>,
    pub troubles: Troubles,
}

/// Numbers from a seed, one after the other.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % end
    }
}

impl History {
    pub fn draw(seed: u64, clusters: usize) -> Self {
        let mut draw = Draw(mix(seed));
        let count = 3 + draw.below(8);
        let actions = (0..count).map(|_| action(&mut draw, clusters)).collect();
        let mut some = |of: u64| draw.below(of) != 0;
        let (management, cloud, tenants, deaths) = (some(4), some(4), some(4), some(3));
        let twin = match draw.below(8) {
            0 => Twin::Acting,
            1 | 2 => Twin::Waiting,
            _ => Twin::None,
        };
        let troubles = Troubles { management, cloud, tenants, deaths, twin };
        Self { seed, clusters, actions, troubles }
    }

    /// The same with less: without the second half, without each action, without each sort of trouble.
    pub fn shorter(&self) -> Vec<Self> {
        let mut all = vec![];
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            if other != *self {
                all.push(other);
            }
        };
        with(&|history| history.actions.truncate(history.actions.len() / 2));
        with(&|history| history.troubles.twin = Twin::None);
        let switches: [fn(&mut Troubles) -> &mut bool; 4] = [
            |troubles| &mut troubles.deaths,
            |troubles| &mut troubles.tenants,
            |troubles| &mut troubles.cloud,
            |troubles| &mut troubles.management,
        ];
        for switch in switches {
            with(&|history| *switch(&mut history.troubles) = false);
        }
        for number in 0..self.actions.len() {
            with(&|history| {
                history.actions.remove(number);
            });
        }
        all
    }
}

fn action(draw: &mut Draw, clusters: usize) -> Action {
    let moment = match draw.below(4) {
        0 => Moment::DuringCreate,
        1 => Moment::After(Duration::from_millis(draw.below(1_500))),
        2 => Moment::After(Duration::from_millis(draw.below(20_000))),
        _ => Moment::After(Duration::from_millis(draw.below(120_000))),
    };
    let deed = match draw.below(14) {
        // What has to reach a pass that has begun.
        ..6 if moment == Moment::DuringCreate => Deed::Pause,
        6..9 if moment == Moment::DuringCreate => Deed::DeleteMachine,
        9..14 if moment == Moment::DuringCreate => Deed::DeleteOrApply,
        0..3 => Deed::Scale(draw.below(5) as usize),
        3 => Deed::ChangeVersion,
        4 => Deed::ChangeTemplate,
        5 => Deed::Pause,
        6 => Deed::Resume,
        7 => Deed::EditDeployment,
        8 => Deed::RemoveLabel,
        9 => Deed::DeleteMachine,
        10 => Deed::DeleteServer,
        11 => Deed::DeletePort,
        12 => Deed::DeleteSecurityGroup,
        _ => Deed::DeleteOrApply,
    };
    Action { moment, cluster: draw.below(clusters as u64) as usize, deed }
}
