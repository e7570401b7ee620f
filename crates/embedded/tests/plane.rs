//! The plane for real: components from the store, started, used and stopped.

use hangar_embedded::{Home, Plane, PlaneOptions, Quiet, Store, StoreOptions};

#[tokio::test]
async fn a_plane_starts() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::open(directory.path().join("home")).unwrap();
    let _lock = home.lock().unwrap();
    let store = Store::new(StoreOptions::default());
    let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
    println!("{:?}", plane.processes());
    if std::env::var("HOLD").is_ok() { println!("{}", plane.kubeconfig().display()); tokio::signal::ctrl_c().await.unwrap(); }
    plane.stop().await;
}
