//! Which port impairs: the simplest that can do all that is asked for.

use anyhow::bail;
use fairpath_impair::Ready;

use super::{Choice, traits};
use crate::Via;

/// What the choice is by.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What was named, if anything was.
    pub via: Option<Via>,
    /// A second interface is named.
    pub peer: bool,
    /// What is no IP is impaired, too.
    pub all: bool,
    /// Bridge or router is said.
    pub has_mode: bool,
}

/// What directions ask for.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Loss is all.
    pub only_loss: bool,
    /// Something that leaves is impaired, and no peer is named by which it arrives.
    pub leaves: bool,
    /// Packets that arrive are duplicated.
    pub copies_in: bool,
}

/// The simplest back end that can do all that is asked for.
///
/// # Errors
/// Where the one that is named cannot do it.
pub fn choose(wish: Wish, directions: &[Ready]) -> anyhow::Result<Choice> {
    let asked = |name| directions.iter().any(|ready| ready.direction.name == name);
    let copies = |ready: &Ready| ready.direction.name == "ingress" && ready.copies;
    let needs = Needs {
        only_loss: directions.iter().all(|ready| ready.only_loss),
        leaves: asked("egress"),
        copies_in: directions.iter().any(copies),
    };
    by(wish, needs)
}

fn by(wish: Wish, needs: Needs) -> anyhow::Result<Choice> {
    let (via, reason) = match wish.via {
        None if needs.only_loss && !needs.leaves => (Via::Xdp, "loss alone, where packets arrive"),
        None if wish.peer => (Via::Afxdp, "between two interfaces, past the stack"),
        None if needs.only_loss => (
            Via::Nfqueue,
            "XDP does not receive packets at egress; with --peer, or --ingress only, it can impair",
        ),
        None => (Via::Nfqueue, "one interface, packets stay in the stack"),
        Some(via) => (via, "asked for"),
    };
    let Some(impairs) = &via.description().impairs else {
        bail!("impair via {}: it cannot impair", via.name());
    };
    if let Some(why) = (impairs.refuses)(wish, needs) {
        bail!("impair via {}: {why}", via.name());
    }
    if wish.all && !impairs.all {
        bail!(
            "impair via {}: only XDP loses what is no IP (--all); leave --all out, or ask for loss alone where packets arrive",
            via.name()
        );
    }
    if wish.has_mode && !impairs.modes {
        bail!(
            "impair via {}: only AF_XDP is a bridge or a router (--mode); leave --mode out, or use --via afxdp",
            via.name()
        );
    }
    Ok(Choice {
        reason: reason.to_owned(),
        ..traits(via)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish {
        via: None,
        peer: false,
        all: false,
        has_mode: false,
    };
    const NEEDS: Needs = Needs {
        only_loss: false,
        leaves: true,
        copies_in: false,
    };

    #[test]
    fn the_simplest_port_that_can_do_it_is_chosen() {
        let chosen = |wish, needs| by(wish, needs).map(|chosen| chosen.via).ok();
        let arriving = Needs {
            leaves: false,
            only_loss: true,
            ..NEEDS
        };
        let between = Wish { peer: true, ..WISH };
        let stays = Needs {
            leaves: false,
            ..NEEDS
        };
        assert_eq!(chosen(WISH, arriving), Some(Via::Xdp));
        assert_eq!(chosen(between, stays), Some(Via::Afxdp));
        assert_eq!(chosen(WISH, NEEDS), Some(Via::Nfqueue));
        let loss = Needs {
            only_loss: true,
            ..NEEDS
        };
        assert_eq!(chosen(WISH, loss), Some(Via::Nfqueue));
    }

    #[test]
    fn a_port_that_cannot_do_it_is_refused_with_the_remedy() {
        let refused = |via, needs| {
            let via = Some(via);
            by(Wish { via, ..WISH }, needs).unwrap_err().to_string()
        };
        assert!(refused(Via::Xdp, NEEDS).contains("only be lost"));
        let loss = Needs {
            only_loss: true,
            ..NEEDS
        };
        assert!(refused(Via::Xdp, loss).contains("--peer"));
        assert!(refused(Via::Afxdp, NEEDS).contains("--peer"));
        let copies = Needs {
            copies_in: true,
            ..NEEDS
        };
        assert!(refused(Via::Nfqueue, copies).contains("duplicated"));
        for via in [Via::Qdisc, Via::Kernel] {
            assert!(refused(via, NEEDS).contains("cannot impair"));
        }
    }

    #[test]
    fn what_a_port_would_leave_undone_in_silence_is_refused() {
        let needs = Needs {
            leaves: false,
            only_loss: true,
            ..NEEDS
        };
        let between = Wish { peer: true, ..WISH };
        let all = |via| {
            let all = true;
            by(
                Wish {
                    via,
                    all,
                    ..between
                },
                needs,
            )
        };
        let mode = |via| {
            let has_mode = true;
            by(
                Wish {
                    via,
                    has_mode,
                    ..between
                },
                needs,
            )
        };
        for via in [Via::Afxdp, Via::Nfqueue] {
            assert!(all(Some(via)).unwrap_err().to_string().contains("--all"));
        }
        for via in [None, Some(Via::Xdp), Some(Via::Nfqueue)] {
            assert!(mode(via).unwrap_err().to_string().contains("--mode"));
        }
        assert!(all(None).is_ok() && all(Some(Via::Xdp)).is_ok());
        assert!(mode(Some(Via::Afxdp)).is_ok());
    }
}
