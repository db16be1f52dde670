//! Which port impairs: the simplest that can do all that is asked for.

use anyhow::bail;

use super::args::{Args, Via};
use super::directions::Ready;

/// A port, and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Never [`Via::Auto`].
    pub via: Via,
    /// In words.
    pub reason: String,
}

/// What the choice is by.
#[derive(Clone, Copy, Debug)]
struct Wish {
    via: Via,
    peer: bool,
    only_loss: bool,
    /// Something that leaves is impaired, and no peer is named by which it arrives.
    leaves: bool,
    copies_in: bool,
    /// What is no IP, too.
    all: bool,
    /// Bridge or router is said.
    has_mode: bool,
}

/// Of what the arguments ask for.
///
/// # Errors
/// Where the port that is named cannot do it.
pub fn choose(args: &Args, directions: &[Ready]) -> anyhow::Result<Chosen> {
    let asked = |name| directions.iter().any(|ready| ready.direction.name == name);
    let copies = |ready: &Ready| ready.direction.name == "in" && ready.copies;
    by(Wish {
        via: args.via,
        peer: args.peer.is_some(),
        only_loss: directions.iter().all(|ready| ready.only_loss),
        leaves: asked("out"),
        copies_in: directions.iter().any(copies),
        all: args.all,
        has_mode: args.mode.is_some(),
    })
}

fn by(wish: Wish) -> anyhow::Result<Chosen> {
    let (via, reason) = match wish.via {
        Via::Auto if wish.only_loss && !wish.leaves => {
            (Via::Xdp, "loss alone, where packets arrive")
        }
        Via::Auto if wish.peer => (Via::Afxdp, "between two interfaces, past the stack"),
        Via::Auto if wish.only_loss => (
            Via::Nfqueue,
            "XDP does not see what leaves; name --peer, or impair --in alone, to have it by XDP",
        ),
        Via::Auto => (Via::Nfqueue, "one interface, packets stay in the stack"),
        via => (via, "asked for"),
    };
    match via {
        Via::Xdp if !wish.only_loss => bail!(
            "impair via xdp: packets can only be lost there; leave out delay, rate and the rest, or use --via afxdp or nfqueue"
        ),
        Via::Xdp if wish.leaves => bail!(
            "impair via xdp: it does not see what leaves an interface; name the interface by which it arrives as --peer, or impair --in alone"
        ),
        Via::Afxdp if !wish.peer => bail!(
            "impair via afxdp: packets go from one interface to another; name the other one (--peer)"
        ),
        Via::Nfqueue if wish.copies_in => bail!(
            "impair via nfqueue: what arrives cannot be duplicated, only what leaves; name --peer, or duplicate --out"
        ),
        Via::Afxdp | Via::Nfqueue if wish.all => bail!(
            "impair via {}: only XDP loses what is no IP (--all); leave --all out, or ask for loss alone where packets arrive",
            via.name()
        ),
        Via::Xdp | Via::Nfqueue if wish.has_mode => bail!(
            "impair via {}: only AF_XDP is a bridge or a router (--mode); leave --mode out, or use --via afxdp",
            via.name()
        ),
        _ => Ok(Chosen {
            via,
            reason: reason.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish {
        via: Via::Auto,
        peer: false,
        only_loss: false,
        leaves: true,
        copies_in: false,
        all: false,
        has_mode: false,
    };

    #[test]
    fn the_simplest_port_that_can_do_it_is_chosen() {
        let chosen = |wish| by(wish).map(|chosen| chosen.via).ok();
        let arriving = Wish {
            leaves: false,
            only_loss: true,
            ..WISH
        };
        let between = Wish {
            peer: true,
            leaves: false,
            ..WISH
        };
        assert_eq!(chosen(arriving), Some(Via::Xdp));
        assert_eq!(chosen(between), Some(Via::Afxdp));
        assert_eq!(chosen(WISH), Some(Via::Nfqueue));
        let loss = Wish {
            only_loss: true,
            ..WISH
        };
        assert_eq!(chosen(loss), Some(Via::Nfqueue));
    }

    #[test]
    fn a_port_that_cannot_do_it_is_refused_with_the_remedy() {
        let refused = |via, wish: Wish| by(Wish { via, ..wish }).unwrap_err().to_string();
        assert!(refused(Via::Xdp, WISH).contains("only be lost"));
        let loss = Wish {
            only_loss: true,
            ..WISH
        };
        assert!(refused(Via::Xdp, loss).contains("--peer"));
        assert!(refused(Via::Afxdp, WISH).contains("--peer"));
        let copies = Wish {
            copies_in: true,
            ..WISH
        };
        assert!(refused(Via::Nfqueue, copies).contains("duplicated"));
    }

    #[test]
    fn what_a_port_would_leave_undone_in_silence_is_refused() {
        let between = Wish {
            peer: true,
            leaves: false,
            only_loss: true,
            ..WISH
        };
        let all = |via| {
            by(Wish {
                via,
                all: true,
                ..between
            })
        };
        let mode = |via| {
            let has_mode = true;
            by(Wish {
                via,
                has_mode,
                ..between
            })
        };
        for via in [Via::Afxdp, Via::Nfqueue] {
            assert!(all(via).unwrap_err().to_string().contains("--all"));
        }
        for via in [Via::Auto, Via::Xdp, Via::Nfqueue] {
            assert!(mode(via).unwrap_err().to_string().contains("--mode"));
        }
        assert!(all(Via::Auto).is_ok() && all(Via::Xdp).is_ok());
        assert!(mode(Via::Afxdp).is_ok());
    }
}
