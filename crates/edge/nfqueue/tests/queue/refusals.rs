//! Refusals that name the missing thing.

use fairpath_nfqueue::{BindError, Config};
use fairpath_testbed::Need;

use crate::leaving::{as_example, was_example};
use crate::needs_queues;
use crate::scene::{DEADLINE, Scene};

#[test]
fn a_queue_of_another_socket_is_refused() {
    needs_queues!();
    let scene = Scene::new();
    let queue = scene.bind(&Config::new(3));
    let owner = queue.kernel_counts().unwrap().port;
    let error = scene.on_router(|| Config::new(3).bind().unwrap_err());
    assert!(
        matches!(&error, BindError::Taken { queue: 3, port, .. } if *port == owner),
        "{error:?}"
    );
    drop(queue);
    scene.bind(&Config::new(3));
}

#[test]
fn missing_capability_is_named() {
    const TEST: &str = "refusals::missing_capability_is_named";
    if was_example() {
        return;
    }
    needs_queues!("setpriv");
    fairpath_testbed::requires!(Need::Tool("setpriv"));
    let scene = Scene::new();
    let mut command = scene.net.router.command("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    as_example(&mut command, TEST, "0");
    let mut process = scene.net.router.spawn(command).unwrap();
    assert!(!process.wait(DEADLINE).unwrap().success());
    process.wait_stderr("NotPermitted", DEADLINE).unwrap();
}

#[test]
fn granted_receive_buffer_is_reported() {
    needs_queues!();
    let scene = Scene::new();
    let forced = scene.bind(&Config::new(0)).receive_buffer();
    assert!(
        forced.forced && forced.bytes >= forced.requested_bytes,
        "{forced:?}"
    );
}
