//! A container waits for its program, as for a slow image: what happens meanwhile stands in events and in its waiting state.

use std::time::Instant;

use tokio::sync::watch;

use super::Pulling;
use super::container::ContainerRunner;
use super::status::RunState;

/// Why a container has no program.
pub(super) enum PullError {
    Stopped,
    Failed(String),
}

impl ContainerRunner {
    /// Returns when the program is at hand, or something else that may run in its place.
    pub(super) async fn pull(&self) -> Result<(), PullError> {
        let image = self.container.image.clone().unwrap_or_default();
        let (sender, mut news) = watch::channel(Pulling::default());
        let mut pull = self.node.images.pull(&image, sender);
        let (mut stop, mut step, began) = (self.stop.clone(), String::new(), Instant::now());
        loop {
            tokio::select! {
                done = &mut pull => {
                    if done.is_ok() && !step.is_empty() {
                        let note = format!("image {image} was fetched in {} s", began.elapsed().as_secs());
                        self.node.events.normal(&*self.pod, "Pulled", &note).await;
                    }
                    return done.map_err(PullError::Failed);
                }
                Ok(()) = news.changed() => {
                    let now = news.borrow_and_update().clone();
                    if now.step != step {
                        step.clone_from(&now.step);
                        self.node.events.normal(&*self.pod, "Pulling", &format!("image {image}: {step}")).await;
                    }
                    let message = Some(format!("pulling {image}: {}{}", now.step, now.progress));
                    self.note(|record| record.set_not_running(RunState::Waiting { reason: "ContainerCreating".into(), message }));
                }
                () = async { drop(stop.wait_for(Option::is_some).await) } => return Err(PullError::Stopped),
            }
        }
    }
}
