//! The back end of an impairment: the simplest that supports it.

use anyhow::bail;
use fairpath_impair::Ready;

use super::{Choice, traits};
use crate::Via;

/// The options that decide.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The requested back end.
    pub via: Option<Via>,
    /// There is a second interface.
    pub peer: bool,
    /// Also packets that are not IP are impaired.
    pub all: bool,
    /// --mode is given.
    pub has_mode: bool,
    /// --precise is given.
    pub precise: bool,
}

/// The needs of the directions.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Only loss.
    pub only_loss: bool,
    /// Packets are impaired at egress, without a peer.
    pub leaves: bool,
    /// Packets are duplicated at ingress.
    pub copies_in: bool,
}

/// The simplest back end that supports all directions.
///
/// # Errors
/// The requested one does not support them.
pub fn choose(wish: Wish, directions: &[Ready]) -> anyhow::Result<Choice> {
    let requested = |name| directions.iter().any(|ready| ready.direction.name == name);
    let copies = |ready: &Ready| ready.direction.name == "ingress" && ready.copies;
    let needs = Needs {
        only_loss: directions.iter().all(|ready| ready.only_loss),
        leaves: requested("egress"),
        copies_in: directions.iter().any(copies),
    };
    by(wish, needs)
}

fn by(wish: Wish, needs: Needs) -> anyhow::Result<Choice> {
    let (via, reason) = match wish.via {
        None if needs.only_loss && !needs.leaves => (Via::Xdp, "loss only, at ingress"),
        None if wish.peer => (Via::Afxdp, "between two interfaces, past the stack"),
        None if needs.only_loss => (
            Via::Nfqueue,
            "XDP does not receive packets at egress; with --peer, or --ingress only, it can impair",
        ),
        None => (Via::Nfqueue, "one interface, packets stay in the stack"),
        Some(via) => (via, "requested"),
    };
    let Some(impairs) = &via.description().impairs else {
        bail!("impair via {}: this back end cannot impair", via.name());
    };
    if let Some(why) = (impairs.refuses)(wish, needs) {
        bail!("impair via {}: {why}", via.name());
    }
    if wish.all && !impairs.all {
        bail!(
            "impair via {}: only XDP supports --all: remove --all, or configure loss only, at ingress",
            via.name()
        );
    }
    if wish.has_mode && !impairs.modes {
        bail!(
            "impair via {}: only AF_XDP supports --mode: remove --mode, or use --via afxdp",
            via.name()
        );
    }
    if wish.precise && via == Via::Xdp {
        bail!("impair via xdp: it delays no packet: remove --precise, or configure a delay");
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
        precise: false,
    };
    const NEEDS: Needs = Needs {
        only_loss: false,
        leaves: true,
        copies_in: false,
    };

    #[test]
    fn the_simplest_back_end_is_chosen() {
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
    fn precise_times_need_a_delay() {
        let precise = |via| Wish {
            via: Some(via),
            peer: true,
            precise: true,
            ..WISH
        };
        let loss = Needs {
            only_loss: true,
            leaves: false,
            ..NEEDS
        };
        let refused = by(precise(Via::Xdp), loss).unwrap_err().to_string();
        assert!(refused.contains("remove --precise"), "{refused}");
        assert_eq!(by(precise(Via::Afxdp), loss).unwrap().via, Via::Afxdp);
    }

    #[test]
    fn unsupported_back_ends_are_refused_with_a_remedy() {
        let refused = |via, needs| {
            let via = Some(via);
            by(Wish { via, ..WISH }, needs).unwrap_err().to_string()
        };
        assert!(refused(Via::Xdp, NEEDS).contains("supports loss only"));
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
    fn options_without_effect_are_refused() {
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
